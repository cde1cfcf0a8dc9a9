//! Randomness without a state: a number from a seed, a purpose and three coordinates.
//!
//! ```text
//! key    = absorb(absorb(absorb(absorb(mix(seed + γ), purpose), a), b), c)      absorb(h, x) = mix((h ⊕ x) + γ)
//! draw t = mix(key + (t + 1)·γ)                                                  SplitMix64 from the state `key`
//! ```
//!
//! Counter-based, so that the number for index i does not depend on who asked before, in which thread.

/// The golden ratio as a 64-bit odd number: SplitMix64's step.
const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// SplitMix64's finaliser: a bijection in which each bit of the input moves half the bits of the output.
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// What a key is for. The numbers are part of the algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Purpose {
    /// The line of an epoch: (epoch).
    Line = 1,
    /// All samples of an epoch: (epoch).
    Global = 2,
    /// The samples of a group: (epoch, lane, group).
    Group = 3,
    /// Where the points of a weighted line start: (epoch).
    Phase = 4,
    /// The slots of a block of a mixture: (lane, block).
    Slots = 5,
    /// The seed of a source in a mixture: (source).
    Source = 6,
    /// The samples that may stand in for a broken one: (index).
    Substitute = 7,
    /// Augmentation: (index, operation).
    Operation = 8,
    /// The episodes of an epoch of whole-episode batches: (epoch).
    Episodes = 9,
    /// The steps of an epoch of whole-episode batches: (epoch).
    Steps = 10,
}

/// A key: the start of an endless row of draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(u64);

impl Key {
    /// The key for a purpose at three coordinates; those that a purpose does not have are 0.
    pub(crate) fn new(seed: u64, purpose: Purpose, at: [u64; 3]) -> Self {
        let start = mix(seed.wrapping_add(GAMMA));
        let absorb = |hash: u64, word: u64| mix((hash ^ word).wrapping_add(GAMMA));
        Self(at.into_iter().fold(absorb(start, purpose as u64), absorb))
    }

    /// The number `t` of the row.
    pub(crate) fn draw(self, t: u64) -> u64 {
        mix(self.0.wrapping_add(t.wrapping_add(1).wrapping_mul(GAMMA)))
    }

    /// The number `t` of the row as a key of its own.
    pub(crate) fn child(self, t: u64) -> Self {
        Self(self.draw(t))
    }

    /// The key itself, as the seed of a source.
    pub(crate) fn seed(self) -> u64 {
        self.0
    }
}

/// A draw turned into a whole number below `end`: the high word of their product.
pub(crate) fn below(draw: u64, end: u64) -> u64 {
    let product = u128::from(draw) * u128::from(end);
    u64::try_from(product >> 64).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_change_these_constants() {
        assert_eq!(mix(1), 0x5692_161D_100B_05E5);
        assert_eq!(
            [0, 1, 2].map(|t| Key(0).draw(t)),
            // The published first outputs of SplitMix64 from state 0.
            [
                0xE220_A839_7B1D_CDAF,
                0x6E78_9E6A_A1B9_65F4,
                0x06C4_5D18_8009_454F
            ]
        );
        assert_eq!(Purpose::Line as u64, 1);
        assert_eq!(Purpose::Steps as u64, 10);
    }

    #[test]
    fn every_coordinate_changes_the_key() {
        let key = |seed, purpose, at| Key::new(seed, purpose, at).seed();
        let all = [
            key(0, Purpose::Line, [0, 0, 0]),
            key(1, Purpose::Line, [0, 0, 0]),
            key(0, Purpose::Global, [0, 0, 0]),
            key(0, Purpose::Line, [1, 0, 0]),
            key(0, Purpose::Line, [0, 1, 0]),
            key(0, Purpose::Line, [0, 0, 1]),
        ];
        for (idx, one) in all.iter().enumerate() {
            assert!(!all[..idx].contains(one));
        }
    }

    #[test]
    fn below_stays_below() {
        assert_eq!(below(u64::MAX, 10), 9);
        assert_eq!(below(0, 10), 0);
        assert_eq!(below(u64::MAX, 1), 0);
        assert_eq!(below(u64::MAX / 2 + 1, u64::MAX), u64::MAX / 2);
    }
}
