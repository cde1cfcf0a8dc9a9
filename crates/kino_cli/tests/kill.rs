//! `kill -9` at random moments: the dataset is at the old or the new version, complete, and never in between.
//!
//! `KINOGRAPH_KILLS` sets how many kills must hit a running pack; CI runs fewer than the hundred of
//! docs/measurements/reliability.md.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

#[path = "../../kino_import/tests/import/fixtures.rs"]
mod fixtures;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fixtures::{copy_tree, fixture};
use kino_dataset::{Dataset, Level, verify};

fn recording() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/lift_3demos.hdf5")
}

/// A command with small shards, so that many files are written.
fn command(verb: &str, folders: &[&Path], options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kinograph"));
    command
        .arg(verb)
        .args(folders)
        .args(["--shard-size", "0B", "--threads", "1"])
        .args(options);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn pack(source: &Path, target: &Path, options: &[&str]) -> Command {
    command("pack", &[source, target], options)
}

fn kills(default: u32) -> u32 {
    std::env::var("KINOGRAPH_KILLS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// Kills a pack after `moment`; returns whether it was still running.
fn kill(mut command: Command, moment: Duration) -> bool {
    let mut child = command.spawn().unwrap();
    std::thread::sleep(moment);
    let running = child.try_wait().unwrap().is_none();
    // SIGKILL: the program cannot clean up.
    child.kill().unwrap();
    child.wait().unwrap();
    running
}

/// Verifies a dataset and returns its number of episodes, or `None` if it has no version yet.
fn episodes(path: &Path) -> Option<usize> {
    // A kill during the commit may leave an unfinished manifest under a temporary name, which is not a version.
    let is_manifest = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.unwrap().file_name();
        Path::new(&name)
            .extension()
            .is_some_and(|extension| extension == "json")
    };
    let versions = path.join("versions");
    let has_version = versions.is_dir() && versions.read_dir().unwrap().any(is_manifest);
    if !has_version {
        assert!(Dataset::open(path).is_err());
        return None;
    }
    let found = verify(path, Level::Decode, &mut |_, _| {}).unwrap();
    assert_eq!(found.damage, []);
    Some(Dataset::open(path).unwrap().len())
}

/// Moments at which to kill, spread over the duration of a pack. Kills that come too late shorten the assumed duration.
struct Moments {
    pack_time: Duration,
    kills: u32,
    round: u32,
    hits: u32,
}

impl Moments {
    /// `pack_time` is about how long a pack takes.
    fn new(kills: u32, pack_time: Duration) -> Self {
        Self {
            pack_time,
            kills,
            round: 0,
            hits: 0,
        }
    }

    /// Kills one pack and returns its round, or `None` once enough kills have hit a running pack.
    fn kill(&mut self, pack: impl FnOnce(u32) -> Command) -> Option<u32> {
        if self.hits == self.kills || self.round == 40 + 20 * self.kills {
            return None;
        }
        self.round += 1;
        // Steps of the golden ratio cover the duration evenly, and never repeat.
        let fraction = (f64::from(self.round) * 0.618_033_988_75).fract();
        if kill(pack(self.round), self.pack_time.mul_f64(fraction)) {
            self.hits += 1;
            self.pack_time = self.pack_time.mul_f64(1.01);
        } else {
            self.pack_time = self.pack_time.mul_f64(0.9);
        }
        Some(self.round)
    }
}

/// A first pack of a source, or repack of a dataset, to be killed, resumed and compared with an undisturbed one.
struct FirstPack<'a> {
    verb: &'a str,
    source: &'a Path,
    options: &'a [&'a str],
    episodes: usize,
    kills: u32,
}

impl FirstPack<'_> {
    fn command(&self, target: &Path, resume: bool) -> Command {
        let mut command = command(self.verb, &[self.source, target], self.options);
        command.args(resume.then_some("--resume"));
        command
    }

    /// Runs a pack to its end; exit code 3 means that a stream was skipped, which happens for some recordings.
    fn finishes(&self, target: &Path, resume: bool) -> bool {
        let status = self.command(target, resume).status().unwrap();
        matches!(status.code(), Some(0 | 3))
    }

    /// Whenever it is killed, either nothing is visible or everything, and a resumed pack ends with the same shards.
    fn survives_kills(&self) {
        let folder = tempfile::tempdir().unwrap();
        let whole = folder.path().join("whole.kino");
        let begin = Instant::now();
        assert!(self.finishes(&whole, false));
        let mut moments = Moments::new(self.kills, begin.elapsed());
        let shards = |path: &Path| {
            let mut shards = Dataset::open(path).unwrap().manifest().shards.clone();
            shards.sort_by_key(|shard| shard.blake3);
            shards
        };
        let target = |round: u32| folder.path().join(format!("{round}.kino"));
        let mut visible = 0;
        while let Some(round) = moments.kill(|round| self.command(&target(round), false)) {
            let target = target(round);
            if let Some(count) = target.exists().then(|| episodes(&target)).flatten() {
                assert_eq!(count, self.episodes, "round {round}");
                visible += 1;
                continue;
            }
            assert!(self.finishes(&target, true), "round {round}");
            assert_eq!(episodes(&target), Some(self.episodes), "round {round}");
            assert_eq!(
                shards(&target),
                shards(&whole),
                "round {round}: the same shards as without a kill"
            );
        }
        println!(
            "{}: {} packs killed while running; {visible} of {} had committed",
            self.source.display(),
            moments.hits,
            moments.round
        );
        assert_eq!(moments.hits, self.kills, "kills came too late");
    }
}

#[test]
fn a_killed_first_pack_is_invisible_or_complete_and_can_be_resumed() {
    let first = FirstPack {
        verb: "pack",
        source: &recording(),
        options: &[],
        episodes: 3,
        kills: kills(24),
    };
    first.survives_kills();
}

/// Recordings written by other libraries, except those with video, which only the Python package decodes.
const FORMATS: &[(&str, &[&str], usize)] = &[
    ("act_jpeg.hdf5", &[], 1),
    ("robomimic/libero.hdf5", &[], 2),
    ("rlds/toy", &["--rate", "10", "--on-defect", "keep"], 5),
    ("webdataset/steps", &["--rate", "10"], 3),
    ("folders/robo/data.robo", &["--rate", "10"], 3),
    ("mds/steps", &["--rate", "10"], 3),
    ("zarr/pusht.zarr", &["--rate", "10"], 3),
    ("zarr/umi.zarr.zip", &[], 3),
    ("folders/npz", &["--rate", "10"], 3),
    ("mcap/ros2_zstd.mcap", &["--on-defect", "keep"], 1),
];

#[test]
fn a_killed_import_of_any_format_can_be_resumed() {
    for (name, options, episodes) in FORMATS {
        let first = FirstPack {
            verb: "pack",
            source: &fixture(name),
            options,
            episodes: *episodes,
            kills: kills(3),
        };
        first.survives_kills();
    }
}

#[test]
fn a_killed_append_leaves_the_old_version_or_makes_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("base.kino");
    assert!(pack(&recording(), &base, &[]).status().unwrap().success());
    // A demonstration with another id, so that it can be appended.
    let other = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/other_demo.hdf5");
    let target = |round: u32| folder.path().join(format!("{round}.kino"));
    let (mut moments, mut visible) = (Moments::new(kills(24), Duration::from_secs(1)), 0);
    while let Some(round) = moments.kill(|round| {
        copy_tree(&base, &target(round));
        pack(&other, &target(round), &["--append"])
    }) {
        let target = target(round);
        let count = episodes(&target).expect("the old version stays");
        assert!(count == 3 || count == 4, "round {round}: {count} episodes");
        visible += u32::from(count == 4);
        assert_eq!(Dataset::open_version(&target, 1).unwrap().len(), 3);
    }
    println!(
        "{} appends killed while running; {visible} of {} had committed",
        moments.hits, moments.round
    );
    assert_eq!(moments.hits, moments.kills, "kills came too late");
}

/// A dataset, and a plan that changes its cameras and copies the rest.
fn to_repack(folder: &Path) -> (PathBuf, PathBuf) {
    let (base, plan) = (folder.join("base.kino"), folder.join("plan.toml"));
    assert!(pack(&recording(), &base, &[]).status().unwrap().success());
    std::fs::write(&plan, "[[stream]]\nkind = \"image\"\ncodec = \"predict\"\n").unwrap();
    (base, plan)
}

#[test]
fn a_killed_repack_is_invisible_or_complete_and_can_be_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let (base, plan) = to_repack(folder.path());
    let first = FirstPack {
        verb: "repack",
        source: &base,
        options: &["--plan", plan.to_str().unwrap()],
        episodes: 3,
        kills: kills(6),
    };
    first.survives_kills();
}

#[test]
fn a_killed_repack_in_place_leaves_the_old_version_or_makes_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let (base, plan) = to_repack(folder.path());
    let target = |round: u32| folder.path().join(format!("{round}.kino"));
    let in_place = |target: &Path| {
        let options = ["--in-place", "--plan", plan.to_str().unwrap()];
        command("repack", &[target], &options)
    };
    let shards = |path: &Path, version| {
        let dataset = Dataset::open_version(path, version).unwrap();
        let mut shards = dataset.manifest().shards.clone();
        shards.sort_by_key(|shard| shard.blake3);
        shards
    };
    copy_tree(&base, &target(0));
    let begin = Instant::now();
    assert!(in_place(&target(0)).status().unwrap().success());
    let mut moments = Moments::new(kills(6), begin.elapsed());
    let mut visible = 0;
    while let Some(round) = moments.kill(|round| {
        copy_tree(&base, &target(round));
        in_place(&target(round))
    }) {
        let target = target(round);
        assert_eq!(episodes(&target), Some(3), "round {round}");
        assert_eq!(shards(&target, 1), shards(&base, 1), "round {round}");
        visible += u32::from(Dataset::open(&target).unwrap().manifest().version == 2);
        // What was finished is taken up; if all of it was, there is nothing to do.
        assert!(in_place(&target).status().unwrap().success());
        assert_eq!(episodes(&target), Some(3), "round {round}");
        assert_eq!(Dataset::open(&target).unwrap().manifest().version, 2);
        assert_eq!(
            shards(&target, 2),
            shards(&folder.path().join("0.kino"), 2),
            "round {round}: the same shards as without a kill"
        );
        assert_eq!(shards(&target, 1), shards(&base, 1), "round {round}");
    }
    println!(
        "{} repacks in place killed while running; {visible} of {} had committed",
        moments.hits, moments.round
    );
    assert_eq!(moments.hits, moments.kills, "kills came too late");
}
