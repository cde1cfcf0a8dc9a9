//! `kinograph bench codecs`: compression ratio, speed and error of codecs.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kino_advisor::{BenchResult, Better};
use kino_codec::FrameType;
use kino_dataset::{
    ByteSize, CostRecord, CostSample, Dataset, Effort, Kind, Measured, candidates, carriers,
    classic, comparable, cpu_name, measure, measure_stored,
};
use serde_json::{Value, json};

use crate::Outcome;
use crate::output::{Align, Table, error, micros, note, print, print_json};
use crate::progress::Progress;

/// Measure codecs: compression ratio, speed and error.
///
/// Measures the streams of a dataset, among them carried JPEG files and video as they are stored, or a file of frames; without either, built-in samples of every kind. Times are
/// for one thread, the best of several passes, and decoded frames are checked. The results are kept in the machine's
/// cost record (in ~/.cache/kinograph), which `pack --dry-run` and `info` use to predict decoding costs.
#[derive(Debug, clap::Args)]
#[command(after_long_help = list())]
pub(crate) struct Args {
    /// The dataset's folder
    dataset: Option<PathBuf>,
    /// Only streams whose name matches this pattern
    #[arg(long, value_name = "PATTERN", default_value = "**")]
    stream: String,
    /// Measure only this codec; can be repeated [default: those suitable for each stream]
    #[arg(long, value_name = "CODEC")]
    codec: Vec<String>,
    /// Also compare zlib with its levels and strategies, and bit shuffle; like lz4, they cannot be stored
    #[arg(long, conflicts_with = "codec")]
    classic: bool,
    /// File of packed little-endian frames to measure instead of a dataset
    #[arg(long, value_name = "FILE", requires = "ty", conflicts_with = "dataset")]
    frames: Option<PathBuf>,
    /// Type of its frames, for example uint8[84,84,3] or text
    #[arg(long = "type", value_name = "TYPE", id = "ty")]
    ty: Option<String>,
    /// The file holds byte strings, each after its length as a little-endian u32: text, or JPEG files to be stored as
    /// they are
    #[arg(long, requires = "frames")]
    strings: bool,
    /// Frames per page [default: the codec's choice]
    #[arg(long, value_name = "N")]
    page: Option<NonZeroUsize>,
    /// Seconds per figure
    #[arg(long, value_name = "S", default_value_t = 0.2)]
    seconds: f64,
    /// How much of each stream to measure, at most
    #[arg(long, value_name = "BYTES", default_value = "16MB")]
    max_size: ByteSize,
    /// Do not update the machine's cost record
    #[arg(long)]
    no_cache: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// A stream, and for each codec the result or why it failed.
type Rows = Vec<(String, Result<Measured, String>)>;

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let budget = Duration::try_from_secs_f64(args.seconds).context("invalid --seconds")?;
    let effort = Effort {
        resize: None,
        budget,
        page_frames: args.page,
    };
    let samples = samples(args)?;
    let mut record = CostRecord::load();
    let mut results: Vec<(&CostSample, Rows)> = Vec::new();
    let mut progress = Progress::new("bench");
    let total: usize = samples
        .iter()
        .map(|sample| sample.values.len().max(1))
        .sum();
    let mut done = 0;
    for sample in &samples {
        let mut rows = Rows::new();
        for text in codecs_for(args, sample) {
            progress.update(
                done as u64,
                total as u64,
                &format!("{} {text}", sample.name),
            );
            let measured = measure_one(&text, sample, effort);
            if let Ok(measured) = &measured {
                record.add(measured);
            }
            rows.push((text, measured.map_err(|error| format!("{error:#}"))));
        }
        rows.extend(carried(args, sample, effort)?);
        done += sample.values.len().max(1);
        results.push((sample, rows));
    }
    progress.finish();
    if args.json {
        print_json(&to_json(args, &results)?)?;
    } else {
        print(&to_text(&results))?;
    }
    if !args.no_cache {
        let path = record.save()?;
        note(&format!("the costs are kept in {}", path.display()));
    }
    let all = results.iter().flat_map(|(_, rows)| rows);
    // Codecs that were named explicitly must work.
    let failed = !args.codec.is_empty() && all.into_iter().any(|(_, row)| row.is_err());
    Ok(if failed {
        Outcome::Failed
    } else {
        Outcome::Done
    })
}

fn codecs_for(args: &Args, sample: &CostSample) -> Vec<String> {
    match args.codec.as_slice() {
        [] if sample.is_carried() => carriers(),
        [] => {
            let mut texts = candidates(sample.kind, &sample.frame);
            if args.classic {
                texts.extend(classic(&sample.frame));
            }
            texts
        }
        given => given.to_vec(),
    }
}

/// The stream as it is stored, if it is a bitstream that no codec here could encode to the same bytes.
fn carried(args: &Args, sample: &CostSample, effort: Effort) -> Result<Rows> {
    let (Some(path), []) = (&args.dataset, &args.codec[..]) else {
        return Ok(Rows::new());
    };
    let dataset = Dataset::open(path)?;
    let stream = dataset.manifest().streams.iter();
    let mut stream = stream.filter(|stream| stream.name == sample.name);
    let codecs = stream.next().map_or(&[][..], |stream| &stream.codecs);
    let is_carried =
        |text: &String| kino_codec::codec(text).is_ok_and(|codec| codec.carries().is_some());
    let [codec] = codecs else {
        return Ok(Rows::new());
    };
    if !is_carried(codec) {
        return Ok(Rows::new());
    }
    let max_bytes = usize::try_from(args.max_size.bytes()).unwrap_or(usize::MAX);
    let measured = measure_stored(&dataset, &sample.name, max_bytes, effort);
    let measured = measured.map_err(|error| format!("{error:#}"));
    Ok(vec![(codec.clone(), measured)])
}

/// The codecs that can be stored, for the help text.
fn list() -> String {
    let mut text = "Codecs of the format, with the kinds of stream they are made for:\n".to_owned();
    for codec in kino_codec::codecs() {
        let words = |names: Vec<&str>| names.join(", ");
        let kinds = words(codec.kinds.iter().map(|kind| kind.name()).collect());
        let bounds = words(codec.guarantees.iter().map(|one| one.name()).collect());
        text.push_str(&format!(
            "\n  {} ({kinds}): {}\n    {bounds}; {} to encode, {} to decode{}\n",
            codec.name,
            codec.summary,
            codec.encode.name(),
            codec.decode.name(),
            if codec.is_grouped { ", in groups" } else { "" },
        ));
        for parameter in codec.parameters {
            text.push_str(&format!("    {:<8} {}\n", parameter.key, parameter.help));
        }
    }
    text
}

fn measure_one(text: &str, sample: &CostSample, effort: Effort) -> Result<Measured> {
    let codec = comparable(text)?;
    codec.check(&sample.frame)?;
    Ok(sample.with_frames(|frames| measure(&*codec, frames, effort))?)
}

fn samples(args: &Args) -> Result<Vec<CostSample>> {
    let max_bytes = usize::try_from(args.max_size.bytes()).unwrap_or(usize::MAX);
    let samples = match (&args.dataset, &args.frames, &args.ty) {
        (Some(path), ..) => {
            let dataset = Dataset::open(path)?;
            let found = CostSample::of_dataset(&dataset, &args.stream, max_bytes)?;
            if found.is_empty() {
                bail!(
                    "no stream of {} matches `{}`; list its streams with `kinograph info`",
                    path.display(),
                    args.stream
                );
            }
            found
        }
        (None, Some(path), Some(ty)) => {
            vec![from_file(path, ty, args.strings, max_bytes)?]
        }
        _ => CostSample::built_in()?,
    };
    Ok(samples
        .into_iter()
        .filter(|sample| !sample.is_empty())
        .collect())
}

/// The frames of a file.
fn from_file(path: &Path, ty: &str, strings: bool, max_bytes: usize) -> Result<CostSample> {
    let frame =
        parse_type(ty).with_context(|| format!("cannot parse `--type {ty}`: expected a dtype and a shape, for example uint8[84,84,3], or text"))?;
    let size = frame.as_values().map_or(1, |ty| ty.frame_bytes()).max(1);
    let mut values =
        std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut found = Vec::new();
    if strings || frame == FrameType::Text {
        found = split_strings(&values).with_context(|| {
            format!(
                "{} is not a file of byte strings, each after its length as a little-endian u32",
                path.display()
            )
        })?;
        let mut room = max_bytes;
        let count = found.iter().take_while(|string| {
            let has_room = room > 0;
            room = room.saturating_sub(string.len().max(size));
            has_room
        });
        found.truncate(count.count());
        values.clear();
    } else if values.is_empty() || !values.len().is_multiple_of(size) {
        bail!(
            "the size of {} is not a multiple of a frame's {size} bytes; check `--type`",
            path.display()
        );
    }
    values.truncate((max_bytes / size).max(1) * size);
    let is_image = frame.as_values().is_some_and(|ty| ty.as_image().is_some());
    let is_flat = frame.as_values().is_some_and(|ty| ty.shape().len() == 2);
    let kind = match (is_image, is_flat) {
        _ if frame == FrameType::Text => Kind::Text,
        (true, _) => Kind::Image,
        (false, true) => Kind::Depth,
        (false, false) => Kind::Vector,
    };
    Ok(CostSample {
        name: path.display().to_string(),
        kind,
        frame,
        values,
        strings: found,
    })
}

/// The byte strings of a file in which each follows its length, a u32.
fn split_strings(mut rest: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut strings = Vec::new();
    while !rest.is_empty() {
        let (len, after) = rest
            .split_first_chunk()
            .context("the file ends within a length")?;
        let len = usize::try_from(u32::from_le_bytes(*len))?;
        let (string, after) = after
            .split_at_checked(len)
            .with_context(|| format!("string {} is truncated", strings.len()))?;
        strings.push(string.to_vec());
        rest = after;
    }
    Ok(strings)
}

/// Reads `uint8[84,84,3]` or `text`.
fn parse_type(text: &str) -> Result<FrameType> {
    if text == "text" {
        return Ok(FrameType::Text);
    }
    let (dtype, shape) = text
        .strip_suffix(']')
        .and_then(|text| text.split_once('['))
        .context("the shape in brackets is missing")?;
    let sides = shape
        .split(',')
        .map(str::trim)
        .filter(|side| !side.is_empty());
    let shape: Vec<usize> = sides.map(str::parse).collect::<Result<_, _>>()?;
    Ok(FrameType::values(dtype.trim().parse()?, &shape)?)
}

fn to_text(results: &[(&CostSample, Rows)]) -> String {
    let mut text = format!("{}, one thread; MB/s of decoded data\n", cpu_name());
    for (sample, rows) in results {
        text.push_str(&format!(
            "\n{}: {} frames of {}\n",
            sample.name,
            sample.len(),
            sample.frame
        ));
        let mut table = Table::new(&[
            ("codec", Align::Left),
            ("ratio", Align::Right),
            ("encode MB/s", Align::Right),
            ("decode MB/s", Align::Right),
            ("frame µs", Align::Right),
            ("window µs", Align::Right),
            ("error", Align::Right),
        ]);
        for (codec, row) in rows {
            table.row(match row {
                Ok(row) => vec![
                    format!("{}{}", row.codec, if row.is_stored() { "" } else { " *" }),
                    format!("{:.2}", row.ratio()),
                    if row.encode.is_zero() {
                        "as it is".to_owned()
                    } else {
                        format!("{:.0}", row.mb_s(row.encode))
                    },
                    format!("{:.0}", row.mb_s(row.decode)),
                    micros(row.random.as_secs_f64()),
                    micros(row.window.as_secs_f64()),
                    error(row.psnr_db, row.max_abs_error),
                ],
                Err(why) => {
                    let mut cells = vec![format!("{codec}: {why}")];
                    cells.resize(7, String::new());
                    cells
                }
            });
        }
        text.push_str(&table.render());
    }
    let has = |test: fn(&Measured) -> bool| {
        let mut rows = results.iter().flat_map(|(_, rows)| rows);
        rows.any(|(_, row)| row.as_ref().is_ok_and(test))
    };
    if has(|row| !row.is_stored()) {
        text.push_str("\n* for comparison; cannot be stored\n");
    }
    if has(Measured::is_foreign) {
        text.push_str(
            "\nexternal: not part of Kinograph; it can be stored, but every reader needs it too\n",
        );
    }
    text
}

/// The figures of every codec for `bench compare`, and all details by stream.
fn to_json(args: &Args, results: &[(&CostSample, Rows)]) -> Result<Value> {
    let dataset = args.dataset.as_deref().map(Dataset::open).transpose()?;
    let mut result = BenchResult::new("codecs", dataset.as_ref());
    for (sample, rows) in results {
        for (_, row) in rows {
            let Ok(row) = row else { continue };
            let mut add = |what: &str, value: f64, unit: &str, better| {
                let name = format!("{} {}: {what}", sample.name, row.codec);
                result.add(&name, value, unit, better);
            };
            add("ratio", row.ratio(), "×", Better::More);
            if !row.encode.is_zero() {
                add("encode", row.mb_s(row.encode), "MB/s", Better::More);
            }
            add("decode", row.mb_s(row.decode), "MB/s", Better::More);
            add("frame", row.random.as_secs_f64() * 1e6, "µs", Better::Less);
        }
    }
    let streams = results.iter().map(|(sample, rows)| {
        let codecs = rows.iter().map(|(codec, row)| match row {
            Ok(row) => json!({
                "codec": row.codec, "stored": row.is_stored(), "foreign": row.is_foreign(), "frames": row.frames, "raw_bytes": row.raw_bytes, "bytes": row.bytes,
                "shared_bytes": row.shared_bytes, "page_frames": row.page_frames, "ratio": row.ratio(),
                "encode_mb_s": (!row.encode.is_zero()).then(|| row.mb_s(row.encode)), "decode_mb_s": row.mb_s(row.decode),
                "frame_us": row.random.as_secs_f64() * 1e6, "window_us": row.window.as_secs_f64() * 1e6,
                "window_frames": row.window_frames, "max_abs_error": row.max_abs_error, "psnr_db": row.psnr_db,
            }),
            Err(why) => json!({"codec": codec, "error": why}),
        });
        json!({
            "stream": sample.name, "kind": sample.kind.name(), "frame": sample.frame.to_string(),
            "codecs": codecs.collect::<Vec<_>>(),
        })
    });
    let mut value = serde_json::to_value(&result)?;
    value["streams"] = streams.collect();
    Ok(value)
}
