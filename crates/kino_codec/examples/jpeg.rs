//! Compares our JPEG decoding with a bare libjpeg-turbo call, on your own images.
//!
//! ```text
//! cargo run --release -p kino_codec --example jpeg -- uint8[480,640,3] frames.bin jpeg:q=90,sub=420
//! ```
//!
//! The file holds packed images (numpy: `array.tofile("frames.bin")`). Each image is compressed once, then decoded
//! alternately by the library call and by our codec. The best time of each counts, and both must produce the same
//! pixels. All times are single-threaded.

#![allow(clippy::print_stdout, reason = "a command-line tool")]
#![allow(
    unsafe_code,
    reason = "measures the bare library call, without a wrapper"
)]

use std::error::Error;
use std::ffi::c_int;
use std::time::{Duration, Instant};

use kino_codec::{Encoded, FrameType, Frames, Scratch, codec};
use turbojpeg_sys as sys;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PASSES: usize = 40;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [ty, path, spec] = args.as_slice() else {
        return Err("usage: jpeg uint8[height,width,3] frames.bin jpeg:q=90,sub=420".into());
    };
    let sides = ty
        .strip_prefix("uint8[")
        .and_then(|text| text.strip_suffix(']'))
        .ok_or("cannot parse the frame type; expected for example uint8[480,640,3]")?;
    let shape: Vec<usize> = sides
        .split(',')
        .map(str::parse)
        .collect::<std::result::Result<_, _>>()?;
    let frame = FrameType::values("uint8".parse()?, &shape)?;
    let bytes = std::fs::read(path)?;
    let codec = codec(spec)?;
    let mut encoded = Encoded::default();
    let frames = Frames::values(&frame, &bytes)?;
    let pages = codec.page_frames(&frame);
    codec.encode(&frames, pages, &mut encoded, &mut Scratch::new())?;

    let (decoder, mut scratch) = (codec.decoder(&frame, &[])?, Scratch::new());
    let mut library = Library::new()?;
    let (mut theirs, mut ours) = (vec![0; shape.iter().product()], Vec::new());
    ours.clone_from(&theirs);
    let mut sums = [Duration::ZERO; 2];
    for page in &encoded.pages {
        let mut best = [Duration::MAX; 2];
        for _ in 0..PASSES {
            let start = Instant::now();
            library.decode(&page.bytes, shape[1], &mut theirs)?;
            best[0] = best[0].min(start.elapsed());
            let start = Instant::now();
            decoder.decode(page.page(), 0..1, &mut ours, &mut scratch)?;
            best[1] = best[1].min(start.elapsed());
            if theirs != ours {
                return Err("pixels differ".into());
            }
        }
        sums.iter_mut()
            .zip(best)
            .for_each(|(sum, best)| *sum += best);
    }
    let [theirs, ours] = sums.map(|sum| sum.as_secs_f64() * 1e6 / encoded.pages.len() as f64);
    println!(
        "{} images of {frame} as {spec}, µs per image: library {theirs:.1}, ours {ours:.1}, ratio {:.3}",
        frames.len(),
        ours / theirs
    );
    Ok(())
}

/// One instance of libjpeg-turbo.
struct Library(sys::tjhandle);

impl Library {
    fn new() -> Result<Self> {
        // SAFETY: takes an integer, returns an owned instance or null.
        let handle = unsafe { sys::tj3Init(c_int::try_from(sys::TJINIT_TJINIT_DECOMPRESS)?) };
        if handle.is_null() {
            return Err("out of memory for a JPEG context".into());
        }
        Ok(Self(handle))
    }

    /// Exactly the calls that a C program would make.
    fn decode(&mut self, file: &[u8], width: usize, pixels: &mut [u8]) -> Result<()> {
        let (pitch, len) = (c_int::try_from(width * 3)?, file.len().try_into()?);
        // SAFETY: the handle is live, `file` is readable for `len` bytes and was made by our own encoder
        // from an image of this width, and `pixels` holds exactly that image, packed.
        let failed = unsafe {
            let failed = sys::tj3DecompressHeader(self.0, file.as_ptr(), len);
            failed
                | sys::tj3Decompress8(
                    self.0,
                    file.as_ptr(),
                    len,
                    pixels.as_mut_ptr(),
                    pitch,
                    sys::TJPF_TJPF_RGB,
                )
        };
        match failed {
            0 => Ok(()),
            _ => Err("libjpeg-turbo failed".into()),
        }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: the handle is live and not used after this.
        unsafe { sys::tj3Destroy(self.0) }
    }
}
