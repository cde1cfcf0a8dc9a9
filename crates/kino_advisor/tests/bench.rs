//! The benchmarks run, check what they time, and give comparable results.

#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first unexpected result"
)]

#[path = "../../kino_loader/tests/loader/recording.rs"]
mod recording;

use kino_advisor::{
    AuOptions, BenchResult, Host, Result, Workload, bench_au, bench_loader, bench_storage, compare,
};
use kino_loader::{Batch, ImageDtype, ImageOptions, LoaderOptions, PerKey, Size};

struct Quiet;

impl Host for Quiet {
    fn step(&mut self, batch: Batch) -> Result<()> {
        drop(batch);
        Ok(())
    }
}

fn workload() -> Workload {
    Workload {
        order: serde_json::json!({"batch_size": 8}),
        ..Workload::default()
    }
}

fn figure(result: &BenchResult, name: &str) -> f64 {
    let found = result.figures.iter().find(|figure| figure.name == name);
    found.unwrap_or_else(|| unreachable!("no {name}")).value
}

#[test]
fn a_loader_is_measured_cold_and_warm_and_compared_with_itself() {
    let (_folder, dataset) = recording::open(4);
    let subject = workload().subject(&dataset).unwrap();
    let result = bench_loader(&subject, 0.2, &mut Quiet).unwrap();
    for cache in ["cold", "warm"] {
        assert!(figure(&result, &format!("{cache}: samples")) > 0.0);
        assert!(figure(&result, &format!("{cache}: time to first batch")) > 0.0);
    }
    assert_eq!(result.dataset.as_ref().unwrap().episodes, 4);
    let text = serde_json::to_string(&result).unwrap();
    let read: BenchResult = serde_json::from_str(&text).unwrap();
    assert_eq!(read.settings, result.settings);
    let compared = compare(&result, &read).unwrap();
    assert!(compared.differs.is_empty() && compared.alone.is_empty());
    assert!(result.to_string().contains("per second"));
}

#[test]
fn resized_float_images_are_measured_too() {
    let (_folder, dataset) = recording::open(3);
    let changed = Workload {
        windows: vec![("front".to_owned(), -1..1), ("joints".to_owned(), 0..1)],
        options: LoaderOptions {
            images: ImageOptions {
                size: PerKey::All(Size {
                    height: 4,
                    width: 4,
                }),
                dtype: ImageDtype::F32,
                ..ImageOptions::default()
            },
            ..LoaderOptions::default()
        },
        ..workload()
    };
    let subject = changed.subject(&dataset).unwrap();
    assert!(bench_loader(&subject, 0.1, &mut Quiet).is_ok());
}

#[test]
fn the_sustained_step_rate_is_found_and_the_rules_are_listed() {
    let (_folder, dataset) = recording::open(4);
    let subject = workload().subject(&dataset).unwrap();
    let options = AuOptions {
        step_s: Some(0.01),
        seconds: 0.05,
        runs: 1,
        ..AuOptions::default()
    };
    let result = bench_au(&subject, &options, &mut Quiet).unwrap();
    let held = figure(&result, "shortest sustained step") / 1e3;
    assert!((figure(&result, "sustained step rate") - 1.0 / held).abs() < 1e-6 / held);
    assert!(figure(&result, "utilisation at the given step") > 0.0);
    for rule in 1..=7 {
        let begins = format!("{rule}. ");
        assert!(result.rules.iter().any(|text| text.starts_with(&begins)));
    }
    let none = AuOptions { runs: 0, ..options };
    assert!(bench_au(&subject, &none, &mut Quiet).is_err());
}

#[test]
fn storage_is_measured_by_block_and_reads_in_flight() {
    let (_folder, dataset) = recording::open(2);
    let result = bench_storage(&dataset, 0.3, &mut Quiet).unwrap();
    assert_eq!(result.figures.len(), 3 * 3 * 3);
    assert!(figure(&result, "64 KiB, 4 in flight: bandwidth") > 0.0);
    assert!(figure(&result, "1 MiB, 16 in flight: latency p99") > 0.0);
}

#[test]
fn a_workload_without_windows_reads_every_stream_at_the_anchor() {
    let (_folder, dataset) = recording::open(2);
    let subject = workload().subject(&dataset).unwrap();
    let request = subject.windows[0][0].request();
    assert_eq!(request.windows.len(), 5);
    assert!(format!("{:?}", request.anchor).contains("actions"));
    assert!(request.windows.iter().all(|window| window.len() == Some(1)));
}
