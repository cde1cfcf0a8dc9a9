//! Pages written by earlier releases are read for ever: `golden/` grows, its files never change.
//!
//! ```text
//! golden/<name>.txt:   codec pco:level=8        shared 0401…   (hexadecimal)
//!                      dtype float32            page 3 8f02…   (number of frames, bytes; one line per page)
//!                      shape 2,3                values 0000…   (all frames of the run, packed)
//! ```
//!
//! A text stream has `dtype text` and a line `text …` per frame in place of `values`.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test: a panic is its way to fail, and its samples are small numbers"
)]

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use kino_codec::{Bound, Encoded, EncodedPage, FrameType, Frames, FramesMut, Page, Scratch, codec};

/// One golden file.
struct Golden {
    codec: String,
    frame: FrameType,
    encoded: Encoded,
    values: Vec<u8>,
    texts: Vec<String>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().map(|c| c.to_digit(16).unwrap()).collect();
    digits
        .chunks_exact(2)
        .map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap())
        .collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

impl Golden {
    fn parse(text: &str) -> Self {
        let lines = |key: &str| {
            let key = format!("{key} ");
            let found = text.lines().filter_map(move |line| line.strip_prefix(&key));
            found.map(str::to_owned).collect::<Vec<_>>()
        };
        let one = |key: &str| lines(key).pop().unwrap_or_default();
        let frame = match one("dtype").as_str() {
            "text" => FrameType::Text,
            dtype => {
                let shape = one("shape");
                let sides = shape.split(',').filter(|side| !side.is_empty());
                let shape: Vec<usize> = sides.map(|side| side.parse().unwrap()).collect();
                FrameType::values(dtype.parse().unwrap(), &shape).unwrap()
            }
        };
        let page = |line: String| {
            let (frames, bytes) = line.split_once(' ').unwrap();
            EncodedPage {
                frames: frames.parse().unwrap(),
                bytes: from_hex(bytes),
            }
        };
        Self {
            codec: one("codec"),
            frame,
            encoded: Encoded {
                shared: from_hex(&one("shared")),
                pages: lines("page").into_iter().map(page).collect(),
            },
            values: from_hex(&one("values")),
            texts: lines("text"),
        }
    }

    fn to_text(&self) -> String {
        let mut text = format!("codec {}\n", self.codec);
        match self.frame.as_values() {
            Some(ty) => {
                let shape: Vec<_> = ty.shape().iter().map(usize::to_string).collect();
                writeln!(
                    text,
                    "dtype {}\nshape {}",
                    ty.dtype().name(),
                    shape.join(",")
                )
                .unwrap();
            }
            None => text += "dtype text\n",
        }
        writeln!(text, "shared {}", to_hex(&self.encoded.shared)).unwrap();
        for page in &self.encoded.pages {
            writeln!(text, "page {} {}", page.frames, to_hex(&page.bytes)).unwrap();
        }
        for frame in &self.texts {
            writeln!(text, "text {frame}").unwrap();
        }
        if !self.values.is_empty() {
            writeln!(text, "values {}", to_hex(&self.values)).unwrap();
        }
        text
    }

    fn check(&self, name: &str) {
        let codec = codec(&self.codec).unwrap();
        let decoder = codec.decoder(&self.frame, &self.encoded.shared).unwrap();
        let mut scratch = Scratch::new();
        let (mut values, mut texts) = (Vec::new(), Vec::new());
        for page in &self.encoded.pages {
            let frames = page.frames;
            let page = Page {
                bytes: &page.bytes,
                frames,
            };
            let Some(ty) = self.frame.as_values() else {
                decoder
                    .decode_text(page, 0..frames, &mut texts, &mut scratch)
                    .unwrap();
                continue;
            };
            let mut part = vec![0; frames * ty.frame_bytes()];
            let mut dest = FramesMut::packed(ty, frames, &mut part).unwrap();
            decoder
                .decode(page, 0..frames, &mut dest, &mut scratch)
                .unwrap();
            values.append(&mut part);
        }
        assert_eq!(texts, self.texts, "{name}");
        assert_eq!(values.len(), self.values.len(), "{name}");
        // Decoders of lossy pictures may differ by rounding.
        let tolerance = u8::from(codec.bound() != Bound::Lossless);
        let same = |(a, b): (&u8, &u8)| a.abs_diff(*b) <= tolerance;
        assert!(values.iter().zip(&self.values).all(same), "{name}");
    }
}

#[test]
fn reads_every_golden_file() {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        Golden::parse(&std::fs::read_to_string(&path).unwrap()).check(&name);
        names.push(name);
    }
    for entry in kino_codec::codecs() {
        assert!(
            names.iter().any(|name| name.starts_with(entry.name)),
            "no golden file for `{}`; write one with `cargo test -p kino_codec --test golden -- --ignored`",
            entry.name
        );
    }
}

#[test]
#[ignore = "writes the golden files of new codecs; those that are there stay as they are"]
fn write_missing_golden_files() {
    for (name, codec, frame) in [
        ("raw", "raw", "uint16 2,3"),
        ("zstd", "zstd", "uint16 4,5"),
        ("zstd-shuffle", "zstd:level=3,shuffle=4", "float32 7"),
        ("pco-float32", "pco", "float32 7"),
        ("pco-float64", "pco", "float64 3"),
        ("pco-int64-scalar", "pco", "int64 "),
        ("pco-bool", "pco", "bool 3"),
        ("predict-grey", "predict", "uint8 6,5"),
        ("predict-rgb", "predict", "uint8 6,5,3"),
        ("predict-rgba", "predict", "uint8 6,5,4"),
        ("camera-grey", "camera", "uint8 9,10"),
        ("camera-rgb", "camera", "uint8 17,18,3"),
        ("camera-rgba", "camera:group=2", "uint8 9,10,4"),
        ("depth-uint16", "depth", "uint16 24,30"),
        ("depth-float32", "depth", "float32 9,10"),
        ("depth-float64", "depth", "float64 8,8,1"),
        ("depth-bounded", "depth:abs=0.1", "float32 9,10"),
        ("depth-bounded-noise", "depth:abs=0.01", "float32 20,21"),
        ("jpeg-rgb-444", "jpeg:q=90,sub=444", "uint8 9,10,3"),
        ("jpeg-rgb-420", "jpeg:q=90,sub=420", "uint8 9,10,3"),
        ("jpeg-grey", "jpeg:q=90,sub=444", "uint8 9,10"),
    ] {
        let (dtype, shape) = frame.split_once(' ').unwrap();
        let text = format!("codec {codec}\ndtype {dtype}\nshape {shape}\nshared \n");
        let mut golden = Golden::parse(&text);
        golden.values = sample_values(&golden.frame);
        write_if_missing(name, golden);
    }
    let texts = [
        "open the drawer",
        "open the drawer",
        "",
        "schließe die Schublade",
    ];
    let mut golden = Golden::parse("codec text\ndtype text\nshared \n");
    golden.texts = texts.map(str::to_owned).to_vec();
    write_if_missing("text", golden);
}

/// Forty frames (three, where one is a picture or as large) that move, with one element that does not.
fn sample_values(frame: &FrameType) -> Vec<u8> {
    let ty = frame.as_values().unwrap();
    let is_large = ty.elements() >= 64;
    let frames = if ty.as_image().is_some() || is_large {
        3
    } else {
        40
    };
    let mut values = Vec::new();
    for idx in 0..frames * ty.elements() {
        let (t, e) = (idx / ty.elements(), idx % ty.elements());
        // Surfaces with a little noise, for depth.
        let e = if is_large && ty.dtype().name() == "uint16" {
            let (width, y) = (ty.shape()[1], e / ty.shape()[1]);
            y / 6 * 5 + e % width / 7 + usize::from(idx * 7919 % 13 == 0)
        } else {
            e
        };
        let wave = (t as f64 * 0.1 + e as f64).sin() * if e == 1 { 0.0 } else { 1.0 };
        match ty.dtype().name() {
            "float32" => values.extend((wave as f32).to_le_bytes()),
            "float64" => values.extend(wave.to_le_bytes()),
            "int64" => values.extend((t as i64 * 33_333_333 + (wave * 1e5) as i64).to_le_bytes()),
            "uint16" => values.extend(((wave * 100.0 + 1000.0) as u16).to_le_bytes()),
            "bool" => values.push(u8::from(wave > 0.0)),
            _ => values.push((e * 3 % 200 + t) as u8),
        }
    }
    values
}

fn write_if_missing(name: &str, mut golden: Golden) {
    let path = folder().join(name).with_extension("txt");
    if path.exists() {
        return;
    }
    let made = codec(&golden.codec).unwrap();
    golden.codec = made.spec().to_string();
    let texts: Vec<&[u8]> = golden.texts.iter().map(String::as_bytes).collect();
    let frames = match golden.frame {
        FrameType::Text => Frames::bytes(&golden.frame, &texts),
        FrameType::Values(_) => Frames::values(&golden.frame, &golden.values).unwrap(),
    };
    let page_frames = made
        .page_frames(&golden.frame)
        .min(NonZeroUsize::new(30).unwrap());
    let mut scratch = Scratch::new();
    made.encode(&frames, page_frames, &mut golden.encoded, &mut scratch)
        .unwrap();
    if made.bound() != Bound::Lossless {
        // What was decoded when the file was made is what later decoders are held to.
        let ty = golden.frame.as_values().unwrap().clone();
        let decoder = made.decoder(&golden.frame, &[]).unwrap();
        for (page, frame) in golden
            .encoded
            .pages
            .iter()
            .zip(golden.values.chunks_exact_mut(ty.frame_bytes()))
        {
            let mut dest = FramesMut::packed(&ty, 1, frame).unwrap();
            let page = Page {
                bytes: &page.bytes,
                frames: 1,
            };
            decoder.decode(page, 0..1, &mut dest, &mut scratch).unwrap();
        }
    }
    std::fs::write(path, golden.to_text()).unwrap();
}
