//! `kinograph probe`: what would a policy lose if its streams were stored like this?

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use kino_advisor::{Candidate, Change, Chosen, ProbeHost, ProbeOptions, Probed, probe};
use kino_dataset::{ByteSize, Dataset, Fit, Part, Plan, Size};
use kino_import::{SampleOptions, Videos, pack_sample};

use super::plan::sample_folder;
use crate::Outcome;
use crate::open_args::RootArg;
use crate::output::{note, print, print_json};
use crate::planner_args::rule;
use crate::progress::watched;
use crate::source_args::PackedSourceArgs;

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
    /// What a policy sees: a stream, or some elements of it, such as `state[0,1]`. May be repeated [default: all images and
    /// vectors but the targets]
    #[arg(long, value_name = "STREAM", value_parser = chosen)]
    input: Vec<Chosen>,
    /// What it has to predict, in the same form [default: the actions, and streams named after simulator state]
    #[arg(long, value_name = "STREAM", value_parser = chosen)]
    target: Vec<Chosen>,
    /// Frames of an action chunk
    #[arg(long, value_name = "N", default_value_t = 16)]
    chunk: usize,
    /// Resize images to the height and width that the policy sees, such as 224x224
    #[arg(long, value_name = "HxW", value_parser = size)]
    image_size: Option<Size>,
    /// Crop images in the centre, after resizing
    #[arg(long, value_name = "HxW", value_parser = size)]
    image_crop: Option<Size>,
    /// How long it may take, in seconds
    #[arg(long, value_name = "S", default_value_t = 180.0)]
    budget: f64,
    /// Random features of all images together
    #[arg(long, value_name = "N", default_value_t = 1024)]
    features: usize,
    /// Sets of random features
    #[arg(long, value_name = "N", default_value_t = 3)]
    seeds: usize,
    /// Parts of the episodes, each of which is held out once
    #[arg(long, value_name = "N", default_value_t = 10)]
    folds: usize,
    /// The fraction by which the error must be below that of simpler predictors before a verdict is given
    #[arg(long, value_name = "FRACTION", default_value_t = 0.02)]
    margin: f64,
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
        inputs: args.input.clone(),
        targets: args.target.clone(),
        chunk: args.chunk,
        fit: Fit {
            size: args.image_size,
            centre: args.image_crop,
            ..Fit::default()
        },
        features: args.features,
        seeds: args.seeds,
        folds: args.folds,
        budget_s: args.budget,
        margin: args.margin,
        seed: args.seed,
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
            requested: requested(args),
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

/// The streams that every sampled episode needs; none are all.
fn requested(args: &Args) -> Vec<String> {
    if args.input.is_empty() || args.target.is_empty() {
        return Vec::new();
    }
    let chosen = args.input.iter().chain(&args.target);
    chosen.map(|one| one.stream.clone()).collect()
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
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let plan = Plan::from_toml(&text).with_context(|| path.display().to_string())?;
        found.push(Candidate {
            name: path.display().to_string(),
            change: Change::Plan(plan),
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

/// A stream, or `stream[0,1]`.
fn chosen(text: &str) -> Result<Chosen, String> {
    let wrong = || format!("`{text}` is not a stream, nor elements of one such as `state[0,1]`");
    let Some((stream, rest)) = text.split_once('[') else {
        return Ok(Chosen {
            stream: text.to_owned(),
            elements: None,
        });
    };
    let inside = rest.strip_suffix(']').ok_or_else(wrong)?;
    let elements = inside.split(',').map(|one| one.trim().parse());
    let elements = elements
        .collect::<Result<Vec<usize>, _>>()
        .map_err(|_| wrong())?;
    Ok(Chosen {
        stream: stream.to_owned(),
        elements: Some(elements),
    })
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
    fn streams_sizes_and_codecs_are_read_as_they_are_written() {
        let elements = chosen("obs/state[0, 2]").unwrap();
        assert_eq!(elements.stream, "obs/state");
        assert_eq!(elements.elements, Some(vec![0, 2]));
        assert_eq!(chosen("img").unwrap().elements, None);
        assert!(chosen("img[0").is_err() && chosen("img[a]").is_err());
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
