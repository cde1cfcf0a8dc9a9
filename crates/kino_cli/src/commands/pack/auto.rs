//! `kinograph pack --auto`: chooses the plan as `kinograph plan` does, then packs with it.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kino_advisor::{Limits, PlannerOptions, Workload};
use kino_dataset::{ByteSize, Plan};
use kino_import::ImportOptions;
use serde_json::json;

use crate::commands::plan::{Recording, Verify, bounds};
use crate::load_args::window;
use crate::output::note;

/// Decoded bytes of the sample.
const SAMPLE_BYTES: u64 = 256_000_000;

/// What a plan is chosen for; `kinograph plan` has more options.
#[derive(Debug, clap::Args)]
pub(super) struct AutoArgs {
    /// Choose the codecs first, as `kinograph plan` does, and write the plan to TARGET.plan.toml
    #[arg(long, requires = "step_ms", conflicts_with_all = ["plan", "quality", "lossless", "resume", "append", "dry_run", "suggest_mapping"])]
    pub(super) auto: bool,
    /// With --auto: duration of a training step, in milliseconds
    #[arg(long, value_name = "MS", requires = "auto")]
    step_ms: Option<f64>,
    /// With --auto: frames of a stream in a sample, as in `kinograph plan`
    #[arg(long, value_name = "STREAM=FROM:TO", value_parser = window, requires = "auto")]
    window: Vec<(String, Range<i32>)>,
    /// With --auto: samples per batch [default: 64]
    #[arg(long, value_name = "N", requires = "auto")]
    batch_size: Option<u32>,
    /// With --auto: the storage that the dataset will be read from, such as 200MB/s,8ms [default: that of TARGET]
    #[arg(long, value_name = "STORAGE", requires = "auto")]
    storage: Option<String>,
    /// With --auto: what a stream may lose, such as `obs/*_image=psnr(40)`. May be repeated [default: nothing]
    #[arg(long, value_name = "PATTERN=BOUND", requires = "auto")]
    bound: Vec<String>,
    /// With --auto: the most that the dataset may take
    #[arg(long, value_name = "BYTES", requires = "auto")]
    max_size: Option<ByteSize>,
}

impl AutoArgs {
    /// Chooses the plan, says why, and keeps it in a file.
    pub(super) fn choose(
        &self,
        source: &Path,
        target: &Path,
        import: &ImportOptions,
    ) -> Result<Plan> {
        let workload = Workload {
            windows: self.window.clone(),
            order: json!({"batch_size": self.batch_size.unwrap_or(64)}),
            ..Workload::default()
        };
        let options = PlannerOptions {
            step_s: self.step_ms.unwrap_or_default() / 1e3,
            storage: self.storage.as_deref().map(str::parse).transpose()?,
            bounds: bounds(&self.bound, None)?,
            limits: Limits {
                max_bytes: self.max_size.map(|size| size.bytes()),
                max_pack_s: None,
            },
            ..PlannerOptions::default()
        };
        let beside = target
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let recording = Recording {
            path: source,
            folder: beside.unwrap_or(Path::new(".")),
            sample_bytes: SAMPLE_BYTES,
            import: import.clone(),
        };
        let planned = recording.plan(&workload, &options, Verify::Nothing)?;
        planned.explanation().iter().for_each(|line| note(line));
        let mut file = target.as_os_str().to_owned();
        file.push(".plan.toml");
        let file = PathBuf::from(file);
        std::fs::write(&file, planned.to_toml())
            .with_context(|| format!("cannot write the plan to {}", file.display()))?;
        note(&format!(
            "wrote the plan to {}; to continue an interrupted pack, pass it with --plan and --resume",
            file.display()
        ));
        Ok(Plan::from_toml(&planned.to_toml())?)
    }
}
