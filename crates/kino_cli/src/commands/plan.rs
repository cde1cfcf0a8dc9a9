//! `kinograph plan`: which codec each stream should have, for this data, this storage, this machine and this model.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kino_advisor::{Host, Limits, Measured, Planned, PlannerOptions, Whole, Workload, choose_plan};
use kino_dataset::{
    ByteSize, Dataset, GenerationLoss, Part, Plan, Repack, RepackOptions, SlowStorage, Start,
    WriterOptions, sample_episodes,
};
use kino_import::{ImportOptions, Videos, pack_sample};
use kino_loader::Batch;

use crate::Outcome;
use crate::load_args::WorkloadArgs;
use crate::open_args::RootArg;
use crate::output::{note, print, print_json};

/// Choose the codec of every stream: measure this data, storage and machine, and predict how busy the GPU will be.
///
/// Measures candidate codecs on a sample of every stream, the loader on that sample, and the storage. From these it
/// predicts for every candidate plan the compute ratio, the bytes, the cores and the time of an epoch, and chooses the
/// plan with the highest compute ratio inside the limits; of equals, the smallest. Nothing is lost unless --bound or
/// --quality allows it, and images keep their size unless --allow-resize is given. A recording that is not packed yet is sampled: a few episodes are packed into --folder, and
/// removed afterwards.
///
/// Exit codes: 0 done, 4 no plan keeps the limits, 1 failed, 2 wrong usage.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The recording or the dataset
    source: PathBuf,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    root: RootArg,
    /// Duration of a training step, in milliseconds
    #[arg(long, value_name = "MS", required_unless_present = "report")]
    step_ms: Option<f64>,
    /// Or the JSON of a past run's report (`report.to_json()`), which has the duration of a step
    #[arg(long, value_name = "FILE", conflicts_with = "step_ms")]
    report: Option<PathBuf>,
    /// The storage that the dataset will be read from, if it is not this one: bandwidth and latency, such as 200MB/s,8ms
    #[arg(long, value_name = "STORAGE")]
    storage: Option<String>,
    /// Training processes on the host, one per GPU
    #[arg(long, value_name = "N", default_value_t = 1)]
    ranks: usize,
    /// Cores of the training host [default: those of this machine]
    #[arg(long, value_name = "N")]
    cores: Option<usize>,
    /// Memory of the training host [default: that of this machine]
    #[arg(long, value_name = "BYTES")]
    host_memory: Option<ByteSize>,
    /// What a stream may lose: a pattern and a bound, such as `obs/*_image=psnr(40)` or `**=lossless`. May be repeated
    #[arg(long, value_name = "PATTERN=BOUND")]
    bound: Vec<String>,
    /// Also consider JPEG of this quality, 1 to 100, for images without a bound
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    quality: Option<u8>,
    /// Also consider a foreign codec, such as webp-80: every reader of the dataset needs it too. May be repeated
    #[arg(long, value_name = "NAME")]
    foreign: Vec<String>,
    /// Also consider images stored in the size that --image-size resizes them to: nothing else can be made of them then
    #[arg(long)]
    allow_resize: bool,
    /// The most that the dataset may take
    #[arg(long, value_name = "BYTES")]
    max_size: Option<ByteSize>,
    /// The longest that packing may take on this machine, such as 2h
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    max_pack_time: Option<Duration>,
    /// Hours of training, to print how many epochs they buy
    #[arg(long, value_name = "H")]
    hours: Option<f64>,
    /// Price of a GPU hour, to print what waiting costs
    #[arg(long, value_name = "PRICE")]
    gpu_price: Option<f64>,
    /// Where to pack the sample of a recording: a folder on the storage that the dataset will be on
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Decoded size of the sample of a recording
    #[arg(long, value_name = "BYTES", default_value = "256MB")]
    sample: ByteSize,
    /// How long each run of the loader is measured, in seconds
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,
    /// Pack a sample with the chosen plan, load it in a loop of emulated steps, and print prediction and measurement
    #[arg(long)]
    verify: bool,
    /// Write the plan to this file, for `pack --plan`
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write an HTML report with plots to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Reports progress on stderr.
struct Shown;

impl Host for Shown {
    fn step(&mut self, batch: Batch) -> kino_advisor::Result<()> {
        drop(batch);
        Ok(())
    }

    fn begins(&mut self, what: &str) {
        note(&format!("measuring {what}"));
    }
}

pub(crate) fn run(args: &Args, videos: Option<Arc<dyn Videos>>) -> Result<Outcome> {
    let options = options(args)?;
    let workload = args.workload.read()?;
    let planned = if Dataset::is_at(&args.source) {
        let dataset = args.root.open(&args.source, None)?;
        plan_dataset(args, &workload, &options, &dataset)?
    } else {
        if args.root.root.is_some() {
            bail!("--root is where the files of a linked dataset are; a recording has none");
        }
        let recording = Recording {
            path: &args.source,
            folder: &args.folder,
            sample_bytes: args.sample.bytes(),
            import: ImportOptions {
                videos,
                ..ImportOptions::default()
            },
        };
        let verify = if args.verify {
            Verify::Chosen
        } else {
            Verify::Nothing
        };
        recording.plan(&workload, &options, verify)?
    };
    show(args, &planned)?;
    Ok(if planned.is_within_limits {
        Outcome::Done
    } else {
        Outcome::Missed
    })
}

/// Measures a dataset as it is; to verify the choice, a sample of it is packed again.
fn plan_dataset(
    args: &Args,
    workload: &Workload,
    options: &PlannerOptions,
    dataset: &Dataset,
) -> Result<Planned> {
    let subject = workload.subject(dataset)?;
    let mut planned = choose_plan(&subject, &Whole::of(dataset), options, &mut Shown)?;
    if !args.verify {
        return Ok(planned);
    }
    let folder = sample_folder(&args.folder)?;
    let target = folder.path().join("planned.kino");
    note("packing a sample with the chosen plan");
    let repack = RepackOptions {
        writer: WriterOptions {
            plan: Plan::from_toml(&planned.to_toml())?,
            ..WriterOptions::default()
        },
        part: Part {
            episodes: sample_ids(dataset, args.sample.bytes())?,
            ..Part::default()
        },
        generation_loss: GenerationLoss::Allow,
    };
    let mut go_on = |_| ControlFlow::Continue(());
    Repack::new(dataset, repack)?.run(&target, Start::New, &mut go_on)?;
    let subject = workload.subject(&Dataset::open(&target)?)?;
    let verified = planned.verify(planned.chosen, &subject, &mut Shown)?;
    planned.verified.push(verified);
    Ok(planned)
}

/// Ids of a sample of episodes, of about so many decoded bytes.
fn sample_ids(dataset: &Dataset, max_bytes: u64) -> Result<Vec<String>> {
    let rows = dataset.table().rows()?;
    let bytes = rows.iter().map(|row| row.raw_bytes).sum();
    let chosen = sample_episodes(rows.len(), bytes, max_bytes);
    Ok(chosen.map(|row| rows[row].id.clone()).collect())
}

/// A folder on the storage that the dataset will be on, which is removed afterwards.
pub(super) fn sample_folder(folder: &Path) -> Result<tempfile::TempDir> {
    let made = tempfile::Builder::new()
        .prefix(".kinograph-plan-")
        .tempdir_in(folder);
    made.with_context(|| format!("cannot write a sample to {}", folder.display()))
}

/// A recording that is not packed yet.
pub(super) struct Recording<'a> {
    pub(super) path: &'a Path,
    /// Where its sample is packed; removed afterwards.
    pub(super) folder: &'a Path,
    /// Decoded bytes of the sample.
    pub(super) sample_bytes: u64,
    pub(super) import: ImportOptions,
}

/// Whether to measure what was predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verify {
    Nothing,
    /// The chosen plan.
    Chosen,
}

impl Recording<'_> {
    /// Measures a sample, and chooses a plan.
    pub(super) fn plan(
        &self,
        workload: &Workload,
        options: &PlannerOptions,
        verify: Verify,
    ) -> Result<Planned> {
        let folder = sample_folder(self.folder)?;
        let pack = |name: &str, plan: Plan| {
            note(&format!("packing a sample with {name}"));
            let target = folder.path().join(name);
            let sampled = pack_sample(self.path, &self.import, &target, self.sample_bytes, plan)?;
            anyhow::Ok((workload.subject(&Dataset::open(&target)?)?, sampled))
        };
        let (subject, sampled) = pack("default codecs", Plan::lossless())?;
        let whole = Whole {
            name: self.path.display().to_string(),
            is_packed: false,
            source_bytes: sampled.source_bytes,
            episodes: sampled.episodes,
            frames: sampled.frames,
        };
        let mut planned = choose_plan(&subject, &whole, options, &mut Shown)?;
        if verify == Verify::Chosen {
            let (subject, _) = pack("the chosen plan", Plan::from_toml(&planned.to_toml())?)?;
            let verified = planned.verify(planned.chosen, &subject, &mut Shown)?;
            planned.verified.push(verified);
        }
        Ok(planned)
    }
}

fn options(args: &Args) -> Result<PlannerOptions> {
    let storage = args.storage.as_deref().map(str::parse::<SlowStorage>);
    let defaults = PlannerOptions::default();
    Ok(PlannerOptions {
        step_s: step_s(args)?,
        ranks: args.ranks,
        cores: args.cores.unwrap_or(defaults.cores),
        memory_bytes: args
            .host_memory
            .map_or(defaults.memory_bytes, |size| size.bytes()),
        storage: storage.transpose()?,
        bounds: bounds(&args.bound, args.quality)?,
        foreign: args.foreign.clone(),
        allow_resize: args.allow_resize,
        limits: Limits {
            max_bytes: args.max_size.map(|size| size.bytes()),
            max_pack_s: args.max_pack_time.map(|time| time.as_secs_f64()),
        },
        seconds: args.seconds,
        gpu_price: args.gpu_price,
        hours: args.hours,
        ..defaults
    })
}

fn step_s(args: &Args) -> Result<f64> {
    let Some(path) = &args.report else {
        return Ok(args.step_ms.unwrap_or_default() / 1e3);
    };
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let report: Measured = serde_json::from_str(&text)
        .with_context(|| format!("{} is not a report in JSON", path.display()))?;
    report.step_s().with_context(|| {
        format!(
            "{} has no step time; write it with `report.to_json()` after a few training steps",
            path.display()
        )
    })
}

/// The bounds as a plan: what a stream may lose.
pub(super) fn bounds(given: &[String], quality: Option<u8>) -> Result<Plan> {
    let mut toml = String::new();
    for text in given {
        let (pattern, bound) = text
            .rsplit_once('=')
            .with_context(|| format!("cannot parse --bound {text}: expected PATTERN=BOUND, such as `obs/*_image=psnr(40)`"))?;
        let quoted = |text: &str| serde_json::Value::from(text.trim()).to_string();
        toml += &format!(
            "[[stream]]\nmatch = {}\nbound = {}\n",
            quoted(pattern),
            quoted(bound)
        );
    }
    let mut plan = Plan::from_toml(&toml).context("--bound")?;
    plan.quality = quality;
    Ok(plan)
}

fn show(args: &Args, planned: &Planned) -> Result<()> {
    let write = |path: &PathBuf, text: String, what: &str| {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        note(&format!("wrote {what} to {}", path.display()));
        anyhow::Ok(())
    };
    if let Some(path) = &args.html {
        write(path, planned.to_html(), "the HTML report")?;
    }
    if let Some(path) = &args.output {
        write(path, planned.to_toml(), "the plan")?;
    }
    if args.json {
        print_json(&serde_json::to_value(planned)?)
    } else {
        print(&planned.to_string())
    }
}
