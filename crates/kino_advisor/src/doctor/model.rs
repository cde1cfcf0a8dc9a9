//! What a change would do: a small model of the way of a batch.
//!
//! ```text
//! fetch (readers) ─┐
//! decode + collate ├─ side by side: a batch takes as long as the slowest, T = max(F, K, P)
//! plan, hand-over ─┘
//! ```
//!
//! F, K and P are not computed but taken from runs: T without a stage is what the others need. Decoding and collating share
//! their threads, so their times add up: a codec that is k times as fast gives T' = T₋decode + (T − T₋decode) / k. Reading is beside them,
//! so a storage that is k times as fast gives T' = max(T₋fetch, T / k). More threads divide K until reading or handing over binds.
//!
//! The compute ratio that follows is step / max(step, T'), less a margin for unevenness: batches that vary by v (deviation ÷ mean)
//! around a load u = T' / step cost about u · v² / 2d of a step with d batches ahead, the rule of a queue in heavy traffic.
//! Where the times of single batches are known, [`replay`] walks along them instead.

/// Batches ahead that the margin counts with, at least.
const LEAST_AHEAD: f64 = 2.0;

/// The margin is never more than this: beyond it the rule says nothing.
const MOST_MARGIN: f64 = 0.2;

/// The compute ratio of a loop with steps of `step_s` whose batches take `batch_s` and vary by `variation`.
pub(crate) fn compute_ratio(step_s: f64, batch_s: f64, variation: f64, ahead: usize) -> f64 {
    if step_s <= 0.0 {
        return 0.0;
    }
    let load = batch_s / step_s;
    if load >= 1.0 {
        return 1.0 / load;
    }
    let ahead = (ahead as f64).max(LEAST_AHEAD);
    let margin = load * variation * variation / (2.0 * ahead);
    1.0 - margin.min(MOST_MARGIN)
}

/// The compute ratio of a loop with `ahead` batches ahead, if batches take these times one after the other.
///
/// A batch is begun when it may be (fewer than `ahead` lie ready or are in the making) and the one before is done.
pub(crate) fn replay(each_s: &[f64], step_s: f64, ahead: usize) -> f64 {
    let ahead = ahead.max(1);
    // When each batch was taken by the loop; the maker may begin batch n when batch n − ahead was taken.
    let mut taken: Vec<f64> = Vec::with_capacity(each_s.len());
    let (mut made, mut free) = (0.0_f64, 0.0_f64);
    for (number, takes) in each_s.iter().enumerate() {
        let may = number
            .checked_sub(ahead)
            .map_or(0.0, |before| taken[before]);
        made = made.max(may) + takes;
        let start = free.max(made);
        taken.push(start);
        free = start + step_s;
    }
    // The first batches lie ready or not by where the run begins: the loop is counted from its first step on.
    let began = taken.first().copied().unwrap_or(0.0);
    let elapsed = free - began;
    if elapsed <= 0.0 {
        return 1.0;
    }
    step_s * each_s.len() as f64 / elapsed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_loader_gives_what_it_makes_and_a_fast_one_all_but_the_margin() {
        assert_eq!(compute_ratio(0.05, 0.1, 3.0, 4), 0.5);
        assert_eq!(compute_ratio(0.05, 0.01, 0.0, 4), 1.0);
        let uneven = compute_ratio(0.05, 0.04, 1.0, 4);
        assert!((uneven - 0.9).abs() < 1e-9, "{uneven}");
        assert!(compute_ratio(0.05, 0.04, 1.0, 16) > uneven);
        assert_eq!(compute_ratio(0.05, 0.04, 99.0, 1), 0.8);
        assert_eq!(compute_ratio(0.0, 0.1, 0.0, 1), 0.0);
    }

    #[test]
    fn one_slow_batch_is_hidden_by_enough_batches_ahead() {
        let mut each = vec![0.01; 200];
        for slow in (19..200).step_by(20) {
            each[slow] = 0.13;
        }
        let (shallow, deep) = (replay(&each, 0.02, 1), replay(&each, 0.02, 16));
        assert!(shallow < 0.85, "{shallow}");
        assert!(deep > 0.99, "{deep}");
        assert_eq!(replay(&[], 0.02, 4), 1.0);
    }

    #[test]
    fn even_batches_give_the_ratio_of_the_times() {
        for (batch, expected) in [(0.01, 1.0), (0.04, 0.5)] {
            let ratio = replay(&[batch; 1000], 0.02, 4);
            assert!((ratio - expected).abs() < 0.01, "{batch}: {ratio}");
        }
    }
}
