//! How the stages are run: metered, and in a measurement run disabled or made slower.
//!
//! ```text
//! whole            fetch ─▶ decode ─▶ collate ─▶ batch          7 ms a batch
//! without decode   fetch ─▶         ─▶ collate ─▶ batch         2 ms: decoding takes most of the time
//! ```
//!
//! Without decode, frames hold arbitrary bytes; without collate, batches do. [`Batch::is_real`](crate::Batch::is_real)
//! is `false` for such a batch, and the Python loader never produces one. Storage is emulated by the dataset
//! (`kino_dataset::Storage`).

use std::sync::Arc;
use std::time::Duration;

use kino_dataset::DatasetError;

use crate::engine::Run;
use crate::engine::meter::{Meter, Stage};
use crate::engine::store::DecodedPage;

/// How a measurement run differs from training; the default changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Trial {
    /// Nothing is decoded: frames hold arbitrary bytes, texts are empty.
    pub without_decode: bool,
    /// Nothing is copied into batches: they hold arbitrary bytes.
    pub without_collate: bool,
    /// Added to the decode time of every page, as by a heavier codec or a slower core.
    pub decode_pause: Duration,
    /// Added to the collate time of every sample.
    pub collate_pause: Duration,
}

impl Trial {
    /// Whether batches hold real data.
    pub(crate) fn is_real(self) -> bool {
        !self.without_decode && !self.without_collate
    }
}

/// How a loader's stages are run, given at its start: metered always, and in a measurement run slowed down or left out.
/// The threads say what a stage does, and what is left of it without its work.
#[derive(Debug)]
pub(crate) struct Stages {
    meter: Meter,
    trial: Trial,
}

/// What collating a sample gives: the bytes written and the frames used, or why it cannot be read.
type Collated = Result<(u64, usize), Arc<DatasetError>>;

impl Stages {
    /// As a run asks for.
    pub(crate) fn new(run: &Run) -> Self {
        let meter = Meter::new();
        if run.is_traced {
            meter.start_trace();
        }
        Self {
            meter,
            trial: run.trial,
        }
    }

    /// What counts.
    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Decodes a page of so many stored bytes, or does what is left of it `without` decoding.
    pub(crate) fn decode(
        &self,
        stored_bytes: u64,
        decode: impl FnOnce() -> DecodedPage,
        without: impl FnOnce() -> DecodedPage,
    ) -> DecodedPage {
        let decoded = self.meter.time(Stage::Decode, || {
            pause(self.trial.decode_pause);
            let decoded = if self.trial.without_decode {
                without()
            } else {
                decode()
            };
            let bytes = decoded.bytes;
            (decoded, bytes)
        });
        Meter::add(&self.meter.frames_decoded, decoded.frames);
        if decoded.frames > 0 {
            self.meter.used(stored_bytes);
        }
        decoded
    }

    /// Collates a sample, or leaves it.
    pub(crate) fn collate(&self, collate: impl FnOnce() -> Collated) -> Collated {
        let done = self.meter.time(Stage::Collate, || {
            pause(self.trial.collate_pause);
            let done = if self.trial.without_collate {
                Ok((0, 0))
            } else {
                collate()
            };
            let bytes = done.as_ref().map_or(0, |(bytes, _)| *bytes);
            (done, bytes)
        });
        if let Ok((_, frames)) = &done {
            Meter::add(&self.meter.frames_used, *frames);
        }
        done
    }
}

/// Sleeps, unless `time` is zero.
fn pause(time: Duration) {
    if !time.is_zero() {
        std::thread::sleep(time);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use kino_dataset::{Request, Samples, Selection, Storage};

    use super::*;
    use crate::engine::{Loader, LoaderOptions, Report, recording};
    use crate::order::{Order, Settings, Source};

    const REQUEST: &str = r#"{"anchor": {"stream": "actions"}, "windows": [
        {"stream": "front", "at": {"steps": [-1, 0]}}, {"stream": "words", "at": {"steps": [0]}, "resolve": "hold"}]}"#;

    /// Runs some batches; returns the report, and whether each batch was real.
    fn run(trial: Trial) -> (Report, Vec<bool>) {
        let (_folder, dataset) = recording::open(3);
        let request: Request = serde_json::from_str(REQUEST).unwrap();
        let windows = Samples::bind(&dataset, request, &Selection::default()).unwrap();
        let settings = Settings {
            batch_size: 4,
            ..Settings::default()
        };
        let order = Order::new(Source::of(&windows).unwrap(), settings).unwrap();
        let options = LoaderOptions {
            threads: Some(1),
            run: Run {
                batches: Some(10),
                trial,
                ..Run::default()
            },
            ..LoaderOptions::default()
        };
        let mut loader = Loader::start(order, vec![vec![windows]], options).unwrap();
        let mut real = Vec::new();
        while let Some(batch) = loader.next_batch().unwrap() {
            assert_eq!(batch.samples().len(), 4);
            real.push(batch.is_real());
        }
        (loader.report(), real)
    }

    fn bytes(report: &Report, stage: Stage) -> u64 {
        let found = report.stages.iter().find(|one| one.stage == stage);
        found.unwrap().bytes
    }

    #[test]
    fn a_batch_is_not_real_if_a_stage_was_disabled() {
        assert_eq!(run(Trial::default()).1, [true; 10]);
        let without_decode = Trial {
            without_decode: true,
            ..Trial::default()
        };
        let (report, real) = run(without_decode);
        assert_eq!(real, [false; 10]);
        assert!(report.frames_decoded > 0 && bytes(&report, Stage::Fetch) > 0);
        let without_collate = Trial {
            without_collate: true,
            ..Trial::default()
        };
        let (report, real) = run(without_collate);
        assert_eq!(real, [false; 10]);
        assert_eq!(bytes(&report, Stage::Collate), 0);
    }

    #[test]
    fn pauses_count_towards_their_stage() {
        let trial = Trial {
            collate_pause: Duration::from_millis(2),
            ..Trial::default()
        };
        let began = Instant::now();
        let (report, real) = run(trial);
        assert_eq!(real, [true; 10]);
        let collate = report.stages.iter().find(|one| one.stage == Stage::Collate);
        assert!(collate.unwrap().busy_s >= 0.08, "40 samples of 2 ms");
        assert!(began.elapsed() >= Duration::from_millis(80));
    }

    #[test]
    fn windows_on_other_storage_have_the_same_samples() {
        let (_folder, dataset) = recording::open(3);
        let request: Request = serde_json::from_str(REQUEST).unwrap();
        let windows = Samples::bind(&dataset, request, &Selection::default()).unwrap();
        let kept = Storage {
            slow: None,
            keep_bytes: 1 << 20,
        };
        let other = windows.on(&dataset.on(kept).unwrap()).unwrap();
        assert_eq!(other.id().unwrap(), windows.id().unwrap());
        assert_eq!(other.counts(), windows.counts());
        let (_other, stranger) = recording::open(2);
        assert!(windows.on(&stranger).is_err());
    }
}
