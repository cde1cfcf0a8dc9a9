//! `av1`: 8-bit images as AV1 video in short closed groups: the smallest codec where loss is allowed.
//!
//! ```text
//! page = sizes │ unit 0 │ unit 1 │ … │ exact frames       a group: one key frame, then the changes
//! ```
//!
//! Unit *i* shows frame *i* and depends only on the units before it. All units concatenated are a
//! low-overhead AV1 stream that any AV1 decoder plays. Decoding a frame means decoding all frames before it in
//! its group, so `group` sets the cost of a random frame; sequential reads are cheapest, and files smallest, with
//! long groups. Frames that must come back bit for bit, and whole groups that cannot meet a guaranteed PSNR, are
//! stored as pages of `predict` after the units.
//!
//! SVT-AV1 encodes, through an FFmpeg that is found at run time ([`encode`]); rav1d, which is part of this library,
//! decodes on the calling thread. Luma and chroma are stored ([`yuv`]); sides are padded to whole blocks
//! ([`Size::coded`]).

mod decode;
mod encode;
mod ffi;
mod metadata;
mod search;
mod units;
mod yuv;

use std::num::NonZeroUsize;
use std::ops::Range;

use crate::bound::Bound;
use crate::codec::{Codec, Decoder, Encoded, MAX_PAGE_BYTES, Page};
use crate::describe::{Description, Guarantee, Parameter, Speed};
use crate::error::{CodecError, Result, corrupt};
use crate::frame::{FrameType, ValueType};
use crate::frames::Frames;
use crate::kind::Kind;
use crate::pages::{PageCodec, Pages};
use crate::predict;
use crate::scratch::Scratch;
use crate::spec::CodecSpec;

pub(crate) use ffi::{Frame, Library};
pub(crate) use yuv::Planes;

use decode::{Image, Instance};
use encode::{Group, Settings};
use search::Target;
use units::Index;

const NAME: &str = "av1";

/// The longest group: in a longer one a random frame would be too expensive.
const MAX_GROUP: usize = 120;

/// The smallest coded side; AV1 encoders are not made for smaller images.
const MIN_SIDE: usize = 16;

/// Coded sides are multiples of this: every encoder is good at whole blocks.
const BLOCK_SIDE: usize = 8;

/// The largest side, in whole blocks, that a sequence header can hold.
const MAX_SIDE: usize = 65528;

const DEFAULT_QUALITY: i32 = 80;
const DEFAULT_GROUP: i32 = 30;
const DEFAULT_SPEED: i32 = 7;

/// Whether AV1 is decoded with hand-written SIMD; without it, it is about five times slower.
pub const fn av1_simd() -> bool {
    cfg!(feature = "av1-simd")
}

pub(crate) const DESCRIPTION: Description = Description {
    name: NAME,
    summary: "8-bit image sequences as video: the smallest",
    kinds: &[Kind::Image],
    is_default: false,
    is_alternative: false,
    guarantees: &[Guarantee::Measured, Guarantee::Psnr],
    is_grouped: true,
    encode: Speed::Slow,
    decode: Speed::Medium,
    parameters: &[
        Parameter {
            key: "q",
            help: "quality, 1 to 100",
        },
        Parameter {
            key: "psnr",
            help: "instead of q: the lowest PSNR of a group, in dB",
        },
        Parameter {
            key: "group",
            help: "frames per page, 1 to 120; a random frame costs half as many decodes",
        },
        Parameter {
            key: "speed",
            help: "0 (small) to 10 (fast)",
        },
        Parameter {
            key: "sub",
            help: "chroma subsampling: 420; pages with 444 can be read, but no longer written",
        },
    ],
    settings: |_| vec![format!("{NAME}:psnr=40")],
    quality: None,
    files: None,
    make: Pages::<Av1>::make,
};

/// The `av1` codec.
#[derive(Debug)]
pub(crate) struct Av1 {
    target: Target,
    group: NonZeroUsize,
    speed: u8,
    /// How chroma is stored; grey images have none.
    planes: Planes,
}

/// The size of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    height: usize,
    width: usize,
    /// 1 (grey) or 3 (RGB).
    channels: usize,
}

impl Size {
    fn new(frame: &FrameType) -> Result<Self> {
        match frame.as_values().and_then(ValueType::as_image) {
            Some((height, width, channels @ (1 | 3)))
                if height.max(width) <= MAX_SIDE && height.min(width) > 0 =>
            {
                Ok(Self {
                    height,
                    width,
                    channels,
                })
            }
            _ => Err(CodecError::Unsuited {
                codec: NAME,
                frame: frame.to_string(),
                what: "it stores 8-bit images with 1 or 3 channels and sides up to 65528; use `predict` or `zstd`"
                    .to_owned(),
            }),
        }
    }

    fn row_bytes(&self) -> usize {
        self.width * self.channels
    }

    fn bytes(&self) -> usize {
        self.height * self.row_bytes()
    }

    /// Height and width of the coded image.
    fn coded(&self) -> (usize, usize) {
        let coded = |side: usize| side.next_multiple_of(BLOCK_SIDE).max(MIN_SIDE);
        (coded(self.height), coded(self.width))
    }
}

impl PageCodec for Av1 {
    const NAME: &'static str = NAME;
    type Decoder = Av1Decoder;

    fn parse(spec: &CodecSpec) -> Result<Self> {
        let speed = spec.integer("speed", 0..=10, DEFAULT_SPEED)?;
        Ok(Self {
            target: Target::parse(spec)?,
            group: spec.count("group", 1..=120, DEFAULT_GROUP)?,
            speed: u8::try_from(speed).unwrap_or(u8::MAX),
            planes: match spec.get("sub").unwrap_or("420") {
                "420" => Planes::Half,
                "444" => Planes::Full,
                _ => return Err(spec.error("`sub` must be 420 or 444")),
            },
        })
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        let is_full = self.planes == Planes::Full;
        vec![
            self.target.parameter(),
            ("group", self.group.to_string()),
            ("speed", self.speed.to_string()),
            ("sub", if is_full { "444" } else { "420" }.to_owned()),
        ]
    }

    fn bound(&self) -> Bound {
        self.target.bound()
    }

    fn page_frames(&self, frame: &FrameType) -> NonZeroUsize {
        let bytes = Size::new(frame).map_or(1, |size| size.bytes());
        let most = NonZeroUsize::new(MAX_PAGE_BYTES / bytes).unwrap_or(NonZeroUsize::MIN);
        self.group.min(most)
    }

    fn encoder(&self) -> Option<String> {
        encode::encoder_name()
    }

    fn check_encoder(&self) -> Result<()> {
        if self.planes == Planes::Full {
            let what = "SVT-AV1 encodes only `sub=420`; for full chroma use `jpeg:q=95,sub=444`";
            return Err(CodecError::Unavailable {
                codec: NAME,
                what: what.to_owned(),
            });
        }
        encode::check_encoder()
    }

    fn decoder(&self, frame: &FrameType) -> Result<Av1Decoder> {
        Ok(Av1Decoder {
            size: Size::new(frame)?,
            exact: predict::exact()?.decoder(frame, &[])?,
        })
    }

    fn encode_page(&self, frames: &Frames<'_>, scratch: &mut Scratch) -> Result<Vec<u8>> {
        let group = Group {
            size: Size::new(frames.frame())?,
            pixels: frames.as_values(NAME)?.1,
            frames: *frames,
        };
        self.check_encoder()?;
        let settings = |crf| Settings {
            crf,
            speed: self.speed,
        };
        let units = self.target.encode(&group, settings, scratch)?;
        page(&group, units, scratch)
    }
}

/// The page of a group; without units, all its frames are stored exactly.
fn page(group: &Group<'_>, units: Option<Vec<Vec<u8>>>, scratch: &mut Scratch) -> Result<Vec<u8>> {
    let exact = predict::exact()?;
    let mut exact_frames = Vec::with_capacity(group.frames.len());
    for (idx, pixels) in group.frames.pages(NonZeroUsize::MIN).enumerate() {
        let mut out = Encoded::default();
        if units.is_none() || group.frames.is_protected(idx) {
            exact.encode(&pixels, NonZeroUsize::MIN, &mut out, scratch)?;
        }
        exact_frames.push(out.pages.pop().map(|page| page.bytes));
    }
    let units = units.unwrap_or_else(|| vec![Vec::new(); group.frames.len()]);
    Ok(units::join(&units, &exact_frames))
}

/// Decodes units from the first of their group and passes every image to `put`.
fn decode_units<'a>(
    size: Size,
    units: impl Iterator<Item = &'a [u8]> + Clone,
    kept: &mut State,
    mut put: impl FnMut(usize, &Image),
) -> Result<()> {
    let (height, width) = size.coded();
    let pixels = u32::try_from(height * width)
        .map_err(|_| corrupt(NAME, format!("cannot decode images of {height} × {width}")))?;
    let mut walk = units.clone();
    let Some(first) = walk.next() else {
        return Ok(());
    };
    let sequence = units::check_first(first)?;
    walk.try_for_each(units::check_other)?;
    let planes = sequence.planes;
    // Gray images may have chroma planes, which are ignored.
    let has_color = planes != Planes::Grey;
    if (sequence.height, sequence.width) != (height, width) || (size.channels == 3 && !has_color) {
        let what = format!("its images are {sequence:?}, not {height} × {width}");
        return Err(corrupt(NAME, what));
    }
    // Taken out, and put back only on success: an instance that saw an error is not reused.
    let mut instance = match kept.instance.take() {
        Some(used) if used.max_pixels() == pixels => used,
        _ => Instance::new(pixels)?,
    };
    instance.reset();
    for (idx, unit) in units.enumerate() {
        let image = instance.decode(unit)?;
        if (image.height, image.width, image.planes) != (height, width, planes) {
            return Err(corrupt(NAME, format!("frame {idx} has another size")));
        }
        put(idx, &image);
    }
    kept.instance = Some(instance);
    Ok(())
}

/// What is kept between calls.
#[derive(Debug, Default)]
struct State {
    /// The decoder, once needed.
    instance: Option<Instance>,
    /// Where the parts of a page are.
    index: Index,
}

#[derive(Debug)]
pub(crate) struct Av1Decoder {
    size: Size,
    exact: Box<dyn Decoder>,
}

impl Av1Decoder {
    /// Writes the images of `range` that are in units to their places; the others are exact.
    fn decode_inexact(
        &self,
        page: Page<'_>,
        range: &Range<usize>,
        dest: &mut [u8],
        state: &mut State,
    ) -> Result<()> {
        let index = std::mem::take(&mut state.index);
        let is_wanted = |idx: &usize| index.exact(*idx).is_none();
        if let Some(last) = range.clone().rfind(is_wanted) {
            let units = (0..=last).map(|idx| &page.bytes[index.unit(idx)]);
            decode_units(self.size, units, state, |idx, image| {
                if range.contains(&idx) && is_wanted(&idx) {
                    image.to_pixels(self.size, place(self.size, dest, idx - range.start));
                }
            })?;
        }
        state.index = index;
        Ok(())
    }
}

/// Image `idx` of a packed buffer.
fn place(size: Size, images: &mut [u8], idx: usize) -> &mut [u8] {
    &mut images[idx * size.bytes()..][..size.bytes()]
}

impl Decoder for Av1Decoder {
    fn frame_bytes(&self) -> usize {
        self.size.bytes()
    }

    fn decode_checked(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let mut state: Box<State> = scratch.take();
        state.index.read(page.bytes, page.frames)?;
        self.decode_inexact(page, &range, dest, &mut state)?;
        for idx in range.clone() {
            let Some(part) = state.index.exact(idx) else {
                continue;
            };
            let image = place(self.size, dest, idx - range.start);
            let bytes = &page.bytes[part];
            let page = Page { bytes, frames: 1 };
            self.exact.decode(page, 0..1, image, scratch)?;
        }
        scratch.keep(state);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
