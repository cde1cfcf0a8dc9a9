//! Compares our JPEG decoding with a bare libjpeg-turbo call, on your own images.
//!
//! ```text
//! cargo run --release -p kino_codec --example jpeg -- uint8[480,640,3] frames.bin jpeg:q=90,sub=420
//! ```
//!
//! The file holds packed images (numpy: `array.tofile("frames.bin")`). Each image is compressed once, then decoded
//! alternately by the library call and by our codec: whole, downscaled and cropped. The best time of each counts,
//! and both must produce the same pixels. All times are single-threaded.

#![allow(clippy::print_stdout, reason = "a command-line tool")]
#![allow(
    unsafe_code,
    reason = "measures the bare library call, without a wrapper"
)]

use std::error::Error;
use std::ffi::c_int;
use std::time::{Duration, Instant};

use kino_codec::{
    Crop, Decoder, Encoded, FrameType, Frames, ImagesMut, Layout, Page, Scale, Scratch, View, codec,
};
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
    let decoder = codec.decoder(&frame, &[])?;
    let whole = View::new(
        frame
            .as_values()
            .ok_or("the frame type must be an image, not text")?,
    )?;
    println!("{} images of {frame} as {spec}; µs per image", frames.len());
    println!(
        "{:<12} {:>10} {:>10} {:>7} {:>10} {:>7}",
        "", "library", "ours HWC", "ratio", "ours CHW", "ratio"
    );
    let (height, width, _) = whole.stored_size();
    let middle = Crop {
        top: height / 4 / 16 * 16,
        left: width / 4 / 16 * 16,
        height: height / 2,
        width: width / 2,
    };
    let views = [
        ("whole", whole.clone()),
        ("1/2", whole.clone().scaled(Scale::Half)?),
        ("1/4", whole.clone().scaled(Scale::Quarter)?),
        ("1/8", whole.clone().scaled(Scale::Eighth)?),
        ("half crop", whole.cropped(middle)?),
    ];
    for (name, view) in views {
        row(name, &view, &*decoder, &encoded)?;
    }
    Ok(())
}

/// Measures one view of every page in all three ways, alternately, and prints the sums of the best times.
fn row(name: &str, view: &View, decoder: &dyn Decoder, encoded: &Encoded) -> Result<()> {
    let planar = view.clone().laid_out(Layout::Chw);
    let mut scratch = Scratch::new();
    let mut library = Library::new()?;
    let (mut theirs, mut ours) = (vec![0; view.frame_bytes()], vec![0; view.frame_bytes()]);
    let mut sums = [Duration::ZERO; 3];
    for page in &encoded.pages {
        let file = Page {
            bytes: &page.bytes,
            frames: 1,
        };
        let mut best = [Duration::MAX; 3];
        for _ in 0..PASSES {
            let start = Instant::now();
            library.decode(&page.bytes, view, &mut theirs)?;
            best[0] = best[0].min(start.elapsed());
            for (best, view) in best[1..].iter_mut().zip([view, &planar]) {
                let mut dest = ImagesMut::packed(view, 1, &mut ours)?;
                let start = Instant::now();
                decoder.decode_images(file, 0..1, &mut dest, &mut scratch)?;
                *best = start.elapsed().min(*best);
                check(&theirs, &ours, view)?;
            }
        }
        sums.iter_mut()
            .zip(best)
            .for_each(|(sum, best)| *sum += best);
    }
    let [theirs, hwc, chw] = sums.map(|sum| sum.as_secs_f64() * 1e6 / encoded.pages.len() as f64);
    println!(
        "{name:<12} {theirs:>10.1} {hwc:>10.1} {:>7.3} {chw:>10.1} {:>7.3}",
        hwc / theirs,
        chw / theirs
    );
    Ok(())
}

/// Checks that both hold the same pixels in either layout; a crop may differ where the library smooths its edge.
fn check(theirs: &[u8], ours: &[u8], view: &View) -> Result<()> {
    let (height, width) = (view.crop().height, view.crop().width);
    let channels = view.stored_size().2;
    let inner = if view.scaled_size() == (height, width) {
        0
    } else {
        1
    };
    for y in inner..height - inner {
        for x in inner..width - inner {
            for c in 0..channels {
                let at = match view.layout() {
                    Layout::Hwc => (y * width + x) * channels + c,
                    Layout::Chw => (c * height + y) * width + x,
                };
                if theirs[(y * width + x) * channels + c] != ours[at] {
                    return Err(format!("pixels differ at row {y}, column {x} of {view:?}").into());
                }
            }
        }
    }
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
    fn decode(&mut self, file: &[u8], view: &View, pixels: &mut [u8]) -> Result<()> {
        let crop = view.crop();
        let (width, len) = (c_int::try_from(crop.width)?, file.len().try_into()?);
        assert_eq!(
            pixels.len(),
            view.frame_bytes(),
            "the buffer must hold exactly one image"
        );
        let factor = sys::tjscalingfactor {
            num: 1,
            denom: c_int::try_from(view.scale().divisor())?,
        };
        let cut = view.scaled_size() != (crop.height, crop.width);
        let region = sys::tjregion {
            x: c_int::try_from(crop.left)?,
            y: c_int::try_from(crop.top)?,
            w: width,
            h: c_int::try_from(crop.height)?,
        };
        // SAFETY: the handle is live, `file` is readable for `len` bytes and was made by our own encoder
        // for the view's image, and `pixels` holds exactly the scaled and cropped image, packed.
        let failed = unsafe {
            let mut failed = sys::tj3DecompressHeader(self.0, file.as_ptr(), len);
            failed |= sys::tj3SetScalingFactor(self.0, factor);
            if cut {
                failed |= sys::tj3SetCroppingRegion(self.0, region);
            }
            let pitch = width * 3;
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
