//! `kinograph link`: a dataset whose camera images stay in the recording's own files.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use kino_dataset::{Dataset, Plan, WriterOptions, check_local};
use kino_import::{Defect, ImportError, LinkOptions, Packed, Videos, link_root};
use serde_json::{Value, json};

use crate::Outcome;
use crate::output::{Align, Table, bytes, count, frame_type, note, print, print_json};
use crate::progress::watched;
use crate::source_args::SourceArgs;
use crate::writing::{EpisodeArgs, ResourceArgs, StartArgs, tell_defects};

/// Make a dataset whose camera images stay in the recording's own files.
///
/// Vectors, text, index and checksums are written to TARGET; images are read from the files of SOURCE, which must stay as
/// they are. Videos of LeRobot datasets, JPEG files in ACT (ALOHA) HDF5 files and in tars, and uncompressed HDF5 images can
/// be linked. Every image is read and decoded once to check it, or none with --trust. `kinograph repack TARGET COPY` makes
/// a copy that needs no other files.
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
    #[command(flatten)]
    source_options: SourceArgs,
    #[command(flatten)]
    start: StartArgs,
    #[command(flatten)]
    new_episodes: EpisodeArgs,
    #[command(flatten)]
    resources: ResourceArgs,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, videos: Option<Arc<dyn Videos>>) -> Result<Outcome> {
    check_local(&args.target)?;
    let import = args
        .source_options
        .import(Some(args.resources.memory), videos);
    let source = kino_import::open(&args.source, &import)?;
    let writer = WriterOptions {
        settings: import.settings()?,
        ..args.resources.options(Plan::lossless())
    };
    let link = LinkOptions {
        root: link_root(&args.source, args.root.as_deref())?,
        trust: args.trust,
        pack_rest: args.pack_rest,
    };
    let start = args.start.start();
    let options = args.new_episodes.options(writer, start, Some(link))?;
    let begin = Instant::now();
    let linked = watched("link", |report| {
        kino_import::pack(&source, &args.target, options, report)
    });
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
