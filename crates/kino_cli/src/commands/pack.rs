//! `kinograph pack`: a recording into a dataset.

use std::fs::{self, File};
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use kino_dataset::{CostRecord, Dataset, Plan, Start, StreamUsage, WriterOptions};
use kino_import::{Defect, FORMATS, ImportOptions, OnDefect, PackOptions, Packed, Source, Videos};
use serde_json::{Value, json};

use crate::Outcome;
use crate::output::{
    Align, Table, bytes, decode_us, frame_type, note, one_line, print, print_json, ratio, speed,
};
use crate::progress::Progress;

/// Pack a recording into a dataset.
///
/// The format is recognised from the content. All values and times are looked through before anything is written, and
/// a source with defects is refused with the list of them, unless --on-defect says otherwise. Nothing is visible in
/// TARGET until all is packed and checked; an interrupted pack continues with --resume.
///
/// Exit codes: 0 done, 1 failed, 2 wrong usage, 3 done, but something was left out (listed on stderr).
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The recording: a file or a folder
    source: PathBuf,
    /// The dataset's folder, by custom ending in `.kino`; with --suggest-mapping, the file to write the draft to
    #[arg(
        required = false,
        required_unless_present = "suggest_mapping",
        default_value_if("suggest_mapping", "true", "-")
    )]
    target: PathBuf,
    /// The source's format, instead of the one it is recognised as
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(FORMATS.iter().map(|format| format.name)))]
    format: Option<String>,
    /// A TOML file that says which part of the source is which stream (docs/import.md)
    #[arg(long, value_name = "FILE")]
    mapping: Option<PathBuf>,
    /// Write a draft of a mapping for SOURCE to TARGET, or to stdout, and pack nothing
    #[arg(long, conflicts_with_all = ["mapping", "append", "resume", "dry_run", "json"])]
    suggest_mapping: bool,
    /// Frames per second, instead of what the source says
    #[arg(long, value_name = "HZ")]
    rate: Option<f64>,
    /// A TOML file that names codec, bound and page size per stream
    #[arg(long, value_name = "FILE", conflicts_with_all = ["lossless", "quality"])]
    plan: Option<PathBuf>,
    /// Keep every bit (the default)
    #[arg(long, conflicts_with = "quality")]
    lossless: bool,
    /// Store pictures as JPEG of this quality, 1 to 100, and everything else lossless
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    quality: Option<u8>,
    /// Add the episodes to an existing dataset, as a new version
    #[arg(long, conflicts_with = "resume")]
    append: bool,
    /// Continue an interrupted pack of the same source with the same options
    #[arg(long)]
    resume: bool,
    /// What to do with defects of the source: refuse it, leave out the episodes that have one, or keep all that can be kept
    #[arg(long, value_name = "POLICY", default_value = "error", value_parser = clap::builder::PossibleValuesParser::new(OnDefect::NAMES))]
    on_defect: String,
    /// Follow links that lead out of the source, such as those of the Hugging Face cache; only for sources that you trust
    #[arg(long)]
    follow_links: bool,
    /// Show the plan and the defects, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Worker threads; all cores unless given
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Memory for frames on their way and what encoding them takes
    #[arg(long, value_name = "MB", default_value_t = 512)]
    memory: usize,
    /// Size at which a shard is closed
    #[arg(long, value_name = "MB", default_value_t = 128)]
    shard_size: u64,
    /// What the ids of the new episodes begin with, such as `lab2/`
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    prefix: String,
    /// What the order of the episodes on disk is drawn from
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, videos: Option<Arc<dyn Videos>>) -> Result<Outcome> {
    let plan = plan(args)?;
    let import = ImportOptions {
        format: args.format.clone(),
        rate_hz: args.rate,
        mapping: args.mapping.clone(),
        memory_bytes: Some((args.memory as u64).saturating_mul(1_000_000)),
        videos,
        follow_links: args.follow_links,
    };
    if args.suggest_mapping {
        return suggest_mapping(args, &import);
    }
    let source = kino_import::open(&args.source, &import)?;
    warn_of_unused_rules(&plan, &*source);
    if args.dry_run {
        return dry_run(args, &plan, &*source);
    }
    let options = PackOptions {
        writer: WriterOptions {
            settings: import.settings()?,
            ..writer_options(args, plan)
        },
        start: start(args),
        seed: args.seed,
        prefix: args.prefix.clone(),
        on_defect: args.on_defect.parse()?,
    };
    if let Some(version) = finished_version(args, &*source) {
        note(&format!(
            "{} holds every episode of the source already, as version {version}; nothing to do",
            args.target.display()
        ));
        return Ok(Outcome::Done);
    }
    let begin = Instant::now();
    let mut progress = Progress::new("pack");
    let packed = kino_import::pack(&*source, &args.target, options, &mut |at| {
        progress.update(
            at.bytes_done,
            at.bytes,
            &format!("{} of {} episodes", at.episodes_done, at.episodes),
        );
        ControlFlow::Continue(())
    });
    progress.finish();
    if let (true, Err(error)) = (args.json, &packed)
        && !error.defects().is_empty()
    {
        print_json(&json!({"defects": defects(error.defects())}))?;
    }
    let packed = packed?;
    let seconds = begin.elapsed().as_secs_f64();
    if args.json {
        print_json(&to_json(args, &packed, seconds))?;
    } else {
        let disk = Dataset::open(&args.target)?.manifest().total_bytes();
        print(&report(args, &packed, (seconds, disk)))?;
    }
    if packed.interrupted > 0 {
        note(&format!(
            "note: {} finished episodes of an interrupted writer wait in {}; `kinograph gc {}` shows them",
            packed.interrupted,
            args.target.join("staging").display(),
            args.target.display()
        ));
    }
    Ok(tell_defects(&packed.defects))
}

/// Writes a draft of a mapping, never over a file that is there.
fn suggest_mapping(args: &Args, import: &ImportOptions) -> Result<Outcome> {
    let draft = kino_import::suggest_mapping(&args.source, import)?;
    if args.target == Path::new("-") {
        print(&draft)?;
        return Ok(Outcome::Done);
    }
    let target = args.target.display();
    let file = File::create_new(&args.target);
    let written = file.and_then(|mut file| file.write_all(draft.as_bytes()));
    written.with_context(|| format!("cannot write the draft to {target}; choose another name"))?;
    note(&format!(
        "wrote a draft of a mapping to {target}; check it, then pass it with --mapping"
    ));
    Ok(Outcome::Done)
}

fn plan(args: &Args) -> Result<Plan> {
    match (&args.plan, args.quality) {
        (Some(path), _) => {
            let text = fs::read_to_string(path)
                .with_context(|| format!("cannot read plan {}", path.display()))?;
            Plan::from_toml(&text).with_context(|| format!("plan {}", path.display()))
        }
        (None, Some(quality)) => Ok(Plan::quality(quality)),
        (None, None) => Ok(Plan::lossless()),
    }
}

fn start(args: &Args) -> Start {
    match (args.append, args.resume) {
        (true, _) => Start::Append,
        (_, true) => Start::Resume,
        _ => Start::New,
    }
}

fn writer_options(args: &Args, plan: Plan) -> WriterOptions {
    WriterOptions {
        plan,
        threads: args.threads,
        memory_bytes: args.memory.saturating_mul(1_000_000),
        shard_bytes: args.shard_size.saturating_mul(1_000_000),
        ..WriterOptions::default()
    }
}

/// The version that a resumed pack would only repeat.
fn finished_version(args: &Args, source: &dyn Source) -> Option<u64> {
    let dataset = Dataset::open(&args.target).ok().filter(|_| args.resume)?;
    let is_there = |id: &str| {
        dataset
            .table()
            .find(&format!("{}{id}", args.prefix))
            .is_some()
    };
    let all = source
        .episodes()
        .iter()
        .all(|episode| is_there(&episode.id));
    all.then(|| dataset.manifest().version)
}

/// A rule that matches nothing is most likely misspelt.
fn warn_of_unused_rules(plan: &Plan, source: &dyn Source) {
    let streams = source
        .episodes()
        .iter()
        .flat_map(|episode| &episode.streams);
    for rule in plan.unused_rules(
        streams
            .clone()
            .map(|stream| (stream.name.as_str(), stream.kind)),
    ) {
        let pattern = rule.pattern.as_deref().unwrap_or("*");
        let codec = rule.codec.as_deref().unwrap_or("no codec named");
        note(&format!(
            "note: the plan's rule for `{pattern}` ({codec}) matches no stream"
        ));
    }
    for event in plan.unused_events(streams.map(|stream| stream.name.as_str())) {
        note(&format!(
            "note: the plan's event `{}` is looked for in `{}`, which matches no stream",
            event.name, event.stream
        ));
    }
}

/// Shows what the plan would do with every stream.
fn dry_run(args: &Args, plan: &Plan, source: &dyn Source) -> Result<Outcome> {
    let Some(first) = source.episodes().first() else {
        bail!("{} has no episodes", args.source.display())
    };
    let mut table = Table::new(&[
        ("stream", Align::Left),
        ("kind", Align::Left),
        ("type", Align::Left),
        ("codec", Align::Left),
        ("bound", Align::Left),
        ("decode µs", Align::Right),
    ]);
    let costs = CostRecord::load();
    let mut streams = Vec::new();
    for stream in &first.streams {
        let arrival = if stream.carried {
            kino_dataset::Arrival::Jpeg
        } else {
            kino_dataset::Arrival::Values
        };
        let choice = plan.choose(&stream.name, stream.kind, &stream.frame, arrival)?;
        let codec = choice.codec.spec().to_string();
        table.row(vec![
            stream.name.clone(),
            stream.kind.name().to_owned(),
            stream.frame.to_string(),
            codec.clone(),
            choice.codec.bound().to_string(),
            decode_us(&costs, choice.codec.spec(), &stream.frame),
        ]);
        let cost = costs.cost(choice.codec.spec(), &stream.frame);
        streams.push(json!({
            "name": stream.name, "kind": stream.kind.name(), "frame": stream.frame.to_string(), "codec": codec,
            "bound": choice.codec.bound().to_string(), "decode_ns": cost.map(|cost| cost.decode_ns),
        }));
    }
    let format = source.describe().format;
    let episodes = source.episodes().len();
    let found = kino_import::survey(source, args.threads)?;
    if args.json {
        print_json(
            &json!({"format": format, "episodes": episodes, "streams": streams, "defects": defects(&found)}),
        )?;
    } else {
        let head = format!(
            "{} ({format}): {episodes} episodes; streams of `{}`:\n",
            args.source.display(),
            one_line(&first.id)
        );
        let hint = if costs.costs().is_empty() {
            "What decoding costs on this machine is not known yet: run `kinograph bench codecs`.\n"
        } else {
            ""
        };
        print(&format!(
            "{head}\n{}\n{hint}Nothing was written.\n",
            table.render()
        ))?;
    }
    Ok(tell_defects(&found))
}

/// Lists what is wrong with the source on stderr.
fn tell_defects(defects: &[Defect]) -> Outcome {
    for defect in defects {
        note(&defect.to_string());
    }
    if defects.iter().any(Defect::is_lost) {
        Outcome::Lost
    } else {
        Outcome::Done
    }
}

fn defects(defects: &[Defect]) -> Vec<Value> {
    defects.iter().map(Defect::to_json).collect()
}

fn report(args: &Args, packed: &Packed, (seconds, disk): (f64, u64)) -> String {
    let mut table = Table::new(&[
        ("stream", Align::Left),
        ("type", Align::Left),
        ("codec", Align::Left),
        ("before", Align::Right),
        ("after", Align::Right),
        ("ratio", Align::Right),
        ("encode MB/s", Align::Right),
        ("decode MB/s", Align::Right),
        ("error", Align::Right),
    ]);
    let (mut raw, mut stored) = (0, 0);
    for stream in &packed.committed.streams {
        raw += stream.raw_bytes;
        stored += stream.bytes;
        table.row(vec![
            stream.schema.name.clone(),
            frame_type(&stream.schema.dtype, &stream.schema.shape),
            stream.schema.codec.clone(),
            bytes(stream.raw_bytes),
            bytes(stream.bytes),
            ratio(stream.raw_bytes, stream.bytes),
            speed(stream.coded_bytes(), stream.encode_time.as_secs_f64()),
            speed(stream.coded_bytes(), stream.decode_time.as_secs_f64()),
            error(stream),
        ]);
    }
    let Packed {
        committed,
        resumed,
        shifts,
        ..
    } = packed;
    let mut text = table.render();
    text.push_str(&format!(
        "\n{}: version {} with {} new episodes, {} → {} of pages ({}), {seconds:.2} s, {} MB/s; {} in all\n",
        args.target.display(),
        committed.version,
        committed.episodes,
        bytes(raw),
        bytes(stored),
        ratio(raw, stored),
        speed(raw, seconds),
        bytes(disk),
    ));
    if *resumed > 0 {
        text.push_str(&format!(
            "{resumed} of them were finished by the pack that was interrupted\n"
        ));
    }
    if *shifts > 0 {
        text.push_str(&format!(
            "{shifts} next_obs streams are stored once: they are their obs one step later\n"
        ));
    }
    text
}

/// `lossless`, the PSNR of pictures, or the largest error of numbers.
fn error(stream: &StreamUsage) -> String {
    match stream.psnr_db() {
        Some(psnr) => format!("{psnr:.1} dB"),
        None if stream.max_abs_error > 0.0 => format!("{:.3e}", stream.max_abs_error),
        None if stream.schema.codec == "jpeg:carry" => "as it came".to_owned(),
        None => "lossless".to_owned(),
    }
}

fn to_json(args: &Args, packed: &Packed, seconds: f64) -> Value {
    let streams = packed.committed.streams.iter().map(|stream| {
        json!({
            "name": stream.schema.name,
            "kind": stream.schema.kind.name(),
            "dtype": stream.schema.dtype,
            "shape": stream.schema.shape,
            "codec": stream.schema.codec,
            "episodes": stream.episodes,
            "frames": stream.frames,
            "raw_bytes": stream.raw_bytes,
            "bytes": stream.bytes,
            "coded_bytes": stream.coded_bytes(),
            "encode_s": stream.encode_time.as_secs_f64(),
            "decode_s": stream.decode_time.as_secs_f64(),
            "max_abs_error": stream.max_abs_error,
            "psnr_db": stream.psnr_db(),
        })
    });
    json!({
        "dataset": args.target.display().to_string(),
        "version": packed.committed.version,
        "id": packed.committed.id,
        "episodes": packed.committed.episodes,
        "resumed": packed.resumed,
        "shifts": packed.shifts,
        "seconds": seconds,
        "streams": streams.collect::<Vec<_>>(),
        "defects": defects(&packed.defects),
    })
}
