//! Faults planted on purpose, each found by the doctor; applying the change that it ranks first delivers what was
//! predicted.
//!
//! Faults and steps sleep, so they are as slow on a busy machine as on an idle one, and each fault is several times
//! as long as the step.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops at the first unexpected result"
)]

#[path = "../../kino_loader/tests/loader/recording.rs"]
mod recording;

use std::time::Duration;

use kino_advisor::{
    Cause, Diagnosis, DoctorOptions, Emulated, Host, Remedy, Result, Subject, diagnose,
};
use kino_dataset::{ByteSize, Request, Samples, Selection, SlowStorage, Stall, Storage};
use kino_loader::{
    Batch, CpuShare, GroupSize, Loader, LoaderOptions, Order, Run, Settings, Shuffle, Source,
    Stage, Trial, Unit,
};
use tempfile::TempDir;

const STEP: Duration = Duration::from_millis(20);
const BATCH: u32 = 8;
/// Room for the vectors but not for the images: under a global shuffle, images are read for each sample.
const LITTLE: u64 = 8 << 10;

/// An accelerator that leaves its core to the loader.
struct Sleeps(Duration);

impl Host for Sleeps {
    fn step(&mut self, batch: Batch) -> Result<()> {
        assert!(
            batch.is_real(),
            "the loop only gets batches that all stages have made"
        );
        drop(batch);
        std::thread::sleep(self.0);
        Ok(())
    }
}

struct Planted {
    _folder: TempDir,
    subject: Subject,
    options: DoctorOptions,
    step: Duration,
}

/// A loader without a fault: one thread, a global shuffle, images read for each sample.
fn healthy(steps: &str) -> Planted {
    let (folder, dataset) = recording::open(4);
    let request = format!(
        r#"{{"anchor": {{"stream": "actions"}}, "windows": [{{"stream": "front", "at": {{"steps": {steps}}}}},
            {{"stream": "actions", "at": {{"steps": [0]}}}}]}}"#
    );
    let request = Request::from_json(&request).unwrap();
    let windows = Samples::bind(&dataset, request, &Selection::default()).unwrap();
    let settings = Settings {
        batch_size: BATCH,
        ..Settings::default()
    };
    let order = Order::new(Source::of(&windows).unwrap(), settings).unwrap();
    let options = DoctorOptions {
        step_s: Some(STEP.as_secs_f64()),
        target: 0.9,
        seconds: 0.5,
        cores: 1,
        reserve_core: false,
        ..DoctorOptions::default()
    };
    Planted {
        _folder: folder,
        subject: Subject {
            order,
            windows: vec![vec![windows]],
            options: LoaderOptions {
                memory: Some(ByteSize::new(LITTLE)),
                threads: Some(1),
                ..LoaderOptions::default()
            },
        },
        options,
        step: STEP,
    }
}

impl Planted {
    fn trial(mut self, trial: Trial) -> Self {
        self.subject.options.run.trial = trial;
        self
    }

    fn storage(mut self, slow: SlowStorage) -> Self {
        self.options.storage = Storage {
            slow: Some(slow),
            keep_bytes: 0,
        };
        self
    }

    fn step(mut self, step: Duration) -> Self {
        self.step = step;
        self.options.step_s = Some(step.as_secs_f64());
        self
    }

    fn examine(&self) -> Diagnosis {
        diagnose(&self.subject, &self.options, &mut Sleeps(self.step)).unwrap()
    }

    /// Finds the cause; if other work on the machine misled it, by measuring again for longer.
    fn finds(&self, cause: Cause) -> Diagnosis {
        let mut options = self.options.clone();
        let mut found = self.examine();
        for _ in 0..2 {
            if found.verdict.cause == cause {
                break;
            }
            options.seconds *= 3.0;
            found = diagnose(&self.subject, &options, &mut Sleeps(self.step)).unwrap();
        }
        assert_eq!(found.verdict.cause, cause, "{found}");
        assert_eq!(
            found.verdict.met,
            matches!(cause, Cause::Nothing | Cause::SlowStep)
        );
        found
    }

    /// Applies what the doctor recommends.
    fn apply(&mut self, remedy: &Remedy) {
        let options = &mut self.subject.options;
        match *remedy {
            Remedy::Threads(threads) => options.threads = Some(threads),
            Remedy::Prefetch(depth) => options.prefetch = depth,
            Remedy::Memory(bytes) => {
                options.memory = Some(ByteSize::new(bytes));
                // It helps once everything has been decoded: the warm-up must last for an epoch.
                self.options.seconds = 4.0;
            }
            Remedy::CpuShare => options.cpu = None,
            Remedy::Staging => self.options.storage = Storage::default(),
            Remedy::Pool(bytes) => {
                let shuffle = Shuffle::Groups {
                    size: GroupSize::Bytes(bytes),
                    unit: Unit::Episodes,
                };
                let settings = Settings {
                    shuffle,
                    ..*self.subject.order.settings()
                };
                let source = Source::of(&self.subject.windows[0][0]).unwrap();
                self.subject.order = Order::new(source, settings).unwrap();
            }
            _ => panic!("this test does not apply {remedy:?}"),
        }
    }

    /// Checks that the fault is found, and that the first change brings at least half of what was predicted.
    fn delivers_as_predicted(mut self, cause: Cause, is_expected: impl Fn(&Remedy) -> bool) {
        let found = self.finds(cause);
        let change = found.changes[0].clone();
        assert!(is_expected(&change.remedy), "{found}");
        self.apply(&change.remedy);
        let after = self.examine().evidence.fed.compute_ratio;
        let before = found.evidence.fed.compute_ratio;
        assert!(change.compute_ratio > before * 1.2, "{found}");
        assert!(
            after - before >= 0.5 * (change.compute_ratio - before),
            "compute ratio {before} before, {after} after\n{found}"
        );
    }
}

/// Stored bytes that this loader reads per batch.
fn bytes_per_batch(subject: &Subject) -> f64 {
    let options = LoaderOptions {
        run: Run {
            batches: Some(20),
            ..Run::default()
        },
        ..subject.options.clone()
    };
    let mut loader =
        Loader::start(subject.order.clone(), subject.windows.clone(), options).unwrap();
    while loader.next_batch().unwrap().is_some() {}
    let stages = loader.report().stages;
    let fetch = stages.iter().find(|one| one.stage == Stage::Fetch).unwrap();
    fetch.bytes as f64 / 20.0
}

fn decode_pause(pause_ms: u64) -> Trial {
    Trial {
        decode_pause: Duration::from_millis(pause_ms),
        ..Trial::default()
    }
}

#[test]
fn storage_with_low_bandwidth_is_found() {
    let planted = healthy("[0]");
    let rate = bytes_per_batch(&planted.subject) / (5.0 * STEP.as_secs_f64());
    let slow = SlowStorage {
        bytes_per_s: Some(rate),
        ..SlowStorage::default()
    };
    let planted = planted.storage(slow);
    planted.delivers_as_predicted(Cause::Storage, |remedy| {
        matches!(remedy, Remedy::Memory(_) | Remedy::Staging)
    });
}

#[test]
fn storage_with_high_latency_is_found_and_a_local_copy_helps() {
    let slow = SlowStorage {
        latency: Duration::from_millis(100),
        ..SlowStorage::default()
    };
    let mut planted = healthy("[0]").storage(slow);
    let found = planted.finds(Cause::Storage);
    let staging = found
        .changes
        .iter()
        .find(|change| change.remedy == Remedy::Staging)
        .unwrap();
    planted.apply(&staging.remedy);
    let (before, after) = (
        found.evidence.fed.compute_ratio,
        planted.examine().evidence.fed.compute_ratio,
    );
    assert!(after - before >= 0.5 * (staging.compute_ratio - before));
}

#[test]
fn a_single_decoding_thread_is_found_if_there_are_more_cores() {
    let mut planted = healthy("[0]").trial(decode_pause(12));
    planted.options.cores = 9;
    planted.delivers_as_predicted(Cause::Decode, |remedy| {
        matches!(remedy, Remedy::Threads(8) | Remedy::Memory(_))
    });
}

#[test]
fn an_expensive_codec_is_found_if_there_are_no_more_cores() {
    let planted = healthy("[0]").trial(decode_pause(12));
    planted.delivers_as_predicted(Cause::Decode, |remedy| matches!(remedy, Remedy::Memory(_)));
}

#[test]
fn a_slow_collate_is_found_and_more_threads_help() {
    let mut planted = healthy("[0]").trial(Trial {
        collate_pause: Duration::from_millis(12),
        ..Trial::default()
    });
    planted.options.cores = 9;
    planted.delivers_as_predicted(Cause::Collate, |remedy| *remedy == Remedy::Threads(8));
}

#[test]
fn a_stalling_source_is_found_and_a_deeper_prefetch_helps() {
    let slow = SlowStorage {
        stall: Some(Stall {
            every: 64,
            pause: Duration::from_millis(100),
        }),
        ..SlowStorage::default()
    };
    let mut planted = healthy("[0]").storage(slow);
    planted.subject.options.prefetch = Some(2);
    planted.delivers_as_predicted(Cause::Jitter, |remedy| *remedy == Remedy::Prefetch(None));
}

#[test]
fn prefetching_one_batch_is_not_enough_for_an_uneven_source() {
    let slow = SlowStorage {
        stall: Some(Stall {
            every: 32,
            pause: Duration::from_millis(45),
        }),
        ..SlowStorage::default()
    };
    let mut planted = healthy("[0]").storage(slow);
    planted.subject.options.prefetch = Some(1);
    planted.finds(Cause::Jitter);
}

#[test]
fn repeated_decoding_of_frames_is_fixed_with_memory() {
    let planted = healthy("[-9, -8, -7, -6, -5, -4, -3, -2, -1, 0]").trial(decode_pause(2));
    planted.delivers_as_predicted(Cause::Memory, |remedy| {
        matches!(remedy, Remedy::Memory(_) | Remedy::Pool(_))
    });
}

#[test]
fn a_slow_step_leaves_nothing_to_fix() {
    let found = healthy("[0]")
        .step(Duration::from_millis(100))
        .finds(Cause::SlowStep);
    assert_eq!(found.changes[0].remedy, Remedy::Nothing);
    assert!(found.evidence.without.is_none(), "no stage is disabled");
}

#[test]
fn a_loader_that_just_keeps_up_leaves_nothing_to_fix() {
    let planted = healthy("[0]")
        .trial(decode_pause(4))
        .step(Duration::from_millis(64));
    let found = planted.examine();
    assert!(found.verdict.met, "{found}");
}

#[test]
fn a_cpu_limit_that_is_too_low_is_found() {
    let mut planted = healthy("[-9, -8, -7, -6, -5, -4, -3, -2, -1, 0]");
    planted.subject.options.cpu = Some(CpuShare::Cores(0.015));
    planted.delivers_as_predicted(Cause::CpuShare, |remedy| *remedy == Remedy::CpuShare);
}

#[test]
fn a_step_shorter_than_a_hand_over_is_limited_by_the_hand_over() {
    let planted = healthy("[0]").step(Duration::from_micros(3));
    // A sleep would take many times as long.
    let mut spins = Emulated { step: planted.step };
    let found = diagnose(&planted.subject, &planted.options, &mut spins).unwrap();
    assert_eq!(found.verdict.cause, Cause::HandOver, "{found}");
    assert_eq!(found.changes[0].remedy, Remedy::FewerHandOvers);
}

#[test]
fn invalid_options_are_refused_with_valid_ones() {
    let mut planted = healthy("[0]");
    let refused = |options: DoctorOptions| {
        let error = diagnose(&planted.subject, &options, &mut Sleeps(STEP));
        error.unwrap_err().to_string()
    };
    let options = planted.options.clone();
    let wrong_target = refused(DoctorOptions {
        target: 1.5,
        ..options.clone()
    });
    assert!(wrong_target.contains("0.95"), "{wrong_target}");
    let no_step = refused(DoctorOptions {
        step_s: None,
        ..options.clone()
    });
    assert!(no_step.contains("time of a step"), "{no_step}");
    let no_time = refused(DoctorOptions {
        seconds: 0.0,
        ..options
    });
    assert!(no_time.contains("hour"), "{no_time}");
    planted.subject.options.run.batches = Some(1);
    assert!(diagnose(&planted.subject, &planted.options, &mut Sleeps(STEP)).is_err());
}
