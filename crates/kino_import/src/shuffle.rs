//! The on-disk order of episodes: random, and the same for the same seed.

/// The integers below `len` in an order drawn from `seed` (Fisher–Yates with splitmix64).
pub(crate) fn shuffled(len: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<_> = (0..len).collect();
    let mut state = seed;
    for last in (1..len).rev() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        // The high half of the product is below `last + 1`, and practically unbiased for any real number of episodes.
        let pick = (u128::from(bits) * (last as u128 + 1)) >> 64;
        order.swap(last, usize::try_from(pick).unwrap_or(last));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_a_permutation_determined_by_the_seed() {
        let order = shuffled(100, 7);
        assert_eq!(order, shuffled(100, 7));
        assert_ne!(order, shuffled(100, 8));
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
        assert_ne!(order, sorted);
        assert_eq!(shuffled(0, 1), [0; 0]);
        assert_eq!(shuffled(1, 1), [0]);
    }
}
