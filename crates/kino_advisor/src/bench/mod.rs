//! Benchmarks on this machine: figures with the machine they were measured on, and comparing two results.
//!
//! ```text
//! loader.rs    samples per second, CPU time, time to first batch, memory; cold and warm
//! au.rs        the highest step rate at which an emulated accelerator is kept busy
//! storage.rs   bandwidth and latency of a dataset's path, by block size and reads in flight
//! compare.rs   two results: ratios, and what else differs
//! ```
//!
//! A result is self-describing JSON: `{"bench", "machine", "dataset", "settings", "figures", "rules"}`. What is timed
//! is also checked: the loader's first batch is compared with the plain reader.

mod au;
mod compare;
mod loader;
mod storage;

use std::collections::BTreeMap;

use kino_dataset::Dataset;
use serde::{Deserialize, Serialize};

pub use au::{AuOptions, bench_au};
pub use compare::{Comparison, compare};
pub use loader::bench_loader;
pub use storage::bench_storage;
pub(crate) use storage::{Reads, read_blocks};

use crate::doctor::Subject;
use crate::machine::Machine;

/// Figures, and everything that a reader needs to judge them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchResult {
    /// The benchmark: `loader`, `au`, `storage` or `codecs`.
    pub bench: String,
    /// The machine it ran on.
    pub machine: Machine,
    /// The dataset; `None` for a benchmark without one.
    pub dataset: Option<MeasuredDataset>,
    /// The settings, by option name.
    pub settings: BTreeMap<String, String>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// How to read the figures.
    pub rules: Vec<String>,
}

/// The dataset that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeasuredDataset {
    /// Its folder.
    pub path: String,
    /// Its id; equal ids mean equal episodes.
    pub id: String,
    /// Number of episodes.
    pub episodes: usize,
    /// Stored bytes.
    pub bytes: u64,
}

/// One figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// Whether more or less is better.
    pub better: Better,
}

/// Which direction is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// More.
    More,
    /// Less.
    Less,
}

impl BenchResult {
    /// A result without any figures.
    pub fn new(bench: &str, dataset: Option<&Dataset>) -> Self {
        Self {
            bench: bench.to_owned(),
            machine: Machine::here(),
            dataset: dataset.map(|dataset| MeasuredDataset {
                path: dataset.path().display().to_string(),
                id: dataset.id().to_owned(),
                episodes: dataset.len(),
                bytes: dataset.manifest().total_bytes(),
            }),
            settings: BTreeMap::new(),
            figures: Vec::new(),
            rules: Vec::new(),
        }
    }

    /// Adds a figure.
    pub fn add(&mut self, name: &str, value: f64, unit: &str, better: Better) {
        self.figures.push(Figure {
            name: name.to_owned(),
            value,
            unit: unit.to_owned(),
            better,
        });
    }

    fn set(&mut self, name: &str, value: impl ToString) {
        self.settings.insert(name.to_owned(), value.to_string());
    }

    /// Records the configuration of a loader.
    fn describe(&mut self, subject: &Subject) {
        let options = &subject.options;
        let order = subject.order.settings();
        self.set("batch", order.batch_size);
        self.set("shuffle", format!("{:?}", order.shuffle));
        self.set("memory_bytes", options.memory_bytes());
        self.set("threads", options.decode_threads());
        self.set("prefetch", format!("{:?}", options.prefetch));
        self.set("cpu", format!("{:?}", options.cpu));
        self.set("images", format!("{:?}", options.images));
        let first = subject
            .windows
            .first()
            .and_then(|variants| variants.first());
        if let Some(request) = first.and_then(|windows| windows.request().canonical().ok()) {
            self.set("request", request);
        }
    }
}

impl std::fmt::Display for BenchResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let machine = &self.machine;
        writeln!(
            f,
            "{}, {:.0} GB of memory, {}, kinograph {}",
            machine.cpu,
            machine.memory_bytes as f64 / 1e9,
            machine.system,
            machine.kinograph
        )?;
        if let Some(dataset) = &self.dataset {
            writeln!(
                f,
                "{}: {} episodes, {:.1} MB",
                dataset.path,
                dataset.episodes,
                dataset.bytes as f64 / 1e6
            )?;
        }
        writeln!(f)?;
        let width = self
            .figures
            .iter()
            .map(|figure| figure.name.chars().count());
        let width = width.max().unwrap_or(0);
        for Figure {
            name, value, unit, ..
        } in &self.figures
        {
            writeln!(f, "{name:width$}  {:>12}  {unit}", shown(*value))?;
        }
        if !self.rules.is_empty() {
            writeln!(f)?;
        }
        self.rules.iter().try_for_each(|rule| writeln!(f, "{rule}"))
    }
}

/// A figure with about four significant digits.
fn shown(value: f64) -> String {
    let digits = match value.abs() {
        1000.0.. => 0,
        100.0.. => 1,
        1.0.. => 2,
        _ => 4,
    };
    format!("{value:.digits$}")
}
