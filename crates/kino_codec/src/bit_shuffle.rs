//! Blosc's bit shuffle, undone: values whose bits were grouped by significance, as zarr and HDF5 files store them.
//!
//! ```text
//! E elements of W bytes      bit 0 of every element | bit 1 of every element | … | bit 8 W − 1      each E / 8 bytes
//! ```
//!
//! No codec of a dataset stores this. It is here, and not beside the importer that needs it, because every byte of a
//! recording goes through it, and crates that only parse are not optimised in development builds.
//!
//! The slow algorithm sets bit b of element e from bit e of plane b, one bit at a time, as in the tests. Here eight
//! planes and eight elements at a time form one word, which is transposed.

/// Elements of which the planes are read side by side: a run of each stays in the cache of the processor.
const RUN: usize = 64;

/// Fills `values` with elements of `width` bytes whose bits are grouped in `grouped`, of the same length.
///
/// What Blosc does not shuffle is copied: elements that are not a multiple of eight, and bytes after the last element.
pub fn ungroup_bits(grouped: &[u8], width: usize, values: &mut [u8]) {
    let count = grouped.len().checked_div(width).unwrap_or(0);
    if !count.is_multiple_of(8) || count == 0 {
        values.copy_from_slice(grouped);
        return;
    }
    let row = count / 8;
    let mut words = [0_u64; RUN];
    for first in (0..row).step_by(RUN) {
        let run = RUN.min(row - first);
        for byte in 0..width {
            let words = &mut words[..run];
            words.fill(0);
            for bit in 0..8 {
                let plane = &grouped[(byte * 8 + bit) * row + first..][..run];
                for (word, &eight) in words.iter_mut().zip(plane) {
                    *word |= u64::from(eight) << (8 * bit);
                }
            }
            words.iter_mut().for_each(|word| *word = transposed(*word));
            let elements = &mut values[first * 8 * width..][..run * 8 * width];
            for (word, eight) in words.iter().zip(elements.chunks_exact_mut(8 * width)) {
                for (value, element) in word
                    .to_le_bytes()
                    .into_iter()
                    .zip(eight.chunks_exact_mut(width))
                {
                    element[byte] = value;
                }
            }
        }
    }
    values[count * width..].copy_from_slice(&grouped[count * width..]);
}

/// Transposes an 8×8 bit matrix (Hacker's Delight, 7-3).
fn transposed(mut word: u64) -> u64 {
    for (shift, mask) in [
        (7, 0x00aa_00aa_00aa_00aa),
        (14, 0x0000_cccc_0000_cccc),
        (28, 0x0000_0000_f0f0_f0f0),
    ] {
        let swap = (word ^ (word >> shift)) & mask;
        word ^= swap ^ (swap << shift);
    }
    word
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One bit at a time.
    fn naive(grouped: &[u8], width: usize) -> Vec<u8> {
        let count = grouped.len() / width;
        let mut values = grouped.to_vec();
        values[..count * width].fill(0);
        for plane in 0..width * 8 {
            for element in 0..count {
                let bit = grouped[plane * (count / 8) + element / 8] >> (element % 8) & 1;
                values[element * width + plane / 8] |= bit << (plane % 8);
            }
        }
        values
    }

    proptest! {
        #[test]
        fn agrees_with_naive(width in 1_usize..17, eights in 1_usize..150, tail in 0_usize..16, seed in any::<u8>()) {
            let len = 8 * eights * width + tail % width;
            let mix = |place: usize| u8::try_from((place * 167 + place / 251) % 256).unwrap_or(0) ^ seed;
            let grouped: Vec<u8> = (0..len).map(mix).collect();
            let mut values = vec![0; len];
            ungroup_bits(&grouped, width, &mut values);
            prop_assert_eq!(values, naive(&grouped, width));
        }
    }

    #[test]
    fn what_blosc_does_not_shuffle_is_copied() {
        for (len, width) in [(0, 4), (3, 4), (28, 4), (9, 0)] {
            let grouped: Vec<u8> = (0..len).collect();
            let mut values = vec![0; grouped.len()];
            ungroup_bits(&grouped, width, &mut values);
            assert_eq!(values, grouped);
        }
    }
}
