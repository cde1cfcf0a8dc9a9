//! What every codec guarantees, checked the same way for all; used by the tests next to each codec.

use std::num::NonZeroUsize;
use std::ops::Range;

use proptest::prelude::{Strategy, any, prop};

use crate::{
    CodecError, Decoder, Dtype, Encoded, FrameType, Frames, Page, Scratch, ValueType, codec,
};

/// Encodes packed values.
pub(crate) fn encode(spec: &str, frame: &FrameType, bytes: &[u8], page_frames: usize) -> Encoded {
    let frames = Frames::values(frame, bytes).unwrap();
    encode_frames(spec, &frames, page_frames)
}

/// Encodes any frames.
pub(crate) fn encode_frames(spec: &str, frames: &Frames<'_>, page_frames: usize) -> Encoded {
    let mut out = Encoded::default();
    let page_frames = NonZeroUsize::new(page_frames).unwrap();
    codec(spec)
        .unwrap()
        .encode(frames, page_frames, &mut out, &mut Scratch::new())
        .unwrap();
    out
}

/// 700 floats of 32 bits: zeros, infinities, NaNs with and without a payload, subnormals and ordinary ones.
pub(crate) fn odd_floats() -> Vec<u8> {
    let bits = [
        0,
        0x8000_0000,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0x7f80_0001,
        0xffff_ffff,
        1,
        0x7fa5_5a5a,
        0x3f80_0000,
        0x3dcc_cccd,
    ];
    (0..700)
        .flat_map(|idx| u32::to_le_bytes(bits[(idx * idx + idx / 7) % bits.len()]))
        .collect()
}

/// Encodes packed values as a long run from which `sample` was drawn.
pub(crate) fn encode_long(
    spec: &str,
    frame: &FrameType,
    sample: &[u8],
    bytes: &[u8],
    page_frames: usize,
) -> Encoded {
    let page_frames = NonZeroUsize::new(page_frames).unwrap();
    let sample = Frames::values(frame, sample).unwrap();
    let frames = Frames::values(frame, bytes).unwrap();
    let made = codec(spec).unwrap();
    let encoder = made.learn(&sample, page_frames, frames.len()).unwrap();
    let mut out = Encoded {
        shared: encoder.shared().to_vec(),
        pages: Vec::new(),
    };
    encoder.encode(&frames, page_frames, &mut out).unwrap();
    out
}

/// Checks that all pages of a lossless codec together decode to `bytes`.
pub(crate) fn assert_decodes_to(spec: &str, frame: &FrameType, encoded: &Encoded, bytes: &[u8]) {
    let (ty, made) = (frame.as_values().unwrap(), codec(spec).unwrap());
    let decoder = made.decoder(frame, &encoded.shared).unwrap();
    let mut all = Vec::new();
    for page in &encoded.pages {
        let (bytes, frames) = (page.bytes.as_slice(), page.frames);
        let page = Page { bytes, frames };
        all.extend(decode(&*decoder, ty, page, 0..frames).unwrap());
    }
    assert!(all == bytes);
}

/// Decodes a range of a page into a packed buffer.
pub(crate) fn decode(
    decoder: &dyn Decoder,
    ty: &ValueType,
    page: Page<'_>,
    range: Range<usize>,
) -> Result<Vec<u8>, CodecError> {
    let mut bytes = vec![0; range.len() * ty.frame_bytes()];
    decoder.decode(page, range, &mut bytes, &mut Scratch::new())?;
    Ok(bytes)
}

/// Checks a lossless codec against its naive twin `raw`: every page, several ranges, with new and used scratch.
pub(crate) fn assert_same_as_raw(spec: &str, frame: &FrameType, bytes: &[u8], page_frames: usize) {
    let ty = frame.as_values().unwrap();
    let encoded = encode(spec, frame, bytes, page_frames);
    let twin = encode("raw", frame, bytes, page_frames);
    let decoder = codec(spec)
        .unwrap()
        .decoder(frame, &encoded.shared)
        .unwrap();
    let twin_decoder = codec("raw").unwrap().decoder(frame, &[]).unwrap();
    let mut scratch = Scratch::new();
    assert_eq!(encoded.pages.len(), twin.pages.len());
    for (ours, theirs) in encoded.pages.iter().zip(&twin.pages) {
        assert_eq!(ours.frames, theirs.frames);
        let n = ours.frames;
        let page = Page {
            bytes: &ours.bytes,
            frames: n,
        };
        let twin_page = Page {
            bytes: &theirs.bytes,
            frames: n,
        };
        for range in [0..n, 0..1, n - 1..n, n / 3..n - n / 3, n..n] {
            let expected = decode(&*twin_decoder, ty, twin_page, range.clone()).unwrap();
            assert!(decode(&*decoder, ty, page, range.clone()).unwrap() == expected);
            let mut got = vec![0xa5; expected.len()];
            decoder.decode(page, range, &mut got, &mut scratch).unwrap();
            assert!(got == expected, "with a used scratch");
        }
    }
}

/// Truncates every page everywhere and flips its bits: an error or other values, but no panic and no byte outside.
pub(crate) fn assert_survives_damage(spec: &str, frame: &FrameType, encoded: &Encoded) {
    let ty = frame.as_values().unwrap();
    let codec = codec(spec).unwrap();
    let try_all = |shared: &[u8], bytes: &[u8], frames: usize| {
        let Ok(decoder) = codec.decoder(frame, shared) else {
            return;
        };
        // The values do not matter, only that it returns.
        let _ = decode(&*decoder, ty, Page { bytes, frames }, 0..frames);
        let _ = decode(&*decoder, ty, Page { bytes, frames }, frames - 1..frames);
    };
    for page in &encoded.pages {
        for cut in 0..page.bytes.len() {
            let cut = &page.bytes[..cut];
            let decoder = codec.decoder(frame, &encoded.shared).unwrap();
            let page = Page {
                bytes: cut,
                frames: page.frames,
            };
            assert!(
                decode(&*decoder, ty, page, 0..page.frames).is_err(),
                "truncated at {}",
                cut.len()
            );
        }
        let mut bytes = page.bytes.clone();
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            try_all(&encoded.shared, &bytes, page.frames);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for frames in [page.frames + 1, page.frames * 1000, usize::MAX] {
            let decoder = codec.decoder(frame, &encoded.shared).unwrap();
            let page = Page {
                bytes: &bytes,
                frames,
            };
            let _ = decode(&*decoder, ty, page, 0..1);
        }
    }
    let Some(page) = encoded.pages.first() else {
        return;
    };
    for cut in 0..encoded.shared.len() {
        assert!(codec.decoder(frame, &encoded.shared[..cut]).is_err());
    }
    let mut shared = encoded.shared.clone();
    for bit in 0..shared.len() * 8 {
        shared[bit / 8] ^= 1 << (bit % 8);
        try_all(&shared, &page.bytes, page.frames);
        shared[bit / 8] ^= 1 << (bit % 8);
    }
}

/// Checks that frames without any values, which have no pages, give an error or nothing.
pub(crate) fn assert_survives_empty_frames(spec: &str) {
    for shape in [&[0][..], &[0, 3], &[3, 0]] {
        let frame = FrameType::values(Dtype::F32, shape).unwrap();
        let ty = frame.as_values().unwrap();
        for shared in [&[][..], &[4, 1]] {
            let Ok(decoder) = codec(spec).unwrap().decoder(&frame, shared) else {
                continue;
            };
            for bytes in [&[][..], &[0x28, 0xb5, 0x2f, 0xfd, 0x20, 0, 1, 0, 0]] {
                let _ = decode(&*decoder, ty, Page { bytes, frames: 2 }, 0..2);
            }
        }
    }
}

/// Any dtype, a small shape, and some frames of smooth, constant or arbitrary bytes.
pub(crate) fn any_values() -> impl Strategy<Value = (FrameType, Vec<u8>)> {
    let shapes = prop::sample::select(vec![
        vec![],
        vec![1],
        vec![7],
        vec![2, 3],
        vec![3, 1, 5],
        vec![33],
    ]);
    let dtypes = prop::sample::select(Dtype::ALL.to_vec());
    (dtypes, shapes, 1_usize..40, any::<u64>(), 0..3).prop_map(
        |(dtype, shape, frames, seed, kind)| {
            let frame = FrameType::values(dtype, &shape).unwrap();
            let size = frame.as_values().unwrap().frame_bytes();
            let mut bytes = arbitrary_bytes(seed, frames * size);
            match (dtype, kind) {
                (Dtype::Bool, _) => bytes.iter_mut().for_each(|byte| *byte &= 1),
                (_, 0) => {
                    let first = bytes[..size].to_vec();
                    bytes
                        .chunks_exact_mut(size)
                        .for_each(|frame| frame.copy_from_slice(&first));
                }
                (_, 1) => bytes.iter_mut().for_each(|byte| *byte &= 3),
                _ => {}
            }
            (frame, bytes)
        },
    )
}

/// Bytes without a pattern, the same for the same seed.
pub(crate) fn arbitrary_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = move || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).to_le_bytes()[0]
    };
    std::iter::repeat_with(&mut next).take(len).collect()
}

/// An image with edges, gradients and a little noise.
pub(crate) fn image(height: usize, width: usize, channels: usize, seed: u64) -> Vec<u8> {
    let noise = arbitrary_bytes(seed, height * width * channels);
    let pixel = |idx: usize| {
        let (y, x, c) = (
            idx / channels / width,
            idx / channels % width,
            idx % channels,
        );
        let base = if (x / 9 + y / 7).is_multiple_of(2) {
            40
        } else {
            150
        };
        u8::try_from((base + 2 * x % 60 + 3 * y % 50 + 11 * c) % 256).unwrap()
    };
    noise
        .iter()
        .enumerate()
        .map(|(idx, noise)| pixel(idx).wrapping_add(noise & 3))
        .collect()
}
