//! MCAP recordings as the mcap libraries read them: `fixtures/mcap/expected.json`.

use std::fs;
use std::path::{Path, PathBuf};

use kino_dataset::{Dataset, Kind, Start};
use kino_import::{Action, ClockSpec, FrameBuf, ImportOptions, Source, StreamSpec};
use serde_json::{Value, json};

use crate::expected::compare_stream;
use crate::pack::{assert_same, pack_all};
use crate::{defects, digest, fixture, ids, open, position, read_all};

const FILES: [&str; 7] = [
    "json",
    "protobuf",
    "ros2_lz4",
    "ros2_none",
    "ros2_plain",
    "ros2_session",
    "ros2_zstd",
];

fn path(name: &str) -> PathBuf {
    fixture(&format!("mcap/{name}.mcap"))
}

fn expected(name: &str) -> Value {
    crate::expected::expected("mcap/expected.json", &format!("{name}.mcap"))
}

fn with_mapping(path: &Path, mapping: &str) -> Source {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mapping.toml");
    fs::write(&file, mapping).unwrap();
    let options = ImportOptions {
        mapping: Some(file),
        ..ImportOptions::default()
    };
    kino_import::open(path, &options).unwrap()
}

const BY_MARKS: &str =
    "[episodes]\nby = \"topic\"\ntopic = \"/episode\"\nstart = \"start\"\nstop = \"stop\"";

fn opened(name: &str) -> Source {
    match name {
        "ros2_session" => with_mapping(&path(name), BY_MARKS),
        name => open(&path(name)),
    }
}

/// The fields that are concatenated in the stream of a message.
fn columns(schema: &str) -> Option<Vec<String>> {
    let (inside, parts): (_, &[(&str, &str)]) = match schema {
        "geometry_msgs/msg/PoseStamped" | "foxglove.PoseInFrame" => {
            ("pose", &[("position", "xyz"), ("orientation", "xyzw")])
        }
        "geometry_msgs/msg/WrenchStamped" => ("wrench", &[("force", "xyz"), ("torque", "xyz")]),
        _ => return None,
    };
    let axes = parts.iter().flat_map(|(part, axes)| {
        axes.chars()
            .map(move |axis| format!("{inside}.{part}.{axis}"))
    });
    Some(axes.collect())
}

fn times(spec: &StreamSpec) -> &[i64] {
    match &spec.clock {
        ClockSpec::Explicit(times) => times,
        clock => panic!("{} has the clock {clock:?}", spec.name),
    }
}

/// Compares a topic, field by field; returns how many fields were compared.
fn compare_topic(source: &Source, episode: usize, topic: &str, expected: &Value) -> usize {
    let base = topic.trim_start_matches('/');
    let specs = &source.episodes()[episode].streams;
    let ours = specs
        .iter()
        .filter(|spec| spec.attributes["topic"] == topic);
    for spec in ours.clone() {
        assert_eq!(
            expected["timestamps_ns"],
            json!(times(spec)),
            "{}",
            spec.name
        );
        assert_eq!(expected["clock"], spec.attributes["clock"], "{}", spec.name);
    }
    let attributes = &ours.clone().next().unwrap().attributes;
    let find = |name: &str| {
        let idx = specs.iter().position(|spec| spec.name == name);
        idx.map(|idx| (&specs[idx], read_all(source, episode, idx, 3)))
    };
    let mut compared = 0;
    if let Some(image) = expected.get("pixels") {
        let (spec, found) = find(base).unwrap();
        let ty = spec.frame.as_values().unwrap();
        assert_eq!(image["shape"], json!(ty.shape()), "{topic}");
        assert_eq!(image["dtype"], ty.dtype().name(), "{topic}");
        match found {
            FrameBuf::Bytes(files) => {
                assert_eq!(image["encoded_blake3"], digest(&files.concat()), "{topic}")
            }
            FrameBuf::Values(values) => {
                let rgb = image.get("rgb_blake3").unwrap_or(&image["blake3"]);
                assert_eq!(*rgb, digest(&values), "{topic}");
            }
        }
        compared += 1;
    }
    let columns = columns(expected["schema"].as_str().unwrap_or_default());
    for (field, expected) in expected["fields"].as_object().unwrap() {
        let column = columns.iter().flatten().position(|column| column == field);
        if let Some(column) = column {
            let (_, FrameBuf::Values(values)) = find(base).unwrap() else {
                panic!("{topic} is numbers")
            };
            let row = columns.as_ref().unwrap().len() * 8;
            let column: Vec<u8> = values
                .chunks(row)
                .flat_map(|row| &row[column * 8..column * 8 + 8])
                .copied()
                .collect();
            assert_eq!(expected["blake3"], digest(&column), "{topic} {field}");
        } else if let Some((spec, found)) = find(&format!("{base}/{field}")).or_else(|| {
            find(base).filter(|_| {
                field == "data"
                    && expected["ragged"].is_null()
                    && attributes.get("encoding").is_none()
            })
        }) {
            compare_stream(&format!("{topic} {field}"), spec, &found, expected);
        } else if let Some(value) = attributes.get(field) {
            compare_constant(&format!("{topic} {field}"), value, expected);
        } else {
            // What is in no stream and no attribute is among the defects, or empty, or the bytes of an image.
            let place = format!("{topic}, field `{field}`");
            let is_listed = source.describe().defects.iter().any(|defect| {
                defect.place.ends_with(&place)
                    || defect.what == format!("`{field}` is empty in every message")
            });
            assert!(is_listed || field == "data", "{topic} {field} is nowhere");
            continue;
        }
        compared += 1;
    }
    compared
}

fn compare_constant(name: &str, value: &Value, expected: &Value) {
    if let Some(texts) = expected.get("texts") {
        assert_eq!(*texts, json!([value]), "{name}");
    } else if expected["ragged"] == true {
        let texts = expected["items"]["texts"].as_array().unwrap();
        assert_eq!(
            json!(texts[..value.as_array().unwrap().len()]),
            *value,
            "{name}"
        );
    } else {
        let bytes = match expected["dtype"].as_str().unwrap() {
            "uint32" => u32::try_from(value.as_u64().unwrap())
                .unwrap()
                .to_le_bytes()
                .to_vec(),
            "uint8" => vec![u8::try_from(value.as_u64().unwrap()).unwrap()],
            other => panic!("{name} is a constant of {other}"),
        };
        let frames = usize::try_from(expected["frames"].as_u64().unwrap()).unwrap();
        assert_eq!(expected["blake3"], digest(&bytes.repeat(frames)), "{name}");
    }
}

#[test]
fn every_field_of_every_file_matches_the_mcap_libraries() {
    let mut compared = 0;
    for name in FILES {
        let (source, expected) = (opened(name), expected(name));
        let episodes = expected["episodes"].as_array().unwrap();
        assert_eq!(source.episodes().len(), episodes.len(), "{name}");
        for (idx, expected) in episodes.iter().enumerate() {
            for (topic, expected) in expected["streams"].as_object().unwrap() {
                compared += compare_topic(&source, idx, topic, expected);
            }
        }
        for (metadata, values) in expected["attributes"].as_object().unwrap() {
            assert_eq!(source.describe().attributes[metadata], *values, "{name}");
        }
    }
    assert_eq!(compared, 303);
}

#[test]
fn only_what_cannot_be_imported_is_listed() {
    let lost = |name: &str| defects(&opened(name), Action::Skipped);
    let arm = |name: &str| {
        [
            format!(
                "{name}.mcap:/arm, field `contacts`: has lists of 0 to 3 numbers; a stream needs a fixed length"
            ),
            format!(
                "{name}.mcap:/arm, field `flags`: has lists of 0 to 2 numbers; a stream needs a fixed length"
            ),
        ]
    };
    assert_eq!(lost("ros2_zstd"), arm("ros2_zstd"));
    assert_eq!(lost("json"), [""; 0]);
    assert_eq!(
        lost("protobuf"),
        [
            "protobuf.mcap:/reading, field `raw`: has lists of 0 to 11 numbers; a stream needs a fixed length"
        ]
    );
    assert_eq!(
        defects(&open(&path("ros2_lz4")), Action::Kept),
        [
            "ros2_lz4.mcap:/joint_states: goes back in time: 1 of 20 messages come after a later one; kept, sorted by time"
        ]
    );
    assert_eq!(
        defects(&open(&path("ros2_zstd")), Action::Noted),
        ["ros2_zstd.mcap:/joint_states: `effort` is empty in every message"]
    );
}

#[test]
fn names_and_units_and_notes_are_attributes() {
    let source = open(&path("ros2_zstd"));
    let joints = position(&source, 0, "joint_states/position");
    let joints = &source.episodes()[0].streams[joints];
    assert_eq!(
        joints.attributes["name"],
        json!(["shoulder", "elbow", "wrist", "grïpper"])
    );
    assert_eq!(
        source.describe().attributes["attachment notes.txt"],
        "a note"
    );
    let source = open(&path("json"));
    let joints = position(&source, 0, "state/joints");
    assert_eq!(
        source.episodes()[0].streams[joints].unit.as_deref(),
        Some("rad")
    );
}

#[test]
fn a_dataset_keeps_stamps_and_frames() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["ros2_zstd", "ros2_lz4", "protobuf", "json"] {
        let (source, expected) = (open(&path(name)), expected(name));
        let target = folder.path().join(name);
        pack_all(&source, &target, Start::New);
        let dataset = Dataset::open(&target).unwrap();
        assert_same(&source, &dataset);
        let episode = dataset.find(name).unwrap();
        for spec in &source.episodes()[0].streams {
            let stream = episode.stream(&spec.name).unwrap();
            let wanted =
                &expected["episodes"][0]["streams"][spec.attributes["topic"].as_str().unwrap()];
            let times = stream.times_ns(0..stream.len()).unwrap();
            assert_eq!(wanted["timestamps_ns"], json!(times), "{}", spec.name);
            if spec.carried {
                let pixels = stream.read(0..stream.len()).unwrap();
                assert_eq!(wanted["pixels"]["blake3"], digest(&pixels), "{}", spec.name);
            }
        }
    }
}

#[test]
fn episodes_are_found_by_marks_and_by_gaps() {
    let marked = with_mapping(&path("ros2_session"), BY_MARKS);
    let gaps = with_mapping(
        &path("ros2_session"),
        "[episodes]\nby = \"gap\"\ngap_s = 2.0",
    );
    for source in [&marked, &gaps] {
        let ids = ids(source);
        assert_eq!(ids, ["ros2_session/0", "ros2_session/1"]);
    }
    for (a, b) in marked.episodes().iter().zip(gaps.episodes()) {
        let streams = |episode: &kino_import::EpisodeSpec| {
            let streams = episode.streams.iter();
            streams
                .map(|stream| (stream.name.clone(), stream.clock.clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(streams(a), streams(b));
    }
    let faults = |source: &Source| -> Vec<_> {
        let defects = source.describe().defects.iter();
        let faults = defects.filter(|defect| defect.is_fault());
        faults.map(|defect| defect.episode.clone()).collect()
    };
    assert_eq!(faults(&marked), [None, None], "fields of both episodes");
    let whole = open(&path("ros2_session"));
    let here = || Some("ros2_session".to_owned());
    assert_eq!(faults(&whole), [here(), here()]);
    assert_eq!(whole.episodes()[0].id, "ros2_session");
    assert_eq!(whole.episodes().len(), 1);
}

#[test]
fn a_mapping_picks_fields_clocks_and_the_task() {
    let mapping = r#"
        task = { topic = "/instruction" }
        [[stream]]
        name = "state"
        topic = "/joint_states"
        fields = ["position", "velocity"]
        clock = "publish"
        [[stream]]
        name = "wrist_camera"
        topic = "/jpeg"
        kind = "image"
        [[stream]]
        name = "tool"
        topic = "/tool/pose"
        [[stream]]
        name = "ghost"
        topic = "/ghost"
        [[stream]]
        name = "odd"
        topic = "/arm"
        field = "nothing"
        [[stream]]
        name = "late"
        topic = "/gripper/closed"
        clock = "header"
        [[stream]]
        name = "words"
        topic = "/arm"
        field = "status"
        kind = "text"
    "#;
    let source = with_mapping(&path("ros2_zstd"), mapping);
    let episode = &source.episodes()[0];
    let names: Vec<_> = episode.streams.iter().map(|stream| &*stream.name).collect();
    assert_eq!(names, ["state", "tool", "wrist_camera"]);
    assert_eq!(episode.task.as_deref(), Some("öffne 1 0"));
    let state = &episode.streams[0];
    assert_eq!(state.frame.as_values().unwrap().shape(), [8]);
    assert_eq!(
        (episode.streams[2].kind, episode.streams[2].carried),
        (Kind::Image, true)
    );
    let expected = expected("ros2_zstd");
    let joints = &expected["episodes"][0]["streams"]["/joint_states"];
    let published: Vec<u8> = times(state)
        .iter()
        .flat_map(|time| time.to_le_bytes())
        .collect();
    assert_eq!(joints["publish_ns"]["blake3"], digest(&published));
    let lost = defects(&source, Action::Skipped);
    let whys = [
        "has no field `nothing`: its fields are `mode`",
        "stream `words` is vector, but the mapping says text",
        "stream `late` requests the header clock, but not every message has a header",
        "no file has the topic `/ghost`",
    ];
    assert_eq!(lost.len(), whys.len(), "{lost:?}");
    for why in whys {
        assert!(
            lost.iter().any(|lost| lost.contains(why)),
            "{why}: {lost:?}"
        );
    }
}

#[test]
fn a_folder_has_an_episode_per_file() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["ros2_none", "ros2_plain"] {
        fs::copy(path(name), folder.path().join(format!("{name}.mcap"))).unwrap();
    }
    let source = open(folder.path());
    let ids = ids(&source);
    assert_eq!(ids, ["ros2_none", "ros2_plain"]);
    assert_eq!(
        source.describe().attributes["ros2_none"]["robot"]["name"],
        "töy"
    );
    for (idx, name) in ["ros2_none", "ros2_plain"].into_iter().enumerate() {
        let expected = expected(name);
        for (topic, expected) in expected["episodes"][0]["streams"].as_object().unwrap() {
            compare_topic(&source, idx, topic, expected);
        }
    }
}
