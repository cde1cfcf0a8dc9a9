//! Two exports to one target: exactly one wins, and the target is what that export alone would have written.
//!
//! `KINOGRAPH_EXPORT_PAIRS` sets how many pairs run; CI runs fewer than the 46 of docs/measurements/reliability.md.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use kino_codec::{Dtype, FrameType};
use kino_dataset::{
    Arrival, DatasetWriter, EpisodeInfo, Kind, Start, StreamInfo, Times, WriterOptions,
};

const FORMATS: [&str; 8] = [
    "act",
    "mcap",
    "lerobot-v2.1",
    "zarr",
    "robomimic",
    "lerobot-v3",
    "webdataset",
    "rlds",
];
const EPISODES: usize = 40;
const FRAMES: u8 = 30;

fn pairs(default: u32) -> u32 {
    std::env::var("KINOGRAPH_EXPORT_PAIRS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// A dataset of many small episodes, in which every byte is `value` plus the frame's number.
fn dataset(path: &Path, value: u8) -> PathBuf {
    let mut writer = DatasetWriter::open(path, Start::New, WriterOptions::default()).unwrap();
    for episode in 0..EPISODES {
        let mut episode = writer
            .episode(EpisodeInfo {
                id: format!("episode_{episode}"),
                ..EpisodeInfo::default()
            })
            .unwrap();
        for (name, dtype, shape) in [
            ("action", Dtype::F32, vec![7]),
            ("observation.state", Dtype::F32, vec![14]),
        ] {
            let frame = FrameType::values(dtype, &shape).unwrap();
            let bytes = frame.as_values().unwrap().frame_bytes();
            episode
                .stream(&StreamInfo {
                    name: name.to_owned(),
                    kind: Kind::Vector,
                    frame,
                    frames: FRAMES.into(),
                    times: Times::Rate {
                        rate_hz: 10.0,
                        start_ns: 0,
                    },
                    arrival: Arrival::Values,
                    shared: None,
                })
                .unwrap();
            for frame in 0..FRAMES {
                episode.push(&vec![value + frame; bytes]).unwrap();
            }
        }
        episode.finish().unwrap();
    }
    writer.commit("test").unwrap();
    path.to_owned()
}

fn start(dataset: &Path, target: &Path, to: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_kinograph"))
        .arg("export")
        .args([dataset, target])
        .args(["--to", to, "--on-defect", "keep"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Whether an export wrote its target: exit code 3 means that the format could not hold everything.
fn wrote(output: &Output) -> bool {
    matches!(output.status.code(), Some(0 | 3))
}

/// Every file of a tree with its bytes; `None` for a folder.
fn tree(root: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let (mut found, mut todo) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(path) = todo.pop() {
        let name = path.strip_prefix(root).unwrap().to_owned();
        if path.is_dir() {
            todo.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
            found.insert(name, None);
        } else {
            found.insert(name, Some(fs::read(&path).unwrap()));
        }
    }
    found
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// The result of exporting each dataset alone, and how long that took.
struct Alone {
    to: &'static str,
    datasets: [PathBuf; 2],
    trees: [BTreeMap<PathBuf, Option<Vec<u8>>>; 2],
    took: Duration,
}

impl Alone {
    fn run(to: &'static str, folder: &Path) -> Self {
        let begin = Instant::now();
        let datasets = ["a", "b"].map(|name| folder.join(format!("{name}.kino")));
        let trees = [0, 1].map(|at| {
            // Some formats write the target's name into their files.
            let target = folder.join(format!("alone-{to}-{at}/x"));
            let output = start(&datasets[at], &target, to)
                .wait_with_output()
                .unwrap();
            assert!(wrote(&output), "{output:?}");
            tree(&target)
        });
        assert_ne!(trees[0], trees[1]);
        Self {
            to,
            datasets,
            trees,
            took: begin.elapsed() / 2,
        }
    }

    /// Runs one pair, the second started `delay` after the first.
    fn race(&self, parent: &Path, first: usize, delay: Duration) {
        let what = format!("{} after {delay:?}", self.to);
        let (target, order) = (parent.join("x"), [first, 1 - first]);
        let one = start(&self.datasets[order[0]], &target, self.to);
        std::thread::sleep(delay);
        let two = start(&self.datasets[order[1]], &target, self.to);
        let outputs = [one, two].map(|child| child.wait_with_output().unwrap());
        let winners: Vec<_> = (0..2).filter(|&at| wrote(&outputs[at])).collect();
        assert_eq!(winners.len(), 1, "{what}: {outputs:?}");
        let loser = &outputs[1 - winners[0]];
        assert_eq!(loser.status.code(), Some(1), "{what}: {loser:?}");
        let error = String::from_utf8_lossy(&loser.stderr);
        assert!(
            error.contains("already exists") || error.contains("was created by another program"),
            "{what}: {error}"
        );
        assert_eq!(names(parent), ["x"], "{what}");
        assert!(
            tree(&target) == self.trees[order[winners[0]]],
            "{what}: the target is not what the winner writes alone"
        );
    }
}

#[test]
fn of_two_exports_to_one_target_exactly_one_wins() {
    let folder = tempfile::tempdir().unwrap();
    for (name, value) in [("a", 1), ("b", 101)] {
        dataset(&folder.path().join(format!("{name}.kino")), value);
    }
    let pairs = pairs(8);
    let mut alone = BTreeMap::new();
    for (pair, to) in (0..pairs).zip(FORMATS.iter().cycle()) {
        let known = alone
            .entry(to)
            .or_insert_with(|| Alone::run(to, folder.path()));
        // Steps of the golden ratio cover the duration of the first export evenly, and never repeat.
        let fraction = (f64::from(pair) * 0.618_033_988_75).fract();
        let parent = folder.path().join(format!("pair-{pair}"));
        fs::create_dir(&parent).unwrap();
        let delay = known.took.mul_f64(fraction);
        known.race(&parent, (pair / 2 % 2) as usize, delay);
        fs::remove_dir_all(&parent).unwrap();
    }
    println!("{pairs} pairs of exports, one winner each");
}

#[test]
fn the_leftovers_of_a_killed_export_are_removed_by_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let source = dataset(&folder.path().join("a.kino"), 1);
    let parent = folder.path().join("exports");
    fs::create_dir(&parent).unwrap();
    let mut killed = start(&source, &parent.join("x"), "lerobot-v2.1");
    // Until the temporary folder exists; if the export has finished by then, the assertions below fail.
    while names(&parent).is_empty() && killed.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    let left = names(&parent);
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].starts_with(".kinograph-export-"), "{left:?}");
    let output = start(&source, &parent.join("y"), "zarr")
        .wait_with_output()
        .unwrap();
    assert!(wrote(&output), "{output:?}");
    assert_eq!(names(&parent), ["y"]);
}

#[test]
fn a_target_whose_name_is_not_utf_8_or_very_long_is_written_and_reported() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let source = dataset(&folder.path().join("a.kino"), 1);
    let odd = std::ffi::OsStr::from_bytes(b"odd\xff").to_owned();
    for name in [odd, "n".repeat(255).into()] {
        let target = folder.path().join("exports").join(name);
        let output = Command::new(env!("CARGO_BIN_EXE_kinograph"))
            .arg("export")
            .args([&source, &target])
            .args(["--to", "zarr", "--on-defect", "keep", "--json"])
            .output()
            .unwrap();
        assert!(wrote(&output), "{output:?}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["target"], target.display().to_string());
        assert!(target.join("data/action/.zarray").is_file());
    }
}
