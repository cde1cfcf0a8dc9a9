//! The same results as a format's own library: `expected.json` of its fixtures (see `fixtures/scene.py`).

use kino_codec::FrameType;
use kino_dataset::Dataset;
use kino_import::{FrameBuf, Source};
use serde_json::Value;

use crate::{digest, fixture, read_all};

/// One source of an `expected.json`.
pub(crate) fn expected(file: &str, source: &str) -> Value {
    let text = std::fs::read(fixture(file)).unwrap();
    let mut all: Value = serde_json::from_slice(&text).unwrap();
    all["sources"][source].take()
}

/// Compares the episodes of a source with the expected ones, in the same order; streams are those of the expected
/// names for which `rename` has a name. Returns how many streams were compared.
pub(crate) fn compare(
    source: &Source,
    expected: &Value,
    rename: fn(&str) -> Option<String>,
) -> usize {
    let episodes = expected["episodes"].as_array().unwrap();
    for (spec, expected) in source.episodes().iter().zip(episodes) {
        assert_eq!(Some(spec.id.as_str()), expected["name"].as_str());
    }
    compare_streams(source, expected, &rename)
}

/// As [`compare`], whatever the ids of the episodes.
pub(crate) fn compare_streams(
    source: &Source,
    expected: &Value,
    rename: &dyn Fn(&str) -> Option<String>,
) -> usize {
    let mut compared = 0;
    let episodes = expected["episodes"].as_array().unwrap();
    assert_eq!(source.episodes().len(), episodes.len());
    for (idx, expected) in episodes.iter().enumerate() {
        let spec = &source.episodes()[idx];
        let mut left: Vec<_> = spec.streams.iter().map(|stream| &*stream.name).collect();
        for (original, stream) in expected["streams"].as_object().unwrap() {
            let Some(name) = rename(original) else {
                left.retain(|left| left != original);
                continue;
            };
            let position = crate::position(source, idx, &name);
            let frames = spec.streams[position].frames;
            assert_eq!(stream["frames"], frames, "{name}");
            for step in [1, 3, u64::MAX >> 1] {
                let found = read_all(source, idx, position, step);
                compare_stream(&name, &spec.streams[position], &found, stream);
            }
            left.retain(|left| *left != name);
            compared += 1;
        }
        assert_eq!(left, [""; 0], "unexpected streams");
    }
    compared
}

pub(crate) fn compare_stream(
    name: &str,
    spec: &kino_import::StreamSpec,
    found: &FrameBuf,
    expected: &Value,
) {
    match (found, &spec.frame) {
        (FrameBuf::Bytes(files), FrameType::Values(ty)) => {
            assert!(spec.carried, "{name}");
            assert_eq!(expected["shape"], shape(ty.shape(), expected), "{name}");
            // If a format stores only pixels, its files were not hashed.
            if let Some(hash) = expected["encoded_blake3"].as_str() {
                assert_eq!(digest(&files.concat()), hash, "{name}");
            }
        }
        (FrameBuf::Values(values), FrameType::Values(ty)) => {
            assert_eq!(expected["dtype"], ty.dtype().name(), "{name}");
            assert_eq!(expected["shape"], shape(ty.shape(), expected), "{name}");
            assert_eq!(expected["blake3"], digest(values), "{name}");
        }
        (FrameBuf::Bytes(texts), _) if expected["ragged"] == true => {
            compare_lists(name, texts, expected);
        }
        (FrameBuf::Bytes(texts), _) => {
            assert_eq!(texts.len() as u64, spec.frames, "{name}");
            compare_texts(name, texts, expected);
        }
        (found, frame) => panic!("{name} is {frame} and reads as {found:?}"),
    }
}

/// Our shape, without the channel axis of a grayscale image if the expected one has none.
fn shape(ours: &[usize], expected: &Value) -> Value {
    let rank = expected["shape"].as_array().map_or(0, Vec::len);
    match ours {
        [height, width, 1] if rank == 2 => serde_json::json!([height, width]),
        ours => serde_json::json!(ours),
    }
}

fn compare_texts(name: &str, texts: &[Vec<u8>], expected: &Value) {
    let wanted = expected["texts"].as_array().unwrap();
    for (frame, text) in texts.iter().enumerate() {
        let wanted = wanted.get(frame).unwrap_or(&wanted[0]).as_str().unwrap();
        let text = std::str::from_utf8(text).unwrap();
        // Both are JSON of the same meaning, or the same text.
        let parsed = |text| serde_json::from_str::<Value>(text).ok();
        assert!(
            text == wanted || parsed(text).is_some() && parsed(text) == parsed(wanted),
            "{name}: {text}, not {wanted}"
        );
    }
}

fn compare_lists(name: &str, texts: &[Vec<u8>], expected: &Value) {
    let lists: Vec<Vec<Value>> = texts
        .iter()
        .map(|text| serde_json::from_slice(text).unwrap())
        .collect();
    let lengths: Vec<_> = lists.iter().map(Vec::len).collect();
    assert_eq!(expected["lengths"], serde_json::json!(lengths), "{name}");
    let items = &expected["items"];
    let mut flat: Vec<Value> = lists.concat();
    while matches!(flat.first(), Some(Value::Array(_))) {
        let inner = flat.iter().flat_map(|item| item.as_array().unwrap());
        flat = inner.cloned().collect();
    }
    let number = |item: &Value| item.as_f64().unwrap();
    let bytes: Vec<u8> = match items["dtype"].as_str().unwrap() {
        #[expect(clippy::cast_possible_truncation, reason = "it was a float32")]
        "float32" => flat
            .iter()
            .flat_map(|item| (number(item) as f32).to_le_bytes())
            .collect(),
        "int16" => flat
            .iter()
            .flat_map(|item| i16::try_from(item.as_i64().unwrap()).unwrap().to_le_bytes())
            .collect(),
        "text" => {
            let texts = flat
                .iter()
                .map(|item| item.as_str().unwrap().as_bytes().to_vec());
            return compare_texts(name, &texts.collect::<Vec<_>>(), items);
        }
        other => panic!("{name} holds lists of {other}"),
    };
    assert_eq!(items["blake3"], digest(&bytes), "{name}");
}

/// Compares the pixels of carried images, as a dataset decodes them, with those of Pillow. Returns how many streams.
pub(crate) fn compare_pixels(
    dataset: &Dataset,
    expected: &Value,
    rename: fn(&str) -> Option<String>,
) -> usize {
    let mut compared = 0;
    for expected in expected["episodes"].as_array().unwrap() {
        let episode = dataset.find(expected["name"].as_str().unwrap()).unwrap();
        for (name, expected) in expected["streams"].as_object().unwrap() {
            let stream = rename(name).and_then(|name| episode.stream(&name).ok());
            let Some(stream) = stream else {
                continue;
            };
            if stream.read_bitstream(0).is_ok_and(|file| file.is_some()) {
                let pixels = stream.read(0..stream.len()).unwrap();
                assert_eq!(expected["blake3"], digest(&pixels), "{name}");
                compared += 1;
            }
        }
    }
    compared
}
