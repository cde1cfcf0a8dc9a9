//! Datasets whose hashes are all valid but which state something false; and many that state nothing false.

use std::collections::BTreeMap;
use std::path::Path;

use kino_codec::{Dtype, FrameType};
use kino_format::Kind;
use proptest::prelude::*;

use super::{Level, verify, verify_while};
use crate::dataset::Dataset;
use crate::episode_info::EpisodeInfo;
use crate::error::ErrorKind;
use crate::hash::Hash;
use crate::manifest::Manifest;
use crate::plan::{Arrival, Plan};
use crate::read_version::read_head;
use crate::selection::Selection;
use crate::stats::StreamStats;
use crate::store::{FileKind, Store, version_key};
use crate::stream_info::{SharedFrames, StreamInfo, Times};
use crate::table::{EpisodeRow, write_table};
use crate::window::{CountSource, Request, Samples};
use crate::writer::DatasetWriter;
use crate::writer_options::{Start, WriterOptions};

fn info(name: &str, frames: u64, dtype: Dtype, shape: &[usize]) -> StreamInfo {
    StreamInfo {
        name: name.to_owned(),
        kind: match (dtype, shape.len()) {
            (Dtype::U8, 3) => Kind::Image,
            (Dtype::U16 | Dtype::F32, 2) => Kind::Depth,
            _ => Kind::Vector,
        },
        frame: FrameType::values(dtype, shape).unwrap(),
        frames,
        times: Times::Rate {
            rate_hz: 20.0,
            start_ns: 1_000_000_000,
        },
        arrival: Arrival::Values,
        shared: None,
    }
}

fn floats(len: u16, scale: f64) -> Vec<u8> {
    let value = |idx: u16| (f64::from(idx) * 0.37).sin() * scale + 0.1;
    (0..len).flat_map(|idx| value(idx).to_le_bytes()).collect()
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[4]
    };
    (0..len).map(|_| next()).collect()
}

/// Two episodes with shared frames, a lossy stream with an event, text, images and explicit times.
fn write(path: &Path, start: Start, ids: [&str; 2]) {
    let plan = r#"
        [[stream]]
        match = "lossy"
        bound = "abs(1e-3)"
        protect = ["*"]
        [[event]]
        name = "jump"
        stream = "obs/x"
        detect = "transition"
        before_s = 0.1
        after_s = 0.1
    "#;
    let options = WriterOptions {
        plan: Plan::from_toml(plan).unwrap(),
        threads: 1,
        // Every episode has a shard of its own.
        shard_bytes: 1,
        ..WriterOptions::default()
    };
    let mut writer = DatasetWriter::open(path, start, options).unwrap();
    for (number, id) in ids.into_iter().enumerate() {
        let id = id.to_owned();
        let info_of = EpisodeInfo {
            id,
            ..EpisodeInfo::default()
        };
        let mut episode = writer.episode(info_of).unwrap();
        let times = Times::Explicit((0..12).map(|idx| idx * idx * 1_000_003).collect());
        let x = StreamInfo {
            times,
            ..info("obs/x", 12, Dtype::F64, &[2])
        };
        episode.stream(&x).unwrap();
        episode
            .push(&floats(24, 1.0 + f64::from(u8::try_from(number).unwrap())))
            .unwrap();
        let shared = Some(SharedFrames {
            base: "obs/x".to_owned(),
            first: 1,
            count: 11,
        });
        let next = StreamInfo {
            shared,
            ..info("next_obs/x", 12, Dtype::F64, &[2])
        };
        episode.stream(&next).unwrap();
        episode.push(&floats(2, 9.0)).unwrap();
        episode
            .stream(&info("lossy", 40, Dtype::F64, &[1]))
            .unwrap();
        episode.push(&floats(40, 3.0)).unwrap();
        let words = StreamInfo {
            kind: Kind::Text,
            frame: FrameType::Text,
            ..info("words", 3, Dtype::U8, &[])
        };
        episode.stream(&words).unwrap();
        episode.push_bytes(&[b"lift", b"lift", b"put"]).unwrap();
        episode
            .stream(&info("camera", 3, Dtype::U8, &[4, 4, 3]))
            .unwrap();
        episode.push(&noise(3 * 48, 5)).unwrap();
        episode.finish().unwrap();
    }
    writer.commit("test").unwrap();
}

/// Everything that can be forged.
struct Forged {
    manifest: Manifest,
    rows: Vec<EpisodeRow>,
    stats: BTreeMap<String, StreamStats>,
}

/// Adds a version on top of the true one, with valid hashes and the changes of `lie`.
fn forge(path: &Path, lie: impl FnOnce(&mut Forged)) {
    let store = Store::open(path).unwrap();
    let truth = Dataset::open_version(path, 1).unwrap();
    let mut forged = Forged {
        manifest: truth.manifest().clone(),
        rows: truth.table().rows().unwrap(),
        stats: truth.stats().unwrap().clone(),
    };
    let before = forged.manifest.clone();
    lie(&mut forged);
    let Forged {
        mut manifest,
        rows,
        stats,
    } = forged;
    let version = store.versions().unwrap().last().unwrap() + 1;
    if manifest.version == before.version {
        manifest.version = version;
    }
    let table = store.put_hashed(FileKind::Episodes, &write_table(&rows).unwrap());
    let stats = store.put_hashed(FileKind::Stats, &serde_json::to_vec(&stats).unwrap());
    let (table, stats) = (table.unwrap(), stats.unwrap());
    // A count that the lie has set stays.
    manifest.episodes.blake3 = table.0;
    if manifest.episodes.bytes == before.episodes.bytes {
        manifest.episodes.bytes = table.1;
    }
    if manifest.episodes.count == before.episodes.count {
        manifest.episodes.count = rows.len() as u64;
    }
    manifest.stats.blake3 = stats.0;
    if manifest.stats.bytes == before.stats.bytes {
        manifest.stats.bytes = stats.1;
    }
    let (bytes, _) = manifest.print().unwrap();
    store.put_new(&version_key(version), &bytes).unwrap();
}

/// The problems of a dataset as text; empty if there are none.
fn found(path: &Path, level: Level) -> String {
    match verify(path, level, &mut |_, _| {}) {
        Err(error) => error.to_string(),
        Ok(found) => found
            .damage
            .iter()
            .map(|damage| format!("{}: {}\n", damage.place, damage.what))
            .collect(),
    }
}

type Lie = fn(&mut Forged);

/// What is forged, and a fragment that the report must contain.
const LIES: &[(&str, Lie)] = &[
    ("episodes/", |f| f.manifest.episodes.bytes += 1),
    ("episodes/", |f| f.manifest.episodes.bytes = 1 << 62),
    ("stats/", |f| f.manifest.stats.bytes += 1),
    ("rows", |f| f.manifest.episodes.count += 1),
    ("version 9007199254740992", |f| f.manifest.version = 1 << 53),
    ("`type`", |f| {
        f.manifest.streams[0].dtype = "float32".to_owned()
    }),
    ("`type`", |f| f.manifest.streams[0].shape = vec![3]),
    ("`type`", |f| f.manifest.streams[0].kind = Kind::Image),
    ("`codecs`", |f| {
        f.manifest.streams[0].codecs.push("raw".to_owned())
    }),
    ("`codecs`", |f| f.manifest.streams[0].codecs.clear()),
    ("`episodes`", |f| f.manifest.streams[0].episodes -= 1),
    ("`frames`", |f| f.manifest.streams[0].frames += 1),
    ("`raw_bytes`", |f| f.manifest.streams[0].raw_bytes += 1),
    ("`bytes`", |f| f.manifest.streams[0].bytes -= 1),
    ("`stored_values`", |f| {
        f.manifest.streams[0].stored_values += 1
    }),
    ("`max_abs_error`", |f| {
        f.manifest.streams[2].max_abs_error *= 1.001
    }),
    ("`sum_squared_error`", |f| {
        f.manifest.streams[2].sum_squared_error *= 1.001
    }),
    ("`protected_frames`", |f| {
        f.manifest.streams[2].protected_frames = 81
    }),
    ("add up", |f| {
        f.manifest.streams[2].protected_frames = u64::MAX
    }),
    ("`camera`", |f| drop(f.manifest.streams.pop())),
    ("no episode has it", |f| {
        let mut invented = f.manifest.streams[0].clone();
        invented.name = "invented".to_owned();
        f.manifest.streams.push(invented);
    }),
    ("listed twice", |f| {
        f.manifest.streams.push(f.manifest.streams[0].clone())
    }),
    ("listed twice", |f| {
        f.manifest.shards.push(f.manifest.shards[0].clone())
    }),
    ("episodes, not 2", |f| f.manifest.shards[0].episodes = 2),
    ("too long", |f| f.manifest.shards[0].bytes -= 1),
    ("does not list", |f| _ = f.manifest.shards.pop()),
    ("missing", |f| {
        f.manifest.shards[1].blake3 = Hash::of(b"another");
        f.rows[1].shard = *Hash::of(b"another").as_bytes();
    }),
    ("no episode refers to shard", |f| drop(f.rows.remove(1))),
    ("add up", |f| f.manifest.shards[0].bytes = u64::MAX),
    ("`frames`", |f| f.rows[1].frames += 1),
    ("`start_ns`", |f| f.rows[0].start_ns = -5),
    ("`duration_s`", |f| f.rows[0].duration_s *= 1.001),
    ("`bytes`", |f| f.rows[1].bytes -= 8),
    ("`raw_bytes`", |f| f.rows[1].raw_bytes += 8),
    ("add up", |f| {
        f.rows.iter_mut().for_each(|row| row.frames = 1 << 62)
    }),
    ("no such slot", |f| f.rows[0].slot = 1),
    ("another hash", |f| f.rows[0].hash[0] ^= 1),
    ("another hash", |f| f.rows[0].shard = f.rows[1].shard),
    ("belong to episode `b`", |f| f.rows[1].id = "c".to_owned()),
    ("the same episode", |f| {
        let twice = f.rows[1].clone();
        f.rows[0] = EpisodeRow {
            id: "a".to_owned(),
            ..twice
        };
    }),
    ("`obs/x`: its statistics are missing", |f| {
        drop(f.stats.remove("obs/x"))
    }),
    ("no episode has it", |f| {
        let stats = f.stats["obs/x"].clone();
        f.stats.insert("invented".to_owned(), stats);
    }),
    ("no frames of values", |f| {
        let stats = f.stats["camera"].clone();
        f.stats.insert("words".to_owned(), stats);
    }),
    ("`frames`", |f| {
        f.stats.get_mut("obs/x").unwrap().frames += 1
    }),
    ("channel 0 counts", |f| {
        f.stats.get_mut("obs/x").unwrap().count[0] -= 1
    }),
    ("not finite", |f| {
        f.stats.get_mut("camera").unwrap().nonfinite = vec![1; 3];
        let camera = f.stats.get_mut("camera").unwrap();
        let crate::stats::Sketch::Counts(counts) = &mut camera.sketch else {
            return;
        };
        for (count, pairs) in camera.count.iter_mut().zip(counts) {
            pairs[0].1 -= 1;
            *count -= 1;
            pairs.retain(|(_, count)| *count > 0);
        }
    }),
    ("sketch", |f| {
        f.stats.get_mut("camera").unwrap().count[0] += 1
    }),
    ("incomplete", |f| {
        drop(f.stats.get_mut("obs/x").unwrap().quantiles.remove("q01"))
    }),
    ("incomplete", |f| {
        f.stats.get_mut("obs/x").unwrap().mean.truncate(1)
    }),
    ("channels", |f| {
        let camera = f.stats["camera"].clone();
        f.stats.insert("obs/x".to_owned(), camera);
    }),
    ("`std`", |f| {
        f.stats.get_mut("obs/x").unwrap().std[0] *= -1.0
    }),
    ("`std`", |f| f.stats.get_mut("obs/x").unwrap().std[0] = 1e6),
    ("`min`", |f| f.stats.get_mut("obs/x").unwrap().min[1] = 1e6),
    ("`mean`", |f| {
        f.stats.get_mut("obs/x").unwrap().mean[1] = -1e6
    }),
    ("`mean`", |f| {
        f.stats.get_mut("obs/x").unwrap().mean[1] = f64::NAN
    }),
    ("quantiles", |f| {
        let quantiles = &mut f.stats.get_mut("obs/x").unwrap().quantiles;
        let highest = quantiles["q99"].clone();
        quantiles.insert("q10".to_owned(), highest);
    }),
];

#[test]
fn forged_metadata_with_valid_hashes_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lies.kino");
    write(&path, Start::New, ["a", "b"]);
    assert_eq!(found(&path, Level::Decode), "");
    forge(&path, |_| {});
    assert_eq!(found(&path, Level::Decode), "", "nothing is forged here");
    for (idx, (says, lie)) in LIES.iter().enumerate() {
        forge(&path, lie);
        let found = found(&path, Level::Bytes);
        assert!(found.contains(says), "lie {idx} ({says}): {found:?}");
        let versions = path.join("versions");
        for entry in std::fs::read_dir(versions).unwrap() {
            let file = entry.unwrap().path();
            if !file.ends_with("00000001.json") {
                std::fs::remove_file(file).unwrap();
            }
        }
    }
}

/// Lies that only decoding the frames reveals.
const ABOUT_FRAMES: &[(&str, Lie)] = &[
    ("`min` of channel 1", |f| {
        f.stats.get_mut("obs/x").unwrap().min[1] -= 1e-9
    }),
    ("`max` of channel 0", |f| {
        f.stats.get_mut("obs/x").unwrap().max[0] += 1e-9
    }),
    ("`mean` of channel 0", |f| {
        f.stats.get_mut("obs/x").unwrap().mean[0] += 1e-4
    }),
    ("`std` of channel 1", |f| {
        f.stats.get_mut("obs/x").unwrap().std[1] *= 0.99
    }),
    ("`mean` of channel 0", |f| {
        f.stats.get_mut("camera").unwrap().mean[0] += 0.01
    }),
    ("`mean` of channel 0", |f| {
        f.stats.get_mut("lossy").unwrap().mean[0] += 0.01
    }),
    ("`max` of channel 0", |f| {
        f.stats.get_mut("lossy").unwrap().max[0] += 0.01
    }),
    ("`count` of channel 0", |f| {
        let stats = f.stats.get_mut("obs/x").unwrap();
        stats.count[0] -= 1;
        stats.nonfinite[0] += 1;
    }),
];

#[test]
fn statistics_are_compared_with_the_decoded_frames() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lies.kino");
    write(&path, Start::New, ["a", "b"]);
    for (idx, (says, lie)) in ABOUT_FRAMES.iter().enumerate() {
        forge(&path, lie);
        let found = found(&path, Level::Decode);
        assert!(found.contains(says), "lie {idx}: {found:?}");
    }
}

#[test]
fn a_check_can_be_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    write(&path, Start::New, ["a", "b"]);
    for most in 0..4 {
        let mut told = 0;
        let stopped = verify_while(&path, Level::Decode, &mut |_, _| {
            told += 1;
            if told > most {
                std::ops::ControlFlow::Break(())
            } else {
                std::ops::ControlFlow::Continue(())
            }
        });
        assert_eq!(stopped.unwrap(), None);
        assert_eq!(told, most + 1, "it stops at once");
    }
}

#[test]
fn episodes_of_two_types_are_found_although_every_shard_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let [one, two] = ["one.kino", "two.kino"].map(|name| folder.path().join(name));
    for (path, id, dtype) in [(&one, "one", Dtype::F32), (&two, "two", Dtype::F64)] {
        let mut writer = DatasetWriter::open(path, Start::New, WriterOptions::default()).unwrap();
        let id = id.to_owned();
        let info_of = EpisodeInfo {
            id,
            ..EpisodeInfo::default()
        };
        let mut episode = writer.episode(info_of).unwrap();
        episode.stream(&info("x", 4, dtype, &[2])).unwrap();
        episode.push(&noise(8 * dtype.size(), 1)).unwrap();
        episode.finish().unwrap();
        writer.commit("").unwrap();
    }
    let other = read_head(&Store::open(&two).unwrap()).unwrap().unwrap();
    for entry in std::fs::read_dir(two.join("shards")).unwrap() {
        let file = entry.unwrap();
        std::fs::copy(file.path(), one.join("shards").join(file.file_name())).unwrap();
    }
    forge(&one, |forged| {
        forged.manifest.shards.extend(other.manifest.shards.clone());
        forged.rows.extend(other.table.rows().unwrap());
        let stream = &mut forged.manifest.streams[0];
        stream.episodes += 1;
        stream.frames += 4;
        stream.raw_bytes += 64;
        stream.stored_values += 8;
        stream.bytes += other.manifest.streams[0].bytes;
    });
    let found = found(&one, Level::Decode);
    assert!(
        found.contains("it is vector float64[2] in episode `two` but vector float32[2] in others"),
        "{found}"
    );
    // A batch has the types of the manifest: never bytes of another type.
    let windows = windows_of(&one, "x");
    assert!(windows.read(0).is_ok());
    let error = windows.read(4).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    for part in [
        "one.kino",
        "episode `two`",
        "stream `x`",
        "float64[2]",
        "float32[2]",
    ] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
}

/// An open dataset with windows of one stream, counted by the table.
fn windows_of(path: &Path, stream: &str) -> Samples {
    let json = format!(
        r#"{{"anchor": {{"stream": "{stream}"}}, "windows": [{{"stream": "{stream}", "at": {{"steps": [0]}}}}]}}"#
    );
    let dataset = Dataset::open(path).unwrap();
    let request = Request::from_json(&json).unwrap();
    let windows = Samples::bind(&dataset, request, &Selection::default()).unwrap();
    assert_eq!(windows.source(), CountSource::Table);
    windows
}

#[test]
fn a_table_with_more_frames_than_an_episode_has_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    write(&path, Start::New, ["a", "b"]);
    forge(&path, |forged| {
        // The longest stream, in the table and in the manifest.
        forged.rows[1].frames += 10;
        let lossy = forged
            .manifest
            .streams
            .iter_mut()
            .find(|one| one.name == "lossy");
        lossy.unwrap().frames += 10;
    });
    let windows = windows_of(&path, "lossy");
    assert!(windows.episode(0).is_ok());
    let error = windows.read(40).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("40 samples, but 50"), "{error}");
}

fn any_stream() -> impl Strategy<Value = (Dtype, Vec<usize>, u64, u64)> {
    let shapes = prop_oneof![
        Just(vec![]),
        Just(vec![0]),
        Just(vec![1]),
        Just(vec![7]),
        Just(vec![2, 3]),
        Just(vec![5000]),
        Just(vec![6, 5, 3]),
        Just(vec![4, 4, 1]),
    ];
    let dtypes = prop::sample::select(Dtype::ALL.to_vec());
    (dtypes, shapes, 0..40_u64, any::<u64>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Random bits are NaN, infinite, huge and tiny values; appended to, so that statistics are merged.
    #[test]
    fn everything_the_writer_writes_is_valid(streams in prop::collection::vec(any_stream(), 1..5), twice: bool) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.kino");
        for start in [Start::New, Start::Append].into_iter().take(1 + usize::from(twice)) {
            let options = WriterOptions { threads: 1, ..WriterOptions::default() };
            let mut writer = DatasetWriter::open(&path, start, options).unwrap();
            for _ in 0..2 {
                let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
                for (idx, (dtype, shape, frames, seed)) in streams.iter().enumerate() {
                    let info = info(&format!("s/{idx}"), *frames, *dtype, shape);
                    let size = info.frame.as_values().unwrap().frame_bytes();
                    let mut bytes = noise(size * usize::try_from(*frames).unwrap(), *seed);
                    if *dtype == Dtype::Bool {
                        bytes.iter_mut().for_each(|byte| *byte &= 1);
                    }
                    episode.stream(&info).unwrap();
                    if !bytes.is_empty() {
                        episode.push(&bytes).unwrap();
                    }
                }
                episode.finish().unwrap();
            }
            writer.commit("").unwrap();
        }
        prop_assert_eq!(found(&path, Level::Decode), "");
    }
}
