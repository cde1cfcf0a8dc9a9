//! Pages written by earlier releases are read forever: `golden/` grows, its files never change.
//!
//! ```text
//! golden/<name>.txt:   codec pco:level=8        shared 0401…   (hexadecimal)
//!                      dtype float32            page 3 8f02…   (number of frames, bytes; one line per page)
//!                      shape 2,3                values 0000…   (all frames of the run, packed)
//! ```
//!
//! A text stream has `dtype text` and a line `text …` per frame in place of `values`.
//!
//! Files that `write_missing_golden_files` does not create hold pages of packed recordings (camera motion, held
//! columns, half floats), for storage kinds that its samples do not reach.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test fails by panicking, and its samples are small"
)]

mod inverted;

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kino_codec::{
    Bound, Encoded, EncodedPage, FrameType, Frames, Scratch, add_foreign_codec, codec,
};

use inverted::Inverted;

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
            let page = page.page();
            let Some(ty) = self.frame.as_values() else {
                decoder
                    .decode_text(page, 0..frames, &mut texts, &mut scratch)
                    .unwrap();
                continue;
            };
            let mut part = vec![0; frames * ty.frame_bytes()];
            decoder
                .decode(page, 0..frames, &mut part, &mut scratch)
                .unwrap();
            values.append(&mut part);
        }
        assert_eq!(texts, self.texts, "{name}");
        assert_eq!(values.len(), self.values.len(), "{name}");
        // Decoders of lossy images may differ by rounding; vectors may not.
        let tolerance = u8::from(matches!(codec.bound(), Bound::Unbounded | Bound::Psnr(_)));
        let same = |(a, b): (&u8, &u8)| a.abs_diff(*b) <= tolerance;
        assert!(values.iter().zip(&self.values).all(same), "{name}");
    }
}

#[test]
fn reads_every_golden_file() {
    add_foreign_codec(Arc::new(Inverted)).unwrap();
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
#[ignore = "writes golden files for new codecs; existing files are never changed"]
fn write_missing_golden_files() {
    add_foreign_codec(Arc::new(Inverted)).unwrap();
    for (name, codec, frame) in [
        ("raw", "raw", "uint16 2,3"),
        ("zstd", "zstd", "uint16 4,5"),
        ("zstd-shuffle", "zstd:level=3,shuffle=4", "float32 7"),
        ("pco-float32", "pco", "float32 7"),
        ("pco-float64", "pco", "float64 3"),
        ("pco-int64-scalar", "pco", "int64 "),
        ("pco-bool", "pco", "bool 3"),
        ("vector-float32", "vector", "float32 7"),
        ("vector-float64", "vector", "float64 3"),
        ("vector-int64-scalar", "vector", "int64 "),
        ("vector-bool", "vector", "bool 3"),
        ("vector-kinds", "vector", "float32 8"),
        ("vector-abs", "vector:abs=1e-3x4/0x4", "float32 8"),
        ("vector-two-zeros", "vector", "float64 2"),
        ("vector-quat", "vector:abs=1e-4,quat=1", "float64 5"),
        ("predict-grey", "predict", "uint8 6,5"),
        ("predict-rgb", "predict", "uint8 6,5,3"),
        ("predict-rgba", "predict", "uint8 6,5,4"),
        ("camera-grey", "camera:group=8", "uint8 9,10"),
        ("camera-rgb", "camera:group=8", "uint8 17,18,3"),
        ("camera-default", "camera", "uint8 17,18,3"),
        ("camera-rgba", "camera:group=2", "uint8 9,10,4"),
        ("depth-uint16", "depth", "uint16 24,30"),
        ("depth-steps", "depth", "uint16 48,62"),
        ("depth-float32", "depth", "float32 9,10"),
        ("depth-float64", "depth", "float64 8,8,1"),
        ("depth-bounded", "depth:abs=0.1", "float32 9,10"),
        ("depth-bounded-noise", "depth:abs=0.01", "float32 20,21"),
        ("jpeg-rgb-444", "jpeg:q=90,sub=444", "uint8 9,10,3"),
        ("jpeg-rgb-420", "jpeg:q=90,sub=420", "uint8 9,10,3"),
        ("av1-rgb-420", "av1:q=80,group=3,speed=10", "uint8 18,21,3"),
        (
            "av1-rgb-444",
            "av1:q=80,group=3,speed=10,sub=444",
            "uint8 16,16,3",
        ),
        ("av1-grey", "av1:q=80,group=3,speed=10", "uint8 17,16"),
        ("av1-exact", "av1:psnr=80,group=3,speed=10", "uint8 5,4,3"),
        ("jpeg-grey", "jpeg:q=90,sub=444", "uint8 9,10"),
        ("external", "external:name=golden", "uint16 2,3"),
        (
            "external-lossless",
            "external:name=golden,lossless",
            "float32 2",
        ),
    ] {
        let (dtype, shape) = frame.split_once(' ').unwrap();
        let text = format!("codec {codec}\ndtype {dtype}\nshape {shape}\nshared \n");
        let mut golden = Golden::parse(&text);
        golden.values = match name {
            "vector-kinds" | "vector-abs" => every_kind_of_column(),
            "vector-quat" => quaternions(),
            "vector-two-zeros" => printed(),
            _ => sample_values(&golden.frame),
        };
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

/// Forty frames (three, if they are images or as large) that change, with one element that does not.
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

/// Columns that `vector` stores in different ways: encoder counts, decimals, held values, a copy, …
fn every_kind_of_column() -> Vec<u8> {
    let mut values = Vec::new();
    for t in 0..200_u32 {
        let wave = (f64::from(t) * 0.05).sin();
        let held = (f64::from(t / 3) * 0.7).cos();
        let special = [f64::NAN, f64::INFINITY, -0.0, 1e9][t as usize % 4];
        let row = [
            wave,
            (wave * 30_000.0).round() * f64::from(1.198_422_5e-5_f32),
            (wave * 1000.0).round() / 1000.0,
            held,
            0.25,
            wave,
            if t % 50 < 4 {
                special
            } else {
                (wave * 100.0).round() / 100.0
            },
            held * 0.5,
        ];
        values.extend(row.iter().flat_map(|value| (*value as f32).to_le_bytes()));
    }
    values
}

/// Decimals as printed in a log, including `-0.00`.
fn printed() -> Vec<u8> {
    let value = |idx: u32| (f64::from(idx) * 0.3).sin() * 0.04;
    let two_digits = |idx: u32| (value(idx) * 100.0).round() / 100.0;
    (0..400)
        .map(two_digits)
        .flat_map(f64::to_le_bytes)
        .collect()
}

/// A scalar and a rotating quaternion, with one row of zeros.
fn quaternions() -> Vec<u8> {
    let row = |t: u32| {
        let (a, b) = (f64::from(t) * 0.03, f64::from(t) * 0.01);
        let quat = match t {
            7 => [0.0; 4],
            _ => [
                a.cos() * b.cos(),
                a.sin() * b.cos(),
                a.cos() * b.sin(),
                a.sin() * b.sin(),
            ],
        };
        [a, quat[0], quat[1], quat[2], quat[3]]
    };
    (0..40).flat_map(row).flat_map(f64::to_le_bytes).collect()
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
        // Later decoders must reproduce what was decoded when the file was created.
        let ty = golden.frame.as_values().unwrap().clone();
        let shared = &golden.encoded.shared;
        let decoder = made.decoder(&golden.frame, shared).unwrap();
        let mut rest = golden.values.as_mut_slice();
        for page in &golden.encoded.pages {
            let (places, after) = rest.split_at_mut(page.frames * ty.frame_bytes());
            rest = after;
            decoder
                .decode(page.page(), 0..page.frames, places, &mut scratch)
                .unwrap();
        }
    }
    std::fs::write(path, golden.to_text()).unwrap();
}

#[test]
fn the_table_of_the_specification_is_the_registry() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/codecs/README.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("| [`"))
        .collect();
    let expected: Vec<String> = kino_codec::codecs().map(row).collect();
    assert_eq!(rows.len(), expected.len());
    for (row, expected) in rows.iter().zip(expected) {
        assert!(row.starts_with(&expected), "{row}\n{expected}");
    }
}

/// The row of a codec in the specification, without how many frames it has per page.
fn row(codec: &kino_codec::Description) -> String {
    let kinds: Vec<&str> = codec.kinds.iter().map(|kind| kind.name()).collect();
    let guarantees: Vec<&str> = codec.guarantees.iter().map(|one| one.name()).collect();
    format!(
        "| [`{0}`]({0}.md) | {1} | {2} | {3} | {4} | {5} | ",
        codec.name,
        codec.summary,
        kinds.join(", "),
        guarantees.join(", "),
        codec.encode.name(),
        codec.decode.name()
    )
}
