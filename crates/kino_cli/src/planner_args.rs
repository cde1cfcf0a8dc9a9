//! What a plan is chosen for: the options that `kinograph plan` and `kinograph pack --auto` share.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use kino_advisor::{Limits, Measured, PlannerOptions, Question, SignalOptions};
use kino_dataset::{ByteSize, Plan, SlowStorage};

use crate::probe_args::ProbeArgs;
use crate::writing::read_plan;

/// Above the options of the probe in `--help`.
const PROBE: &str = "Probe, for --signal and bounds such as signal(2%)";

/// The model, the host, the limits, and which codecs may be chosen.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PlannerArgs {
    /// Duration of a training step, in milliseconds
    #[arg(long, value_name = "MS")]
    step_ms: Option<f64>,
    /// Or the JSON of a past run's report (`report.to_json()`), which has the duration of a step
    #[arg(long, value_name = "FILE")]
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
    /// What a stream may lose: a pattern and a bound, such as `obs/*_image=psnr(40)`, `obs/*_image=signal(2%)` or `**=lossless`. May
    /// be repeated
    #[arg(long, value_name = "PATTERN=BOUND")]
    bound: Vec<String>,
    /// Or a plan with bounds and protected events, such as the one that `pack` refused because of `signal(2%)`
    #[arg(long, value_name = "FILE")]
    bounds: Option<PathBuf>,
    /// Show what a policy would lose with the plans that lose something, by the probe
    #[arg(long)]
    signal: bool,
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
    #[arg(long, value_name = "TIME", value_parser = pack_time)]
    max_pack_time: Option<Duration>,
    /// Decoded size of the sample of a recording
    #[arg(long, value_name = "BYTES", default_value = "256MB")]
    sample: ByteSize,
    /// How long each run of the loader is measured, in seconds
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,
    #[command(flatten, next_help_heading = PROBE)]
    probe: ProbeArgs,
    /// How long the probe may take: `--seconds` of `kinograph probe`
    #[arg(long, value_name = "S", default_value_t = 180.0, help_heading = PROBE)]
    probe_seconds: f64,
}

impl PlannerArgs {
    /// What to choose for; images without a bound may also become JPEG of this quality.
    pub(crate) fn options(&self, quality: Option<u8>) -> Result<PlannerOptions> {
        let storage = self.storage.as_deref().map(str::parse::<SlowStorage>);
        let here = Question::default();
        Ok(PlannerOptions {
            question: Question {
                step_s: self.step_s()?,
                ranks: self.ranks,
                cores: self.cores.unwrap_or(here.cores),
                memory_bytes: self.host_memory.map_or(here.memory_bytes, ByteSize::bytes),
                limits: Limits {
                    max_bytes: self.max_size.map(ByteSize::bytes),
                    max_pack_s: self.max_pack_time.map(|time| time.as_secs_f64()),
                },
                ..here
            },
            storage: storage.transpose()?,
            bounds: bounds(&self.bound, self.bounds.as_deref(), quality)?,
            signal: SignalOptions {
                verdicts: self.signal,
                probe: self.probe.options(self.probe_seconds)?,
            },
            foreign: self.foreign.clone(),
            allow_resize: self.allow_resize,
            seconds: self.seconds,
            ..PlannerOptions::default()
        })
    }

    /// Decoded bytes of a sample.
    pub(crate) fn sample_bytes(&self) -> u64 {
        self.sample.bytes()
    }

    fn step_s(&self) -> Result<f64> {
        match &self.report {
            Some(path) => step_of_report(path),
            None => Ok(self.step_ms.unwrap_or_default() / 1e3),
        }
    }
}

/// Reads `2h`.
fn pack_time(text: &str) -> Result<Duration, String> {
    let needs_unit =
        |number: &str| format!("time unit needed, for example {number}h or {number}min");
    humantime::parse_duration(text).map_err(|error| match text.trim().parse::<f64>() {
        Ok(_) => needs_unit(text.trim()),
        Err(_) => error.to_string(),
    })
}

fn step_of_report(path: &Path) -> Result<f64> {
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

/// A rule of a plan, as TOML: the streams that match get this value of this key.
pub(crate) fn rule(pattern: &str, key: &str, value: &str) -> String {
    let quoted = |text: &str| serde_json::Value::from(text.trim()).to_string();
    let (pattern, value) = (quoted(pattern), quoted(value));
    format!("[[stream]]\nmatch = {pattern}\n{key} = {value}\n")
}

/// The bounds as a plan: what a stream may lose, first by `given`, then by the plan in `file`.
fn bounds(given: &[String], file: Option<&Path>, quality: Option<u8>) -> Result<Plan> {
    let mut toml = String::new();
    for text in given {
        let (pattern, bound) = text
            .rsplit_once('=')
            .with_context(|| format!("cannot parse --bound {text}: expected PATTERN=BOUND, such as `obs/*_image=psnr(40)`"))?;
        toml += &rule(pattern, "bound", bound);
    }
    let mut plan = Plan::from_toml(&toml).context("--bound")?;
    if let Some(path) = file {
        let read = read_plan(path)?;
        plan.rules.extend(read.rules);
        plan.events = read.events;
        plan.quality = read.quality;
    }
    plan.quality = quality.or(plan.quality);
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_pack_needs_a_unit_of_its_size() {
        assert_eq!(pack_time("2h").unwrap().as_secs(), 7200);
        assert_eq!(pack_time("30min").unwrap().as_secs(), 1800);
        assert!(pack_time("2").unwrap_err().contains("2h or 2min"));
        assert!(pack_time("soon").is_err());
    }
}
