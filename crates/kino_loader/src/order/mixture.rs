//! Several sources under weights: which source an index takes from, and which of its samples.
//!
//! ```text
//! lane l, places Q     | block 0: M = 4096 places | block 1 | …       permuted, keyed (lane, block)
//! slots of a block     | source 0: m_0 | source 1: m_1 | … |          Σ m_s = M
//! source s, lane l     place k·m_s + (slot - cum_s) of block k, index place·L + l of the source's own order
//! ```
//!
//! So the shares hold in every block, each source passes through its own epochs exactly, and a lane of the mixture
//! is a lane of every source.

use super::keys::{Key, Purpose};
use super::lanes::Lanes;
use super::permute::Permutation;
use crate::error::{Result, invalid};

/// Places of a block, of one lane.
pub(crate) const BLOCK: u32 = 4096;

/// The slots of each source.
#[derive(Debug, Clone)]
pub(crate) struct Mixture {
    pub(crate) slots: Vec<u32>,
    /// The first slot of each source.
    first: Vec<u32>,
}

impl Mixture {
    /// Shares of a block by weights, which need not sum to 1.
    pub(crate) fn new(weights: &[f64]) -> Result<Self> {
        if weights.is_empty() {
            return Err(invalid("a mixture needs at least one source"));
        }
        if weights.len() > BLOCK as usize {
            return Err(invalid(format!(
                "a mixture has {} sources; it can have at most {BLOCK}: merge some of them",
                weights.len()
            )));
        }
        if let Some(at) = weights
            .iter()
            .position(|weight| !(weight.is_finite() && *weight > 0.0))
        {
            return Err(invalid(format!(
                "the weight of source {at} of the mixture is {}; it must be above 0, or the source removed",
                weights[at]
            )));
        }
        let total: f64 = weights.iter().sum();
        if !total.is_finite() {
            return Err(invalid(
                "the weights of the mixture are too large to add; scale them down",
            ));
        }
        let slots = share_out(weights, total);
        let first = slots
            .iter()
            .scan(0, |next, slots| {
                let first = *next;
                *next += slots;
                Some(first)
            })
            .collect();
        Ok(Self { slots, first })
    }

    /// The source that index `i` takes from, and the index in the source's own order.
    pub(crate) fn at(&self, i: u64, lanes: Lanes, seed: u64) -> (usize, u64) {
        let lane = lanes.of(i);
        let place = lanes.held(lane, i);
        let (block, in_block) = (place / u64::from(BLOCK), place % u64::from(BLOCK));
        let key = Key::new(seed, Purpose::Slots, [lane, block, 0]);
        let slot = Permutation::new(u64::from(BLOCK), key).at(in_block);
        let source = self
            .first
            .partition_point(|&first| u64::from(first) <= slot)
            .max(1)
            - 1;
        let place = block * u64::from(self.slots[source]) + (slot - u64::from(self.first[source]));
        (source, place * lanes.count() + lane)
    }
}

/// Largest remainders, at least one slot each; ties go to the earlier source.
fn share_out(weights: &[f64], total: f64) -> Vec<u32> {
    let quotas: Vec<f64> = weights
        .iter()
        .map(|weight| weight / total * f64::from(BLOCK))
        .collect();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 ≤ quota ≤ 4096, and `as` saturates"
    )]
    let mut slots: Vec<u32> = quotas
        .iter()
        .map(|quota| (quota.floor() as u32).max(1))
        .collect();
    loop {
        let sum: u32 = slots.iter().sum();
        let lack = |at: usize| quotas[at] - f64::from(slots[at]);
        // `>` keeps the earlier of two that lack the same.
        let most = |chosen: fn(f64, f64) -> bool, from: &dyn Fn(usize) -> bool| {
            (0..slots.len()).filter(|&at| from(at)).reduce(|best, at| {
                if chosen(lack(at), lack(best)) {
                    at
                } else {
                    best
                }
            })
        };
        let (at, step) = match sum.cmp(&BLOCK) {
            std::cmp::Ordering::Equal => return slots,
            std::cmp::Ordering::Less => (most(|one, best| one > best, &|_| true), 1),
            std::cmp::Ordering::Greater => (most(|one, best| one < best, &|at| slots[at] > 1), -1),
        };
        let Some(at) = at else { return slots };
        slots[at] = slots[at].saturating_add_signed(step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{ProptestConfig, prop_assert, prop_assert_eq, proptest};

    #[test]
    fn shares_are_exact_where_they_can_be() {
        let slots = |weights: &[f64]| Mixture::new(weights).unwrap().slots;
        assert_eq!(slots(&[1.0, 1.0]), [2048, 2048]);
        assert_eq!(slots(&[0.75, 0.25]), [3072, 1024]);
        assert_eq!(slots(&[1.0, 1.0, 1.0]), [1366, 1365, 1365]);
        assert_eq!(slots(&[1e-12, 1.0]), [1, 4095]);
        assert_eq!(slots(&[1.0; 4096]), [1; 4096]);
    }

    #[test]
    fn bad_weights_are_refused_with_the_source() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = Mixture::new(&[1.0, bad]).unwrap_err().to_string();
            assert!(error.contains("source 1"), "{error}");
        }
        assert!(Mixture::new(&[f64::MAX, f64::MAX]).is_err());
        assert!(Mixture::new(&vec![1.0; 4097]).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]
        #[test]
        fn slots_fill_the_block_and_stay_near_the_weights(weights in proptest::collection::vec(1e-9_f64..1e3, 1..40)) {
            let mixture = Mixture::new(&weights).unwrap();
            prop_assert_eq!(mixture.slots.iter().sum::<u32>(), BLOCK);
            let total: f64 = weights.iter().sum();
            for (slots, weight) in mixture.slots.iter().zip(&weights) {
                prop_assert!(*slots >= 1);
                prop_assert!((f64::from(*slots) - weight / total * 4096.0).abs() <= 40.0);
            }
        }

        #[test]
        fn a_block_of_a_lane_takes_its_slots_from_each_source(seed: u64, block in 0_u64..5) {
            let mixture = Mixture::new(&[0.5, 0.3, 0.2]).unwrap();
            let lanes = Lanes::new(4, 2, None);
            let mut seen = vec![Vec::new(); 3];
            for i in (block * 8192..(block + 1) * 8192).filter(|&i| lanes.of(i) == 1) {
                let (source, index) = mixture.at(i, lanes, seed);
                prop_assert_eq!(index % 2, 1);
                seen[source].push(index / 2);
            }
            for (source, places) in seen.iter_mut().enumerate() {
                places.sort_unstable();
                let slots = u64::from(mixture.slots[source]);
                prop_assert!(places.iter().copied().eq(block * slots..(block + 1) * slots));
            }
        }
    }
}
