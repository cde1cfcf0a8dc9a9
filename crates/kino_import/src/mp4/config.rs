//! The configuration records of codecs: what they say about pixels, and where `esds` has its own.

use super::boxes::{Fault, Fields, corrupt};
use super::{Mp4Chroma, Mp4Color, Mp4Pixels};

const OBJECT: &str = "esds";

/// Tags of the descriptors in `esds`.
const ELEMENTARY_STREAM: u8 = 3;
const DECODER_CONFIG: u8 = 4;
const DECODER_SPECIFIC_INFO: u8 = 5;

fn pixels(bit_depth: u8, chroma: Mp4Chroma) -> Option<Mp4Pixels> {
    Some(Mp4Pixels { bit_depth, chroma })
}

/// `chroma_format_idc` of H.264 and HEVC.
fn chroma_format(idc: u8) -> Mp4Chroma {
    match idc & 3 {
        0 => Mp4Chroma::Gray,
        1 => Mp4Chroma::Yuv420,
        2 => Mp4Chroma::Yuv422,
        _ => Mp4Chroma::Yuv444,
    }
}

/// `avcC`: for profiles that can have anything else than 4:2:0 of 8 bits, after the parameter sets.
pub(crate) fn h264_pixels(config: &[u8]) -> Option<Mp4Pixels> {
    let &[1, profile, _, _, _, sequence_sets, ref rest @ ..] = config else {
        return None;
    };
    if matches!(profile, 66 | 77 | 88) {
        return pixels(8, Mp4Chroma::Yuv420);
    }
    let rest = skip_sets(rest, sequence_sets & 31)?;
    let (&picture_sets, rest) = rest.split_first()?;
    let rest = skip_sets(rest, picture_sets)?;
    let &[chroma, luma_depth, ..] = rest else {
        return None;
    };
    pixels(8 + (luma_depth & 7), chroma_format(chroma))
}

/// What comes after so many parameter sets.
fn skip_sets(mut rest: &[u8], count: u8) -> Option<&[u8]> {
    for _ in 0..count {
        let (&len, after) = rest.split_first_chunk()?;
        rest = after.get(usize::from(u16::from_be_bytes(len))..)?;
    }
    Some(rest)
}

/// `hvcC`
pub(crate) fn hevc_pixels(config: &[u8]) -> Option<Mp4Pixels> {
    let &[chroma, luma_depth] = config.get(16..18)? else {
        return None;
    };
    pixels(8 + (luma_depth & 7), chroma_format(chroma))
}

/// `av1C`
pub(crate) fn av1_pixels(config: &[u8]) -> Option<Mp4Pixels> {
    let &[0x81, _, flags, ..] = config else {
        return None;
    };
    let is_set = |bit: u8| flags & bit != 0;
    let bit_depth = match (is_set(0x40), is_set(0x20)) {
        (false, _) => 8,
        (true, false) => 10,
        (true, true) => 12,
    };
    let chroma = match (is_set(0x10), is_set(0x08), is_set(0x04)) {
        (true, ..) => Mp4Chroma::Gray,
        (false, true, true) => Mp4Chroma::Yuv420,
        (false, true, false) => Mp4Chroma::Yuv422,
        (false, false, true) => Mp4Chroma::Yuv440,
        (false, false, false) => Mp4Chroma::Yuv444,
    };
    pixels(bit_depth, chroma)
}

/// `vpcC` after its version.
pub(super) fn vp9_pixels(config: &[u8]) -> Option<Mp4Pixels> {
    let &[_, _, depth_and_chroma, ..] = config else {
        return None;
    };
    let chroma = match depth_and_chroma >> 1 & 7 {
        0 | 1 => Mp4Chroma::Yuv420,
        2 => Mp4Chroma::Yuv422,
        3 => Mp4Chroma::Yuv444,
        4 => Mp4Chroma::Yuv440,
        _ => return None,
    };
    pixels(depth_and_chroma >> 4, chroma)
}

/// The color of `vpcC` after its version.
pub(super) fn vp9_color(config: &[u8]) -> Option<Mp4Color> {
    let &[_, _, range, primaries, transfer, matrix, ..] = config else {
        return None;
    };
    Some(Mp4Color {
        primaries: primaries.into(),
        transfer: transfer.into(),
        matrix: matrix.into(),
        is_full_range: Some(range & 1 == 1),
    })
}

/// The object type and the DecoderSpecificInfo in `esds`; the latter may be empty.
pub(super) fn decoder_config(esds: &[u8]) -> Result<(u8, Vec<u8>), Fault> {
    let (fields, _, _) = Fields::full(esds, OBJECT)?;
    let stream = descriptor(fields.rest(), ELEMENTARY_STREAM)?;
    let stream = stream.ok_or_else(|| corrupt(OBJECT, "has no elementary stream descriptor"))?;
    let mut fields = Fields::new(stream, OBJECT);
    fields.skip(2)?;
    let flags = fields.u8()?;
    if flags & 0x80 != 0 {
        fields.skip(2)?;
    }
    if flags & 0x40 != 0 {
        let len = fields.u8()?;
        fields.skip(len.into())?;
    }
    if flags & 0x20 != 0 {
        fields.skip(2)?;
    }
    let config = descriptor(fields.rest(), DECODER_CONFIG)?;
    let config = config.ok_or_else(|| corrupt(OBJECT, "has no decoder configuration"))?;
    let mut fields = Fields::new(config, OBJECT);
    let object_type = fields.u8()?;
    fields.skip(12)?;
    let specific = descriptor(fields.rest(), DECODER_SPECIFIC_INFO)?;
    Ok((object_type, specific.unwrap_or_default().to_vec()))
}

/// The body of the first descriptor with a tag.
fn descriptor(bytes: &[u8], tag: u8) -> Result<Option<&[u8]>, Fault> {
    let mut fields = Fields::new(bytes, OBJECT);
    while !fields.rest().is_empty() {
        let found = fields.u8()?;
        let len = descriptor_len(&mut fields)?;
        let body = fields.take(len)?;
        if found == tag {
            return Ok(Some(body));
        }
    }
    Ok(None)
}

/// A length of one to four bytes with seven bits each, highest first.
fn descriptor_len(fields: &mut Fields<'_>) -> Result<usize, Fault> {
    let mut len = 0;
    for _ in 0..4 {
        let byte = fields.u8()?;
        len = len << 7 | usize::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Ok(len)
}
