//! A loader alone: samples per second, CPU time, time to first batch, memory; cold and warm.
//!
//! ```text
//! cold    drop the shards from the page cache ─▶ start ─▶ first batch ─▶ batches for some time
//! warm    the same again at once, from the page cache
//! ```
//!
//! Every batch is dropped as soon as it is taken. The first is compared with the plain reader before anything is
//! timed.

use std::time::{Duration, Instant};

use kino_dataset::{Array, Samples};
use kino_loader::{Batch, ImageDtype, Loader, LoaderOptions, PerKey, Run, Stage};

use super::{BenchResult, Better};
use crate::doctor::{Host, Subject};
use crate::error::{Result, invalid};
use crate::machine::{cpu_s, peak_bytes, reset_peak};

/// The fewest batches to time.
const LEAST: u64 = 4;

/// Measures a loader for `seconds`, cold and warm.
pub fn bench_loader(subject: &Subject, seconds: f64, host: &mut dyn Host) -> Result<BenchResult> {
    let time = Duration::try_from_secs_f64(seconds)
        .map_err(|_| invalid("the measuring time (`seconds`) must be positive"))?;
    let dataset = subject
        .windows
        .first()
        .and_then(|variants| variants.first())
        .ok_or_else(|| invalid("the loader has no windows; request at least one stream"))?
        .dataset();
    check(subject)?;
    let mut result = BenchResult::new("loader", Some(dataset));
    result.describe(subject);
    result.set("seconds", seconds);
    for name in ["cold", "warm"] {
        host.begins(name);
        if name == "cold" {
            for windows in subject.windows.iter().flatten() {
                windows.dataset().forget_cached()?;
            }
        }
        measure(subject, name, time, host, &mut result)?;
    }
    result.rules = [
        "batches are taken as fast as the loader delivers them and dropped; the first was compared with the plain reader",
        "cold: the shards were dropped from the page cache before the run; frames read twice may come from the page cache",
        "CPU time and peak memory are those of the whole process",
    ]
    .map(str::to_owned)
    .to_vec();
    Ok(result)
}

fn measure(
    subject: &Subject,
    name: &str,
    time: Duration,
    host: &mut dyn Host,
    result: &mut BenchResult,
) -> Result<()> {
    reset_peak();
    let (began, cpu) = (Instant::now(), cpu_s());
    let mut loader = Loader::start(
        subject.order.clone(),
        subject.windows.clone(),
        subject.options.clone(),
    )?;
    let mut first = None;
    let mut batches = 0;
    while began.elapsed() < time || batches < LEAST {
        host.look_up()?;
        if loader.next_batch()?.is_none() {
            break;
        }
        first.get_or_insert_with(|| began.elapsed());
        batches += 1;
    }
    let (elapsed, report) = (began.elapsed().as_secs_f64(), loader.report());
    let samples = report.samples.max(1) as f64;
    let ms = |time: Option<Duration>| time.unwrap_or_default().as_secs_f64() * 1e3;
    let mut add = |what: &str, value: f64, unit: &str, better| {
        result.add(&format!("{name}: {what}"), value, unit, better);
    };
    add("time to first batch", ms(first), "ms", Better::Less);
    add("samples", samples / elapsed, "per second", Better::More);
    if let (Some(before), Some(after)) = (cpu, cpu_s()) {
        let each = (after - before) * 1e6 / samples;
        add("CPU time", each, "µs per sample", Better::Less);
    }
    let fetched = report.stages.iter().find(|one| one.stage == Stage::Fetch);
    let fetched = fetched.map_or(0, |one| one.bytes) as f64;
    add("read", fetched / 1e6 / elapsed, "MB/s", Better::More);
    if let Some(peak) = peak_bytes() {
        add("peak memory", peak as f64 / 1e6, "MB", Better::Less);
    }
    Ok(())
}

/// Compares the first batch with the plain reader, for frames that are delivered as stored.
fn check(subject: &Subject) -> Result<()> {
    let options = LoaderOptions {
        run: Run {
            batches: Some(1),
            ..subject.options.run.clone()
        },
        ..subject.options.clone()
    };
    let mut loader = Loader::start(subject.order.clone(), subject.windows.clone(), options)?;
    let Some(batch) = loader.next_batch()? else {
        return Err(invalid(
            "the dataset has no batches; use more episodes or a smaller batch size",
        ));
    };
    for (slot, sample) in batch.samples().iter().enumerate() {
        let variants = subject.windows.get(sample.source as usize);
        let windows = variants.and_then(|variants| variants.get(sample.variant as usize));
        if let Some(windows) = windows {
            check_sample(
                subject,
                &batch,
                slot,
                windows,
                subject.order.sample_index(sample),
            )?;
        }
    }
    Ok(())
}

fn check_sample(
    subject: &Subject,
    batch: &Batch,
    slot: usize,
    windows: &Samples,
    index: u64,
) -> Result<()> {
    let images = &subject.options.images;
    let are_stored = images.dtype == ImageDtype::U8
        && images.size == PerKey::None
        && images.crop == PerKey::None
        && images.random_jpeg == PerKey::None
        && images.layout == kino_loader::Layout::default();
    let expected = windows.read(index)?;
    for (name, array) in &expected.fields {
        let Array::Values { shape, bytes, .. } = array else {
            continue;
        };
        let is_plain = !subject.options.normal.iter().any(|(key, _)| key == name);
        // Images have three axes after that of time; everything else is delivered as stored anyway.
        if !is_plain || !are_stored && shape.len() >= 3 {
            continue;
        }
        let idx = batch.infos().iter().position(|info| info.name == *name);
        let found = idx.and_then(|idx| {
            batch
                .array(idx)
                .get(slot * bytes.len()..)?
                .get(..bytes.len())
        });
        if found != Some(bytes) {
            return Err(invalid(format!(
                "`{name}` of sample {slot} differs from the plain reader; this is a bug in kinograph, please report it"
            )));
        }
    }
    Ok(())
}
