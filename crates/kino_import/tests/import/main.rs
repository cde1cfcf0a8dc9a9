//! Importers against files: results of other readers, layouts, damage.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod damage;
mod defects;
mod expected;
mod export;
mod export_lerobot;
mod export_libraries;
mod fit;
mod fixtures;
mod folder;
mod hdf5_layouts;
mod layouts;
mod lerobot;
mod link;
mod mcap;
mod mcap_damage;
mod mds;
mod mp4;
mod oracle;
mod pack;
mod part;
mod parts;
mod pointers;
mod rlds;
mod tars;
mod zarr;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use fixtures::{copy_tree, fixture};
use kino_import::{
    Action, Defect, FrameBuf, ImportError, ImportOptions, OnDefect, PackOptions, Packed, Result,
    Source, survey,
};

fn open(path: &Path) -> Source {
    kino_import::open(path, &ImportOptions::default()).unwrap()
}

/// The error of opening a source.
fn refused(path: &Path, options: &ImportOptions) -> ImportError {
    kino_import::open(path, options).err().unwrap()
}

fn with_rate(rate_hz: f64) -> ImportOptions {
    ImportOptions {
        rate_hz: Some(rate_hz),
        ..ImportOptions::default()
    }
}

fn pack_as(source: &Source, target: &Path, on_defect: OnDefect) -> Result<Packed> {
    let options = PackOptions {
        on_defect,
        ..PackOptions::default()
    };
    kino_import::pack(source, target, options, &mut |_| ControlFlow::Continue(()))
}

/// A copy of a fixture that a test may damage. It keeps its name, which tells LeRobot's stand-in the version.
fn copy(name: &str) -> (tempfile::TempDir, PathBuf) {
    let (folder, source) = (tempfile::tempdir().unwrap(), fixture(name));
    let target = folder.path().join(source.file_name().unwrap());
    copy_tree(&source, &target);
    (folder, target)
}

fn digest(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..32].to_owned()
}

/// The position of an episode's stream.
fn position(source: &Source, episode: usize, stream: &str) -> usize {
    let streams = &source.episodes()[episode].streams;
    let found = streams.iter().position(|spec| spec.name == stream);
    found.unwrap_or_else(|| panic!("no stream {stream}"))
}

/// All frames of a stream, read `step` at a time.
fn read_all(source: &Source, episode: usize, stream: usize, step: u64) -> FrameBuf {
    let frames = source.episodes()[episode].streams[stream].frames;
    let (mut values, mut strings, mut block) = (Vec::new(), Vec::new(), FrameBuf::default());
    let mut start = 0;
    while start < frames {
        let end = frames.min(start + step);
        block = source.read(episode, stream, start..end).unwrap();
        match &mut block {
            FrameBuf::Values(some) => values.append(some),
            FrameBuf::Bytes(some) => strings.append(some),
        }
        start = end;
    }
    match block {
        FrameBuf::Values(_) => FrameBuf::Values(values),
        FrameBuf::Bytes(_) => FrameBuf::Bytes(strings),
    }
}

/// The ids of the episodes, in their order.
fn ids(source: &Source) -> Vec<&str> {
    let episodes = source.episodes().iter();
    episodes.map(|episode| &*episode.id).collect()
}

/// What was noticed, as `place: what`.
fn defects(source: &Source, action: Action) -> Vec<String> {
    let defects = source.describe().defects.iter();
    defects
        .filter(|defect| defect.action == action)
        .map(|defect| format!("{}: {}", defect.place, defect.what))
        .collect()
}

/// What is wrong, as shown to the user.
fn faults(defects: &[Defect]) -> Vec<String> {
    let faults = defects.iter().filter(|defect| defect.is_fault());
    faults.map(ToString::to_string).collect()
}

/// What the survey finds wrong.
fn surveyed(source: &Source) -> Vec<String> {
    faults(&survey(source, 1).unwrap())
}
