//! What a page of `av1` may contain, checked before the decoder sees a byte.
//!
//! ```text
//! page  = sizes │ unit 0 │ unit 1 │ … │ exact frames       sizes, for each frame: varint 2 × unit + is exact,
//!                                                                    and if it is, varint of its exact form
//! unit  = delimiter │ [sequence header] │ frame, or shown again…      the header in unit 0, and only there
//! each of them (an OBU of AV1)  = type │ size │ payload
//!                                 u8     leb128
//! ```
//!
//! An AV1 decoder does whatever a stream requests: other sizes, layers, grain, thousands of hidden frames. A page
//! needs none of that, so everything but plain frames of the stream's own size is rejected here, in safe code.

use std::ops::Range;

use crate::bit_reader::BitReader;
use crate::error::{Result, corrupt};
use crate::varint;

use super::yuv::Planes;
use super::{MAX_GROUP, NAME};

/// OBU types, as in section 6.2.2 of the AV1 specification.
const SEQUENCE_HEADER: u8 = 1;
const TEMPORAL_DELIMITER: u8 = 2;
const FRAME_HEADER: u8 = 3;
const FRAME: u8 = 6;

/// A unit shows one image; with hidden images for later use it still codes only a few.
const MAX_CODED_IN_UNIT: usize = 8;

/// Assembles a page from one unit per frame and, where a frame has one, its exact form.
pub(super) fn join(units: &[Vec<u8>], exact: &[Option<Vec<u8>>]) -> Vec<u8> {
    let mut page = Vec::new();
    for (unit, exact) in units.iter().zip(exact) {
        varint::put(2 * unit.len() + usize::from(exact.is_some()), &mut page);
        if let Some(exact) = exact {
            varint::put(exact.len(), &mut page);
        }
    }
    units.iter().for_each(|unit| page.extend_from_slice(unit));
    let exact = exact.iter().flatten();
    exact.for_each(|frame| page.extend_from_slice(frame));
    page
}

/// Where the parts of a page are.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The units of all frames, then their exact forms; empty where a frame has none.
    parts: Vec<Range<usize>>,
}

impl Index {
    /// Reads the sizes of a page of `frames` frames.
    pub(super) fn read(&mut self, page: &[u8], frames: usize) -> Result<()> {
        if !(1..=MAX_GROUP).contains(&frames) {
            return Err(corrupt(NAME, format!("a page cannot have {frames} frames")));
        }
        self.parts.clear();
        self.parts.resize(2 * frames, 0..0);
        let (units, exact) = self.parts.split_at_mut(frames);
        let mut rest = page;
        // Lengths first; start offsets are computed afterwards.
        for (unit, exact) in units.iter_mut().zip(exact) {
            let size = varint::take(NAME, &mut rest)?;
            unit.end = size / 2;
            if size % 2 == 1 {
                exact.end = varint::take(NAME, &mut rest)?;
                if exact.end == 0 {
                    return Err(corrupt(NAME, "an exact frame is empty"));
                }
            }
        }
        let mut start = page.len() - rest.len();
        for part in &mut self.parts {
            *part = start..start + part.end;
            start = part.end;
        }
        if start != page.len() {
            let what = format!("it should have {start} bytes but has {}", page.len());
            return Err(corrupt(NAME, what));
        }
        Ok(())
    }

    /// The unit of frame `idx`.
    pub(super) fn unit(&self, idx: usize) -> Range<usize> {
        self.parts[idx].clone()
    }

    /// The exact form of frame `idx`, if present.
    pub(super) fn exact(&self, idx: usize) -> Option<Range<usize>> {
        let part = self.parts[self.parts.len() / 2 + idx].clone();
        (!part.is_empty()).then_some(part)
    }
}

/// What the sequence header declares for every image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sequence {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) planes: Planes,
}

/// Parses unit 0 and returns its sequence header.
pub(super) fn check_first(unit: &[u8]) -> Result<Sequence> {
    let mut rest = unit;
    delimiter(&mut rest)?;
    let (kind, payload) = obu(&mut rest)?;
    if kind != SEQUENCE_HEADER {
        return Err(corrupt(NAME, "it does not start with a sequence header"));
    }
    let sequence = sequence(payload).ok_or_else(|| {
        corrupt(
            NAME,
            "its sequence header is truncated or uses unsupported features",
        )
    })?;
    check_frames(rest)?;
    Ok(sequence)
}

/// Parses a unit other than the first.
pub(super) fn check_other(unit: &[u8]) -> Result<()> {
    let mut rest = unit;
    delimiter(&mut rest)?;
    check_frames(rest)
}

fn delimiter(rest: &mut &[u8]) -> Result<()> {
    match obu(rest)? {
        (TEMPORAL_DELIMITER, []) => Ok(()),
        _ => Err(corrupt(NAME, "a unit does not start with a delimiter")),
    }
}

/// Accepts only frames and repeated frames, and only a few of them.
fn check_frames(mut rest: &[u8]) -> Result<()> {
    let mut coded = 0;
    while !rest.is_empty() {
        match obu(&mut rest)? {
            (FRAME | FRAME_HEADER, [_, ..]) => coded += 1,
            (kind, _) => {
                return Err(corrupt(
                    NAME,
                    format!("a unit contains an OBU of unsupported type {kind}"),
                ));
            }
        }
    }
    if (1..=MAX_CODED_IN_UNIT).contains(&coded) {
        return Ok(());
    }
    Err(corrupt(
        NAME,
        format!("a unit has {coded} coded frames, which is not allowed"),
    ))
}

/// Takes an OBU off the front: its type and payload.
fn obu<'a>(rest: &mut &'a [u8]) -> Result<(u8, &'a [u8])> {
    let (&header, mut after) = rest
        .split_first()
        .ok_or_else(|| corrupt(NAME, "a unit ends too early"))?;
    // One forbidden bit, four of type, no extension (layers), a size, one reserved bit.
    if header & 0b1000_0111 != 0b0000_0010 {
        return Err(corrupt(
            NAME,
            format!("an OBU has the unsupported header byte {header:#04x}"),
        ));
    }
    // AV1's leb128 and our varint are identical up to five bytes; a size never needs more.
    let len = varint::take(NAME, &mut after)?;
    let (payload, after) = after
        .split_at_checked(len)
        .ok_or_else(|| corrupt(NAME, "an OBU is longer than its unit"))?;
    *rest = after;
    Ok((header >> 3, payload))
}

/// Reads a sequence header (section 5.5 of the AV1 specification); `None` if it is not allowed in a page.
fn sequence(payload: &[u8]) -> Option<Sequence> {
    let mut bits = BitReader::new(payload);
    let profile = bits.take(3)?;
    // No still image or its reduced header, no timing, no display delay, one operating point without layers.
    bits.zeros(2 + 1 + 1 + 5 + 12)?;
    let level = bits.take(5)?;
    if level > 7 {
        bits.take(1)?;
    }
    let (width_bits, height_bits) = (bits.take(4)? + 1, bits.take(4)? + 1);
    let (width, height) = (bits.take(width_bits)? + 1, bits.take(height_bits)? + 1);
    // No frame numbers.
    bits.zeros(1)?;
    // 128 × 128 blocks, filtered intra, intra edges; inter-intra, masks, warps, dual filters.
    bits.take(3 + 4)?;
    let has_order = bits.take(1)? == 1;
    if has_order {
        bits.take(2)?;
    }
    // Screen content tools and integer motion vectors: chosen per frame or for all.
    let screen_tools = bits.take(1)? == 1 || bits.take(1)? == 1;
    if screen_tools && bits.take(1)? == 0 {
        bits.take(1)?;
    }
    if has_order {
        bits.take(3)?;
    }
    // No superres.
    bits.zeros(1)?;
    // The two in-loop filters, CDEF and restoration.
    bits.take(2)?;
    let planes = channels(&mut bits, profile)?;
    // No grain.
    bits.zeros(1)?;
    Some(Sequence {
        height: usize::try_from(height).ok()?,
        width: usize::try_from(width).ok()?,
        planes,
    })
}

/// The color config of a sequence header: 8 bits, full range, grey, 4:2:0 or 4:4:4.
fn channels(bits: &mut BitReader<'_>, profile: u32) -> Option<Planes> {
    // Eight bits.
    bits.zeros(1)?;
    let is_grey = match profile {
        0 => bits.take(1)? == 1,
        1 => false,
        _ => return None,
    };
    let mut matrix = MATRIX_UNKNOWN;
    if bits.take(1)? == 1 {
        bits.take(8 + 8)?;
        matrix = bits.take(8)?;
    }
    let is_full_range = bits.take(1)? == 1;
    if !is_full_range || matrix == MATRIX_IDENTITY {
        return None;
    }
    if is_grey {
        return Some(Planes::Grey);
    }
    let planes = match profile {
        0 => {
            // The chroma sample position.
            bits.take(2)?;
            Planes::Half
        }
        _ => Planes::Full,
    };
    // Whether the two chroma planes have separate quantiser deltas.
    bits.take(1)?;
    Some(planes)
}

/// The identity matrix (planes are RGB): the one value that changes how the remaining fields are read.
const MATRIX_IDENTITY: u32 = 0;

/// Unspecified.
const MATRIX_UNKNOWN: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// From a page written by rav1e: 480 × 640, 4:2:0, full range.
    const HEADER: [u8; 11] = [
        0x00, 0x00, 0x00, 0xfa, 0x62, 0x7f, 0xef, 0x88, 0x42, 0xa1, 0x28,
    ];

    fn first_unit(header: &[u8]) -> Vec<u8> {
        let len = u8::try_from(header.len()).unwrap();
        [&[0x12, 0, 0x0a, len], header, &[0x32, 1, 0]].concat()
    }

    #[test]
    fn a_page_is_split_where_it_was_joined() {
        let units = [vec![1; 200], vec![2], vec![3; 5]];
        let exact = [None, Some(vec![4; 300]), None];
        let page = join(&units, &exact);
        let mut index = Index::default();
        index.read(&page, 3).unwrap();
        for (idx, (unit, exact)) in units.iter().zip(&exact).enumerate() {
            assert_eq!(page[index.unit(idx)], *unit);
            let got = index.exact(idx).map(|part| page[part].to_vec());
            assert_eq!(got, *exact);
        }
        assert!(index.read(&page[..page.len() - 1], 3).is_err());
        for frames in [0, 2, 4, 121, usize::MAX] {
            assert!(index.read(&page, frames).is_err(), "{frames}");
        }
    }

    #[test]
    fn the_size_is_read_from_a_real_header() {
        let expected = Sequence {
            height: 480,
            width: 640,
            planes: Planes::Half,
        };
        assert_eq!(check_first(&first_unit(&HEADER)).unwrap(), expected);
    }

    #[test]
    fn unsupported_sequence_headers_are_refused() {
        // Bit positions: still image, timing, operating points, layers, frame numbers, superres, grain.
        for bit in [3, 5, 7, 20] {
            let mut header = HEADER;
            header[bit / 8] ^= 0x80 >> (bit % 8);
            assert!(check_first(&first_unit(&header)).is_err(), "bit {bit}");
        }
        for cut in 0..HEADER.len() {
            assert!(check_first(&first_unit(&HEADER[..cut])).is_err(), "{cut}");
        }
    }

    #[test]
    fn a_unit_holds_only_plain_frames() {
        assert!(check_other(&[0x12, 0, 0x32, 1, 0]).is_ok());
        for bad in [
            &[][..],
            &[0x12, 0],
            &[0x12, 1, 0, 0x32, 1, 0],
            &[0x32, 1, 0],
            &[0x12, 0, 0x32, 2, 0],
            &[0x12, 0, 0x32, 0],
            // A sequence header, metadata, a tile list, an extension, no size.
            &[0x12, 0, 0x0a, 1, 0, 0x32, 1, 0],
            &[0x12, 0, 0x2a, 1, 0],
            &[0x12, 0, 0x42, 1, 0],
            &[0x12, 0, 0x36, 0, 1, 0],
            &[0x12, 0, 0x30, 1, 0],
        ] {
            assert!(check_other(bad).is_err(), "{bad:02x?}");
        }
        let many = [&[0x12, 0][..], &[0x32, 1, 0].repeat(9)].concat();
        assert!(check_other(&many).is_err());
    }
}
