//! `kinograph probe`: what would a policy lose if its streams were stored like this?

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use kino_advisor::{Candidate, Change, ProbeHost, ProbeOptions, Probed, probe};
use kino_dataset::{ByteSize, Dataset, Fit, Part, Plan, Size};
use kino_import::{SampleOptions, Videos, pack_sample};

use super::plan::sample_folder;
use crate::Outcome;
use crate::open_args::RootArg;
use crate::output::{note, print, print_json};
use crate::planner_args::rule;
use crate::probe_args::ProbeArgs;
use crate::progress::watched;
use crate::source_args::PackedSourceArgs;
use crate::writing::read_plan;

/// Measure what a policy would lose if its streams were stored like this.
///
/// A regressor learns actions from the frames of most episodes and predicts those of the others, from raw frames and from
/// compressed ones. It says harm, no harm above a limit, or that it cannot tell, because it predicts too little or would not
/// even see a strong blur; never that nothing is lost. Each --codec, --plan and --against is a candidate of its own. A
/// recording that is not packed yet is sampled: a few episodes are packed into --folder, and removed afterwards.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("candidates").args(["codec", "plan", "against"]).required(true).multiple(true))]
pub(crate) struct Args {
    /// The recording or the dataset
    source: PathBuf,
    #[command(flatten)]
    source_options: PackedSourceArgs,
    #[command(flatten)]
    root: RootArg,
    /// A codec or a bound for the streams that match a pattern: `obs/*_image=jpeg:q=75`, `img=psnr(38)`. May be repeated
    #[arg(long, value_name = "PATTERN=CODEC")]
    codec: Vec<String>,
    /// A plan. May be repeated
    #[arg(long, value_name = "FILE")]
    plan: Vec<PathBuf>,
    /// A dataset with the same episodes, stored in another way. May be repeated
    #[arg(long, value_name = "DATASET")]
    against: Vec<PathBuf>,
    #[command(flatten)]
    probe: ProbeArgs,
    /// How long the probe may take
    #[arg(long, value_name = "S", default_value_t = 180.0)]
    seconds: f64,
    /// Resize images to the height and width that the policy sees, such as 224x224
    #[arg(long, value_name = "HxW", value_parser = size)]
    image_size: Option<Size>,
    /// Crop images in the centre, after resizing
    #[arg(long, value_name = "HxW", value_parser = size)]
    image_crop: Option<Size>,
    /// Seed of the random features and of the choice of frames
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Where to pack the sample of a recording
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Decoded size of the sample of a recording
    #[arg(long, value_name = "BYTES", default_value = "1GB")]
    sample: ByteSize,
    /// Write an HTML report with plots to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Reports progress on stderr.
struct Shown;

impl ProbeHost for Shown {
    fn begins(&mut self, what: &str) {
        note(&format!("probing: {what}"));
    }
}

pub(crate) fn run(args: &Args, videos: Option<Arc<dyn Videos>>) -> Result<Outcome> {
    let candidates = candidates(args)?;
    let options = ProbeOptions {
        fit: Fit {
            size: args.image_size,
            centre: args.image_crop,
            ..Fit::default()
        },
        seed: args.seed,
        ..args.probe.options(args.seconds)?
    };
    let probed = if Dataset::is_at(&args.source) {
        let source = args.source.display();
        if let Some(option) = args.source_options.of_recordings() {
            bail!("{option} is for recordings, and {source} is a dataset; remove it");
        }
        if args.source_options.part() != Part::default() {
            bail!(
                "--streams, --exclude and --episodes are for recordings, and {source} is a dataset; choose streams with --input \
                and --target, and episodes with `kinograph repack {source} part.kino --episodes 0-9`"
            );
        }
        let dataset = args.root.open(&args.source, None)?;
        probe(&dataset, &candidates, &options, &mut Shown)?
    } else {
        if args.root.root.is_some() {
            bail!("--root is where the files of a linked dataset are; a recording has none");
        }
        let import = args.source_options.import(None, videos);
        let folder = sample_folder(&args.folder)?;
        let target = folder.path().join("sample.kino");
        note("packing a sample");
        let sample = SampleOptions {
            max_bytes: args.sample.bytes(),
            requested: args.probe.requested(),
            plan: Plan::lossless(),
        };
        watched("sample", |report| {
            pack_sample(&args.source, &import, &target, &sample, report)
        })?;
        probe(&Dataset::open(&target)?, &candidates, &options, &mut Shown)?
    };
    show(args, &probed)?;
    Ok(Outcome::Done)
}

fn candidates(args: &Args) -> Result<Vec<Candidate>> {
    let mut found = Vec::new();
    for text in &args.codec {
        let plan = plan_of(text).with_context(|| format!("--codec {text}"))?;
        found.push(Candidate {
            name: text.clone(),
            change: Change::Plan(plan),
        });
    }
    for path in &args.plan {
        found.push(Candidate {
            name: path.display().to_string(),
            change: Change::Plan(read_plan(path)?),
        });
    }
    for path in &args.against {
        found.push(Candidate {
            name: path.display().to_string(),
            change: Change::Stored(Dataset::open(path)?),
        });
    }
    Ok(found)
}

/// A pattern and a codec or bound, as a plan.
fn plan_of(text: &str) -> Result<Plan> {
    let (pattern, what) = text
        .split_once('=')
        .context("expected PATTERN=CODEC, such as `obs/*_image=jpeg:q=75`")?;
    let is_bound = what.trim() == "lossless" || what.trim_end().ends_with(')');
    let key = if is_bound { "bound" } else { "codec" };
    Ok(Plan::from_toml(&rule(pattern, key, what))?)
}

fn size(text: &str) -> Result<Size, String> {
    let sides = text.split_once('x').and_then(|(height, width)| {
        let (height, width) = (height.parse().ok()?, width.parse().ok()?);
        Some(Size { height, width })
    });
    sides.ok_or_else(|| format!("`{text}` is not a height and a width such as 224x224"))
}

fn show(args: &Args, probed: &Probed) -> Result<()> {
    if let Some(path) = &args.html {
        std::fs::write(path, probed.to_html())
            .with_context(|| format!("cannot write {}", path.display()))?;
        note(&format!("wrote the HTML report to {}", path.display()));
    }
    if args.json {
        print_json(&serde_json::to_value(probed)?)
    } else {
        print(probed.to_string().trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_codecs_are_read_as_they_are_written() {
        assert_eq!(size("480x640").unwrap().width, 640);
        assert!(size("480").unwrap_err().contains("224x224"));
        assert_eq!(plan_of("img=jpeg:q=75,sub=420").unwrap().rules.len(), 1);
        assert!(plan_of("img=psnr(38)").unwrap().rules[0].bound.is_some());
        assert!(
            plan_of("img")
                .unwrap_err()
                .to_string()
                .contains("PATTERN=CODEC")
        );
    }
}
