//! `kinograph link`: a dataset whose camera images stay in the recording's own files.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use kino_dataset::{ByteSize, Dataset, Start, WriterOptions, check_local};
use kino_import::{
    Defect, FORMATS, ImportError, ImportOptions, LinkOptions, OnDefect, PackOptions, Packed, Part,
    Videos, group_defects, link_root,
};
use serde_json::{Value, json};

use crate::Outcome;
use crate::interrupt::Watch;
use crate::output::{Align, Table, bytes, count, frame_type, note, print, print_json};
use crate::progress::{Progress, packing};

/// Make a dataset whose camera images stay in the recording's own files.
///
/// Vectors, text, index and checksums are written to TARGET; images are read from the files of SOURCE, which must stay as
/// they are. Videos of LeRobot datasets, JPEG files in ACT (ALOHA) HDF5 files and in tars, and uncompressed HDF5 images can
/// be linked. Every image
/// is read and decoded once to check it, or none with --trust. `kinograph pack TARGET COPY` makes a copy that needs no
/// other files.
///
/// Exit codes: 0 done, 1 failed, 2 wrong usage, 3 done but something was lost (listed on stderr), 130 stopped by
/// Ctrl-C.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The recording: a file or a folder
    source: PathBuf,
    /// The dataset's folder, whose name usually ends in `.kino`
    target: PathBuf,
    /// The folder that the paths of linked files are relative to; it must contain all of them [default: that of SOURCE]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Link without reading the files: takes seconds, but images have no statistics, and a checksum only once they are
    /// read
    #[arg(long)]
    trust: bool,
    /// Store cameras that cannot be linked in the dataset [default: they are an error]
    #[arg(long)]
    pack_rest: bool,
    /// The source's format [default: detected]
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(FORMATS.iter().map(|format| format.name)))]
    format: Option<String>,
    /// A TOML file that says which object of the source becomes which stream (docs/guide/import.md)
    #[arg(long, value_name = "FILE")]
    mapping: Option<PathBuf>,
    /// Frames per second [default: the source's own rate]
    #[arg(long, value_name = "HZ")]
    rate: Option<f64>,
    /// Only streams that match, as for `kinograph pack`
    #[arg(long, value_name = "PATTERN", num_args = 1..)]
    streams: Vec<String>,
    /// Exclude streams that match
    #[arg(long, value_name = "PATTERN", num_args = 1..)]
    exclude: Vec<String>,
    /// Only these episodes, by number, range or id: `0-9,17`, `demo_40`
    #[arg(long, value_name = "LIST", num_args = 1..)]
    episodes: Vec<String>,
    /// Add the episodes to an existing dataset, as a new version
    #[arg(long, conflicts_with_all = ["resume", "overwrite"])]
    append: bool,
    /// Continue an interrupted link of the same source with the same options
    #[arg(long, conflicts_with = "overwrite")]
    resume: bool,
    /// Replace an existing dataset once everything is linked and checked
    #[arg(long)]
    overwrite: bool,
    /// What to do with defects of the source: refuse it, drop the affected episodes, or keep everything readable
    #[arg(long, value_name = "POLICY", default_value = "error", value_parser = clap::builder::PossibleValuesParser::new(OnDefect::NAMES))]
    on_defect: String,
    /// Follow links that lead out of the source, such as those of the Hugging Face cache; only for sources you trust
    #[arg(long)]
    follow_links: bool,
    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Memory limit for in-flight frames
    #[arg(long, value_name = "BYTES", default_value = "512MB")]
    memory: ByteSize,
    /// Target size of a shard
    #[arg(long, value_name = "BYTES", default_value = "128MB")]
    shard_size: ByteSize,
    /// Prefix of the ids of the new episodes, such as `lab2/`
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    prefix: String,
    /// Random seed for the on-disk episode order
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, videos: Option<Arc<dyn Videos>>) -> Result<Outcome> {
    check_local(&args.target)?;
    let import = import_options(args, videos);
    let source = kino_import::open(&args.source, &import)?;
    let options = PackOptions {
        writer: WriterOptions {
            settings: import.settings()?,
            threads: args.threads,
            memory_bytes: usize::try_from(args.memory.bytes()).unwrap_or(usize::MAX),
            shard_bytes: args.shard_size.bytes(),
            ..WriterOptions::default()
        },
        start: start(args),
        seed: args.seed,
        prefix: args.prefix.clone(),
        on_defect: args.on_defect.parse()?,
        link: Some(LinkOptions {
            root: link_root(&args.source, args.root.as_deref())?,
            trust: args.trust,
            pack_rest: args.pack_rest,
        }),
    };
    let begin = Instant::now();
    let watch = Watch::start();
    let mut progress = Progress::new("link");
    let linked = kino_import::pack(&source, &args.target, options, &mut |at| {
        progress.update(at.bytes_done, at.bytes, &packing(&at));
        if watch.as_ref().is_some_and(Watch::is_requested) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    progress.finish();
    drop(watch);
    let linked = match linked {
        Err(ImportError::Stopped) => {
            note("interrupted: run the same command with `--resume` to continue");
            return Ok(Outcome::Interrupted);
        }
        linked => linked?,
    };
    let seconds = begin.elapsed().as_secs_f64();
    if args.json {
        print_json(&to_json(args, &linked, seconds)?)?;
    } else {
        print(&to_text(args, &linked, seconds)?)?;
    }
    Ok(tell_defects(&linked.defects))
}

fn import_options(args: &Args, videos: Option<Arc<dyn Videos>>) -> ImportOptions {
    ImportOptions {
        format: args.format.clone(),
        rate_hz: args.rate,
        mapping: args.mapping.clone(),
        memory_bytes: Some(args.memory.bytes()),
        videos,
        follow_links: args.follow_links,
        part: Part {
            streams: args.streams.clone(),
            exclude: args.exclude.clone(),
            episodes: args.episodes.clone(),
        },
        keep_dtype: false,
    }
}

fn start(args: &Args) -> Start {
    match (args.append, args.resume, args.overwrite) {
        (true, _, _) => Start::Append,
        (_, true, _) => Start::Resume,
        (_, _, true) => Start::Overwrite,
        _ => Start::New,
    }
}

/// For people.
fn to_text(args: &Args, linked: &Packed, seconds: f64) -> Result<String> {
    let mut table = Table::new(&[
        ("stream", Align::Left),
        ("type", Align::Left),
        ("codec", Align::Left),
        ("frames", Align::Right),
        ("linked", Align::Right),
        ("stored", Align::Right),
    ]);
    for stream in &linked.committed.streams {
        let stored = stream.bytes.saturating_sub(stream.linked_bytes);
        let shown = |size: u64| {
            if size == 0 {
                String::new()
            } else {
                bytes(size)
            }
        };
        table.row(vec![
            stream.schema.name.clone(),
            frame_type(&stream.schema.dtype, &stream.schema.shape),
            stream.schema.codec.clone(),
            stream.frames.to_string(),
            shown(stream.linked_bytes),
            shown(stored),
        ]);
    }
    let dataset = Dataset::open(&args.target)?;
    let links = dataset.manifest().links.as_ref();
    let (files, root) = links.map_or((0, ""), |links| (links.files.len(), links.root.as_str()));
    let how = if args.trust {
        "trusted: checksums are filled in when images are first read"
    } else {
        "every image read and checked"
    };
    Ok(format!(
        "{}\n{}: version {} with {}, {seconds:.2} s, {how}\n{} of images stay in {} below {root}; {} in the dataset\n",
        table.render(),
        args.target.display(),
        linked.committed.version,
        count(linked.committed.episodes, "new episode"),
        bytes(linked_bytes(linked)),
        count(files, "file"),
        bytes(dataset.manifest().total_bytes()),
    ))
}

/// For programs.
fn to_json(args: &Args, linked: &Packed, seconds: f64) -> Result<Value> {
    let dataset = Dataset::open(&args.target)?;
    let links = dataset.manifest().links.as_ref();
    let streams = linked.committed.streams.iter().map(|stream| {
        json!({
            "name": stream.schema.name,
            "codec": stream.schema.codec,
            "frames": stream.frames,
            "raw_bytes": stream.raw_bytes,
            "bytes": stream.bytes,
            "linked_bytes": stream.linked_bytes,
        })
    });
    let defects: Vec<_> = linked.defects.iter().map(Defect::to_json).collect();
    Ok(json!({
        "dataset": args.target.display().to_string(),
        "version": linked.committed.version,
        "id": linked.committed.id,
        "episodes": linked.committed.episodes,
        "resumed": linked.resumed,
        "seconds": seconds,
        "source_bytes": linked.source_bytes,
        "linked_bytes": linked_bytes(linked),
        "linked_files": links.map_or(0, |links| links.files.len()),
        "root": links.map(|links| links.root.as_str()),
        "dataset_bytes": dataset.manifest().total_bytes(),
        "streams": streams.collect::<Vec<_>>(),
        "defects": defects,
    }))
}

fn linked_bytes(linked: &Packed) -> u64 {
    let streams = linked.committed.streams.iter();
    streams.map(|stream| stream.linked_bytes).sum()
}

/// Prints the defects of the source on stderr, grouped.
fn tell_defects(defects: &[Defect]) -> Outcome {
    for group in group_defects(defects) {
        note(&format!("{}: {}", group.action.name(), group.text()));
    }
    if defects.iter().any(Defect::is_lost) {
        Outcome::Lost
    } else {
        Outcome::Done
    }
}
