//! H.264: parameter sets, the configuration made of them, and the order of images.
//!
//! ```text
//! avcC = 1 │ profile │ compatibility │ level │ fc + 3 │ e0 + count, sequence sets │ count, picture sets │ chroma, depths
//!                                                                    each after a u16 length   not in older profiles
//! ```

use kino_codec::BitReader;

use super::nal::{put_sets, take_sets, unescape};
use super::{Count, Slice, VideoHeader};
use crate::mp4::h264_pixels;

/// Profiles whose parameter sets say more about pixels.
const HIGH_PROFILES: [u32; 13] = [100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135];

/// More of a slice is not needed for its order.
const SLICE_BYTES: usize = 64;

/// What slices need of their parameter sets.
#[derive(Debug, Default)]
pub(super) struct Sets {
    sequences: Vec<Sequence>,
    /// The numbers of picture parameter sets, and of their sequences.
    pictures: Vec<(u32, u32)>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sequence {
    id: u32,
    chroma: u32,
    depths: [u32; 2],
    has_separate_planes: bool,
    frame_num_bits: u32,
    may_skip_numbers: bool,
    /// Bits of the picture order count; 0 if it is not of type 0.
    order_bits: u32,
    is_progressive: bool,
    height: u32,
    width: u32,
}

/// The configuration and the size of the images, and what slices need.
pub(super) fn header(found: &[(u8, &[u8])]) -> Result<(VideoHeader, Sets), String> {
    let of = |wanted: u8| -> Vec<&[u8]> {
        let sets = found.iter().filter(|(rank, _)| *rank == wanted);
        sets.map(|(_, set)| *set).collect()
    };
    let (sequences, pictures) = (of(1), of(2));
    let (Some(first), [_, ..]) = (sequences.first(), &*pictures) else {
        return Err("has a key frame with some of its parameter sets only".to_owned());
    };
    let wrong = || "has a damaged parameter set".to_owned();
    let mut sets = Sets::default();
    for set in &sequences {
        sets.sequences.push(sequence(set).ok_or_else(wrong)?);
    }
    for set in &pictures {
        sets.pictures.push(picture(set).ok_or_else(wrong)?);
    }
    let Some((&[_, profile, compatibility, level], parsed)) =
        first.first_chunk().zip(sets.sequences.first().copied())
    else {
        return Err(wrong());
    };
    let count = |sets: &[&[u8]], most: u8| {
        let count = u8::try_from(sets.len()).ok().filter(|count| *count <= most);
        count.ok_or("has too many parameter sets")
    };
    let mut config = vec![1, profile, compatibility, level, 0xff];
    config.push(0xe0 | count(&sequences, 31)?);
    put_sets(&sequences, &mut config)?;
    config.push(count(&pictures, 255)?);
    put_sets(&pictures, &mut config)?;
    if HIGH_PROFILES.contains(&u32::from(profile)) {
        let [luma, chroma] = parsed.depths.map(|depth| u8::try_from(depth).unwrap_or(0));
        let format = u8::try_from(parsed.chroma).unwrap_or(0);
        config.extend([0xfc | format, 0xf8 | luma, 0xf8 | chroma, 0]);
    }
    let header = VideoHeader {
        pixels: h264_pixels(&config),
        config,
        height: parsed.height,
        width: parsed.width,
    };
    Ok((header, sets))
}

/// The sets of a configuration, and the bytes of a length.
pub(super) fn sets(config: &[u8]) -> Option<(Vec<&[u8]>, usize)> {
    let &[1, _, _, _, lengths, count, ref rest @ ..] = config else {
        return None;
    };
    let (mut rest, mut sets) = (rest, Vec::new());
    take_sets(&mut rest, usize::from(count & 31), &mut sets)?;
    let (&count, mut rest) = rest.split_first()?;
    take_sets(&mut rest, usize::from(count), &mut sets)?;
    Some((sets, usize::from(lengths & 3) + 1))
}

impl Sets {
    /// What the first slice of an image says; `None` if its header or its parameter sets are damaged.
    pub(super) fn slice(&self, slice: &[u8]) -> Option<Slice> {
        let bytes = unescape(slice, SLICE_BYTES);
        let (&first, rest) = bytes.split_first()?;
        let bits = &mut BitReader::new(rest);
        // The first macroblock, and the type of the slice.
        bits.unsigned()?;
        bits.up_to(9)?;
        let picture = bits.up_to(255)?;
        let of = self.pictures.iter().find(|(id, _)| *id == picture)?.1;
        let sequence = self.sequences.iter().find(|one| one.id == of)?;
        if sequence.has_separate_planes {
            bits.skip(2)?;
        }
        let count = |bits: &mut BitReader<'_>, len: u32| {
            let value = bits.take(len)?;
            Some(Count { value, bits: len })
        };
        let number = count(bits, sequence.frame_num_bits)?;
        // Whether it is a field, and which.
        if !sequence.is_progressive && bits.flag()? {
            bits.flag()?;
        }
        let is_idr = first & 0x1f == 5;
        if is_idr {
            bits.up_to(65535)?;
        }
        let order = match sequence.order_bits {
            0 => None,
            len => Some(count(bits, len)?),
        };
        Some(Slice {
            order,
            number: Some(number).filter(|_| !sequence.may_skip_numbers),
            is_reference: first & 0x60 != 0,
            is_reset: is_idr,
        })
    }

    /// Whether a slice is the first of its image. Two fields may be in one message.
    pub(super) fn begins_image(&self, slice: &[u8]) -> bool {
        let is_progressive = self.sequences.iter().all(|one| one.is_progressive);
        is_progressive && slice.get(1).is_some_and(|byte| byte & 0x80 != 0)
    }
}

/// Reads a picture parameter set: its number, and its sequence's.
fn picture(set: &[u8]) -> Option<(u32, u32)> {
    let bytes = unescape(set.get(1..)?, SLICE_BYTES);
    let bits = &mut BitReader::new(&bytes);
    Some((bits.up_to(255)?, bits.up_to(31)?))
}

fn sequence(set: &[u8]) -> Option<Sequence> {
    let bytes = unescape(set.get(1..)?, usize::from(u16::MAX));
    let bits = &mut BitReader::new(&bytes);
    let profile = bits.take(8)?;
    // Constraints, then the level.
    bits.take(16)?;
    let mut found = Sequence {
        id: bits.up_to(31)?,
        chroma: 1,
        ..Sequence::default()
    };
    if HIGH_PROFILES.contains(&profile) {
        found.chroma = bits.up_to(3)?;
        found.has_separate_planes = found.chroma == 3 && bits.flag()?;
        found.depths = [bits.up_to(6)?, bits.up_to(6)?];
        // Whether coding may be lossless.
        bits.flag()?;
        skip_scaling(bits, if found.chroma == 3 { 12 } else { 8 })?;
    }
    found.frame_num_bits = 4 + bits.up_to(12)?;
    match bits.up_to(2)? {
        0 => found.order_bits = 4 + bits.up_to(12)?,
        1 => skip_order_cycle(bits)?,
        _ => {}
    }
    // References.
    bits.unsigned()?;
    found.may_skip_numbers = bits.flag()?;
    found.size(bits)?;
    Some(found)
}

impl Sequence {
    /// Reads the size: whole macroblocks, less what is cropped.
    fn size(&mut self, bits: &mut BitReader<'_>) -> Option<()> {
        let (width, height) = (16 * (1 + bits.up_to(4096)?), 16 * (1 + bits.up_to(4096)?));
        self.is_progressive = bits.flag()?;
        if !self.is_progressive {
            bits.flag()?;
        }
        // `direct_8x8_inference_flag`
        bits.flag()?;
        let fields = if self.is_progressive { 1 } else { 2 };
        let (unit_x, unit_y) = match (self.chroma, self.has_separate_planes) {
            (1, _) => (2, 2),
            (2, _) => (2, 1),
            _ => (1, 1),
        };
        let mut crop = [0; 4];
        if bits.flag()? {
            for side in &mut crop {
                *side = bits.up_to(1 << 16)?;
            }
        }
        let [left, right, top, bottom] = crop;
        self.width = width.checked_sub(unit_x * (left + right))?;
        let height = fields * height;
        self.height = height.checked_sub(fields * unit_y * (top + bottom))?;
        Some(())
    }
}

/// The fields of `pic_order_cnt_type` 1.
fn skip_order_cycle(bits: &mut BitReader<'_>) -> Option<()> {
    bits.flag()?;
    bits.signed()?;
    bits.signed()?;
    for _ in 0..bits.up_to(255)? {
        bits.signed()?;
    }
    Some(())
}

/// Scaling matrices, if there are any: six of 16 numbers, then others of 64.
fn skip_scaling(bits: &mut BitReader<'_>, lists: usize) -> Option<()> {
    if !bits.flag()? {
        return Some(());
    }
    for list in 0..lists {
        if !bits.flag()? {
            continue;
        }
        let (mut last, mut next) = (8, 8);
        for _ in 0..if list < 6 { 16 } else { 64 } {
            if next != 0 {
                next = (last + bits.signed()?).rem_euclid(256);
            }
            last = if next == 0 { last } else { next };
        }
    }
    Some(())
}
