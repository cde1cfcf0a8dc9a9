//! Writes a few real pages as seeds to `seeds/<target>/`: run `cargo run --example seeds` in this folder.

use std::num::NonZeroUsize;
use std::path::Path;

use kino_codec::{Encoded, FrameType, Frames, Scratch, codec};
use kino_fuzz::{distances, image, shuffle, vector};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A few types of frames; the fuzzer finds the others, which differ in one byte.
    for kind in (0..=u8::MAX).step_by(61) {
        let ty = vector(kind);
        let bytes = smooth(ty.frame_bytes() * 300, ty.dtype().size());
        let frame = FrameType::Values(ty);
        let frames = Frames::values(&frame, &bytes)?;
        for text in ["pco", "raw", "vector", "vector:abs=0.5"] {
            let name = text.split(':').next().unwrap_or(text);
            write(&format!("codec_{name}"), text, kind, &frames, 280)?;
        }
        let text = format!("zstd:shuffle={}", shuffle(kind));
        if codec(&text)?.check(&frame).is_ok() {
            write("codec_zstd", &text, kind, &frames, 280)?;
        }
        let ty = image(kind);
        let bytes = smooth(ty.frame_bytes(), 1);
        let frame = FrameType::Values(ty);
        let frames = Frames::values(&frame, &bytes)?;
        write("codec_predict", "predict", kind, &frames, 1)?;
        let film = [&bytes[..], &bytes, &smooth(bytes.len(), 2), &bytes].concat();
        write(
            "codec_camera",
            "camera",
            kind,
            &Frames::values(&frame, &film)?,
            4,
        )?;
        let distances = distances(kind);
        let depths = smooth(distances.frame_bytes(), distances.dtype().size());
        let stored = FrameType::Values(distances);
        for text in ["depth", "depth:abs=20"] {
            write(
                "codec_depth",
                text,
                kind,
                &Frames::values(&stored, &depths)?,
                1,
            )?;
        }
        for text in ["jpeg:q=30,sub=420", "jpeg:q=95"] {
            if codec(text)?.check(&frame).is_ok() {
                write("codec_jpeg", text, kind, &frames, 1)?;
            }
        }
        let frames = [bytes.as_slice(), &bytes[1..], &[7]].concat();
        let frames = Frames::values(&frame, &frames)?;
        for text in [
            "av1:q=30,speed=10",
            "av1:q=90,speed=10,sub=444",
            "av1:psnr=90,speed=10",
        ] {
            if codec(text)?.check(&frame).is_ok() {
                write("codec_av1", text, kind, &frames, 2)?;
            }
        }
        let texts = ["pick up the cube", "pick up the cube", "", "größer"].map(str::as_bytes);
        let texts = &texts[..usize::from(kind % 4) + 1];
        write(
            "codec_text",
            "text",
            kind,
            &Frames::bytes(&FrameType::Text, texts),
            4,
        )?;
    }
    for text in [
        "zstd:level=3,shuffle=4",
        "jpeg:q=95,sub=444",
        "jpeg:carry",
        "pco:level=8",
        "vector:level=8,abs=1e-4x7/0x3,quat=3",
    ] {
        let folder = Path::new("seeds/codec_spec");
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join(text.replace([':', '/'], "_")), text)?;
    }
    Ok(())
}

/// Values that change slowly, so that predictors and deltas are used.
fn smooth(len: usize, size: usize) -> Vec<u8> {
    (0..len)
        .map(|idx| u8::try_from((idx / 7 + idx % size * 31) % 251).unwrap_or_default())
        .collect()
}

/// Writes the last page of `frames` with the header that `Input` expects.
fn write(
    target: &str,
    text: &str,
    kind: u8,
    frames: &Frames<'_>,
    page_frames: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut out = Encoded::default();
    let page_frames = NonZeroUsize::new(page_frames).ok_or("no frames")?;
    codec(text)?.encode(frames, page_frames, &mut out, &mut Scratch::new())?;
    let page = out.pages.last().ok_or("no page")?;
    let mut seed = vec![kind, 0, u8::try_from(page.frames.min(9))?];
    seed.extend(u16::try_from(page.frames)?.to_le_bytes());
    seed.extend(u16::try_from(out.shared.len())?.to_le_bytes());
    seed.push(0);
    seed.extend_from_slice(&out.shared);
    seed.extend_from_slice(&page.bytes);
    let folder = Path::new("seeds").join(target);
    std::fs::create_dir_all(&folder)?;
    let name = format!("{kind:03}-{}", text.replace([':', '=', ','], "_"));
    Ok(std::fs::write(folder.join(name), seed)?)
}
