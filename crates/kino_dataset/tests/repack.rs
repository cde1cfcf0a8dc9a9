//! Repacking: what the plan does not change is bit for bit the same, what it changes is measured, and versions, rivals and
//! interruptions lose nothing.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use common::{random_bytes, vector_info};
use kino_dataset::{
    Action, Collect, Dataset, DatasetWriter, Episode, EpisodeInfo, ErrorKind, GenerationLoss,
    Interrupted, Level, Part, Plan, Protected, Repack, RepackOptions, RepackProgress, Repacked,
    SharedFrames, Start, StreamInfo, WriterOptions, collect_garbage, verify,
};

/// Every episode in a shard of its own, written before the next starts.
fn small_shards() -> WriterOptions {
    WriterOptions {
        shard_bytes: 1,
        memory_bytes: 1,
        threads: 2,
        ..WriterOptions::default()
    }
}

fn plan(text: &str) -> RepackOptions {
    RepackOptions {
        writer: WriterOptions {
            plan: Plan::from_toml(text).unwrap(),
            ..small_shards()
        },
        ..RepackOptions::default()
    }
}

const COARSE: &str = "[[stream]]\nmatch = \"force\"\nbound = \"abs(1e-3)\"\n";

fn go_on(_: RepackProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn repack(from: &Path, to: &Path, options: RepackOptions) -> Repacked {
    let dataset = Dataset::open(from).unwrap();
    let repack = Repack::new(&dataset, options).unwrap();
    repack.run(to, Start::New, &mut go_on).unwrap().unwrap()
}

/// A dataset of `count` episodes of the shared sample, each in its shard.
fn dataset(folder: &Path, count: usize) -> PathBuf {
    let path = folder.join("from.kino");
    common::write_sample_with(&path, Start::New, 0..count, small_shards());
    path
}

/// The values of a stream, as floats.
fn floats(episode: &Episode, name: &str) -> Vec<f64> {
    let stream = episode.stream(name).unwrap();
    let bytes = stream.read(0..stream.len()).unwrap();
    let values = bytes.as_chunks().0.iter();
    values.map(|value| f64::from_le_bytes(*value)).collect()
}

/// The stored pages of a stream, as they are.
fn pages(episode: &Episode, name: &str) -> Vec<Vec<u8>> {
    let stream = episode.stream(name).unwrap();
    let stored = stream.stored(stream.place_of(u32::MAX).0).unwrap();
    let pages = stored.pages(stored.frames());
    let bytes = |page| {
        let one = std::slice::from_ref(&page);
        let fetched = stored.fetch(one).unwrap();
        stored.page_bytes(one, &page, &fetched).unwrap().to_vec()
    };
    pages.map(bytes).collect()
}

fn check(path: &Path) {
    let found = verify(path, Level::Decode, &mut |_, _| {}).unwrap();
    assert_eq!(found.damage, []);
    let garbage = collect_garbage(path, Collect::List, Interrupted::Keep).unwrap();
    assert_eq!((garbage.bytes(), garbage.writers.len()), (0, 0));
}

#[test]
fn without_a_plan_the_shards_and_statistics_are_the_same_files() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (dataset(folder.path(), 3), folder.path().join("to.kino"));
    let repacked = repack(&from, &to, plan(""));
    assert!(
        repacked
            .streams
            .iter()
            .all(|one| one.action == Action::Copy)
    );
    let (a, b) = (Dataset::open(&from).unwrap(), Dataset::open(&to).unwrap());
    assert_eq!(a.manifest().shards, b.manifest().shards);
    assert_eq!(a.manifest().stats, b.manifest().stats);
    assert_eq!(a.manifest().episodes, b.manifest().episodes);
    assert_eq!(a.manifest().streams, b.manifest().streams);
    let lineage = &b.manifest().attributes["repacked_from"][0];
    assert_eq!(
        (&lineage["version"], &lineage["id"]),
        (&1.into(), &a.id().into())
    );
    check(&to);
    // A repack of that repack has both in its lineage.
    let third = folder.path().join("third.kino");
    repack(&to, &third, plan(""));
    let third = Dataset::open(&third).unwrap();
    assert_eq!(third.manifest().shards, a.manifest().shards);
    let lineage = third.manifest().attributes["repacked_from"].as_array();
    assert_eq!(lineage.unwrap().len(), 2);
}

#[test]
fn only_the_streams_that_the_plan_changes_are_encoded_again() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (dataset(folder.path(), 2), folder.path().join("to.kino"));
    let rules = "[[stream]]\nmatch = \"camera\"\ncodec = \"zstd\"\n\
                 [[stream]]\nmatch = \"words\"\ncodec = \"text:level=3\"\n";
    let repacked = repack(&from, &to, plan(&format!("{COARSE}{rules}")));
    let actions: BTreeMap<_, _> = repacked
        .streams
        .iter()
        .map(|one| (one.stored.name.as_str(), one.action))
        .collect();
    let expected = [
        ("actions", Action::Copy),
        ("camera", Action::Encode),
        ("force", Action::Encode),
        ("words", Action::Encode),
    ];
    assert_eq!(actions, expected.into());
    let (a, b) = (Dataset::open(&from).unwrap(), Dataset::open(&to).unwrap());
    for row in 0..2 {
        let (a, b) = (a.episode(row).unwrap(), b.episode(row).unwrap());
        assert_eq!(pages(&a, "actions"), pages(&b, "actions"));
        let read = |episode: &Episode| {
            let camera = episode.stream("camera").unwrap();
            let words = episode.stream("words").unwrap();
            let times = episode.stream("force").unwrap();
            (
                camera.read(0..camera.len()).unwrap(),
                words.read_text(0..words.len()).unwrap(),
                times.times_ns(0..times.len()).unwrap(),
                episode.read_attributes().unwrap(),
            )
        };
        assert_eq!(read(&a), read(&b));
        let pairs = floats(&a, "force").into_iter().zip(floats(&b, "force"));
        let error = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(0.0 < error && error <= 1e-3, "{error}");
    }
    let (a, b) = (a.table().rows().unwrap(), b.table().rows().unwrap());
    let kept = |row: &kino_dataset::EpisodeRow| (row.id.clone(), row.splits.clone(), row.start_ns);
    assert!(a.iter().map(kept).eq(b.iter().map(kept)));
    check(&to);
    // The same plan again changes nothing: what is lossy already is not touched.
    let dataset = Dataset::open(&to).unwrap();
    let again = Repack::new(&dataset, plan(&format!("{COARSE}{rules}"))).unwrap();
    assert!(again.streams().iter().all(|one| one.action == Action::Copy));
}

#[test]
fn a_second_loss_is_refused_or_measured_against_the_first_and_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let from = dataset(folder.path(), 2);
    let [first, second, third] =
        ["1.kino", "2.kino", "3.kino"].map(|name| folder.path().join(name));
    repack(&from, &first, plan(COARSE));
    let coarser = plan("[[stream]]\nmatch = \"force\"\nbound = \"abs(1e-2)\"\n");
    let opened = Dataset::open(&first).unwrap();
    let refused = Repack::new(&opened, coarser.clone()).unwrap();
    let error = refused.run(&second, Start::New, &mut go_on).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(
        error
            .to_string()
            .contains("`force`, stored as vector:level=8,abs=1e-3"),
        "{error}"
    );
    assert!(!second.exists());
    let allowed = RepackOptions {
        generation_loss: GenerationLoss::Allow,
        ..coarser
    };
    repack(&first, &second, allowed);
    let (a, b) = (
        Dataset::open(&first).unwrap(),
        Dataset::open(&second).unwrap(),
    );
    let pairs = (0..2).flat_map(|row| {
        let (a, b) = (a.episode(row).unwrap(), b.episode(row).unwrap());
        floats(&a, "force").into_iter().zip(floats(&b, "force"))
    });
    let measured = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let force = |dataset: &Dataset| {
        let mut streams = dataset.manifest().streams.iter();
        streams.find(|one| one.name == "force").unwrap().clone()
    };
    assert_eq!(force(&b).max_abs_error, measured);
    let earlier = &force(&b).generations;
    assert_eq!(earlier.len(), 1);
    assert_eq!(earlier[0].codec, "vector:level=8,abs=1e-3");
    assert_eq!(earlier[0].max_abs_error, Some(force(&a).max_abs_error));
    check(&second);
    // A lossless encoding loses nothing, and what was lost before stays on record.
    let lossless = plan("[[stream]]\nmatch = \"force\"\ncodec = \"zstd\"\n");
    repack(&second, &third, lossless);
    let third = Dataset::open(&third).unwrap();
    assert_eq!(force(&third).max_abs_error, 0.0);
    assert_eq!(force(&third).generations.len(), 2);
    assert_eq!(
        floats(&third.episode(0).unwrap(), "force"),
        floats(&b.episode(0).unwrap(), "force")
    );
}

/// Adds an episode with one stream of its own.
fn add_other(path: &Path, id: &str) {
    let mut writer = DatasetWriter::open(path, Start::Append, small_shards()).unwrap();
    let info = EpisodeInfo {
        id: id.to_owned(),
        ..EpisodeInfo::default()
    };
    let mut episode = writer.episode(info).unwrap();
    common::push(
        &mut episode,
        &vector_info("other", 4, 3),
        &random_bytes(96, 3),
    );
    episode.finish().unwrap();
    writer.commit("").unwrap();
}

#[test]
fn in_place_replaces_only_the_episodes_that_change_and_keeps_the_old_version() {
    let folder = tempfile::tempdir().unwrap();
    let from = dataset(folder.path(), 3);
    add_other(&from, "other");
    let before = Dataset::open(&from).unwrap();
    let again = Repack::new(&before, plan(COARSE)).unwrap();
    let repacked = again.run_in_place(&mut go_on).unwrap().unwrap();
    assert_eq!(
        (repacked.committed.version, repacked.committed.episodes),
        (3, 3)
    );
    check(&from);
    let after = Dataset::open(&from).unwrap();
    assert_eq!(after.manifest().parent.as_deref(), Some(before.id()));
    let rows = |dataset: &Dataset| dataset.table().rows().unwrap();
    let (old, new) = (rows(&before), rows(&after));
    assert!(
        old.iter()
            .map(|row| &row.id)
            .eq(new.iter().map(|row| &row.id))
    );
    assert_eq!(
        old[3], new[3],
        "an episode without the stream stays where it is"
    );
    assert!((0..3).all(|row| old[row].shard != new[row].shard));
    // The old version still has the exact values, the new one those within the bound.
    let old = Dataset::open_version(&from, 2).unwrap();
    assert_eq!(old.id(), before.id());
    let (a, b) = (old.episode(1).unwrap(), after.episode(1).unwrap());
    assert_ne!(floats(&a, "force"), floats(&b, "force"));
    assert_eq!(pages(&a, "camera"), pages(&b, "camera"));
    let stream = |dataset: &Dataset, name: &str| {
        let mut streams = dataset.manifest().streams.iter();
        streams.find(|one| one.name == name).unwrap().clone()
    };
    assert_eq!(stream(&old, "camera"), stream(&after, "camera"));
    assert_eq!(stream(&after, "force").codecs, ["vector:level=8,abs=1e-3"]);
    assert_eq!(
        old.stats().unwrap()["camera"],
        after.stats().unwrap()["camera"]
    );
    // Nothing is left to do.
    let again = Repack::new(&after, plan(COARSE)).unwrap();
    let repacked = again.run_in_place(&mut go_on).unwrap().unwrap();
    assert_eq!(
        (repacked.committed.version, repacked.committed.episodes),
        (3, 0)
    );
    // Streams can be dropped in place too, but not the last one of an episode.
    let drop = |pattern: &str| {
        let dataset = Dataset::open(&from).unwrap();
        let part = Part {
            exclude: vec![pattern.to_owned()],
            ..Part::default()
        };
        let options = RepackOptions { part, ..plan("") };
        Repack::new(&dataset, options)
            .unwrap()
            .run_in_place(&mut go_on)
    };
    assert!(
        drop("other")
            .unwrap_err()
            .to_string()
            .contains("no stream left")
    );
    assert_eq!(drop("camera").unwrap().unwrap().committed.version, 4);
    let last = Dataset::open(&from).unwrap();
    assert!(
        last.manifest()
            .streams
            .iter()
            .all(|one| one.name != "camera")
    );
    assert!(!last.stats().unwrap().contains_key("camera"));
    let found = verify(&from, Level::Decode, &mut |_, _| {}).unwrap();
    assert_eq!(found.damage, []);
}

#[test]
fn an_append_during_a_repack_in_place_is_an_error_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let from = dataset(folder.path(), 3);
    for moment in [0, 1, 3] {
        let dataset = Dataset::open(&from).unwrap();
        let coarse = format!(
            "[[stream]]\nmatch = \"force\"\nbound = \"abs(1e-{})\"\n",
            moment + 2
        );
        let again = Repack::new(&dataset, plan(&coarse)).unwrap();
        let mut is_added = false;
        let error = again.run_in_place(&mut |at| {
            if at.episodes.0 >= moment && !is_added {
                add_other(&from, &format!("rival_{moment}"));
                is_added = true;
            }
            ControlFlow::Continue(())
        });
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(
            error.to_string().contains("Run the same command again"),
            "{error}"
        );
    }
    let dataset = Dataset::open(&from).unwrap();
    assert_eq!((dataset.len(), dataset.manifest().version), (6, 4));
    let found = verify(&from, Level::Decode, &mut |_, _| {}).unwrap();
    assert_eq!(found.damage, []);
    // A version that is not the newest cannot be repacked in place.
    let old = Dataset::open_version(&from, 1).unwrap();
    let old = Repack::new(&old, plan(COARSE)).unwrap();
    assert_eq!(
        old.run_in_place(&mut go_on).unwrap_err().kind(),
        ErrorKind::Conflict
    );
    let again = Repack::new(&dataset, plan(COARSE)).unwrap();
    assert!(again.run_in_place(&mut go_on).unwrap().is_some());
}

#[test]
fn an_interrupted_repack_is_resumed_and_makes_the_same_shards() {
    let folder = tempfile::tempdir().unwrap();
    let (from, whole) = (dataset(folder.path(), 4), folder.path().join("whole.kino"));
    repack(&from, &whole, plan(COARSE));
    let opened = Dataset::open(&from).unwrap();
    let shards = |path: &Path| {
        let mut shards = Dataset::open(path).unwrap().manifest().shards.clone();
        shards.sort_by_key(|shard| shard.blake3);
        shards
    };
    let stop_after = |episodes: u64| {
        move |at: RepackProgress| {
            if at.episodes.0 >= episodes {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        }
    };
    let to = folder.path().join("to.kino");
    for (start, episodes) in [(Start::New, 2), (Start::Resume, 3)] {
        let work = Repack::new(&opened, plan(COARSE)).unwrap();
        let stopped = work.run(&to, start, &mut stop_after(episodes)).unwrap();
        assert!(stopped.is_none() && !Dataset::is_at(&to));
    }
    // Another plan is other work.
    let other = Repack::new(&opened, plan("")).unwrap();
    let error = other.run(&to, Start::Resume, &mut go_on).unwrap_err();
    assert!(error.to_string().contains("repack_plan"), "{error}");
    let work = || Repack::new(&opened, plan(COARSE)).unwrap();
    let done = work().run(&to, Start::Resume, &mut go_on).unwrap().unwrap();
    assert!(done.resumed >= 2, "{}", done.resumed);
    assert_eq!(shards(&to), shards(&whole));
    check(&to);
    let done = work().run(&to, Start::Resume, &mut go_on).unwrap().unwrap();
    assert_eq!((done.committed.version, done.committed.episodes), (1, 0));
    // In place, what was finished is always taken up.
    assert!(work().run_in_place(&mut stop_after(2)).unwrap().is_none());
    assert_eq!(Dataset::open(&from).unwrap().manifest().version, 1);
    let done = work().run_in_place(&mut go_on).unwrap().unwrap();
    assert!(done.resumed >= 1, "{}", done.resumed);
    assert_eq!(shards(&from), shards(&whole));
    check(&from);
}

#[test]
fn shared_frames_stay_shared_or_are_stored_anew_if_their_stream_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (
        folder.path().join("from.kino"),
        folder.path().join("to.kino"),
    );
    let values = random_bytes(8 * 24, 5);
    let mut writer = DatasetWriter::open(&from, Start::New, small_shards()).unwrap();
    let info = EpisodeInfo {
        id: "a".to_owned(),
        protected: vec![Protected {
            event: "given".to_owned(),
            start_ns: 0,
            end_ns: 1,
        }],
        events: vec![serde_json::json!({"name": "later", "detect": "unknown"})],
        ..EpisodeInfo::default()
    };
    let mut episode = writer.episode(info).unwrap();
    common::push(&mut episode, &vector_info("obs", 8, 3), &values);
    let next = StreamInfo {
        shared: Some(SharedFrames {
            base: "obs".to_owned(),
            first: 1,
            count: 7,
        }),
        ..vector_info("next", 8, 3)
    };
    episode.stream(&next).unwrap();
    episode.push(&values[..24]).unwrap();
    common::push(&mut episode, &vector_info("z", 8, 3), &values);
    episode.finish().unwrap();
    writer.commit("").unwrap();
    repack(&from, &to, plan(""));
    let (a, b) = (Dataset::open(&from).unwrap(), Dataset::open(&to).unwrap());
    assert_eq!(a.manifest().shards, b.manifest().shards);
    let events = |dataset: &Dataset| {
        let episode = dataset.episode(0).unwrap();
        (
            episode.read_events().unwrap(),
            episode.read_protected().unwrap(),
        )
    };
    assert_eq!(events(&a), events(&b));
    assert_eq!(events(&a).0.len(), 1);
    let alone = folder.path().join("alone.kino");
    let part = Part {
        exclude: vec!["obs".to_owned()],
        ..Part::default()
    };
    let repacked = repack(&from, &alone, RepackOptions { part, ..plan("") });
    let actions: Vec<_> = repacked.streams.iter().map(|one| one.action).collect();
    assert_eq!(actions, [Action::Drop, Action::Encode, Action::Copy]);
    let alone_ds = Dataset::open(&alone).unwrap();
    let (whole, alone_ep) = (a.episode(0).unwrap(), alone_ds.episode(0).unwrap());
    let read = |episode: &Episode| episode.stream("next").unwrap().read(0..8).unwrap();
    assert_eq!(read(&whole), read(&alone_ep));
    check(&alone);
}

#[test]
fn a_part_has_its_own_statistics_and_wrong_requests_say_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (dataset(folder.path(), 3), folder.path().join("to.kino"));
    let opened = Dataset::open(&from).unwrap();
    let part = |streams: &[&str], episodes: &[&str]| {
        let texts = |all: &[&str]| all.iter().map(|&text| text.to_owned()).collect();
        RepackOptions {
            part: Part {
                streams: texts(streams),
                exclude: Vec::new(),
                episodes: texts(episodes),
            },
            ..plan("")
        }
    };
    repack(&from, &to, part(&["force", "words"], &["1-2"]));
    let made = Dataset::open(&to).unwrap();
    assert_eq!(made.table().id(0), Some("demo_1"));
    assert_eq!((made.len(), made.manifest().streams.len()), (2, 2));
    check(&to);
    let error = |options| Repack::new(&opened, options).unwrap_err().to_string();
    assert!(error(part(&["fource"], &[])).contains("did you mean"));
    assert!(error(part(&[], &["demo_9"])).contains("demo_"));
    let carried = plan("[[stream]]\nkind = \"image\"\ncodec = \"jpeg:carry\"\n");
    assert!(error(carried).contains("only stores files as a recording has them"));
    let itself = Repack::new(&opened, plan("")).unwrap();
    let error = itself.run(&from, Start::Overwrite, &mut go_on).unwrap_err();
    assert!(error.to_string().contains("--in-place"), "{error}");
}

#[test]
fn images_get_a_lossy_codec_only_where_that_saves_something() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from.kino");
    let mut writer = DatasetWriter::open(&from, Start::New, small_shards()).unwrap();
    let info = EpisodeInfo {
        id: "a".to_owned(),
        ..EpisodeInfo::default()
    };
    let mut episode = writer.episode(info).unwrap();
    let side = 32;
    let flat = vec![7; 20 * side * side * 3];
    let noise = random_bytes(flat.len(), 4);
    common::push(&mut episode, &common::image_info("flat", 20, side), &flat);
    common::push(&mut episode, &common::image_info("noise", 20, side), &noise);
    episode.finish().unwrap();
    writer.commit("").unwrap();
    let opened = Dataset::open(&from).unwrap();
    let options = |quality| RepackOptions {
        writer: WriterOptions {
            plan: Plan::quality(quality),
            ..small_shards()
        },
        ..RepackOptions::default()
    };
    let decided = Repack::new(&opened, options(60)).unwrap();
    let actions: Vec<_> = decided.streams().iter().map(|one| one.action).collect();
    assert_eq!(actions, [Action::Copy, Action::Encode]);
    let note = decided.streams()[0].note.as_deref().unwrap();
    assert!(note.contains("no larger"), "{note}");
    let to = folder.path().join("to.kino");
    decided.run(&to, Start::New, &mut go_on).unwrap().unwrap();
    check(&to);
    // A better JPEG of that JPEG would be larger, so the stream stays as it is, without being asked.
    let made = Dataset::open(&to).unwrap();
    let better = Repack::new(&made, options(95)).unwrap();
    assert_eq!(better.streams()[1].action, Action::Copy);
    let note = better.streams()[1].note.as_deref().unwrap();
    assert!(note.contains("stays jpeg:q=60"), "{note}");
}
