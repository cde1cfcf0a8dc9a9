//! `pco`: numeric vectors, lossless; every element of the vector is a separate column.
//!
//! ```text
//! shared = major │ minor │ constant │ column 0 │ column 1 │ …      what all pages of a run need
//!          u8      u8      bitmap     a constant column: its value; any other: its pco chunk metadata
//! page   = length × (varying columns − 1) │ column │ column │ …    varying columns only, in order
//!          varints                          pco pages; the last extends to the end
//! ```
//!
//! The format of chunk metadata and pages is pco's "wrapped" format (version 4). What was learned from
//! the whole run is stored once, so that a page may be short. A column that never changes (a locked
//! joint, a padded dimension) costs its value once and nothing per page.

mod decode;
mod element;
mod encode;
mod frozen;

use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::codec::{Codec, Decoder, Encoded, RunEncoder, Scope, check_page_bytes};
use crate::describe::{Description, Guarantee, Parameter, Speed};
use crate::error::{CodecError, Result, buffer};
use crate::frame::FrameType;
use crate::frames::Frames;
use crate::kind::Kind;
use crate::pco_file::MAX_RUN_FRAMES;
use crate::raw::values_only;
use crate::scratch::Scratch;
use crate::spec::CodecSpec;
use crate::with_dtype::with_dtype;

use decode::PcoDecoder;
use encode::Run;

const NAME: &str = "pco";

/// The library's own default: higher levels gain less than one percent on joint data.
const DEFAULT_LEVEL: i32 = 8;

/// One batch of the library: what it decodes at a time.
const PAGE_FRAMES: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// Each column costs a decoder some kilobytes, so an image is not treated as a vector.
const MAX_ELEMENTS: usize = 2048;

pub(crate) const DESCRIPTION: Description = Description {
    name: NAME,
    summary: "numeric vectors and clocks: faster to encode than `vector`",
    kinds: &[Kind::Vector],
    is_default: false,
    is_alternative: false,
    guarantees: &[Guarantee::Lossless],
    is_grouped: false,
    encode: Speed::Slow,
    decode: Speed::Medium,
    parameters: &[Parameter {
        key: "level",
        help: "0 (fast) to 12 (small)",
    }],
    settings: |_| vec![NAME.to_owned()],
    quality: None,
    files: None,
    make: |spec| Ok(Arc::new(Pco::new(spec)?)),
};

/// The `pco` codec.
#[derive(Debug)]
pub(crate) struct Pco {
    spec: CodecSpec,
    level: usize,
}

impl Pco {
    pub(crate) fn new(spec: &CodecSpec) -> Result<Self> {
        let level = spec.integer("level", 0..=12, DEFAULT_LEVEL)?;
        Ok(Self {
            spec: CodecSpec::new(NAME, &[("level", level.to_string())]),
            level: usize::try_from(level).unwrap_or_default(),
        })
    }
}

impl Pco {
    /// At least one frame, to encode or to learn from.
    fn run<'a>(&self, frames: &Frames<'a>, page_frames: NonZeroUsize) -> Result<Run<'a>> {
        self.check(frames.frame())?;
        let (ty, bytes) = frames.as_values(NAME)?;
        if frames.len() > MAX_RUN_FRAMES {
            return Err(buffer(format!(
                "a run has {} frames, but `pco` takes at most {MAX_RUN_FRAMES} at once; learn from a sample of it",
                frames.len()
            )));
        }
        let page_frames = page_frames.get().min(frames.len());
        check_page_bytes(page_frames, ty.frame_bytes())?;
        Ok(Run {
            ty,
            bytes,
            frames: frames.len(),
            page_frames,
            level: self.level,
        })
    }
}

impl Codec for Pco {
    fn spec(&self) -> &CodecSpec {
        &self.spec
    }

    fn scope(&self) -> Scope {
        Scope::Run
    }

    fn page_frames(&self, _frame: &FrameType) -> NonZeroUsize {
        PAGE_FRAMES
    }

    fn check(&self, frame: &FrameType) -> Result<()> {
        let ty = values_only(NAME, frame)?;
        if ty.elements() <= MAX_ELEMENTS {
            return Ok(());
        }
        let better = match ty.dtype().size() {
            _ if ty.as_image().is_some() => "`predict`".to_owned(),
            size => format!("`zstd:shuffle={size}`"),
        };
        Err(CodecError::Unsuited {
            codec: NAME,
            frame: frame.to_string(),
            what: format!("it stores vectors of up to {MAX_ELEMENTS} elements; use {better}"),
        })
    }

    fn encode(
        &self,
        frames: &Frames<'_>,
        page_frames: NonZeroUsize,
        out: &mut Encoded,
        _scratch: &mut Scratch,
    ) -> Result<()> {
        if frames.is_empty() {
            return self.check(frames.frame());
        }
        let run = self.run(frames, page_frames)?;
        with_dtype!(run.ty.dtype(), T => run.encode::<T>(out))
    }

    fn learn(
        &self,
        sample: &Frames<'_>,
        piece_frames: NonZeroUsize,
        _run_frames: usize,
    ) -> Result<Box<dyn RunEncoder>> {
        if sample.is_empty() {
            return Err(buffer("a sample without frames cannot be learned from"));
        }
        let run = self.run(sample, piece_frames)?;
        Ok(with_dtype!(run.ty.dtype(), T => Box::new(run.learn::<T>()?)))
    }

    fn decoder(&self, frame: &FrameType, shared: &[u8]) -> Result<Box<dyn Decoder>> {
        self.check(frame)?;
        let ty = values_only(NAME, frame)?;
        Ok(with_dtype!(ty.dtype(), T => Box::new(PcoDecoder::<T>::new(ty, shared)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;
    use crate::codec::Page;
    use crate::frame::Dtype;
    use crate::testing::{
        any_values, assert_decodes_to, assert_same_as_raw, assert_survives_damage,
        assert_survives_empty_frames, decode, encode, encode_long, odd_floats,
    };
    use proptest::prelude::*;

    fn f32_frame(dims: usize) -> FrameType {
        FrameType::values(Dtype::F32, &[dims]).unwrap()
    }

    /// A slow movement in every dimension.
    fn movement(frames: usize, dims: usize) -> Vec<u8> {
        let value = |idx: usize| {
            let (t, d) = ((idx / dims) as f32, (idx % dims) as f32);
            (t * 0.01 + d).sin()
        };
        (0..frames * dims)
            .flat_map(|idx| value(idx).to_le_bytes())
            .collect()
    }

    #[test]
    fn never_change_these_constants() {
        assert_eq!(codec("pco").unwrap().spec().to_string(), "pco:level=8");
        let encoded = encode("pco", &f32_frame(9), &[7; 9 * 4 * 3], 2);
        assert_eq!(encoded.shared[..4], [4, 1, 0xff, 0x01]);
        assert_eq!(encoded.shared[4..], [7; 36]);
        assert!(encoded.pages.iter().all(|page| page.bytes.is_empty()));
    }

    #[test]
    fn floats_keep_every_bit() {
        let bytes = odd_floats();
        assert_same_as_raw("pco", &f32_frame(1), &bytes, 256);
        assert_same_as_raw(
            "pco",
            &FrameType::values(Dtype::F16, &[2]).unwrap(),
            &bytes,
            100,
        );
        assert_same_as_raw(
            "pco",
            &FrameType::values(Dtype::F64, &[]).unwrap(),
            &bytes,
            256,
        );
    }

    #[test]
    fn pages_longer_than_a_batch_round_trip_in_any_range() {
        let bytes = movement(1500, 3);
        for page_frames in [255, 256, 257, 700, 1500, 4000] {
            assert_same_as_raw("pco:level=4", &f32_frame(3), &bytes, page_frames);
        }
    }

    #[test]
    fn many_threads_decode_one_run() {
        let frame = f32_frame(5);
        let bytes = movement(600, 5);
        let encoded = encode("pco", &frame, &bytes, 200);
        let decoder = codec("pco")
            .unwrap()
            .decoder(&frame, &encoded.shared)
            .unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for (idx, page) in encoded.pages.iter().enumerate() {
                        let page = Page {
                            bytes: &page.bytes,
                            frames: page.frames,
                        };
                        let got = decode(&*decoder, frame.as_values().unwrap(), page, 0..200);
                        assert!(got.unwrap() == bytes[idx * 4000..(idx + 1) * 4000]);
                    }
                });
            }
        });
    }

    #[test]
    fn a_large_frame_is_refused_with_a_better_codec() {
        let check = |dtype, shape: &[usize]| {
            let frame = FrameType::values(dtype, shape).unwrap();
            codec("pco").unwrap().check(&frame).unwrap_err().to_string()
        };
        assert!(check(Dtype::U8, &[84, 84, 3]).contains("`predict`"));
        assert!(check(Dtype::U16, &[480, 640]).contains("`zstd:shuffle=2`"));
    }

    #[test]
    fn metadata_that_would_allocate_is_refused() {
        let decoder = |shared: &[u8]| codec("pco").unwrap().decoder(&f32_frame(1), shared);
        // Mode 4 is a dictionary, here of 2²⁵ − 1 values; delta 2 is a lookback over 2²⁴.
        assert!(decoder(&[4, 1, 0, 0xf4, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(decoder(&[4, 1, 0, 0x20, 0xf7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(decoder(&[5, 0, 1, 0, 0, 0, 0]).is_err());
        assert!(decoder(&[4, 2, 1, 0, 0, 0, 0]).is_err());
        assert!(decoder(&[4, 1, 1, 0, 0, 0, 0]).is_ok());
        assert!(decoder(&[4, 1, 1, 0, 0, 0, 0, 0]).is_err());
    }

    #[test]
    fn flipping_any_bit_is_an_error_never_a_panic() {
        let frame = f32_frame(3);
        let mut bytes = movement(40, 3);
        bytes
            .chunks_exact_mut(12)
            .for_each(|frame| frame[4..8].fill(1));
        assert_survives_damage("pco", &frame, &encode("pco", &frame, &bytes, 30));
    }

    #[test]
    fn frames_of_zero_bytes_do_not_panic() {
        assert_survives_empty_frames("pco");
    }

    proptest! {
        #[test]
        fn decode_agrees_with_raw(
            (frame, bytes) in any_values(), page_frames in 1_usize..50, level in 0..=12,
        ) {
            assert_same_as_raw(&format!("pco:level={level}"), &frame, &bytes, page_frames);
        }
    }
    #[test]
    fn a_long_run_of_times_costs_what_it_would_cost_as_a_whole() {
        let frame = FrameType::values(Dtype::I64, &[]).unwrap();
        let noise = crate::testing::arbitrary_bytes(5, 256 * 64);
        // A jittering microsecond clock: multiples of 1000.
        let time = |idx: usize| {
            1_700_000_000_000_000_000 + 1000 * (1000 * idx as i64 + i64::from(noise[idx]))
        };
        let bytes: Vec<u8> = (0..256 * 64)
            .flat_map(|idx| time(idx).to_le_bytes())
            .collect();
        let sample: Vec<u8> = bytes.chunks(2048).step_by(4).flatten().copied().collect();
        let long = encode_long("pco", &frame, &sample, &bytes, 256);
        assert_decodes_to("pco", &frame, &long, &bytes);
        let size = |encoded: &Encoded| -> usize {
            encoded.pages.iter().map(|page| page.bytes.len()).sum()
        };
        let whole = size(&encode("pco", &frame, &bytes, 256));
        assert!(size(&long) <= whole + whole / 50, "{} {whole}", size(&long));
    }

    proptest! {
        #[test]
        fn a_long_run_round_trips_whatever_the_sample(
            (frame, bytes) in any_values(), cut in 1_usize..100, page_frames in 1_usize..50, level in 0..=12,
        ) {
            let size = frame.as_values().unwrap().frame_bytes();
            let sample = cut.min(bytes.len() / size) * size;
            let spec = format!("pco:level={level}");
            let encoded = encode_long(&spec, &frame, &bytes[..sample], &bytes, page_frames);
            assert_decodes_to(&spec, &frame, &encoded, &bytes);
        }
    }
}
