//! Linked datasets return what the source returned, frame by frame, and what a packed dataset of it returns.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use kino_dataset::{Dataset, Level, verify};
use kino_import::{
    ImportOptions, LinkOptions, OnDefect, PackOptions, Packed, Result, Source, link_root, pack,
};

use crate::pack::assert_same;
use crate::{fixture, open, pack_as, with_rate};

/// A copy of a file that a test may change.
fn copy(name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::copy(fixture(name), &path).unwrap();
    (folder, path)
}

fn options(path: &Path, trust: bool) -> LinkOptions {
    LinkOptions {
        root: link_root(path, None).unwrap(),
        trust,
        pack_rest: true,
    }
}

fn link(source: &Source, target: &Path, link: LinkOptions) -> Result<Packed> {
    let options = PackOptions {
        on_defect: OnDefect::Keep,
        link: Some(link),
        ..PackOptions::default()
    };
    pack(source, target, options, &mut |_| ControlFlow::Continue(()))
}

/// Links a fixture in both ways and compares it with the source and with a packed dataset; the linked streams.
fn check(path: &Path, import: &ImportOptions) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let source = kino_import::open(path, import).unwrap();
    let packed = folder.path().join("packed.kino");
    pack_as(&source, &packed, OnDefect::Keep).unwrap();
    let packed = Dataset::open(&packed).unwrap();
    let mut linked_streams = Vec::new();
    for trust in [false, true] {
        let target = folder.path().join(format!("{trust}.kino"));
        link(&source, &target, options(path, trust)).unwrap();
        let linked = Dataset::open(&target).unwrap();
        assert_same(&source, &linked);
        assert_eq!(linked.len(), packed.len());
        let streams = linked.manifest().streams.iter();
        let streams = streams.filter(|stream| stream.linked_bytes > 0);
        linked_streams = streams.map(|stream| stream.name.clone()).collect();
        for name in &linked_streams {
            for row in 0..linked.len() {
                let [here, there] = [&linked, &packed].map(|dataset| {
                    let stream = dataset.episode(row).unwrap().stream(name).unwrap();
                    stream.read(0..stream.len()).unwrap()
                });
                assert_eq!(here, there, "{name}");
            }
            if !trust {
                let stats = |dataset: &Dataset| dataset.stats().unwrap()[name].clone();
                let (here, there) = (stats(&linked), stats(&packed));
                // Of frames that are shared with another stream, a packed dataset counts the last one.
                let is_shift = name.starts_with("next_obs/");
                assert!(is_shift || here.count == there.count, "{name}");
                assert!(
                    is_shift || (&here.min, &here.max) == (&there.min, &there.max),
                    "{name}"
                );
            }
        }
        drop(linked);
        let found = verify(&target, Level::Decode, &mut |_, _| {}).unwrap();
        assert_eq!((found.damage, found.unreadable), (vec![], vec![]));
    }
    linked_streams
}

#[test]
fn jpeg_files_in_an_act_recording_are_linked_without_their_padding() {
    let path = fixture("act_jpeg.hdf5");
    let linked = check(&path, &ImportOptions::default());
    assert!(!linked.is_empty());
    assert!(
        linked
            .iter()
            .all(|name| name.starts_with("observations/images/"))
    );
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("linked.kino");
    let source = open(&path);
    link(&source, &target, options(&path, false)).unwrap();
    let manifest = Dataset::open(&target).unwrap().manifest().clone();
    let packed = folder.path().join("packed.kino");
    pack_as(&source, &packed, OnDefect::Keep).unwrap();
    let packed = Dataset::open(&packed).unwrap().manifest().clone();
    for (here, there) in manifest.streams.iter().zip(&packed.streams) {
        assert_eq!((&here.name, here.bytes), (&there.name, there.bytes));
        assert_eq!(here.codecs, there.codecs);
    }
    let links = manifest.links.unwrap();
    assert_eq!(links.files.len(), 1);
    let bytes = fs::read(&path).unwrap();
    assert_eq!(links.files[0].blake3, Some(kino_dataset::Hash::of(&bytes)));
    assert_eq!(links.files[0].file.bytes, bytes.len() as u64);
}

#[test]
fn uncompressed_hdf5_images_are_linked_and_others_are_packed() {
    let linked = check(&fixture("robomimic.hdf5"), &ImportOptions::default());
    assert_eq!(
        linked,
        ["next_obs/front_image", "obs/depth", "obs/wrist_depth"]
    );
    check(&fixture("labs/groups.h5"), &with_rate(10.0));
}

#[test]
fn jpeg_members_of_tars_are_linked() {
    let linked = check(&fixture("webdataset/steps"), &with_rate(10.0));
    assert!(!linked.is_empty(), "{linked:?}");
}

#[test]
fn streams_that_cannot_be_linked_are_named() {
    let (folder, path) = copy("robomimic.hdf5");
    let target = folder.path().join("linked.kino");
    let refuse = LinkOptions {
        pack_rest: false,
        ..options(&path, false)
    };
    let error = link(&open(&path), &target, refuse).unwrap_err().to_string();
    assert!(error.contains("`obs/front_image` is compressed"), "{error}");
    assert!(error.contains("--pack-rest"), "{error}");
    assert!(!target.exists());
}

#[test]
fn files_must_be_below_the_root() {
    let (folder, path) = copy("act_jpeg.hdf5");
    let elsewhere = tempfile::tempdir().unwrap();
    let refuse = LinkOptions {
        root: elsewhere.path().canonicalize().unwrap(),
        ..options(&path, false)
    };
    let target = folder.path().join("linked.kino");
    let error = link(&open(&path), &target, refuse).unwrap_err().to_string();
    assert!(
        error.contains("is not below") && error.contains("--root"),
        "{error}"
    );
}

#[test]
fn a_file_that_changes_while_it_is_linked_is_refused() {
    let (folder, path) = copy("act_jpeg.hdf5");
    let source = open(&path);
    let options = PackOptions {
        on_defect: OnDefect::Keep,
        link: Some(options(&path, true)),
        ..PackOptions::default()
    };
    let target = folder.path().join("linked.kino");
    let linked = pack(&source, &target, options, &mut |progress| {
        if progress.episodes_done == progress.episodes {
            let file = fs::File::options().write(true).open(&path).unwrap();
            let times = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
            file.set_times(times).unwrap();
        }
        ControlFlow::Continue(())
    });
    let error = linked.unwrap_err();
    assert!(error.to_string().contains("was modified while"), "{error}");
}
