//! Grouping the bits of values by significance, as the bitshuffle library does with one block per page.
//!
//! ```text
//! E elements of W bytes; G = E rounded down to a multiple of 8
//!
//! bit 0 of elements 0…G−1 | bit 1 | … | bit 8W−1   each G/8 bytes           | elements G…E−1
//! byte j of a row: elements 8j…8j+7, the first in the lowest bit             as they are
//! ```

use kino_codec::ByteShuffle;

/// The bits of elements that this groups by bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct BitShuffle(pub(super) ByteShuffle);

impl BitShuffle {
    /// Writes the elements of `values`, grouped, to `grouped` of the same length.
    pub(super) fn group(self, values: &[u8], grouped: &mut [u8]) {
        let whole = self.whole(values.len());
        let mut planes = vec![0; whole];
        self.0.group(&values[..whole], &mut planes);
        let plane_len = (whole / self.0.width()).max(1);
        let rows = grouped[..whole].chunks_exact_mut(plane_len);
        for (plane, rows) in planes.chunks_exact(plane_len).zip(rows) {
            for (column, eight) in plane.as_chunks::<8>().0.iter().enumerate() {
                let turned = turn_bits(u64::from_le_bytes(*eight)).to_le_bytes();
                for (bit, byte) in turned.into_iter().enumerate() {
                    rows[bit * (plane_len / 8) + column] = byte;
                }
            }
        }
        grouped[whole..].copy_from_slice(&values[whole..]);
    }

    /// Fills `values` with the elements from index `first` on of what [`group`](Self::group) wrote.
    pub(super) fn ungroup(self, grouped: &[u8], first: usize, values: &mut [u8]) {
        let (whole, width) = (self.whole(grouped.len()), self.0.width());
        let plane_len = (whole / width).max(1);
        let mut planes = vec![0; whole];
        let rows = grouped[..whole].chunks_exact(plane_len);
        for (plane, rows) in planes.chunks_exact_mut(plane_len).zip(rows) {
            for (column, eight) in plane.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let bytes = std::array::from_fn(|bit| rows[bit * (plane_len / 8) + column]);
                *eight = turn_bits(u64::from_le_bytes(bytes)).to_le_bytes();
            }
        }
        let start = first * width;
        let in_rows = (start + values.len()).min(whole).saturating_sub(start);
        let (turned, unchanged) = values.split_at_mut(in_rows);
        if !turned.is_empty() {
            self.0.ungroup(&planes, first, turned);
        }
        unchanged.copy_from_slice(&grouped[start.max(whole)..][..unchanged.len()]);
    }

    /// Bytes of the elements that are in rows.
    fn whole(self, len: usize) -> usize {
        let eight = 8 * self.0.width();
        len / eight * eight
    }
}

/// Transposes 8 × 8 bits: bit `i` of byte `j` becomes bit `j` of byte `i`.
fn turn_bits(word: u64) -> u64 {
    let word = exchange_bits::<7>(word, 0x00aa_00aa_00aa_00aa);
    let word = exchange_bits::<14>(word, 0x0000_cccc_0000_cccc);
    exchange_bits::<28>(word, 0x0000_0000_f0f0_f0f0)
}

/// Swaps the bits of `mask` with those `SHIFT` further up.
fn exchange_bits<const SHIFT: u32>(word: u64, mask: u64) -> u64 {
    let moved = (word ^ (word >> SHIFT)) & mask;
    word ^ moved ^ (moved << SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_grouped_as_drawn() {
        let group = |width, values: &[u8]| {
            let mut grouped = vec![0; values.len()];
            BitShuffle(ByteShuffle::new(width).unwrap()).group(values, &mut grouped);
            grouped
        };
        // Element 0 has bit 0 set, element 1 bit 7, element 7 bits 0 and 1; the ninth is unchanged.
        assert_eq!(
            group(1, &[1, 0x80, 0, 0, 0, 0, 0, 3, 9]),
            [0x81, 0x80, 0, 0, 0, 0, 0, 2, 9]
        );
        let mut values = [0; 16];
        values[3] = 1;
        let mut expected = [0; 16];
        expected[8] = 2;
        assert_eq!(group(2, &values), expected);
    }
}
