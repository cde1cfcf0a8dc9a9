//! Timestamps of a recording: converted to nanoseconds, and checked.
//!
//! ```text
//! 0  33  67  100  100  600  633      period 33 ms; a gap of 500 ms after frame 4
//! 0  33  67   50  100                goes back after frame 2
//! ```

use std::sync::Arc;

use kino_codec::Dtype;

use crate::values::number;

/// A step this many times the median is a gap.
const GAP: i64 = 5;

/// Only if this fraction of the steps is within half of the median: events are irregular by nature.
const STEADY: f64 = 0.8;

/// Nanoseconds per unit.
pub(crate) fn unit_ns(name: &str) -> Option<i64> {
    match name {
        "s" => Some(1_000_000_000),
        "ms" => Some(1_000_000),
        "us" => Some(1000),
        "ns" => Some(1),
        _ => None,
    }
}

/// Packed little-endian values of a unit as nanoseconds; `None` if one is NaN or out of range.
pub(crate) fn to_times(dtype: Dtype, values: &[u8], unit_ns: i64) -> Option<Arc<[i64]>> {
    let times = values.chunks_exact(dtype.size()).map(|bytes| {
        let value = number(dtype, bytes);
        match value.as_i64() {
            Some(whole) if !dtype.is_float() => whole.checked_mul(unit_ns),
            #[expect(clippy::cast_precision_loss, reason = "units are small")]
            _ => nearest_ns(value.as_f64()? * unit_ns as f64),
        }
    });
    times.collect()
}

/// The nearest integer number of nanoseconds.
fn nearest_ns(ns: f64) -> Option<i64> {
    // 2^63 is the first float that is too large.
    #[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
    (ns.abs() < 9.2e18).then(|| ns.round() as i64)
}

/// What is wrong with a list of timestamps, as predicates of "stream `x`".
pub(crate) fn faults(times: &[i64]) -> Vec<String> {
    let back = times.windows(2).position(|pair| pair[0] > pair[1]);
    if let Some(frame) = back {
        let by_ns = times[frame].saturating_sub(times[frame + 1]);
        return vec![format!(
            "goes back in time by {} after frame {frame}",
            seconds(by_ns)
        )];
    }
    let steps: Vec<i64> = times
        .windows(2)
        .map(|pair| pair[1].saturating_sub(pair[0]))
        .collect();
    let Some(usual) = median(&steps).filter(|&usual| usual > 0) else {
        return Vec::new();
    };
    let is_usual = |&&step: &&i64| (step - usual).abs() <= usual / 2;
    let steady = steps.iter().filter(is_usual).count();
    if (steady as f64) < STEADY * steps.len() as f64 {
        return Vec::new();
    }
    let gaps = steps.iter().enumerate();
    let gaps: Vec<_> = gaps
        .filter(|&(_, &step)| step > usual.saturating_mul(GAP))
        .collect();
    let Some((first, step)) = gaps.first() else {
        return Vec::new();
    };
    let more = match gaps.len() {
        1 => String::new(),
        gaps => format!(", and {} more gaps", gaps - 1),
    };
    vec![format!(
        "has a gap of {} after frame {first}; its frames are usually {} apart{more}",
        seconds(**step),
        seconds(usual)
    )]
}

fn median(steps: &[i64]) -> Option<i64> {
    let mut steps = steps.to_vec();
    let middle = steps.len() / 2;
    (!steps.is_empty()).then(|| *steps.select_nth_unstable(middle).1)
}

/// `0.5 s`, `33.3 ms`, `12 µs`.
fn seconds(ns: i64) -> String {
    let ns = ns as f64;
    match ns.abs() {
        1e9.. => format!("{:.3} s", ns / 1e9),
        1e6.. => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.1} µs", ns / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_clock_has_no_fault_and_a_gap_in_it_is_one() {
        let mut times: Vec<i64> = (0..100)
            .map(|frame| frame * 33_000_000 + frame % 3)
            .collect();
        assert_eq!(faults(&times), [""; 0]);
        for time in &mut times[50..] {
            *time += 500_000_000;
        }
        assert_eq!(
            faults(&times),
            ["has a gap of 533.0 ms after frame 49; its frames are usually 33.0 ms apart"]
        );
    }

    #[test]
    fn events_have_no_gaps_and_few_frames_no_faults() {
        assert_eq!(faults(&[0, 5, 1000, 1010, 90_000, 90_001]), [""; 0]);
        assert_eq!(faults(&[]), [""; 0]);
        assert_eq!(faults(&[7]), [""; 0]);
        assert_eq!(faults(&[i64::MIN, i64::MAX]), [""; 0]);
    }

    #[test]
    fn a_timestamp_that_goes_back_is_reported() {
        let times = [0, 30_000, 20_000, 20_000, 40_000];
        assert_eq!(
            faults(&times),
            ["goes back in time by 10.0 µs after frame 1"]
        );
    }
}
