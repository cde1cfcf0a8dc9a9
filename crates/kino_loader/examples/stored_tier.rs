//! Stored pages in memory: the time of an epoch with and without them, on storage of several speeds.
//!
//! ```text
//! cargo run --release -p kino_loader --example stored_tier [> bench/results/stored_tier.csv]
//! ```
//!
//! 120 episodes of one camera, with memory for a fraction of the decoded frames. The loop takes batches as fast as they come.
//! Epochs after the second are timed; the loader decides in the second. Slow storage sleeps (`kino_dataset::Storage`), and
//! what it has read is not cached by it.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an example prints, and stops at the first error"
)]

mod cameras;

use std::time::Instant;

use kino_dataset::{ByteSize, Dataset, Request, Samples, Selection, Storage};
use kino_loader::{
    GroupSize, Loader, LoaderOptions, Order, Run, Settings, Shuffle, Source, Stage, Unit,
};

use cameras::write_cameras;

const EPISODES: u64 = 120;
const SIDE: usize = 96;
const EPOCHS: u64 = 5;
const FIRST: u64 = 2;

fn main() {
    let (_folder, dataset) = write_cameras(EPISODES, SIDE, moving_gradient);
    println!(
        "storage,shuffle,memory,tier,epoch_s,read_mb_per_epoch,decodes_per_frame,stored_kept_mb"
    );
    let groups = Shuffle::Groups {
        size: GroupSize::Fraction(0.05),
        unit: Unit::Episodes,
    };
    for storage in ["page cache", "1GB/s", "100MB/s,2ms", "20MB/s,5ms"] {
        let slow = storage.parse().ok();
        let dataset = dataset
            .on(Storage {
                slow,
                keep_bytes: 0,
            })
            .unwrap();
        for (name, shuffle) in [("groups of 5 %", groups), ("global", Shuffle::Global)] {
            for fraction in [0.2, 0.5] {
                for is_on in [false, true] {
                    let row = measure(&dataset, shuffle, fraction, is_on);
                    let tier = if is_on { "on" } else { "off" };
                    println!("{storage:?},{name},{fraction},{tier},{row}");
                }
            }
        }
    }
}

fn measure(dataset: &Dataset, shuffle: Shuffle, fraction: f64, is_on: bool) -> String {
    let request = r#"{"anchor": {"stream": "front"}, "windows": [{"stream": "front", "at": {"steps": [-1, 0]}}]}"#;
    let request: Request = serde_json::from_str(request).unwrap();
    let windows = Samples::bind(dataset, request, &Selection::default()).unwrap();
    let settings = Settings {
        seed: 3,
        batch_size: 16,
        shuffle,
        ..Settings::default()
    };
    let order = Order::new(Source::of(&windows).unwrap(), settings).unwrap();
    let total: u64 = windows.sizes().iter().sum();
    let batches = order.batches_of(0).unwrap().end;
    let options = LoaderOptions {
        memory: Some(ByteSize::new((total as f64 * fraction) as u64)),
        threads: Some(1),
        run: Run {
            batches: Some(EPOCHS * batches),
            is_without_stored_tier: !is_on,
            ..Run::default()
        },
        ..LoaderOptions::default()
    };
    let frames = windows.len();
    let budget = options.memory_bytes();
    let mut loader = Loader::start(order, vec![vec![windows]], options).unwrap();
    for _ in 0..FIRST * batches {
        loader.next_batch().unwrap().unwrap();
    }
    let (before, began) = (loader.report(), Instant::now());
    for _ in FIRST * batches..EPOCHS * batches {
        loader.next_batch().unwrap().unwrap();
    }
    let (report, epochs) = (loader.report(), (EPOCHS - FIRST) as f64);
    let seconds = began.elapsed().as_secs_f64() / epochs;
    assert!(report.cache_bytes + report.stored_kept_bytes <= budget);
    let read = report.stage(Stage::Fetch).bytes - before.stage(Stage::Fetch).bytes;
    let decoded = (report.frames_decoded - before.frames_decoded) as f64 / frames as f64;
    format!(
        "{seconds:.3},{:.1},{:.2},{:.1}",
        read as f64 / epochs / 1e6,
        decoded / epochs,
        report.stored_kept_bytes as f64 / 1e6
    )
}

/// A gradient that moves, and noise of two bits: what a camera's image is to a lossless codec.
fn moving_gradient(number: u64, at: u64, byte: u64) -> u64 {
    let noise = (byte + at * 7919 + number * 104_729).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    byte / 97 + at * 5 + (noise >> 62)
}
