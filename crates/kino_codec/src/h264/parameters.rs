//! Parameter sets: what a stream says about itself before its first picture, as far as it decides whether the stream is
//! decoded here, and what is needed to check slice headers. All numbers are within the ranges of the standard.

use super::{Refusal, damaged, foreign};
use crate::bit_reader::BitReader;

/// Profiles whose parameter sets say more about pixels.
const HIGH_PROFILES: [u32; 13] = [100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135];

/// Most reference pictures, by the standard.
const MAX_REFERENCES: u32 = 16;

/// The largest side in macroblocks that the decoder takes.
const MAX_SIDE: u32 = 1024;

/// A sequence parameter set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sequence {
    pub(super) id: u32,
    /// Bits of `frame_num`.
    pub(super) frame_num_bits: u32,
    /// Bits of the picture order count; 0 if pictures are shown in the order in which they are decoded.
    pub(super) order_bits: u32,
    pub(super) width_in_mbs: u32,
    pub(super) height_in_mbs: u32,
}

impl Sequence {
    pub(super) fn macroblocks(&self) -> u32 {
        self.width_in_mbs * self.height_in_mbs
    }
}

/// A picture parameter set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Picture {
    pub(super) id: u32,
    pub(super) is_cabac: bool,
    pub(super) has_bottom_order: bool,
    /// Default numbers of references in both lists, less one.
    pub(super) references: [u32; 2],
    pub(super) is_weighted: bool,
    /// 1 if B slices have weights.
    pub(super) bipred: u32,
    pub(super) qp: i64,
    pub(super) has_deblocking: bool,
}

const CUT_SHORT: &str = "a parameter set is cut short or out of range";

/// Reads a sequence parameter set. Refuses one whose pictures are not decoded exactly as FFmpeg decodes them.
pub(super) fn sequence(rbsp: &[u8]) -> Result<Sequence, Refusal> {
    let bits = &mut BitReader::new(rbsp);
    let id = sequence_start(bits).ok_or_else(|| damaged(CUT_SHORT))?;
    let (profile, id) = id;
    if HIGH_PROFILES.contains(&profile) {
        let pixels = pixels(bits).ok_or_else(|| damaged(CUT_SHORT))?;
        pixels.check()?;
        skip_scaling(bits, 8).ok_or_else(|| damaged(CUT_SHORT))?;
    }
    let rest = SequenceRest::parse(bits).ok_or_else(|| damaged(CUT_SHORT))?;
    rest.check()?;
    Ok(Sequence {
        id,
        frame_num_bits: rest.frame_num_bits,
        order_bits: rest.order_bits,
        width_in_mbs: rest.width_in_mbs,
        height_in_mbs: rest.height_in_mbs,
    })
}

/// The profile and the number of the set.
fn sequence_start(bits: &mut BitReader<'_>) -> Option<(u32, u32)> {
    let profile = bits.take(8)?;
    // Constraints, then the level.
    bits.take(16)?;
    Some((profile, bits.up_to(31)?))
}

struct PixelFormat {
    chroma: u32,
    depths: [u32; 2],
    is_lossless: bool,
}

fn pixels(bits: &mut BitReader<'_>) -> Option<PixelFormat> {
    let chroma = bits.up_to(3)?;
    if chroma == 3 {
        bits.flag()?;
    }
    Some(PixelFormat {
        chroma,
        depths: [8 + bits.up_to(6)?, 8 + bits.up_to(6)?],
        is_lossless: bits.flag()?,
    })
}

impl PixelFormat {
    fn check(&self) -> Result<(), Refusal> {
        let chroma = ["without chroma", "4:2:0", "4:2:2", "4:4:4"];
        let chroma = chroma.get(usize::try_from(self.chroma).unwrap_or(0));
        match (self.chroma, self.depths) {
            (1, [8, 8]) if self.is_lossless => Err(foreign("lossless coding")),
            (1, [8, 8]) => Ok(()),
            (1, [luma, _]) => Err(foreign(format!("a bit depth of {luma}"))),
            _ => Err(foreign(format!(
                "images {}",
                chroma.copied().unwrap_or_default()
            ))),
        }
    }
}

/// What follows the format of pixels.
struct SequenceRest {
    frame_num_bits: u32,
    order_type: u32,
    order_bits: u32,
    references: u32,
    width_in_mbs: u32,
    height_in_mbs: u32,
    is_progressive: bool,
    /// Left, right, top and bottom, in units of two pixels.
    crop: [u32; 4],
}

impl SequenceRest {
    fn parse(bits: &mut BitReader<'_>) -> Option<Self> {
        let frame_num_bits = 4 + bits.up_to(12)?;
        let order_type = bits.up_to(2)?;
        let order_bits = match order_type {
            0 => 4 + bits.up_to(12)?,
            _ => 0,
        };
        if order_type == 1 {
            skip_order_cycle(bits)?;
        }
        let references = bits.unsigned()?;
        // Whether numbers of frames may be left out.
        bits.flag()?;
        let (width_in_mbs, height_in_mbs) = (1 + bits.up_to(1 << 20)?, 1 + bits.up_to(1 << 20)?);
        let is_progressive = bits.flag()?;
        if !is_progressive {
            bits.flag()?;
        }
        // `direct_8x8_inference_flag`
        bits.flag()?;
        let mut crop = [0; 4];
        if bits.flag()? {
            for side in &mut crop {
                *side = bits.up_to(1 << 20)?;
            }
        }
        Some(Self {
            frame_num_bits,
            order_type,
            order_bits,
            references,
            width_in_mbs,
            height_in_mbs,
            is_progressive,
            crop,
        })
    }

    fn check(&self) -> Result<(), Refusal> {
        let [left, right, top, bottom] = self.crop;
        let (width, height) = (8 * self.width_in_mbs, 8 * self.height_in_mbs);
        if !self.is_progressive {
            return Err(foreign("interlaced coding"));
        }
        if self.order_type == 1 {
            return Err(foreign("picture order counts of type 1"));
        }
        if self.references > MAX_REFERENCES {
            let references = self.references;
            return Err(damaged(format!(
                "it claims {references} reference pictures"
            )));
        }
        if self.width_in_mbs > MAX_SIDE || self.height_in_mbs > MAX_SIDE {
            return Err(foreign(format!(
                "images of {}x{} pixels",
                2 * width,
                2 * height
            )));
        }
        // FFmpeg crops less at the left, to keep rows aligned.
        if left > 0 || top > 0 {
            return Err(foreign("cropping at the left or at the top"));
        }
        if right >= width || bottom >= height {
            return Err(damaged("nothing is left of its images after cropping"));
        }
        Ok(())
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
                next = (last + bits.signed_between(-128, 127)?).rem_euclid(256);
            }
            last = if next == 0 { last } else { next };
        }
    }
    Some(())
}

/// Reads a picture parameter set of a sequence.
pub(super) fn picture(rbsp: &[u8], sequence: &Sequence) -> Result<Picture, Refusal> {
    let bits = &mut BitReader::new(rbsp);
    let start = || {
        let (id, of) = (bits.up_to(255)?, bits.up_to(31)?);
        let (is_cabac, has_bottom_order) = (bits.flag()?, bits.flag()?);
        Some((id, of, is_cabac, has_bottom_order, bits.up_to(7)?))
    };
    let mut start = start;
    let (id, of, is_cabac, has_bottom_order, groups) = start().ok_or_else(|| damaged(CUT_SHORT))?;
    if of != sequence.id {
        return Err(damaged("a picture parameter set belongs to no sequence"));
    }
    if groups > 0 {
        return Err(foreign("slice groups"));
    }
    let rest = picture_rest(bits).ok_or_else(|| damaged(CUT_SHORT))?;
    if rest.is_redundant {
        return Err(foreign("redundant slices"));
    }
    Ok(Picture {
        id,
        is_cabac,
        has_bottom_order,
        references: rest.references,
        is_weighted: rest.is_weighted,
        bipred: rest.bipred,
        qp: rest.qp,
        has_deblocking: rest.has_deblocking,
    })
}

/// What follows the slice groups.
struct PictureRest {
    references: [u32; 2],
    is_weighted: bool,
    bipred: u32,
    qp: i64,
    has_deblocking: bool,
    is_redundant: bool,
}

fn picture_rest(bits: &mut BitReader<'_>) -> Option<PictureRest> {
    let references = [bits.up_to(31)?, bits.up_to(31)?];
    let is_weighted = bits.flag()?;
    let bipred = bits.take(2).filter(|idc| *idc < 3)?;
    let qp = 26 + bits.signed_between(-26, 25)?;
    // QP of switching slices, offset of chroma.
    bits.signed_between(-26, 25)?;
    bits.signed_between(-12, 12)?;
    let has_deblocking = bits.flag()?;
    // `constrained_intra_pred_flag`
    bits.flag()?;
    let is_redundant = bits.flag()?;
    if bits.has_more() {
        let has_8x8 = bits.flag()?;
        skip_scaling(bits, if has_8x8 { 8 } else { 6 })?;
        bits.signed_between(-12, 12)?;
    }
    Some(PictureRest {
        references,
        is_weighted,
        bipred,
        qp,
        has_deblocking,
        is_redundant,
    })
}
