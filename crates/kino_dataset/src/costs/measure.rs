//! One codec on one run of frames: size, time, error.
//!
//! Times are for one thread and the best of several passes, so that other load on the machine does not count: of each
//! page for `decode`, of each of 32 random positions for `random` (one frame) and `window` (100 frames, or all). What
//! is timed is also checked: a codec that violates its bound is an error, not a row of figures.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use kino_codec::{Codec, CodecError, Encoded, FrameData, Frames, Scratch};

use crate::compare::{Distortion, psnr_db};
use crate::error::{Result, codec_at};
use crate::resize::Resize;

use super::reader::Reader;
use super::record::Cost;

/// Frames of a window.
pub(super) const WINDOW: usize = 100;

/// How much to measure.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// How long to measure each figure.
    pub budget: Duration,
    /// Frames per page; `None` for the codec's choice.
    pub page_frames: Option<NonZeroUsize>,
    /// How a loader makes images fit, where it may decode them at a fraction of their size.
    pub resize: Option<Resize>,
}

/// The measurements of a codec.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The codec's canonical name.
    pub codec: String,
    /// The type of the frames.
    pub frame: String,
    /// The number of frames.
    pub frames: usize,
    /// Bytes before encoding.
    pub raw_bytes: usize,
    /// Bytes after encoding, including the data that pages share.
    pub bytes: usize,
    /// Bytes that pages share.
    pub shared_bytes: usize,
    /// Frames of the first page.
    pub page_frames: usize,
    /// Time to encode all frames.
    pub encode: Duration,
    /// Time to decode all frames in sequence.
    pub decode: Duration,
    /// Time to decode one frame at a random position.
    pub random: Duration,
    /// Time to decode a window at a random position.
    pub window: Duration,
    /// Frames of a window.
    pub window_frames: usize,
    /// Time to decode all frames at a fraction of their size and to resize them; `None` if they are decoded whole.
    pub reduced: Option<Duration>,
    /// The largest difference between a decoded and an original value.
    pub max_abs_error: f64,
    /// The peak signal-to-noise ratio of 8-bit values, if the codec is lossy.
    pub psnr_db: Option<f64>,
}

/// Measures `codec` on `frames`, which are encoded as one run.
pub fn measure(codec: &dyn Codec, frames: &Frames<'_>, effort: Effort) -> Result<Measured> {
    let place = format!("{} on frames of {}", codec.spec(), frames.frame());
    measure_run(codec, frames, effort).map_err(codec_at(place))
}

fn measure_run(
    codec: &dyn Codec,
    frames: &Frames<'_>,
    effort: Effort,
) -> Result<Measured, CodecError> {
    codec.check(frames.frame())?;
    let page_frames = effort
        .page_frames
        .unwrap_or_else(|| codec.page_frames(frames.frame()));
    let mut encoded = Encoded::default();
    let mut scratch = Scratch::new();
    let encode = best_of(effort.budget, || {
        encoded = Encoded::default();
        codec.encode(frames, page_frames, &mut encoded, &mut scratch)
    })?;
    let decoder = codec.decoder(frames.frame(), &encoded.shared)?;
    let mut reader = Reader::new(frames.frame(), &*decoder, &encoded);
    let decode = reader.every_page(effort.budget)?;
    let error = reader.check(codec, frames)?;
    let random = reader.random(1, effort.budget)?;
    let window_frames = WINDOW.min(frames.len());
    let window = reader.random(window_frames, effort.budget)?;
    let reduced = reader.reduced(&effort)?;
    let pages = encoded.pages.iter().map(|page| page.bytes.len());
    Ok(Measured {
        codec: codec.spec().to_string(),
        frame: frames.frame().to_string(),
        frames: frames.len(),
        raw_bytes: raw_bytes(frames),
        bytes: encoded.shared.len() + pages.sum::<usize>(),
        shared_bytes: encoded.shared.len(),
        page_frames: encoded.pages.first().map_or(0, |page| page.frames),
        encode,
        decode,
        random,
        window,
        window_frames,
        reduced,
        max_abs_error: error.max_abs,
        psnr_db: psnr_of(frames, error),
    })
}

/// Bytes before encoding; for stored bitstreams, of the decoded pixels.
fn raw_bytes(frames: &Frames<'_>) -> usize {
    match (frames.data(), frames.frame().as_values()) {
        (FrameData::Bytes(strings), None) => strings.iter().map(|text| text.len()).sum(),
        (_, Some(ty)) => frames.len() * ty.frame_bytes(),
        (FrameData::Values(bytes), None) => bytes.len(),
    }
}

/// The peak signal-to-noise ratio of uint8 frames; other dtypes have no known peak.
fn psnr_of(frames: &Frames<'_>, error: Distortion) -> Option<f64> {
    let ty = frames.frame().as_values()?;
    let is_bytes = ty.dtype() == kino_codec::Dtype::U8;
    let values = frames.len() * ty.elements();
    psnr_db(error.sum_squared, values as u64).filter(|_| is_bytes)
}

/// The best time of several calls: at least three unless they are slow.
pub(super) fn best_of(
    budget: Duration,
    mut call: impl FnMut() -> Result<(), CodecError>,
) -> Result<Duration, CodecError> {
    let begin = Instant::now();
    let mut best = Duration::MAX;
    for round in 0.. {
        let spent = begin.elapsed();
        if round > 0 && spent > budget && (round >= 3 || spent > 5 * budget) {
            break;
        }
        let start = Instant::now();
        call()?;
        best = best.min(start.elapsed());
    }
    Ok(best)
}

#[expect(clippy::cast_precision_loss, reason = "figures for display")]
impl Measured {
    /// Bytes before encoding ÷ bytes after.
    pub fn ratio(&self) -> f64 {
        self.raw_bytes as f64 / self.bytes.max(1) as f64
    }

    /// Megabytes per second (before encoding) for a time.
    pub fn mb_s(&self, time: Duration) -> f64 {
        self.raw_bytes as f64 / time.as_secs_f64().max(1e-12) / 1e6
    }

    /// Whether streams can be stored with this codec; otherwise it was measured for comparison.
    pub fn is_stored(&self) -> bool {
        kino_codec::codec(&self.codec).is_ok()
    }

    /// Whether the codec is not part of Kinograph, so that readers need it too.
    pub fn is_foreign(&self) -> bool {
        kino_codec::codec(&self.codec).is_ok_and(|codec| codec.foreign().is_some())
    }

    pub(super) fn to_cost(&self) -> Cost {
        let frames = self.frames.max(1) as f64;
        let per_frame = |time: Duration| time.as_secs_f64() * 1e9 / frames;
        Cost {
            codec: self.codec.clone(),
            frame: self.frame.clone(),
            frame_bytes: self.raw_bytes as f64 / frames,
            ratio: self.ratio(),
            encode_ns: per_frame(self.encode),
            decode_ns: per_frame(self.decode),
            random_ns: self.random.as_secs_f64() * 1e9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resize::{Fit, ResizeMode};
    use kino_codec::{Dtype, FrameType, Page};

    const QUICK: Effort = Effort {
        budget: Duration::from_micros(100),
        page_frames: None,
        resize: None,
    };

    #[test]
    fn sizes_and_errors_are_those_of_the_codec() {
        let frame = FrameType::values(Dtype::U8, &[16, 16, 3]).unwrap();
        let bytes: Vec<u8> = (0..3 * 768_u32)
            .map(|idx| u8::try_from(idx / 9 % 256).unwrap())
            .collect();
        let frames = Frames::values(&frame, &bytes).unwrap();
        let raw = measure(&*kino_codec::codec("raw").unwrap(), &frames, QUICK).unwrap();
        assert_eq!((raw.frames, raw.raw_bytes, raw.bytes), (3, 2304, 2304));
        assert_eq!(
            (raw.max_abs_error, raw.psnr_db, raw.window_frames),
            (0.0, None, 3)
        );
        assert_eq!(raw.ratio(), 1.0);
        let jpeg = measure(&*kino_codec::codec("jpeg:q=50").unwrap(), &frames, QUICK).unwrap();
        assert!(jpeg.bytes < 2304 && jpeg.max_abs_error > 0.0);
        assert!(jpeg.psnr_db.unwrap() > 20.0);
        assert_eq!(jpeg.to_cost().frame_bytes, 768.0);
    }

    #[test]
    fn only_what_is_decoded_at_a_fraction_of_its_size_is_timed_so() {
        let frame = FrameType::values(Dtype::U8, &[32, 48, 3]).unwrap();
        let bytes: Vec<u8> = (0..2 * 32 * 48 * 3_u32)
            .map(|idx| u8::try_from(idx / 90 % 256).unwrap())
            .collect();
        let frames = Frames::values(&frame, &bytes).unwrap();
        let timed = |codec: &str, side: usize, mode: ResizeMode| {
            let fit = Fit {
                size: Some((side, side).into()),
                mode,
                ..Fit::default()
            };
            let effort = Effort {
                resize: fit.reduce(frame.as_values().unwrap()).unwrap(),
                ..QUICK
            };
            let codec = kino_codec::codec(codec).unwrap();
            measure(&*codec, &frames, effort).unwrap().reduced.is_some()
        };
        assert!(timed("jpeg:q=80,sub=420", 16, ResizeMode::Fast));
        assert!(!timed("jpeg:q=80,sub=420", 17, ResizeMode::Fast));
        assert!(!timed("jpeg:q=80,sub=420", 16, ResizeMode::Exact));
        assert!(!timed("predict", 16, ResizeMode::Fast));
    }

    #[test]
    fn text_and_stored_bitstreams_are_measured_too() {
        let texts: [&[u8]; 2] = [b"lift the cube", b"lift the cube"];
        let frames = Frames::bytes(&FrameType::Text, &texts);
        let measured = measure(&*kino_codec::codec("text").unwrap(), &frames, QUICK).unwrap();
        assert_eq!((measured.raw_bytes, measured.frames), (26, 2));
        let error = measure(&*kino_codec::codec("raw").unwrap(), &frames, QUICK).unwrap_err();
        assert!(error.to_string().contains("text"), "{error}");

        let frame = FrameType::values(Dtype::U8, &[16, 16, 3]).unwrap();
        let image = vec![7; 768];
        let images = Frames::values(&frame, &image).unwrap();
        let jpeg = kino_codec::codec("jpeg:q=90").unwrap();
        let mut encoded = Encoded::default();
        let (page, scratch) = (NonZeroUsize::MIN, &mut Scratch::new());
        jpeg.encode(&images, page, &mut encoded, scratch).unwrap();
        let page = Page {
            bytes: &encoded.pages[0].bytes,
            frames: 1,
        };
        let decoder = jpeg.decoder(&frame, &encoded.shared).unwrap();
        let file = decoder.bitstream(page, 0).unwrap();
        let files = [file, file];
        let frames = Frames::bytes(&frame, &files);
        let carry = kino_codec::codec("jpeg:carry").unwrap();
        let measured = measure(&*carry, &frames, QUICK).unwrap();
        assert_eq!((measured.raw_bytes, measured.frames), (1536, 2));
        assert!(measured.bytes >= 2 * file.len(), "{measured:?}");
    }
}
