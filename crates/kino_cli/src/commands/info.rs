//! `kinograph info`: shows the contents of a dataset.

use std::collections::HashMap;
use std::path::PathBuf;

use anyhow::Result;
use kino_codec::FrameType;
use kino_dataset::{Clock, CostRecord, Dataset, StreamSummary};
use serde_json::{Value, json};

use crate::Outcome;
use crate::generations;
use crate::open_args::RootArg;
use crate::output::{
    Align, Table, beside, bytes, count, decode_us, error, frame_type, one_line, print, print_json,
    ratio,
};
use crate::resized;

/// Show the contents of a dataset.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The dataset's folder
    dataset: PathBuf,
    /// Which version [default: the newest]
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// List every episode
    #[arg(long)]
    episodes: bool,
    #[command(flatten)]
    root: RootArg,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let dataset = args.root.open(&args.dataset, args.version)?;
    if args.json {
        print_json(&to_json(args, &dataset)?)?;
    } else {
        print(&head(&dataset)?)?;
        print(&streams(&dataset))?;
        if args.episodes {
            print(&format!("\n{}", episodes(&dataset)?))?;
        }
    }
    Ok(Outcome::Done)
}

fn head(dataset: &Dataset) -> Result<String> {
    let manifest = dataset.manifest();
    let stored = manifest.total_bytes();
    let raw: u64 = manifest.streams.iter().map(|stream| stream.raw_bytes).sum();
    let table = dataset.table();
    let seconds: f64 = (0..table.len())
        .filter_map(|row| table.duration_s(row))
        .sum();
    let frames: u64 = (0..table.len()).filter_map(|row| table.frames(row)).sum();
    let memory = table.memory_bytes() / table.len().max(1);
    let source = source(dataset).map_or(String::new(), |source| {
        let than = if source.is_part {
            "partly packed".to_owned()
        } else {
            format!(
                "the dataset is {}",
                beside(stored, source.bytes, "the source")
            )
        };
        format!("\n  source     {} on disk: {than}", bytes(source.bytes))
    });
    let links = links(dataset);
    Ok(format!(
        "{}\n  version    {} of {:?}, {}, {}\n  id         {}\n  episodes   {} ({}, {seconds:.1} s)\n  \
         size       {} on disk in {}: {} smaller than raw ({}){source}{links}\n  memory     {} while open, {memory} bytes per episode\n\n",
        dataset.path().display(),
        manifest.version,
        dataset.versions()?,
        one_line(&manifest.created),
        one_line(&manifest.message),
        dataset.id(),
        dataset.len(),
        count(frames, "frame"),
        bytes(stored),
        count(manifest.shards.len(), "shard"),
        ratio(raw, stored),
        bytes(raw),
        bytes(table.memory_bytes() as u64),
    ))
}

/// What a dataset links to, and where.
fn links(dataset: &Dataset) -> String {
    let manifest = dataset.manifest();
    let Some(links) = &manifest.links else {
        return String::new();
    };
    let root = dataset.root().map(|root| root.display().to_string());
    format!(
        "\n  linked     {} of pages in {} below {}",
        bytes(linked_bytes(dataset)),
        count(links.files.len(), "file"),
        one_line(root.as_ref().unwrap_or(&links.root)),
    )
}

fn linked_bytes(dataset: &Dataset) -> u64 {
    let streams = dataset.manifest().streams.iter();
    streams.map(|stream| stream.linked_bytes).sum()
}

/// The recordings that a dataset was packed from.
struct SourceSize {
    /// Bytes of their files on disk.
    bytes: u64,
    /// Whether only a part of them was packed.
    is_part: bool,
}

/// The size of the recordings that a dataset was packed from, as its manifest records it; `None` if it has none.
fn source(dataset: &Dataset) -> Option<SourceSize> {
    let records = dataset.manifest().attributes.get("sources")?.as_array()?;
    let mut source = SourceSize {
        bytes: 0,
        is_part: false,
    };
    for record in records {
        source.bytes = source.bytes.saturating_add(record["bytes"].as_u64()?);
        source.is_part |= record["is_part"] == true;
    }
    Some(source).filter(|source| source.bytes > 0)
}

fn streams(dataset: &Dataset) -> String {
    let mut table = Table::new(&[
        ("stream", Align::Left),
        ("kind", Align::Left),
        ("type", Align::Left),
        ("frames", Align::Right),
        ("rate", Align::Right),
        ("codec", Align::Left),
        ("raw", Align::Right),
        ("stored", Align::Right),
        ("ratio", Align::Right),
        ("error", Align::Right),
        ("decode µs", Align::Right),
    ]);
    let (rates, costs) = (rates(dataset), CostRecord::load());
    for stream in under_their_streams(&dataset.manifest().streams) {
        let name = match stream.variant() {
            Some(variant) => format!("  @{variant}"),
            None => stream.name.clone(),
        };
        table.row(vec![
            name,
            stream.kind.name().to_owned(),
            frame_type(&stream.dtype, &stream.shape),
            stream.frames.to_string(),
            rates.get(&stream.name).cloned().unwrap_or_default(),
            stream.codecs.join(" "),
            bytes(stream.raw_bytes),
            bytes(stream.bytes),
            ratio(stream.raw_bytes, stream.bytes),
            error(stream.psnr_db(), stream.max_abs_error),
            cost(&costs, stream),
        ]);
    }
    let mut text = table.render();
    if costs.costs().is_empty() {
        text.push_str("No decode timings for this machine yet: run `kinograph bench codecs`.\n");
    }
    for missing in dataset.missing_decoders() {
        let causes: Vec<_> = anyhow::Error::from(missing)
            .chain()
            .map(ToString::to_string)
            .collect();
        text.push_str(&format!("cannot be decoded here: {}\n", causes.join(": ")));
    }
    let streams = dataset.manifest().streams.iter();
    text.push_str(&resized::lines(
        streams.map(|one| (one.name.as_str(), one.resized_from.as_slice())),
    ));
    text.push_str(&generations::lines(dataset.manifest().streams.iter()));
    for stream in &dataset.manifest().streams {
        if let Some(found) = &stream.signal {
            text.push_str(&format!(
                "{}: {} by {}, whose error for {} grew by {:.1} % [{:.1} to {:.1}] in the probe\n",
                stream.name,
                found.codec,
                found.bound,
                found.target,
                100.0 * found.increase,
                100.0 * found.low,
                100.0 * found.high
            ));
        }
    }
    let protected = dataset
        .manifest()
        .streams
        .iter()
        .filter(|s| s.protected_frames > 0);
    for stream in protected {
        let (name, frames) = (one_line(&stream.name), stream.protected_frames);
        text.push_str(&format!(
            "\n{name}: {frames} frames around events are exact"
        ));
    }
    text
}

/// The streams, each followed by its variants.
fn under_their_streams(streams: &[StreamSummary]) -> Vec<&StreamSummary> {
    let place = |name: &str| streams.iter().position(|stream| stream.name == name);
    let mut sorted: Vec<_> = streams.iter().collect();
    sorted.sort_by_key(|stream| {
        let base = stream.variant_of.as_deref().unwrap_or(&stream.name);
        (place(base), stream.variant_of.is_some())
    });
    sorted
}

/// The rate of each stream of the first episode; `?` if it is damaged, which `verify` explains.
fn rates(dataset: &Dataset) -> HashMap<String, String> {
    let Ok(episode) = dataset.episode(0) else {
        return HashMap::new();
    };
    let rate = |stream: &kino_dataset::Stream| match stream.clock() {
        Ok(Clock::Regular(clock)) => format!("{} Hz", clock.rate_hz()),
        Ok(Clock::Explicit(_)) => "irregular".to_owned(),
        Err(_) => "?".to_owned(),
    };
    let names = episode.streams().map(|stream| stream.name.clone());
    names
        .filter_map(|name| Some((name.clone(), rate(&episode.stream(&name).ok()?))))
        .collect()
}

/// The measured cost of decoding a frame on this machine; of the first codec, if there are several.
fn cost(costs: &CostRecord, stream: &StreamSummary) -> String {
    let spec = stream.codecs.first().and_then(|codec| codec.parse().ok());
    let frame = match stream.dtype.as_str() {
        "text" => Some(FrameType::Text),
        dtype => dtype
            .parse()
            .ok()
            .and_then(|dtype| FrameType::values(dtype, &stream.shape).ok()),
    };
    match (spec, frame) {
        (Some(spec), Some(frame)) => decode_us(costs, &spec, &frame),
        _ => String::new(),
    }
}

fn episodes(dataset: &Dataset) -> Result<String> {
    let mut table = Table::new(&[
        ("episode", Align::Right),
        ("id", Align::Left),
        ("frames", Align::Right),
        ("seconds", Align::Right),
        ("bytes", Align::Right),
        ("splits", Align::Left),
        ("task", Align::Left),
    ]);
    for (idx, row) in dataset.table().rows()?.into_iter().enumerate() {
        table.row(vec![
            idx.to_string(),
            row.id,
            row.frames.to_string(),
            format!("{:.2}", row.duration_s),
            bytes(row.bytes),
            row.splits.join(" "),
            row.task.unwrap_or_default(),
        ]);
    }
    Ok(table.render())
}

fn to_json(args: &Args, dataset: &Dataset) -> Result<Value> {
    let manifest = dataset.manifest();
    let rates = rates(dataset);
    let streams = manifest.streams.iter().map(|stream| {
        json!({
            "name": stream.name,
            "rate": rates.get(&stream.name),
            "kind": stream.kind.name(),
            "dtype": stream.dtype,
            "shape": stream.shape,
            "codecs": stream.codecs,
            "episodes": stream.episodes,
            "frames": stream.frames,
            "raw_bytes": stream.raw_bytes,
            "bytes": stream.bytes,
            "max_abs_error": stream.max_abs_error,
            "psnr_db": stream.psnr_db(),
            "protected_frames": stream.protected_frames,
            "linked_bytes": stream.linked_bytes,
            "encoders": stream.encoders,
            "resized_from": resized::to_json(&stream.resized_from),
            "generations": generations::to_json(&stream.generations),
            "signal": stream.signal,
            "variant_of": stream.variant_of,
        })
    });
    let mut value = json!({
        "path": dataset.path(),
        "version": manifest.version,
        "versions": dataset.versions()?,
        "id": dataset.id(),
        "parent": manifest.parent,
        "created": manifest.created,
        "tool": manifest.tool,
        "message": manifest.message,
        "attributes": manifest.attributes,
        "episodes": dataset.len(),
        "shards": manifest.shards.len(),
        "bytes": manifest.total_bytes(),
        "raw_bytes": manifest.streams.iter().map(|stream| stream.raw_bytes).sum::<u64>(),
        "source_bytes": source(dataset).map(|source| source.bytes),
        "memory_bytes": dataset.table().memory_bytes(),
        "streams": streams.collect::<Vec<_>>(),
    });
    if let Some(links) = &manifest.links {
        value["links"] = json!({
            "root": links.root,
            "files": links.files.len(),
            "files_bytes": links.total_bytes(),
            "linked_bytes": linked_bytes(dataset),
        });
    }
    if args.episodes {
        let rows = dataset.table().rows()?.into_iter().map(|row| {
            json!({"id": row.id, "frames": row.frames, "duration_s": row.duration_s, "bytes": row.bytes,
                   "raw_bytes": row.raw_bytes, "splits": row.splits, "task": row.task, "success": row.success})
        });
        value["table"] = rows.collect();
    }
    Ok(value)
}
