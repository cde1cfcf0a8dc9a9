//! Memory over many epochs. Alone in its file, because other tests of the same process would be counted too.

#![allow(
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as expected, and says what it measured"
)]

#[path = "loader/compare.rs"]
mod compare;
#[path = "loader/recording.rs"]
mod recording;

use compare::{REQUEST, bind, groups, order};
use kino_loader::{Loader, LoaderOptions, PoolSize, Shuffle, Tail};

/// Bytes of this process that are in memory; `None` where nobody says.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

/// Allocators round and keep; what leaks per batch would be far more after eight epochs.
const SLACK: u64 = 6 << 20;

#[test]
fn ten_epochs_take_no_more_memory_than_two() {
    let (_folder, dataset) = recording::open(30);
    let windows = bind(&dataset, REQUEST);
    let total: u64 = windows.sizes().iter().sum();
    for shuffle in [Shuffle::Global, groups(PoolSize::Fraction(0.1))] {
        let order = order(&windows, shuffle, Tail::Carry);
        let epoch = order.epoch_len() / 12;
        let options = LoaderOptions {
            memory_bytes: total / 3,
            threads: 2,
            ..LoaderOptions::default()
        };
        let budget = options.memory_bytes;
        let mut loader =
            Loader::start(order.clone(), vec![vec![windows.clone()]], options).unwrap();
        let mut resident = Vec::new();
        for _ in 0..10 {
            for _ in 0..epoch {
                drop(loader.next_batch().unwrap().unwrap());
            }
            resident.extend(resident_bytes());
        }
        let report = loader.report();
        eprintln!(
            "{shuffle:?}: budget {budget}, pool peak {}, stored peak {}, resident per epoch {resident:?}",
            report.pool_peak_bytes, report.stored_peak_bytes
        );
        assert!(report.pool_peak_bytes <= budget, "{report:?}");
        if let (Some(second), Some(last)) = (resident.get(1), resident.last()) {
            assert!(*last <= second + SLACK, "{resident:?}");
        }
    }
}
