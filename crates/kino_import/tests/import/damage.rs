//! Damaged files: an error or a result, never a panic, a hang or a runaway allocation.
//!
//! HDF5 has no checksums of values, so a flipped bit in them cannot be detected; everything else is read, and must not
//! panic.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use kino_import::{ImportOptions, Result, block_frames};

use crate::{copy_tree, fixture};

/// Opens a file and reads every frame of every stream.
fn read_everything(path: &Path) -> Result<u64> {
    read_everything_with(path, &ImportOptions::default())
}

pub(crate) fn read_everything_with(path: &Path, options: &ImportOptions) -> Result<u64> {
    let source = kino_import::open(path, options)?;
    let mut frames = 0;
    for (episode, spec) in source.episodes().iter().enumerate() {
        for (stream, spec) in spec.streams.iter().enumerate() {
            // No recording of these tests has more frames: damage may claim any number.
            let (mut start, end) = (0, spec.frames.min(64));
            while start < end {
                let stop = end.min(start + block_frames(&spec.frame));
                source.read(episode, stream, start..stop)?;
                frames += stop - start;
                start = stop;
            }
        }
    }
    Ok(frames)
}

/// A kind of damage.
#[derive(Debug, Clone, Copy)]
enum Damage {
    /// One bit is flipped.
    Flip,
    /// Four bytes are 255.
    Fill,
    /// The file ends there.
    Cut,
}

/// Damages `file` at every `step`th byte, one at a time, and reads everything that is left of `source`. Returns how many
/// places were tried, and how many were refused.
fn try_damage(
    file: &Path,
    source: &Path,
    options: &ImportOptions,
    damage: Damage,
    step: usize,
) -> (usize, usize) {
    let whole = fs::read(file).unwrap();
    let (mut tried, mut refused) = (0, 0);
    for place in (0..whole.len()).step_by(step) {
        let mut bytes = whole.clone();
        match damage {
            Damage::Flip => bytes[place] ^= 1 << (place % 8),
            Damage::Fill => {
                let end = bytes.len().min(place + 4);
                bytes[place..end].fill(0xff);
            }
            Damage::Cut => bytes.truncate(place),
        }
        fs::write(file, &bytes).unwrap();
        let start = Instant::now();
        refused += usize::from(read_everything_with(source, options).is_err());
        tried += 1;
        let is_slow = start.elapsed() > Duration::from_secs(10);
        assert!(!is_slow, "{}, byte {place}", file.display());
    }
    fs::write(file, whole).unwrap();
    assert!(peak_bytes() < 1 << 30, "{} bytes of memory", peak_bytes());
    (tried, refused)
}

/// Damages `file` of a folder by flipped bits, large numbers and truncation, at every so many bytes.
pub(crate) fn survive(folder: &Path, file: &str, options: &ImportOptions, steps: [usize; 3]) {
    let copy = tempfile::tempdir().unwrap();
    copy_tree(folder, copy.path());
    for (damage, step) in [Damage::Flip, Damage::Fill, Damage::Cut]
        .into_iter()
        .zip(steps)
    {
        try_damage(&copy.path().join(file), copy.path(), options, damage, step);
    }
}

/// Damages a fixture that is one file.
fn try_file(name: &str, damage: Damage, step: usize) -> (usize, usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.hdf5");
    fs::copy(fixture(name), &path).unwrap();
    try_damage(&path, &path, &ImportOptions::default(), damage, step)
}

/// The peak memory of this process, if the system reports it; 0 otherwise.
fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

#[test]
fn intact_files_are_read() {
    assert_eq!(
        read_everything(&fixture("robomimic.hdf5")).unwrap(),
        2 * 29 * 6
    );
    assert_eq!(read_everything(&fixture("act_jpeg.hdf5")).unwrap(), 6 * 6);
}

#[test]
fn every_prefix_is_refused() {
    for (name, step) in [
        ("robomimic.hdf5", 499),
        ("act_jpeg.hdf5", 97),
        ("links.hdf5", 97),
    ] {
        let (tried, refused) = try_file(name, Damage::Cut, step);
        assert_eq!(tried, refused, "{name}");
        assert!(tried > 100);
    }
}

#[test]
fn flipped_bits_never_panic() {
    for (name, step) in [
        ("robomimic.hdf5", 97),
        ("act_jpeg.hdf5", 23),
        ("links.hdf5", 3),
    ] {
        let (tried, refused) = try_file(name, Damage::Flip, step);
        assert!(
            tried > 1000 && refused > 0 && refused < tried,
            "{name}: {refused} of {tried}"
        );
    }
}

#[test]
fn large_numbers_in_headers_never_panic() {
    for (name, step) in [
        ("robomimic.hdf5", 89),
        ("act_jpeg.hdf5", 19),
        ("links.hdf5", 3),
    ] {
        let (tried, refused) = try_file(name, Damage::Fill, step);
        assert!(tried > 1000 && refused > 0, "{name}: {refused} of {tried}");
    }
}
