//! Slice headers: every number is compared with the range that the standard gives it before the decoder sees the slice.
//! The decoder itself trusts many of them; a single header could make it fill the memory.

use super::parameters::{Picture, Sequence};
use super::{Refusal, damaged, foreign};
use crate::bit_reader::BitReader;

/// The kind of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    P,
    B,
    I,
}

/// What is checked across the slices of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) first_macroblock: u32,
    pub(super) kind: Kind,
}

/// How a slice is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stored<'a> {
    pub(super) rbsp: &'a [u8],
    pub(super) is_idr: bool,
    pub(super) is_reference: bool,
}

/// Most commands about reference pictures in a header; the standard allows fewer.
const MAX_COMMANDS: u32 = 64;

const OUT_OF_RANGE: &str = "a slice header is cut short or out of range";

/// Reads a slice header.
pub(super) fn check(
    stored: Stored<'_>,
    sequence: &Sequence,
    pictures: &[Picture],
) -> Result<Slice, Refusal> {
    let out_of_range = || damaged(OUT_OF_RANGE);
    let mut bits = BitReader::new(stored.rbsp);
    let first_macroblock = bits.up_to(sequence.macroblocks() - 1);
    let first_macroblock = first_macroblock.ok_or_else(out_of_range)?;
    let kind = match bits.up_to(9).ok_or_else(out_of_range)? % 5 {
        0 => Kind::P,
        1 => Kind::B,
        2 => Kind::I,
        _ => return Err(foreign("switching slices")),
    };
    let id = bits.unsigned().ok_or_else(out_of_range)?;
    let picture = pictures.iter().find(|picture| picture.id == id);
    let picture = picture.ok_or_else(|| damaged("a slice names an unknown parameter set"))?;
    let mut header = Header {
        bits,
        stored,
        sequence,
        picture,
        kind,
    };
    header.check().ok_or_else(out_of_range)?;
    Ok(Slice {
        first_macroblock,
        kind,
    })
}

struct Header<'a> {
    bits: BitReader<'a>,
    stored: Stored<'a>,
    sequence: &'a Sequence,
    picture: &'a Picture,
    kind: Kind,
}

impl Header<'_> {
    fn check(&mut self) -> Option<()> {
        self.bits.take(self.sequence.frame_num_bits)?;
        if self.stored.is_idr {
            self.bits.up_to(0xffff)?;
        }
        if self.sequence.order_bits > 0 {
            self.bits.take(self.sequence.order_bits)?;
            if self.picture.has_bottom_order {
                self.bits.signed_between(-0xffff, 0xffff)?;
            }
        }
        if self.kind == Kind::B {
            self.bits.flag()?;
        }
        if self.kind != Kind::I {
            let references = self.references()?;
            let lists = if self.kind == Kind::B { 2 } else { 1 };
            let references = references.get(..lists)?;
            for count in references {
                self.modifications(*count)?;
            }
            self.weights(references)?;
        }
        self.marking()?;
        self.rest()
    }

    /// Numbers of references in both lists, which are at most 16 of frames.
    fn references(&mut self) -> Option<[u32; 2]> {
        let mut last = self.picture.references;
        if self.bits.flag()? {
            last[0] = self.bits.up_to(15)?;
            if self.kind == Kind::B {
                last[1] = self.bits.up_to(15)?;
            }
        }
        last.iter()
            .all(|last| *last < 16)
            .then(|| last.map(|last| last + 1))
    }

    /// `ref_pic_list_modification` of one list.
    fn modifications(&mut self, references: u32) -> Option<()> {
        if !self.bits.flag()? {
            return Some(());
        }
        for _ in 0..=references {
            match self.bits.up_to(3)? {
                3 => return Some(()),
                2 => self.bits.up_to(15)?,
                _ => self.bits.up_to((1 << self.sequence.frame_num_bits) - 1)?,
            };
        }
        None
    }

    /// `pred_weight_table`, if there is one.
    fn weights(&mut self, references: &[u32]) -> Option<()> {
        let has_weights = match self.kind {
            Kind::P => self.picture.is_weighted,
            Kind::B => self.picture.bipred == 1,
            Kind::I => false,
        };
        if !has_weights {
            return Some(());
        }
        self.bits.up_to(7)?;
        self.bits.up_to(7)?;
        for _ in 0..references.iter().sum() {
            for planes in [1, 2] {
                if self.bits.flag()? {
                    for _ in 0..2 * planes {
                        self.bits.signed_between(-128, 127)?;
                    }
                }
            }
        }
        Some(())
    }

    /// `dec_ref_pic_marking`, if there is one.
    fn marking(&mut self) -> Option<()> {
        if !self.stored.is_reference {
            return Some(());
        }
        if self.stored.is_idr {
            self.bits.take(2)?;
            return Some(());
        }
        if !self.bits.flag()? {
            return Some(());
        }
        let numbers = (1 << self.sequence.frame_num_bits) - 1;
        for _ in 0..MAX_COMMANDS {
            match self.bits.up_to(6)? {
                0 => return Some(()),
                1 => self.bits.up_to(numbers)?,
                3 => {
                    self.bits.up_to(numbers)?;
                    self.bits.up_to(15)?
                }
                2 | 6 => self.bits.up_to(15)?,
                4 => self.bits.up_to(16)?,
                _ => 0,
            };
        }
        None
    }

    /// The quantiser and the deblocking filter.
    fn rest(&mut self) -> Option<()> {
        if self.picture.is_cabac && self.kind != Kind::I {
            self.bits.up_to(2)?;
        }
        let qp = self.picture.qp;
        self.bits.signed_between(-qp, 51 - qp)?;
        if self.picture.has_deblocking && self.bits.up_to(2)? != 1 {
            self.bits.signed_between(-6, 6)?;
            self.bits.signed_between(-6, 6)?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of bits that are written as text, ended as every NAL unit is.
    fn bytes(text: &str) -> Vec<u8> {
        let bits = text.chars().filter(|c| !c.is_whitespace()).chain(['1']);
        let bits: Vec<_> = bits.map(|c| u8::from(c == '1')).collect();
        let byte = |bits: &[u8]| (0..8).fold(0, |all, i| all << 1 | bits.get(i).unwrap_or(&0));
        bits.chunks(8).map(byte).collect()
    }

    fn read(text: &str, picture: &Picture) -> Result<Slice, Refusal> {
        let sequence = Sequence {
            id: 0,
            frame_num_bits: 4,
            order_bits: 4,
            width_in_mbs: 4,
            height_in_mbs: 3,
        };
        let rbsp = bytes(text);
        let stored = Stored {
            rbsp: &rbsp,
            is_idr: false,
            is_reference: true,
        };
        check(stored, &sequence, std::slice::from_ref(picture))
    }

    fn picture() -> Picture {
        Picture {
            id: 0,
            is_cabac: false,
            has_bottom_order: false,
            references: [0, 0],
            is_weighted: false,
            bipred: 0,
            qp: 26,
            has_deblocking: true,
        }
    }

    #[test]
    fn a_header_within_its_ranges_is_read() {
        // Macroblock 0, P, set 0, frame 1, order 2; no override, modification or marking; QP 26, deblocking with -6 and 6.
        let text = "1 1 1 0001 0010 0 0 0 1 1 0001101 0001100";
        let slice = read(text, &picture()).unwrap();
        assert_eq!((slice.first_macroblock, slice.kind), (0, Kind::P));
        // Macroblock 11, B, spatial, 16 references in list 0.
        let text = "0001100 010 1 0001 0010 1 1 000010000 1 0 0 0 1 010";
        let slice = read(text, &picture()).unwrap();
        assert_eq!((slice.first_macroblock, slice.kind), (11, Kind::B));
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let picture = picture();
        let zeros = "0".repeat(30);
        for (text, what) in [
            ("0001101 1 1 0001 0010 0 0 0 1 010", "macroblock 12 of 12"),
            ("1 0001011 1 0001 0010 0 0 0 1 010", "slice type 10"),
            ("1 1 010 0001 0010 0 0 0 1 010", "an unknown parameter set"),
            ("1 1 1 0001 0010 1 000010001 0 0 1 010", "17 references"),
            (
                &format!("1 1 1 0001 0010 1 {zeros}1{zeros} 0 0 1 010"),
                "a billion references",
            ),
            (
                "1 1 1 0001 0010 0 1 1 1 1 1 1 1 1",
                "three modifications of one reference",
            ),
            (
                "1 1 1 0001 0010 0 0 1 00111 1 0 1 010",
                "marking 6 with index 15 and 7",
            ),
            ("1 1 1 0001 0010 0 0 0 00000110110 010", "QP 53"),
            (
                "1 1 1 0001 0010 0 0 0 1 1 0001110 1",
                "a filter offset of 7",
            ),
            ("1 1 1 0001 00", "the end"),
        ] {
            assert!(read(text, &picture).is_err(), "{what}");
        }
        let switching = read("1 00100 1 0001 0010 0 0 0 1 010", &picture);
        assert!(matches!(switching, Err(Refusal::Foreign(_))));
        let weighted = Picture {
            is_weighted: true,
            ..picture
        };
        // Denominators 2^0, a weight of 1 and an offset of 128.
        let text = "1 1 1 0001 0010 0 0 1 1 1 010 00000000100000000 0 0 1 010";
        assert!(read(text, &weighted).is_err());
    }
}
