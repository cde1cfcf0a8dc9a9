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
//! rav1e encodes and rav1d decodes, both on the calling thread. Luma and chroma are stored
//! ([`yuv`]); sides are padded to whole blocks ([`Size::coded`]).

mod decode;
mod encode;
mod ffi;
mod search;
mod units;
mod yuv;

use std::num::NonZeroUsize;
use std::ops::Range;

use crate::bound::Bound;
use crate::codec::{
    Codec, Decoder, Encoded, EncodedPage, MAX_PAGE_BYTES, Page, Scope, check_range,
    image_row_stride,
};
use crate::error::{CodecError, Result, buffer, corrupt};
use crate::frame::{FrameType, ValueType};
use crate::frames::{Frames, FramesMut};
use crate::predict::Predict;
use crate::scratch::{Scratch, at_least};
use crate::spec::CodecSpec;
use crate::view::{Crop, ImagesMut, Scale};

use decode::Image;
pub(crate) use decode::Instance;
use encode::{Group, Settings};
use search::Target;
pub(crate) use units::Index;
use yuv::Planes;

const NAME: &str = "av1";

/// The longest group: in a longer one a random frame would be too expensive.
const MAX_GROUP: usize = 120;

/// The smallest coded side; AV1 encoders are not made for smaller images.
const MIN_SIDE: usize = 16;

/// Coded sides are multiples of this; rav1e gets the edges of other sizes wrong, especially odd ones.
const BLOCK_SIDE: usize = 8;

/// The largest side, in whole blocks, that a sequence header can hold.
const MAX_SIDE: usize = 65528;

const DEFAULT_QUALITY: i32 = 80;
const DEFAULT_GROUP: i32 = 30;
const DEFAULT_SPEED: i32 = 9;

/// Whether AV1 is encoded and decoded with hand-written SIMD; without it, it is about five times slower.
pub const fn av1_simd() -> bool {
    cfg!(feature = "av1-simd")
}

/// The `av1` codec.
#[derive(Debug)]
pub(crate) struct Av1 {
    spec: CodecSpec,
    target: Target,
    group: NonZeroUsize,
    speed: u8,
    /// How chroma is stored; grey images have none.
    planes: Planes,
}

impl Av1 {
    pub(crate) fn new(spec: &CodecSpec) -> Result<Self> {
        spec.allow(&["q", "psnr", "group", "speed", "sub"])?;
        let (target, target_param) = Target::parse(spec)?;
        let group = spec.integer("group", 1..=120, DEFAULT_GROUP)?;
        let speed = spec.integer("speed", 0..=10, DEFAULT_SPEED)?;
        let planes = match spec.get("sub").unwrap_or("420") {
            "420" => Planes::Half,
            "444" => Planes::Full,
            _ => return Err(spec.error("`sub` must be 420 or 444")),
        };
        let sub = if planes == Planes::Full { "444" } else { "420" };
        let params = [
            target_param,
            ("group", group.to_string()),
            ("speed", speed.to_string()),
            ("sub", sub.to_owned()),
        ];
        Ok(Self {
            spec: CodecSpec::new(NAME, &params),
            target,
            group: usize::try_from(group)
                .ok()
                .and_then(NonZeroUsize::new)
                .unwrap_or(NonZeroUsize::MIN),
            speed: u8::try_from(speed).unwrap_or(u8::MAX),
            planes,
        })
    }
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

impl Codec for Av1 {
    fn spec(&self) -> &CodecSpec {
        &self.spec
    }

    fn scope(&self) -> Scope {
        Scope::Page
    }

    fn bound(&self) -> Bound {
        self.target.bound()
    }

    fn page_frames(&self, frame: &FrameType) -> NonZeroUsize {
        let bytes = Size::new(frame).map_or(1, |size| size.bytes());
        let most = NonZeroUsize::new(MAX_PAGE_BYTES / bytes).unwrap_or(NonZeroUsize::MIN);
        self.group.min(most)
    }

    fn check(&self, frame: &FrameType) -> Result<()> {
        Size::new(frame).map(|_| ())
    }

    fn encode(
        &self,
        frames: &Frames<'_>,
        page_frames: NonZeroUsize,
        out: &mut Encoded,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let size = Size::new(frames.frame())?;
        let (_, bytes) = frames.as_values(NAME)?;
        if page_frames > self.page_frames(frames.frame()) {
            return Err(buffer(format!(
                "{page_frames} frames per page requested, but groups of `{}` have at most {}",
                self.spec,
                self.page_frames(frames.frame())
            )));
        }
        let planes = if size.channels == 1 {
            Planes::Grey
        } else {
            self.planes
        };
        let settings = |quantizer| Settings {
            quantizer,
            speed: self.speed,
            planes,
        };
        let groups = bytes.chunks(page_frames.get() * size.bytes());
        for (idx, pixels) in groups.enumerate() {
            let group = Group {
                size,
                pixels,
                first: idx * page_frames.get(),
                protected: frames.protected(),
            };
            let units = self.target.encode(&group, settings, scratch)?;
            let bytes = page(&group, frames.frame(), units, scratch)?;
            let frames = group.frames();
            out.pages.push(EncodedPage { frames, bytes });
        }
        Ok(())
    }

    fn decoder(&self, frame: &FrameType, shared: &[u8]) -> Result<Box<dyn Decoder>> {
        if !shared.is_empty() {
            return Err(corrupt(NAME, "it shares nothing between pages"));
        }
        Ok(Box::new(Av1Decoder {
            size: Size::new(frame)?,
            ty: frame
                .as_values()
                .cloned()
                .ok_or_else(|| buffer("text cannot be decoded as an image"))?,
            exact: exact()?.decoder(frame, &[])?,
        }))
    }
}

/// The codec for frames that must come back bit for bit.
fn exact() -> Result<Predict> {
    Predict::new(&"predict".parse()?)
}

/// The page of a group; without units, all its frames are stored exactly.
fn page(
    group: &Group<'_>,
    frame: &FrameType,
    units: Option<Vec<Vec<u8>>>,
    scratch: &mut Scratch,
) -> Result<Vec<u8>> {
    let mut exact_frames = Vec::with_capacity(group.frames());
    for (idx, pixels) in group.pixels.chunks_exact(group.size.bytes()).enumerate() {
        let mut out = Encoded::default();
        if units.is_none() || group.is_exact(idx) {
            let pixels = Frames::values(frame, pixels)?;
            exact()?.encode(&pixels, NonZeroUsize::MIN, &mut out, scratch)?;
        }
        exact_frames.push(out.pages.pop().map(|page| page.bytes));
    }
    let units = units.unwrap_or_else(|| vec![Vec::new(); group.frames()]);
    Ok(units::join(&units, &exact_frames))
}

/// Decodes units from the first of their group and passes every image to `put`.
fn decode_units<'a>(
    size: Size,
    units: impl Iterator<Item = &'a [u8]> + Clone,
    kept: &mut Option<Instance>,
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
    if (sequence.height, sequence.width) != (height, width)
        || (planes == Planes::Grey) != (size.channels == 1)
    {
        let what = format!("its images are {sequence:?}, not {height} × {width}");
        return Err(corrupt(NAME, what));
    }
    // Taken out, and put back only on success: an instance that saw an error is not reused.
    let mut instance = match kept.take() {
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
    *kept = Some(instance);
    Ok(())
}

#[derive(Debug)]
struct Av1Decoder {
    size: Size,
    ty: ValueType,
    exact: Box<dyn Decoder>,
}

impl Av1Decoder {
    /// Passes the images of `range` that are in units to `put`, with their destination index; the others are exact.
    fn decode_inexact(
        &self,
        page: Page<'_>,
        range: &Range<usize>,
        scratch: &mut Scratch,
        mut put: impl FnMut(usize, &Image),
    ) -> Result<()> {
        let index = &mut scratch.av1_index;
        index.read(page.bytes, page.frames)?;
        let is_wanted = |idx: &usize| index.exact(*idx).is_none();
        let Some(last) = range.clone().rfind(is_wanted) else {
            return Ok(());
        };
        let units = (0..=last).map(|idx| &page.bytes[index.unit(idx)]);
        decode_units(self.size, units, &mut scratch.av1, |idx, image| {
            if range.contains(&idx) && is_wanted(&idx) {
                put(idx - range.start, image);
            }
        })
    }
}

impl Decoder for Av1Decoder {
    fn decode(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut FramesMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        check_range(page, &range, dest.len())?;
        let Size { height, width, .. } = self.size;
        let row_bytes = self.size.row_bytes();
        let row_stride = image_row_stride(dest, height, row_bytes)?;
        if range.is_empty() {
            return Ok(());
        }
        self.decode_inexact(page, &range, scratch, |place, image| {
            let rows = dest.frame_mut(place).chunks_mut(row_stride);
            for (y, pixels) in rows.take(height).enumerate() {
                image.row(y, (0, width)).to_pixels(&mut pixels[..row_bytes]);
            }
        })?;
        for (place, idx) in range.enumerate() {
            let Some(part) = scratch.av1_index.exact(idx) else {
                continue;
            };
            let room = dest.frame_mut(place);
            let strides = (room.len(), row_stride);
            let mut frame = FramesMut::strided(&self.ty, 1, strides, room)?;
            let page = one_exact(&page.bytes[part]);
            self.exact.decode(page, 0..1, &mut frame, scratch)?;
        }
        Ok(())
    }

    fn decode_images(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut ImagesMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        check_range(page, &range, dest.len())?;
        let view = dest.view();
        if view.ty() != &self.ty {
            let what = format!(
                "images of {} requested from a stream of {}",
                view.ty(),
                self.ty
            );
            return Err(buffer(what));
        }
        if range.is_empty() {
            return Ok(());
        }
        let mut whole = std::mem::take(&mut scratch.image);
        let stored = at_least(&mut whole, self.size.bytes());
        self.decode_inexact(page, &range, scratch, |place, image| {
            if view.scale() == Scale::Full {
                put_cut(image, place, dest, stored);
                return;
            }
            for (y, pixels) in stored.chunks_exact_mut(self.size.row_bytes()).enumerate() {
                image.row(y, (0, self.size.width)).to_pixels(pixels);
            }
            view.put(place, stored, dest);
        })?;
        for (place, idx) in range.enumerate() {
            let Some(part) = scratch.av1_index.exact(idx) else {
                continue;
            };
            let mut frame = FramesMut::packed(&self.ty, 1, stored)?;
            let page = one_exact(&page.bytes[part]);
            self.exact.decode(page, 0..1, &mut frame, scratch)?;
            view.put(place, stored, dest);
        }
        scratch.image = whole;
        Ok(())
    }
}

/// An exact frame as a page of `predict`.
fn one_exact(bytes: &[u8]) -> Page<'_> {
    Page { bytes, frames: 1 }
}

/// Writes the crop of an unscaled image row by row; `work` has room for a row.
fn put_cut(image: &Image, place: usize, dest: &mut ImagesMut<'_>, work: &mut [u8]) {
    let view = dest.view();
    let Crop {
        top,
        left,
        height,
        width,
    } = view.crop();
    // A crop that starts inside a 2 × 2 chroma square decodes from the square's start and drops its first pixel.
    let outside = match image.planes {
        Planes::Half => left % 2,
        Planes::Grey | Planes::Full => 0,
    };
    for y in 0..height {
        let row = image.row(top + y, (left - outside, width + outside));
        if outside == 0 {
            if let Some(channels) = dest.planes_mut(place, y) {
                row.to_planes(channels);
                continue;
            }
            if let Some((rows, stride)) = dest.rows_mut(place) {
                row.to_pixels(&mut rows[y * stride..][..view.row_bytes()]);
                continue;
            }
        }
        let (_, _, channels) = view.stored_size();
        let pixels = &mut work[..(width + outside) * channels];
        row.to_pixels(pixels);
        dest.put_row(place, y, &pixels[outside * channels..]);
    }
}

#[cfg(test)]
mod tests;
