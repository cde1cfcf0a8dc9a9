//! Git LFS pointers in place of all or some files of a recording.

use std::fs;
use std::path::Path;

use kino_import::{ImportOptions, OnDefect, Source};

use crate::{copy, copy_tree, fixture, ids, lerobot, pack_as, refused, surveyed, with_rate};

const POINTER: &str = "version https://git-lfs.github.com/spec/v1\n\
    oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";

#[test]
fn a_pointer_in_place_of_a_recording_names_the_command_that_fetches_it() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "demos.hdf5",
        "log.mcap",
        "steps.tar",
        "data.robo",
        "umi.zarr.zip",
        "episode_0.npz",
        "episode_0.csv",
        "toy-train.tfrecord-00000-of-00001",
        "anything.bin",
    ] {
        let path = folder.path().join(name);
        fs::write(&path, POINTER).unwrap();
        let error = refused(&path, &ImportOptions::default());
        let expected = format!(
            "{name}: is a Git LFS pointer, not the data; run `git lfs pull` in {}",
            folder.path().display()
        );
        assert!(error.to_string().contains(&expected), "{error}");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn pointers_among_the_files_of_a_lerobot_dataset_are_defects_of_their_episodes() {
    let (_folder, root) = copy("lerobot/v2.1");
    let video = "videos/chunk-000/observation.images.front/episode_000000.mp4";
    let table = "data/chunk-000/episode_000001.parquet";
    fs::write(root.join(video), POINTER).unwrap();
    fs::write(root.join(table), POINTER).unwrap();
    let source = lerobot::open(&root);
    let found = surveyed(&source);
    let lost = |file: &str| {
        let folder = root.join(file);
        let folder = folder.parent().unwrap().display().to_string();
        format!("lost: {file}: is a Git LFS pointer, not the data; run `git lfs pull` in {folder}")
    };
    assert_eq!(found, [lost(video), lost(table)]);
    assert_eq!(ids(&source).len(), 3);
}

fn pack_strictly(source: &Source, target: &Path) -> String {
    let error = pack_as(source, target, OnDefect::Error).err().unwrap();
    let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| {
        error.source()
    });
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

#[test]
fn a_pointer_among_the_chunks_of_a_zarr_store_or_the_images_of_a_folder_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let zarr = folder.path().join("pusht.zarr");
    copy_tree(&fixture("zarr/pusht.zarr"), &zarr);
    let chunk = fs::read_dir(zarr.join("data/action")).unwrap();
    let chunk = chunk.map(|entry| entry.unwrap().path());
    let chunk = chunk
        .filter(|path| !path.ends_with(".zarray"))
        .find(|path| path.is_file())
        .unwrap();
    fs::write(&chunk, POINTER).unwrap();
    let images = folder.path().join("images");
    copy_tree(&fixture("folders/images"), &images);
    fs::write(images.join("episode_1/front/000003.png"), POINTER).unwrap();
    for path in [&zarr, &images] {
        let source = kino_import::open(path, &with_rate(10.0)).unwrap();
        let error = pack_strictly(&source, &folder.path().join("d.kino"));
        assert!(
            error.contains("is a Git LFS pointer, not the data; run `git lfs pull` in "),
            "{error}"
        );
    }
}
