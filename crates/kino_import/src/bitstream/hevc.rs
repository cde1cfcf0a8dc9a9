//! HEVC: parameter sets, the configuration made of them, and the order of images.
//!
//! ```text
//! hvcC = 1 │ profile, tier, level: 12 bytes │ f000 fc │ chroma, depths │ 0000 │ layers, 3 │ count, arrays
//! array = kind │ u16 count │ sets, each after a u16 length
//! ```

use kino_codec::BitReader;

use super::bits::byte;
use super::nal::{put_sets, take_sets, unescape};
use super::{Count, Slice, VideoHeader};
use crate::mp4::hevc_pixels;

/// Bytes of the header of a unit.
const HEAD_BYTES: usize = 2;

/// More of a slice or of a picture parameter set is not needed.
const SLICE_BYTES: usize = 64;

/// Bytes of `hvcC` before its arrays.
const FIXED_BYTES: usize = 22;

/// The kinds of parameter sets: of the video, of a sequence, of pictures.
const KINDS: [u8; 3] = [32, 33, 34];

/// What slices need of their parameter sets.
#[derive(Debug, Default)]
pub(super) struct Sets {
    sequences: Vec<Sequence>,
    pictures: Vec<Picture>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sequence {
    id: u32,
    layers: u32,
    is_nested: bool,
    /// Profile, tier and level as stored.
    profile: [u8; 12],
    chroma: u32,
    depths: [u32; 2],
    has_separate_planes: bool,
    order_bits: u32,
    height: u32,
    width: u32,
}

#[derive(Debug, Clone, Copy)]
struct Picture {
    id: u32,
    sequence: u32,
    has_output_flag: bool,
    extra_bits: u32,
}

/// The configuration and the size of the images, and what slices need.
pub(super) fn header(found: &[(u8, &[u8])]) -> Result<(VideoHeader, Sets), String> {
    let arrays: Vec<Vec<&[u8]>> = (0..3)
        .map(|wanted| {
            let sets = found.iter().filter(|(rank, _)| *rank == wanted);
            sets.map(|(_, set)| *set).collect()
        })
        .collect();
    let [_, sequences, pictures] = &*arrays else {
        return Err("has no parameter sets".to_owned());
    };
    if arrays.iter().any(Vec::is_empty) {
        return Err("has a key frame with some of its parameter sets only".to_owned());
    }
    let wrong = || "has a damaged parameter set".to_owned();
    let mut sets = Sets::default();
    for set in sequences {
        sets.sequences.push(sequence(set).ok_or_else(wrong)?);
    }
    for set in pictures {
        sets.pictures.push(picture(set).ok_or_else(wrong)?);
    }
    let first = *sets.sequences.first().ok_or_else(wrong)?;
    let mut config = first.configuration();
    config.push(3);
    for (kind, sets) in KINDS.iter().zip(&arrays) {
        config.push(*kind);
        let count = u16::try_from(sets.len()).map_err(|_| "has too many parameter sets")?;
        config.extend(count.to_be_bytes());
        put_sets(sets, &mut config)?;
    }
    let header = VideoHeader {
        pixels: hevc_pixels(&config),
        config,
        height: first.height,
        width: first.width,
    };
    Ok((header, sets))
}

/// The sets of a configuration, and the bytes of a length.
pub(super) fn sets(config: &[u8]) -> Option<(Vec<&[u8]>, usize)> {
    let (fixed, rest) = config.split_at_checked(FIXED_BYTES)?;
    let (&arrays, mut rest) = rest.split_first()?;
    let mut sets = Vec::new();
    for _ in 0..arrays {
        let &[kind, high, low, ref after @ ..] = rest else {
            return None;
        };
        rest = after;
        let mut found = Vec::new();
        let count = usize::from(u16::from_be_bytes([high, low]));
        take_sets(&mut rest, count, &mut found)?;
        // Messages for all images may be there too; a decoder does not need them.
        if KINDS.contains(&(kind & 0x3f)) {
            sets.append(&mut found);
        }
    }
    Some((sets, usize::from(fixed.last()? & 3) + 1))
}

impl Sequence {
    /// `hvcC` before its arrays.
    fn configuration(&self) -> Vec<u8> {
        let mut out = vec![1];
        out.extend(self.profile);
        // Nothing is said about segments, parallelism and the rate.
        out.extend([0xf0, 0, 0xfc]);
        out.push(byte(&[(0x3f, 6), (self.chroma, 2)]));
        out.extend(self.depths.map(|depth| byte(&[(0x1f, 5), (depth, 3)])));
        out.extend([0, 0]);
        let nested = u32::from(self.is_nested);
        out.push(byte(&[(0, 2), (self.layers, 3), (nested, 1), (3, 2)]));
        out
    }
}

impl Sets {
    /// What the first slice of an image says; `None` if its header or its parameter sets are damaged.
    pub(super) fn slice(&self, slice: &[u8]) -> Option<Slice> {
        let slice = unescape(slice, SLICE_BYTES);
        let kind = slice.first()? >> 1 & 0x3f;
        let bits = &mut BitReader::new(slice.get(HEAD_BYTES..)?);
        // The first slice of its image.
        bits.flag().filter(|is_first| *is_first)?;
        if (16..=23).contains(&kind) {
            bits.flag()?;
        }
        let id = bits.up_to(63)?;
        let picture = self.pictures.iter().find(|one| one.id == id)?;
        let sequence = self
            .sequences
            .iter()
            .find(|one| one.id == picture.sequence)?;
        bits.take(picture.extra_bits)?;
        bits.up_to(2)?;
        if picture.has_output_flag {
            bits.flag()?;
        }
        if sequence.has_separate_planes {
            bits.take(2)?;
        }
        let is_idr = matches!(kind, 19 | 20);
        let value = if is_idr {
            0
        } else {
            bits.take(sequence.order_bits)?
        };
        Some(Slice {
            order: Some(Count {
                value,
                bits: sequence.order_bits,
            }),
            // The count of BLA pictures (16 to 18) begins again too.
            is_reset: is_idr || (16..=18).contains(&kind),
            ..Slice::default()
        })
    }
}

/// Whether a slice is the first of its image.
pub(super) fn begins_image(slice: &[u8]) -> bool {
    slice.get(HEAD_BYTES).is_some_and(|byte| byte & 0x80 != 0)
}

fn picture(set: &[u8]) -> Option<Picture> {
    let bytes = unescape(set.get(HEAD_BYTES..)?, SLICE_BYTES);
    let bits = &mut BitReader::new(&bytes);
    let (id, sequence) = (bits.up_to(63)?, bits.up_to(15)?);
    // Whether slices may depend on others.
    bits.flag()?;
    Some(Picture {
        id,
        sequence,
        has_output_flag: bits.flag()?,
        extra_bits: bits.take(3)?,
    })
}

fn sequence(set: &[u8]) -> Option<Sequence> {
    let bytes = unescape(set.get(HEAD_BYTES..)?, usize::from(u16::MAX));
    let bits = &mut BitReader::new(&bytes);
    // The video parameter set.
    bits.take(4)?;
    let sub_layers = bits.take(3)?;
    let mut found = Sequence {
        layers: sub_layers + 1,
        is_nested: bits.flag()?,
        ..Sequence::default()
    };
    for byte in &mut found.profile {
        *byte = u8::try_from(bits.take(8)?).ok()?;
    }
    skip_sub_layers(bits, sub_layers)?;
    found.id = bits.up_to(15)?;
    found.chroma = bits.up_to(3)?;
    found.has_separate_planes = found.chroma == 3 && bits.flag()?;
    let (width, height) = (bits.up_to(1 << 16)?, bits.up_to(1 << 16)?);
    let (unit_x, unit_y) = match found.chroma {
        1 => (2, 2),
        2 => (2, 1),
        _ => (1, 1),
    };
    let mut crop = [0; 4];
    if bits.flag()? {
        for side in &mut crop {
            *side = bits.up_to(1 << 16)?;
        }
    }
    let [left, right, top, bottom] = crop;
    found.width = width.checked_sub(unit_x * (left + right))?;
    found.height = height.checked_sub(unit_y * (top + bottom))?;
    found.depths = [bits.up_to(8)?, bits.up_to(8)?];
    found.order_bits = 4 + bits.up_to(12)?;
    Some(found)
}

/// Profiles and levels of the layers below the last.
fn skip_sub_layers(bits: &mut BitReader<'_>, count: u32) -> Option<()> {
    let mut present = Vec::new();
    for _ in 0..count {
        present.push((bits.flag()?, bits.flag()?));
    }
    if count > 0 {
        for _ in count..8 {
            bits.take(2)?;
        }
    }
    for (has_profile, has_level) in present {
        bits.skip(if has_profile { 88 } else { 0 })?;
        bits.skip(if has_level { 8 } else { 0 })?;
    }
    Some(())
}
