//! The verdict on a loader that is not ours as a function of the figures, case by case, and the changes that follow.

use super::evidence::{ForeignDifferences, ForeignSetting, LoaderKind, MoreWorkers, Moved};
use super::*;
use crate::doctor::evidence::{FedRun, FreeRun};
use crate::doctor::{Cause, Remedy};

/// A batch of these milliseconds, in which `__getitem__` was blocked for a part of its time.
fn run(batch_ms: f64, blocked: f64) -> FreeRun {
    FreeRun {
        batches: 100,
        batch_s: batch_ms / 1e3,
        each_s: vec![batch_ms / 1e3; 100],
        fetch_s: blocked,
        decode_s: 1.0 - blocked,
        collate_s: 1.0,
        fetch_bytes: 1e6,
        ..FreeRun::default()
    }
}

fn fed(compute_ratio: f64) -> FedRun {
    FedRun {
        steps: 100,
        compute_ratio,
        utilisation: compute_ratio,
        ..FedRun::default()
    }
}

/// A step of 20 ms and a batch of 100 ms; its times with samples read again, items ready and batches ready.
fn evidence(blocked: f64, [again, items, ready]: [f64; 3]) -> ForeignEvidence {
    ForeignEvidence {
        step_s: 0.02,
        target: 0.95,
        setting: ForeignSetting {
            loader: "DataLoader over Demos".to_owned(),
            kind: LoaderKind::MapStyle,
            batch: Some(64),
            epoch_batches: Some(1000),
            num_workers: 4,
            prefetch_factor: Some(2),
            pin_memory: false,
            persistent_workers: false,
            batch_bytes: 10_000_000,
            pickled_bytes: 0,
            is_first_pass: true,
            dropped_bytes: 0,
            clock: "cpu".to_owned(),
            cores: 4,
            load: 0.0,
        },
        start_s: 0.5,
        fed: fed(0.2),
        whole: run(100.0, blocked),
        without: Some(ForeignDifferences {
            without_fetch: Some(run(again, blocked)),
            without_dataset: Some(run(items, 0.0)),
            without_collate: Some(run(ready, 0.0)),
            half_batch: None,
            more_workers: Some(MoreWorkers {
                num_workers: 8,
                run: run(50.0, blocked),
            }),
            pinned: None,
            nothing: fed(1.0),
        }),
        kinograph: None,
    }
}

/// The same evidence after a change of it.
fn with(mut evidence: ForeignEvidence, change: impl Fn(&mut ForeignEvidence)) -> ForeignEvidence {
    change(&mut evidence);
    evidence
}

fn computing() -> ForeignEvidence {
    evidence(0.1, [99.0, 20.0, 5.0])
}

/// Loops that wait.
fn cases() -> Vec<(Cause, ForeignEvidence)> {
    vec![
        (Cause::Decode, computing()),
        // Cores are left for the workers that help.
        (
            Cause::Workers,
            with(computing(), |one| one.setting.cores = 8),
        ),
        (Cause::Storage, evidence(0.9, [99.0, 20.0, 5.0])),
        // Another process delayed the first pass: what computes does not wait for storage.
        (Cause::Decode, evidence(0.1, [30.0, 20.0, 5.0])),
        // More workers help, and are the first change, but they are not the cause.
        (
            Cause::Storage,
            with(evidence(0.9, [99.0, 20.0, 5.0]), |one| {
                one.setting.cores = 8
            }),
        ),
        (Cause::Collate, evidence(0.1, [99.0, 90.0, 5.0])),
        // Workers that make batches all the time are not held up by passing them.
        (Cause::Decode, evidence(0.1, [99.0, 60.0, 59.0])),
        // Runs that differ by chance: the workers know that they hardly did anything.
        (
            Cause::Transfer,
            with(evidence(0.1, [99.0, 50.0, 40.0]), |one| {
                one.whole.fetch_s = 0.0;
                one.whole.decode_s = 1e-4;
                one.whole.collate_s = 1e-4;
            }),
        ),
        (
            Cause::Jitter,
            with(computing(), |one| one.whole = run(15.0, 0.1)),
        ),
        (
            Cause::Workers,
            with(computing(), |one| {
                one.setting.num_workers = 0;
                one.whole = run(15.0, 0.1);
            }),
        ),
        (
            Cause::Decode,
            with(computing(), |one| one.setting.num_workers = 0),
        ),
        (
            Cause::HandOver,
            with(computing(), |one| {
                if let Some(without) = &mut one.without {
                    without.nothing = fed(0.5);
                }
            }),
        ),
        (
            Cause::Loader,
            with(computing(), |one| one.setting.kind = LoaderKind::Batches),
        ),
    ]
}

/// Loops that meet the target.
fn met_cases() -> Vec<(Cause, ForeignEvidence)> {
    let met = |ratio: f64| {
        move |one: &mut ForeignEvidence| {
            one.fed = fed(ratio);
            one.without = None;
        }
    };
    vec![
        (
            Cause::Nothing,
            with(computing(), |one| {
                met(0.97)(one);
                one.setting.epoch_batches = None;
                one.whole = run(15.0, 0.1);
            }),
        ),
        (
            Cause::SlowStep,
            with(computing(), |one| {
                met(1.0)(one);
                one.whole = run(1.0, 0.1);
            }),
        ),
        (
            Cause::WorkerStart,
            with(computing(), |one| {
                met(1.0)(one);
                one.whole = run(1.0, 0.1);
                one.setting.epoch_batches = Some(10);
            }),
        ),
    ]
}

#[test]
fn every_cause_follows_from_its_figures() {
    for (cause, evidence) in cases().into_iter().chain(met_cases()) {
        let found = examine(evidence, GpuPrice::new(2.5, 8).ok());
        assert_eq!(found.verdict.cause, cause, "{}", found.verdict.sentence);
        assert!(found.verdict.sentence.ends_with('.') && found.verdict.sentence.contains('%'));
        assert!(!found.changes.is_empty());
        let json = serde_json::to_string(&found).unwrap();
        let read: Found = serde_json::from_str(&json).unwrap();
        assert_eq!(read, Found::Foreign(Box::new(found.clone())));
        for text in [read.to_string(), read.to_html()] {
            assert!(text.contains("waiting costs") && text.contains("kinograph pack SOURCE"));
            assert_eq!(text.contains("ALARM"), found.idle.compute_ratio < 0.85);
            assert!(!text.contains("NaN"));
        }
        assert!(found.to_string().contains(&found.verdict.sentence));
    }
}

#[test]
fn workers_are_recommended_as_measured_and_up_to_the_cores() {
    let found = examine(with(computing(), |one| one.setting.cores = 33), None);
    let of = |workers: usize| {
        let is_it = |change: &&crate::doctor::Change| change.remedy == Remedy::NumWorkers(workers);
        found.changes.iter().find(is_it).unwrap()
    };
    assert!((of(8).compute_ratio - 0.4).abs() < 1e-9);
    // 50 ms with 8 workers: 12.5 ms with 32, less than a step.
    assert!((of(32).batch_s - 0.0125).abs() < 1e-9 && of(32).compute_ratio > 0.95);
    assert_eq!(found.changes[0].remedy, Remedy::NumWorkers(32));
}

#[test]
fn without_workers_a_step_and_its_batch_add_up() {
    let found = examine(with(computing(), |one| one.setting.num_workers = 0), None);
    let cheaper = |change: &&crate::doctor::Change| change.remedy == Remedy::CheaperItems;
    let change = found.changes.iter().find(cheaper).unwrap();
    // 80 ms of `__getitem__`, of which 72 ms compute.
    assert!((change.batch_s - 0.028).abs() < 1e-9, "{change:?}");
    assert!((change.compute_ratio - 20.0 / 48.0).abs() < 1e-9);
}

#[test]
fn a_measured_kinograph_loader_is_shown_beside_the_other() {
    let found = examine(
        with(computing(), |one| {
            one.kinograph = Some(Moved {
                loader: "Loader over lift.kino".to_owned(),
                batch: 64,
                is_step_emulated: true,
                fed: fed(0.99),
                whole: FreeRun {
                    cpu_s: 0.0064,
                    ..run(8.0, 0.0)
                },
            });
        }),
        None,
    );
    assert_eq!(found.changes[0].remedy, Remedy::Kinograph);
    for text in [found.to_string(), found.to_html()] {
        for figure in ["8000", "0.100", "0.990", "640", "lift.kino", "emulated"] {
            assert!(text.contains(figure), "{figure} in {text}");
        }
        assert!(!text.contains("kinograph pack"));
    }
}

#[test]
fn uneven_batches_are_replayed_with_a_deeper_prefetch() {
    let found = examine(
        with(computing(), |one| {
            one.whole = run(15.0, 0.1);
            let slow = |idx| if idx % 20 == 19 { 0.2 } else { 0.005 };
            one.whole.each_s = (0..200).map(slow).collect();
        }),
        None,
    );
    let deeper =
        |change: &crate::doctor::Change| matches!(change.remedy, Remedy::PrefetchFactor(4..=16));
    assert!(found.changes.iter().any(deeper), "{:?}", found.changes);
}
