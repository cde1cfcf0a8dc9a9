//! Writers in parallel, after the death of others, and over damaged leftovers: acknowledged data stays, resumable
//! work stays, and two writers never create a dataset that neither of them intended.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use common::vector_info;
use kino_codec::{Dtype, FrameType};
use kino_dataset::{
    Collect, Committed, Dataset, DatasetError, DatasetWriter, EpisodeInfo, ErrorKind, Interrupted,
    Label, Level, Start, StreamInfo, WorkState, WriterOptions, collect_garbage, verify,
};

/// Every episode in a shard of its own, written before the next starts.
fn options() -> WriterOptions {
    WriterOptions {
        shard_bytes: 1,
        memory_bytes: 1,
        threads: 1,
        ..WriterOptions::default()
    }
}

fn with_setting(name: &str, value: &str) -> WriterOptions {
    WriterOptions {
        settings: [(name.to_owned(), value.to_owned())].into(),
        ..options()
    }
}

fn open(path: &Path, start: Start) -> DatasetWriter {
    DatasetWriter::open(path, start, options()).unwrap()
}

/// Adds an episode of four frames with the value `value`; without an id if `id` is empty.
fn add(writer: &mut DatasetWriter, id: &str, value: f64) {
    let mut episode = writer
        .episode(EpisodeInfo {
            id: id.to_owned(),
            ..EpisodeInfo::default()
        })
        .unwrap();
    let bytes: Vec<u8> = [value; 12].iter().flat_map(|v| v.to_le_bytes()).collect();
    common::push(&mut episode, &vector_info("x", 4, 3), &bytes);
    episode.finish().unwrap();
}

/// Drops a writer in the middle of an episode: those before it are finished.
fn die(mut writer: DatasetWriter) {
    let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
    common::push(&mut episode, &vector_info("x", 4, 3), &[0; 96]);
    episode.stream(&vector_info("y", 4, 3)).unwrap();
}

fn append(path: &Path, id: &str, value: f64) -> Result<Committed, DatasetError> {
    let mut writer = DatasetWriter::open(path, Start::Append, options())?;
    add(&mut writer, id, value);
    writer.commit("")
}

/// A dataset of one episode.
fn base(folder: &Path) -> PathBuf {
    let path = folder.join("a.kino");
    let mut writer = open(&path, Start::New);
    add(&mut writer, "base", 0.5);
    writer.commit("").unwrap();
    path
}

/// The first value of every episode, by id.
fn values(path: &Path) -> BTreeMap<String, f64> {
    let found = verify(path, Level::Decode, &mut |_, _| {}).unwrap();
    assert_eq!(found.damage, []);
    let dataset = Dataset::open(path).unwrap();
    (0..dataset.len())
        .map(|row| {
            let episode = dataset.episode(row).unwrap();
            let frames = episode.stream("x").unwrap().read(0..1).unwrap();
            let value = f64::from_le_bytes(frames[..8].try_into().unwrap());
            (episode.id().to_owned(), value)
        })
        .collect()
}

fn orphans(path: &Path) -> Vec<PathBuf> {
    let garbage = collect_garbage(path, Collect::List, Interrupted::Keep).unwrap();
    garbage.files.into_iter().map(|(path, _)| path).collect()
}

#[test]
fn many_concurrent_appenders_all_succeed_and_leave_no_garbage() {
    let folder = tempfile::tempdir().unwrap();
    let path = base(folder.path());
    let (appenders, rounds) = (8_u32, 3_u32);
    std::thread::scope(|scope| {
        for appender in 0..appenders {
            let path = &path;
            scope.spawn(move || {
                for round in 0..rounds {
                    // Half of them leave the id to the commit.
                    let id = if appender % 2 == 0 {
                        ""
                    } else {
                        &format!("{appender}-{round}")
                    };
                    append(path, id, f64::from(appender * 100 + round)).unwrap();
                }
            });
        }
    });
    let found = values(&path);
    let mut expected: Vec<f64> = (0..appenders)
        .flat_map(|appender| (0..rounds).map(move |round| f64::from(appender * 100 + round)))
        .chain([0.5])
        .collect();
    let mut there: Vec<f64> = found.values().copied().collect();
    expected.sort_by(f64::total_cmp);
    there.sort_by(f64::total_cmp);
    assert_eq!(there, expected);
    assert_eq!(found["3-2"], 302.0);
    assert_eq!(orphans(&path), [] as [PathBuf; 0]);
    assert!(!path.join("staging").exists());
}

#[test]
fn generated_ids_are_free_whichever_writer_commits_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = base(folder.path());
    let [mut one, mut two] = [open(&path, Start::Append), open(&path, Start::Append)];
    add(&mut one, "", 1.0);
    add(&mut one, "episode_2", 2.0);
    add(&mut two, "", 3.0);
    add(&mut two, "", 4.0);
    one.commit("").unwrap();
    two.commit("").unwrap();
    let expected = [
        ("base", 0.5),
        ("episode_1", 1.0),
        ("episode_2", 2.0),
        ("episode_3", 3.0),
        ("episode_4", 4.0),
    ];
    let expected = expected.map(|(id, value)| (id.to_owned(), value));
    assert_eq!(values(&path), BTreeMap::from(expected));
    // The attributes of a numbered episode can be read: its shard has no other id.
    let dataset = Dataset::open(&path).unwrap();
    let row = dataset.table().find("episode_3").unwrap();
    dataset.episode(row).unwrap().read_attributes().unwrap();
}

#[test]
fn an_id_taken_by_another_writer_is_a_conflict_and_the_work_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = base(folder.path());
    let [mut one, mut two] = [open(&path, Start::Append), open(&path, Start::Append)];
    add(&mut one, "same", 1.0);
    add(&mut two, "same", 2.0);
    one.commit("").unwrap();
    let error = two.commit("").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("`same`"), "{error}");
    assert_eq!(values(&path)["same"], 1.0);
    let left = || collect_garbage(&path, Collect::List, Interrupted::Keep).unwrap();
    assert_eq!((left().writers.len(), left().writers[0].episodes), (1, 1));
    // Resuming cannot add it either, but does not discard it.
    let resumed = open(&path, Start::Resume);
    assert_eq!((resumed.resumed().len(), resumed.interrupted()), (0, 1));
    assert_eq!(resumed.commit("").unwrap().version, 2, "nothing to add");
    assert_eq!((left().writers.len(), left().writers[0].episodes), (1, 1));
}

#[test]
fn a_stream_keeps_one_type_whichever_writer_commits_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = base(folder.path());
    let [mut one, mut two] = [open(&path, Start::Append), open(&path, Start::Append)];
    let mut episode = one.episode(EpisodeInfo::default()).unwrap();
    common::push(&mut episode, &vector_info("new", 4, 3), &[0; 96]);
    episode.finish().unwrap();
    let other = StreamInfo {
        frame: FrameType::values(Dtype::F32, &[3]).unwrap(),
        ..vector_info("new", 4, 3)
    };
    let mut episode = two.episode(EpisodeInfo::default()).unwrap();
    common::push(&mut episode, &other, &[0; 48]);
    episode.finish().unwrap();
    one.commit("").unwrap();
    let error = two.commit("").unwrap_err().to_string();
    assert!(
        error.contains("`new`") && error.contains("float32[3]"),
        "{error}"
    );
    assert!(error.contains("version 2"), "{error}");
    assert_eq!(Dataset::open(&path).unwrap().len(), 2);
}

#[test]
fn a_label_keeps_one_type_whichever_writer_commits_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = base(folder.path());
    let writers = [Label::Int(3), Label::Text("three".to_owned())].map(|label| {
        let mut writer = open(&path, Start::Append);
        let labels = [("score".to_owned(), label)].into();
        let info = EpisodeInfo {
            labels,
            ..EpisodeInfo::default()
        };
        let mut episode = writer.episode(info).unwrap();
        common::push(&mut episode, &vector_info("x", 4, 3), &[0; 96]);
        episode.finish().unwrap();
        writer
    });
    let [one, two] = writers.map(|writer| writer.commit(""));
    assert!(one.is_ok());
    let error = two.unwrap_err().to_string();
    assert!(
        error.contains("`score`") && error.contains("version 2"),
        "{error}"
    );
}

#[test]
fn an_abandoned_episode_does_not_fix_any_types() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = open(&folder.path().join("a.kino"), Start::New);
    let other = StreamInfo {
        frame: FrameType::values(Dtype::F32, &[3]).unwrap(),
        ..vector_info("x", 4, 3)
    };
    let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
    common::push(&mut episode, &other, &[0; 48]);
    drop(episode);
    add(&mut writer, "good", 1.0);
    writer.commit("").unwrap();
}

#[test]
fn of_two_writers_that_create_a_dataset_one_wins_and_the_other_can_be_added() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let one = open(&path, Start::New);
    let error = DatasetWriter::open(&path, Start::New, options()).unwrap_err();
    assert!(
        error.to_string().contains("another writer is running"),
        "{error}"
    );
    drop(one);
    assert!(!path.join("staging").exists());
    // Another writer that skips the check: it resumes although there is nothing to resume.
    let mut late = open(&path, Start::New);
    add(&mut late, "late", 2.0);
    let mut first = open(&path, Start::Resume);
    add(&mut first, "first", 3.0);
    first.commit("").unwrap();
    let error = late.commit("").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(
        error.to_string().contains("another writer created"),
        "{error}"
    );
    let resumed = open(&path, Start::Resume);
    assert!(resumed.resumed().contains("late"));
    resumed.commit("").unwrap();
    assert_eq!(values(&path).keys().collect::<Vec<_>>(), ["first", "late"]);
}

#[test]
fn the_finished_work_of_a_dead_writer_survives_the_commits_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = base(folder.path());
    let mut dead = open(&path, Start::Append);
    (0..5).for_each(|number| add(&mut dead, &format!("dead-{number}"), f64::from(number)));
    add(&mut dead, "", 5.0);
    die(dead);
    append(&path, "other", 9.0).unwrap();
    let appender = open(&path, Start::Append);
    assert_eq!(appender.interrupted(), 6);
    drop(appender);
    let resumed = open(&path, Start::Resume);
    let expected: BTreeSet<_> = (0..5).map(|number| format!("dead-{number}")).collect();
    let mut ids: BTreeSet<_> = resumed.resumed().iter().cloned().collect();
    assert!(ids.remove("episode_7"), "{ids:?}");
    assert_eq!(ids, expected);
    resumed.commit("").unwrap();
    let found = values(&path);
    assert_eq!(
        (found.len(), found["dead-4"], found["other"]),
        (8, 4.0, 9.0)
    );
    assert_eq!(found["episode_7"], 5.0);
    assert!(!path.join("staging").exists());
}

#[test]
fn a_live_writer_keeps_its_open_shard_whatever_the_clock_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = base(folder.path());
    let mut writer = DatasetWriter::open(
        &path,
        Start::Append,
        WriterOptions {
            shard_bytes: 1 << 30,
            ..options()
        },
    )
    .unwrap();
    (0..4).for_each(|number| add(&mut writer, &format!("slow-{number}"), f64::from(number)));
    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    let area = fs::read_dir(path.join("staging"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let mut shards = 0;
    for entry in fs::read_dir(area.path()).unwrap() {
        let entry = entry.unwrap();
        shards += u32::from(entry.file_name().to_string_lossy().starts_with("shard-"));
        let file = fs::File::options().append(true).open(entry.path()).unwrap();
        file.set_modified(long_ago).unwrap();
    }
    assert_eq!(shards, 1, "an open shard");
    append(&path, "quick", 9.0).unwrap();
    let error = collect_garbage(&path, Collect::Remove, Interrupted::GiveUp).unwrap_err();
    assert!(error.to_string().contains("still running"), "{error}");
    writer.commit("").unwrap();
    assert_eq!(values(&path).len(), 6);
}

#[test]
fn resuming_with_other_settings_is_refused_and_names_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let mut writer = DatasetWriter::open(&path, Start::New, with_setting("rate_hz", "20")).unwrap();
    add(&mut writer, "one", 1.0);
    die(writer);
    let resume = |options| DatasetWriter::open(&path, Start::Resume, options);
    let error = resume(with_setting("rate_hz", "55"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(r#"rate_hz was "20", now it is "55""#),
        "{error}"
    );
    let error = resume(options()).unwrap_err().to_string();
    assert!(
        error.contains(r#"rate_hz was "20", now it is none"#),
        "{error}"
    );
    let mut other_plan = with_setting("rate_hz", "20");
    other_plan.plan = kino_dataset::Plan::quality(90);
    let error = resume(other_plan).unwrap_err().to_string();
    assert!(
        error.contains("plan") && !error.contains("rate_hz"),
        "{error}"
    );
    let same = resume(with_setting("rate_hz", "20")).unwrap();
    assert_eq!(same.resumed().len(), 1);
}

#[test]
fn work_that_was_committed_is_not_resumed_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = base(folder.path());
    let mut writer = open(&path, Start::Append);
    add(&mut writer, "once", 1.0);
    // As after a kill between the commit and the removal of the staged files.
    let copy = folder.path().join("staging");
    die(writer);
    copy_folder(&path.join("staging"), &copy);
    open(&path, Start::Resume).commit("").unwrap();
    copy_folder(&copy, &path.join("staging"));
    let writer = open(&path, Start::Resume);
    assert!(writer.resumed().is_empty());
    drop(writer);
    assert_eq!(values(&path).len(), 2);
}

#[test]
fn a_damaged_staged_shard_is_not_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let mut writer = open(&path, Start::New);
    add(&mut writer, "bad", 1.0);
    add(&mut writer, "good", 2.0);
    die(writer);
    let mut shards: Vec<_> = fs::read_dir(path.join("shards")).unwrap().collect();
    let shard = shards.pop().unwrap().unwrap().path();
    let mut bytes = fs::read(&shard).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&shard, bytes).unwrap();
    let writer = open(&path, Start::Resume);
    assert_eq!(writer.resumed().len(), 1);
    writer.commit("").unwrap();
    assert_eq!(values(&path).len(), 1);
}

#[test]
fn damaged_files_under_the_hashes_of_a_commit_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let good = base(folder.path());
    let path = folder.path().join("b.kino");
    for name in ["episodes", "stats"] {
        fs::create_dir_all(path.join(name)).unwrap();
        for entry in fs::read_dir(good.join(name)).unwrap() {
            let file = path.join(name).join(entry.unwrap().file_name());
            fs::write(file, b"rotten").unwrap();
        }
    }
    let mut writer = open(&path, Start::Resume);
    add(&mut writer, "base", 0.5);
    writer.commit("").unwrap();
    assert_eq!(values(&path), values(&good));
    assert!(!Dataset::open(&path).unwrap().stats().unwrap().is_empty());
}

#[test]
fn garbage_is_listed_and_removed_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = base(folder.path());
    let mut writer = open(&path, Start::Append);
    add(&mut writer, "unfinished", 1.0);
    die(writer);
    let orphan = path.join(format!("shards/{}.kshard", "0a".repeat(16)));
    fs::write(&orphan, b"left behind").unwrap();
    let half_put = path.join("versions/00000002.json#1");
    fs::write(&half_put, b"{").unwrap();
    let notes = path.join("shards/notes.txt");
    fs::write(&notes, b"not ours").unwrap();

    let listed = collect_garbage(&path, Collect::List, Interrupted::Keep).unwrap();
    assert_eq!(listed.writers.len(), 1);
    let work = &listed.writers[0];
    assert_eq!((work.episodes, work.state), (1, WorkState::Resumable));
    assert!(work.settings.contains_key("plan"));
    let files: BTreeSet<_> = listed.files.iter().map(|(path, _)| path.clone()).collect();
    let canonical = |path: &Path| path.canonicalize().unwrap();
    assert_eq!(files, [canonical(&orphan), canonical(&half_put)].into());
    assert_eq!(listed.bytes(), 12);
    assert!(orphan.exists() && half_put.exists());

    collect_garbage(&path, Collect::Remove, Interrupted::Keep).unwrap();
    assert!(!orphan.exists() && !half_put.exists() && notes.exists());
    assert_eq!(open(&path, Start::Resume).resumed().len(), 1, "kept");

    let given_up = collect_garbage(&path, Collect::Remove, Interrupted::GiveUp).unwrap();
    assert_eq!(given_up.writers[0].state, WorkState::Garbage);
    assert!(given_up.files.len() == 1 && !path.join("staging").exists());
    assert!(open(&path, Start::Resume).resumed().is_empty());
    assert_eq!(values(&path).len(), 1);
}

#[test]
fn old_versions_keep_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = base(folder.path());
    append(&path, "two", 2.0).unwrap();
    let garbage = collect_garbage(&path, Collect::Remove, Interrupted::GiveUp).unwrap();
    assert_eq!(garbage.files, []);
    assert_eq!(Dataset::open_version(&path, 1).unwrap().len(), 1);
}

#[test]
fn bools_that_readers_would_refuse_are_refused_before_they_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let mut writer = open(&path, Start::New);
    let contact = StreamInfo {
        frame: FrameType::values(Dtype::Bool, &[2]).unwrap(),
        ..vector_info("contact", 4, 2)
    };
    let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
    episode.stream(&contact).unwrap();
    let error = episode
        .push(&[0, 1, 1, 0, 255, 1, 0, 0])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("frame 2") && error.contains("255"),
        "{error}"
    );
    drop(episode);
    let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
    common::push(&mut episode, &contact, &[0, 1, 1, 0, 1, 1, 0, 0]);
    episode.finish().unwrap();
    writer.commit("").unwrap();
    let found = verify(&path, Level::Decode, &mut |_, _| {}).unwrap();
    assert_eq!((found.damage.len(), found.frames), (0, 4));
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
