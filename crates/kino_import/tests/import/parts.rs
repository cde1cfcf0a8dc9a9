//! A pack in parts is the pack by one process, bit for bit: for any number of parts, in any order, after any failures.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use kino_codec::{Dtype, FrameType};
use kino_dataset::{
    Collect, Dataset, GenerationLoss, Interrupted, Level, Part, PartOf, Plan, Repack,
    RepackOptions, RepackProgress, Start, Verified, WriterOptions, collect_garbage, verify,
    verify_dataset, verify_part,
};
use kino_import::{
    ImportError, OnDefect, PackOptions, PackedPart, Result, Source, commit_parts, count_portions,
    pack, pack_part,
};

use crate::{fixture, open, with_rate};

/// Small shards, so that every episode is a portion, and a time, so that versions can be compared.
fn options(plan: &str) -> PackOptions {
    PackOptions {
        writer: WriterOptions {
            plan: Plan::from_toml(plan).unwrap(),
            shard_bytes: 1,
            threads: 1,
            created: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_763_510_400)),
            ..WriterOptions::default()
        },
        on_defect: OnDefect::Keep,
        seed: 5,
        ..PackOptions::default()
    }
}

fn with_shards(mut options: PackOptions, shard_bytes: u64) -> PackOptions {
    options.writer.shard_bytes = shard_bytes;
    options
}

fn part_with(
    source: &Source,
    target: &Path,
    options: PackOptions,
    part: &str,
) -> Result<PackedPart> {
    let part: PartOf = part.parse().unwrap();
    pack_part(source, target, options, part, &mut |_| {
        ControlFlow::Continue(())
    })
}

fn part(source: &Source, target: &Path, part: &str) -> PackedPart {
    part_with(source, target, options(""), part).unwrap()
}

/// The version's id, and whether it had been committed before.
fn commit(target: &Path) -> Result<(String, bool)> {
    let (packed, is_repeated) = commit_parts(target, &|_, _| ())?;
    Ok((packed.committed.id, is_repeated))
}

/// What one process makes of it.
fn whole(source: &Source, target: &Path, options: PackOptions) -> String {
    let packed = pack(source, target, options, &mut |_| ControlFlow::Continue(()));
    packed.unwrap().committed.id
}

fn refusal<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error.to_string(),
    }
}

fn receipts(target: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(target.join("portions")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_receipt = |path: &PathBuf| path.file_name().unwrap().len() > 40;
    let mut receipts: Vec<_> = paths.filter(is_receipt).collect();
    receipts.sort();
    receipts
}

#[test]
fn any_number_of_parts_in_any_order_gives_the_version_of_one_process() {
    for (name, plan) in [
        ("robomimic.hdf5", ""),
        ("robomimic.hdf5", "large"),
        ("robomimic.hdf5", "quality = 80\n"),
        ("mcap/ros2_session.mcap", ""),
        ("zarr/pusht.zarr", ""),
        ("mds/episodes", ""),
    ] {
        let path = fixture(name);
        let folder = tempfile::tempdir().unwrap();
        let open = || kino_import::open(&path, &with_rate(10.0)).unwrap();
        let options = || match plan {
            // Several episodes per shard, and several shards per portion.
            "large" => with_shards(options(""), 300),
            plan => options(plan),
        };
        let one = whole(&open(), &folder.path().join("one.kino"), options());
        for parts in [1, 2, 3, 7] {
            let target = folder.path().join(format!("{parts}.kino"));
            // Backwards, and each process opens the source for itself.
            for number in (1..=parts).rev() {
                let text = format!("{number}/{parts}");
                part_with(&open(), &target, options(), &text).unwrap();
            }
            let found = commit(&target).unwrap();
            assert_eq!(found, (one.clone(), false), "{name}, {parts} parts");
        }
        let checked = verify(&folder.path().join("7.kino"), Level::Decode, &mut |_, _| ()).unwrap();
        assert!(checked.damage.is_empty(), "{:?}", checked.damage);
        assert!(checked.frames > 0);
    }
}

#[test]
fn portions_follow_the_size_of_shards_and_no_episode_is_in_two() {
    let source = open(&fixture("robomimic.hdf5"));
    let with = |shard_bytes| with_shards(options(""), shard_bytes);
    let episodes = source.episodes().len();
    assert_eq!(count_portions(&source, &with(0)).unwrap(), episodes);
    assert_eq!(count_portions(&source, &with(1 << 30)).unwrap(), 1);
    let folder = tempfile::tempdir().unwrap();
    for (name, shard_bytes, shards) in [("a", 0, 2), ("b", 1 << 30, 1)] {
        let path = folder.path().join(name);
        whole(&source, &path, with(shard_bytes));
        let dataset = Dataset::open(&path).unwrap();
        assert_eq!(
            (dataset.len(), dataset.manifest().shards.len()),
            (2, shards)
        );
    }
}

#[test]
fn a_missing_part_is_named_and_nothing_is_committed() {
    let folder = tempfile::tempdir().unwrap();
    let (target, source) = (
        folder.path().join("d.kino"),
        open(&fixture("robomimic.hdf5")),
    );
    let portions = count_portions(&source, &options("")).unwrap();
    assert!(portions >= 2, "{portions}");
    let first = part(&source, &target, "1/2");
    assert_eq!((first.portions, first.found), (portions, 0));
    assert_eq!(first.missing, portions - first.made);
    let error = refusal(commit(&target));
    let named = format!("--part` 2/{portions}");
    assert!(
        error.contains(&named) && error.contains("nothing was committed"),
        "{error}"
    );
    assert!(Dataset::open(&target).is_err());
    // The named portion by itself, and the part again that is there.
    for number in (2..=portions).step_by(2) {
        part(&source, &target, &format!("{number}/{portions}"));
    }
    let again = part(&source, &target, "1/2");
    assert_eq!((again.made, again.found, again.missing), (0, first.made, 0));
    let one = whole(&source, &folder.path().join("one.kino"), options(""));
    assert_eq!(commit(&target).unwrap(), (one, false));
}

#[test]
fn a_commit_is_made_once_however_often_it_is_run() {
    let folder = tempfile::tempdir().unwrap();
    let (target, source) = (
        folder.path().join("d.kino"),
        open(&fixture("robomimic.hdf5")),
    );
    part(&source, &target, "1/1");
    let found: Vec<_> = std::thread::scope(|scope| {
        let rivals: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| commit(&target).unwrap()))
            .collect();
        rivals
            .into_iter()
            .map(|rival| rival.join().unwrap())
            .collect()
    });
    assert!(found.iter().all(|(id, _)| *id == found[0].0));
    assert_eq!(
        found.iter().filter(|(_, is_repeated)| !is_repeated).count(),
        1
    );
    assert_eq!(commit(&target).unwrap(), (found[0].0.clone(), true));
    assert_eq!(fs::read_dir(target.join("versions")).unwrap().count(), 1);
    // What was committed is garbage; the version stays.
    let garbage = collect_garbage(&target, Collect::Remove, Interrupted::Keep).unwrap();
    assert!(garbage.files.len() > 2 && !target.join("portions").exists());
    assert!(
        verify(&target, Level::Bytes, &mut |_, _| ())
            .unwrap()
            .damage
            .is_empty()
    );
    assert!(refusal(commit(&target)).contains("has no parts to commit"));
}

#[test]
fn parts_of_another_pack_are_refused_with_what_differs() {
    let folder = tempfile::tempdir().unwrap();
    let (target, source) = (
        folder.path().join("d.kino"),
        open(&fixture("robomimic.hdf5")),
    );
    part(&source, &target, "1/2");
    let seed = PackOptions {
        seed: 6,
        ..options("")
    };
    let other = open(&fixture("mcap/ros2_session.mcap"));
    for (source, options, differs) in [
        (&source, seed, "seed was \"5\", now it is \"6\""),
        (&source, options("quality = 90\n"), "plan"),
        (&other, options(""), "source"),
    ] {
        let error = refusal(part_with(source, &target, options, "2/2"));
        assert!(
            error.contains("parts of another pack") && error.contains(differs),
            "{error}"
        );
    }
    part(&source, &target, "2/2");
    commit(&target).unwrap();
    let appended = PackOptions {
        start: Start::Append,
        ..options("")
    };
    assert!(refusal(part_with(&source, &target, appended, "1/1")).contains("--append"));
    let error = refusal(part_with(
        &source,
        &target,
        PackOptions {
            seed: 6,
            ..options("")
        },
        "1/1",
    ));
    assert!(error.contains("seed"), "{error}");
    let taken = folder.path().join("taken.kino");
    whole(&source, &taken, options(""));
    assert!(refusal(part_with(&source, &taken, options(""), "1/1")).contains("already contains"));
}

#[test]
fn a_source_that_was_modified_between_parts_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (path, target) = (folder.path().join("a.hdf5"), folder.path().join("d.kino"));
    fs::copy(fixture("robomimic.hdf5"), &path).unwrap();
    part(&open(&path), &target, "1/2");
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    drop(file);
    let error = refusal(part_with(&open(&path), &target, options(""), "2/2"));
    assert!(error.contains("source was"), "{error}");
}

#[test]
fn a_part_that_was_stopped_is_run_again_from_its_last_portion() {
    let folder = tempfile::tempdir().unwrap();
    let source = open(&fixture("robomimic.hdf5"));
    let one = whole(&source, &folder.path().join("one.kino"), options(""));
    let portions = count_portions(&source, &options("")).unwrap();
    for stop_at in (1..40).step_by(4) {
        let target = folder.path().join(format!("{stop_at}.kino"));
        let mut calls = 0;
        let stopped = pack_part(
            &source,
            &target,
            options(""),
            "1/1".parse().unwrap(),
            &mut |_| {
                calls += 1;
                if calls > stop_at {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
        );
        let is_stopped = matches!(stopped, Err(ImportError::Stopped));
        assert!(is_stopped || stopped.is_ok());
        let done = if target.join("portions").exists() {
            receipts(&target).len()
        } else {
            0
        };
        let again = part(&source, &target, "1/1");
        assert_eq!(
            (again.found, again.made),
            (done, portions - done),
            "{stop_at}"
        );
        assert_eq!(commit(&target).unwrap().0, one);
        assert!(!target.join("staging").exists(), "{stop_at}");
    }
}

#[test]
fn a_damaged_receipt_or_shard_is_refused_and_packed_again() {
    let folder = tempfile::tempdir().unwrap();
    let (target, source) = (
        folder.path().join("d.kino"),
        open(&fixture("robomimic.hdf5")),
    );
    part(&source, &target, "1/1");
    let receipt = receipts(&target).remove(0);
    let bytes = fs::read(&receipt).unwrap();
    for place in (0..bytes.len()).step_by(bytes.len() / 50) {
        let mut damaged = bytes.clone();
        damaged[place] ^= 1;
        fs::write(&receipt, damaged).unwrap();
        let error = refusal(commit(&target));
        assert!(error.contains("pack this part again"), "{place}: {error}");
    }
    fs::write(&receipt, &bytes[..bytes.len() / 2]).unwrap();
    refusal(commit(&target));
    fs::write(&receipt, &bytes).unwrap();
    let shards = fs::read_dir(target.join("shards")).unwrap();
    let shard = shards.map(|entry| entry.unwrap().path()).min().unwrap();
    let bytes = fs::read(&shard).unwrap();
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    for (found, what) in [(&damaged[..], "not those"), (&bytes[1..], "another length")] {
        fs::write(&shard, found).unwrap();
        let error = refusal(commit(&target));
        assert!(
            error.contains(what) && error.contains("pack that part again"),
            "{error}"
        );
    }
    fs::remove_file(&shard).unwrap();
    assert!(refusal(commit(&target)).contains("it is missing"));
    assert!(Dataset::open(&target).is_err());
    // As the error says: without its receipts, everything is made again.
    receipts(&target)
        .iter()
        .for_each(|receipt| fs::remove_file(receipt).unwrap());
    part(&source, &target, "1/1");
    let one = whole(&source, &folder.path().join("one.kino"), options(""));
    assert_eq!(commit(&target).unwrap().0, one);
}

#[test]
fn uncommitted_parts_are_kept_by_garbage_collection_and_by_other_packs() {
    let folder = tempfile::tempdir().unwrap();
    let (target, source) = (
        folder.path().join("d.kino"),
        open(&fixture("robomimic.hdf5")),
    );
    part(&source, &target, "1/2");
    let made = receipts(&target).len();
    let kept = collect_garbage(&target, Collect::Remove, Interrupted::Keep).unwrap();
    assert_eq!((kept.files.len(), kept.writers.len()), (0, 1));
    assert_eq!(receipts(&target).len(), made);
    for start in [Start::New, Start::Resume] {
        let options = PackOptions {
            start,
            ..options("")
        };
        let error = refusal(pack(&source, &target, options, &mut |_| {
            ControlFlow::Continue(())
        }));
        assert!(error.contains("kinograph commit"), "{error}");
    }
    part(&source, &target, "2/2");
    commit(&target).unwrap();
    let given_up = folder.path().join("e.kino");
    part(&source, &given_up, "1/2");
    collect_garbage(&given_up, Collect::Remove, Interrupted::GiveUp).unwrap();
    assert!(!given_up.join("portions").exists());
    assert_eq!(fs::read_dir(given_up.join("shards")).unwrap().count(), 0);
}

#[test]
fn the_type_of_streams_of_the_fixture_is_kept() {
    // The fixtures above have both kinds of statistics: histograms of images, and sketches of vectors.
    let source = open(&fixture("robomimic.hdf5"));
    let streams = source
        .episodes()
        .iter()
        .flat_map(|episode| &episode.streams);
    let types: Vec<FrameType> = streams.map(|stream| stream.frame.clone()).collect();
    let has = |dtype| {
        let mut values = types.iter().filter_map(FrameType::as_values);
        values.any(|ty| ty.dtype() == dtype)
    };
    assert!(has(Dtype::U8) && (has(Dtype::F64) || has(Dtype::F32)));
}

#[test]
fn episodes_that_are_dropped_are_the_same_in_parts() {
    let (_folder, path) = crate::copy("lerobot/v2.0");
    let clip = "videos/chunk-000/observation.images.front/episode_000002.mp4";
    fs::remove_file(path.join(clip)).unwrap();
    let source = open(&path);
    let with = |on_defect| PackOptions {
        on_defect,
        ..options("")
    };
    for (on_defect, lost) in [(OnDefect::Keep, 0), (OnDefect::DropEpisode, 1)] {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("d.kino");
        for text in ["2/3", "3/3", "1/3"] {
            part_with(&source, &target, with(on_defect), text).unwrap();
        }
        let (packed, _) = commit_parts(&target, &|_, _| ()).unwrap();
        assert_eq!(
            packed.committed.episodes,
            source.episodes().len() as u64 - lost
        );
        let one = whole(&source, &folder.path().join("one.kino"), with(on_defect));
        assert_eq!(packed.committed.id, one);
    }
    let target = path.with_file_name("refused.kino");
    let error = refusal(part_with(&source, &target, with(OnDefect::Error), "1/3"));
    assert!(
        error.contains("nothing was written") && !target.exists(),
        "{error}"
    );
}

/// What one process finds, and what parts find together.
fn verified(dataset: &Dataset, level: Level, parts: usize) -> (Verified, Verified) {
    let mut on = |_, _| ControlFlow::Continue(());
    let one = verify_dataset(dataset, level, &mut on).unwrap().unwrap();
    let mut all = Verified::default();
    for number in 1..=parts {
        let part = PartOf::new(number, parts).unwrap();
        let found = verify_part(dataset, level, part, &mut on).unwrap();
        all.merge(found.unwrap());
    }
    (one, all)
}

#[test]
fn parts_of_a_verification_find_together_what_one_process_finds() {
    let folder = tempfile::tempdir().unwrap();
    let source = kino_import::open(&fixture("zarr/pusht.zarr"), &with_rate(10.0)).unwrap();
    whole(&source, folder.path(), options(""));
    let dataset = Dataset::open(folder.path()).unwrap();
    assert!(dataset.manifest().shards.len() > 2);
    for level in [Level::Bytes, Level::Decode] {
        for parts in [1, 2, 5] {
            let (one, all) = verified(&dataset, level, parts);
            assert_eq!(one, all, "{parts} parts");
            assert!(all.bytes > 0 && all.damage.is_empty());
        }
    }
    let shards = fs::read_dir(folder.path().join("shards")).unwrap();
    for shard in shards.map(|entry| entry.unwrap().path()) {
        let mut bytes = fs::read(&shard).unwrap();
        let place = bytes.len() / 2;
        bytes[place] ^= 1;
        fs::write(&shard, bytes).unwrap();
    }
    let (one, all) = verified(&dataset, Level::Bytes, 3);
    assert!(one.damage.len() >= dataset.manifest().shards.len());
    // The first part reads the indexes of all shards, which may be what is damaged.
    assert!(
        one.damage.iter().all(|damage| all.damage.contains(damage)),
        "{:?}",
        all.damage
    );
}

#[test]
fn a_repack_in_parts_is_the_repack_by_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from.kino");
    whole(&open(&fixture("robomimic.hdf5")), &from, options(""));
    let dataset = Dataset::open(&from).unwrap();
    let repack = |plan: &str, exclude: &str| {
        let options = RepackOptions {
            writer: options(plan).writer,
            part: Part {
                exclude: exclude.split_terminator(',').map(str::to_owned).collect(),
                ..Part::default()
            },
            generation_loss: GenerationLoss::Refuse,
        };
        Repack::new(&dataset, options).unwrap()
    };
    let cases = [
        ("", ""),
        ("quality = 70\n", ""),
        ("", "actions"),
        ("", "obs/*_image"),
    ];
    for (case, (plan, exclude)) in cases.into_iter().enumerate() {
        let path = |name: &str| folder.path().join(format!("{case}-{name}.kino"));
        let mut on = |_: RepackProgress| ControlFlow::Continue(());
        let one = repack(plan, exclude).run(&path("one"), Start::New, &mut on);
        let one = one.unwrap().unwrap().committed;
        let portions = repack(plan, exclude).count_portions().unwrap();
        assert!(portions > 1);
        for number in [2, 1] {
            let part = PartOf::new(number, 2).unwrap();
            let done = repack(plan, exclude).run_part(&path("parts"), part, &mut on);
            assert_eq!(done.unwrap().unwrap().portions, portions);
        }
        assert_eq!(
            commit(&path("parts")).unwrap(),
            (one.id.clone(), false),
            "{plan}{exclude}"
        );
        assert_eq!(commit(&path("parts")).unwrap(), (one.id, true));
        let (found, _) = verified(&Dataset::open(&path("parts")).unwrap(), Level::Decode, 1);
        assert!(found.damage.is_empty(), "{:?}", found.damage);
    }
}
