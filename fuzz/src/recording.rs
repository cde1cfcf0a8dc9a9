//! A recording made of a fuzzer's bytes, and how all of it is read.
//!
//! ```text
//! input = file <<NEXT FILE>> file <<NEXT FILE>> file …     in the order of the target's paths
//! ```
//!
//! Files are separated by a text instead of lengths, so that an inserted byte does not move the rest of the input into
//! other files. They are in a folder of this process; `scripts/fuzz.sh` sets `TMPDIR` so that it is in memory.

use std::path::PathBuf;
use std::{fs, io, process};

use kino_import::{
    ClockSpec, EpisodeSpec, FrameBuf, ImportOptions, MAX_IMPORTED_FRAME_BYTES, Part, StreamSpec,
    block_frames,
};

/// Between two files of an input.
pub const SEPARATOR: &[u8] = b"<<NEXT FILE>>";

/// More episodes, streams and frames are not read: a small file may have many, and each costs time.
const MAX_EPISODES: usize = 4;
const MAX_STREAMS: usize = 16;
const MAX_FRAMES: u64 = 40;

/// A recording whose files are replaced with every input.
#[derive(Debug)]
pub struct Recording {
    folder: PathBuf,
    /// How it is opened.
    pub options: ImportOptions,
}

impl Recording {
    /// An empty folder, to be opened as this format with a rate of 10 Hz.
    pub fn new(format: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("kino-fuzz-{}", process::id()));
        fs::create_dir_all(&folder).expect("a folder for temporary files");
        Self {
            folder,
            options: ImportOptions {
                format: Some(format.to_owned()),
                rate_hz: Some(10.0),
                ..ImportOptions::default()
            },
        }
    }

    /// The same, opened with the mapping in `mapping.toml` of its folder and without a rate.
    pub fn mapped(format: &str) -> Self {
        let mut recording = Self::new(format);
        recording.options.rate_hz = None;
        recording.options.mapping = Some(recording.folder.join("mapping.toml"));
        recording
    }

    /// Writes one file.
    pub fn put(&self, path: &str, bytes: &[u8]) {
        let path = self.folder.join(path);
        let written = fs::write(&path, bytes).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                fs::create_dir_all(path.parent().expect("it is in the folder"))?;
                fs::write(&path, bytes)
            }
            _ => Err(error),
        });
        written.expect("there is room for a small file");
    }

    /// Writes the files of an input; those that it does not have are removed.
    pub fn put_all(&self, paths: &[&str], data: &[u8]) {
        let mut files = split(data);
        for path in paths {
            match files.next() {
                Some(bytes) => self.put(path, bytes),
                None => drop(fs::remove_file(self.folder.join(path))),
            }
        }
    }

    /// Opens a file or folder of the recording and reads the first frames of its streams.
    pub fn read(&self, path: &str) {
        self.read_with(path, &self.options);
    }

    /// The same, of some streams and episodes.
    pub fn read_part(&self, path: &str, part: &Part) {
        let options = ImportOptions {
            part: part.clone(),
            ..self.options.clone()
        };
        self.read_with(path, &options);
    }

    fn read_with(&self, path: &str, options: &ImportOptions) {
        let Ok(source) = kino_import::open(&self.folder.join(path), options) else {
            return;
        };
        for episode in source.episodes().iter().take(MAX_EPISODES) {
            for stream in 0..episode.streams.len().min(MAX_STREAMS) {
                check_clock(&episode.streams[stream]);
                read_stream(episode, stream);
            }
        }
    }

    /// Drafts a mapping; a draft can be parsed.
    pub fn suggest(&self, path: &str) {
        let path = self.folder.join(path);
        let Ok(draft) = kino_import::suggest_mapping(&path, &self.options) else {
            return;
        };
        let mapping = self.folder.join("draft.toml");
        fs::write(&mapping, &draft).expect("there is room for a small file");
        let options = ImportOptions {
            mapping: Some(mapping),
            rate_hz: None,
            ..self.options.clone()
        };
        if let Err(error) = kino_import::open(&path, &options) {
            let text = error.to_string();
            assert!(!text.contains("draft.toml: TOML"), "{text}\n{draft}");
        }
    }
}

/// The files of an input.
pub fn split(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(data);
    std::iter::from_fn(move || {
        let data = rest?;
        let end = data
            .windows(SEPARATOR.len())
            .position(|part| part == SEPARATOR);
        rest = end.map(|end| &data[end + SEPARATOR.len()..]);
        Some(&data[..end.unwrap_or(data.len())])
    })
}

fn check_clock(spec: &StreamSpec) {
    if let ClockSpec::Explicit(times) = &spec.clock {
        assert_eq!(times.len() as u64, spec.frames, "a time per frame");
        assert!(times.is_sorted(), "times do not go back");
    }
}

/// Reads the first frames at once, then the last of them alone: both must be the same.
fn read_stream(episode: &EpisodeSpec, stream: usize) {
    let spec = &episode.streams[stream];
    let end = spec.frames.min(MAX_FRAMES).min(block_frames(&spec.frame));
    let frame_bytes = spec.frame.as_values().map_or(0, |ty| ty.frame_bytes());
    // Larger frames are refused before they are read.
    if end == 0 || frame_bytes as u64 > MAX_IMPORTED_FRAME_BYTES {
        return;
    }
    let Ok(frames) = episode.read(stream, 0..end) else {
        return;
    };
    check_frames(spec, &frames, end);
    let FrameBuf::Values(all) = &frames else {
        return;
    };
    let last = episode.read(stream, end - 1..end);
    let FrameBuf::Values(last) = last.expect("a frame that was read before") else {
        panic!("values become bytes")
    };
    assert!(all.ends_with(&last), "a frame alone differs");
}

fn check_frames(spec: &StreamSpec, frames: &FrameBuf, wanted: u64) {
    match (frames, spec.frame.as_values()) {
        (FrameBuf::Values(bytes), Some(ty)) => {
            assert_eq!(bytes.len() as u64, wanted * ty.frame_bytes() as u64);
        }
        (FrameBuf::Bytes(frames), ty) => {
            assert!(!frames.is_empty() && frames.len() as u64 <= wanted);
            let is_text = |frame: &Vec<u8>| std::str::from_utf8(frame).is_ok();
            assert!(ty.is_some() || frames.iter().all(is_text), "text is UTF-8");
        }
        (FrameBuf::Values(_), None) => panic!("text is not delivered as values"),
    }
}
