//! The mapping: a small TOML file that says what a folder cannot.
//!
//! ```toml
//! episodes = "session_*/take_*"        # each file or folder of this name is an episode
//! timestamps = "states.csv/time_s"     # timestamps of all streams with that many frames, instead of rate_hz = 20
//! timestamps_unit = "s"                # or ms, us, ns
//! task = "open the drawer"
//! licence = "CC-BY-4.0"
//!
//! [[stream]]                           # without any, everything becomes a stream
//! name = "obs/joints"
//! from = "states.csv/joint.*"          # an array, a folder of images, or columns that become one vector
//! kind = "vector"                      # or image, depth, text
//! rate_hz = 100.0                      # or timestamps and timestamps_unit of its own
//! ```

use std::path::{Path, PathBuf};

use kino_dataset::Kind;
use serde::Deserialize;
use toml::Spanned;

use crate::error::{ImportError, Result, invalid};
pub(crate) use crate::mapping::Clock;
use crate::mapping::{self, Check};
use crate::zip::is_inside;

/// A parsed mapping.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    episodes: Option<Spanned<String>>,
    rate_hz: Option<Spanned<f64>>,
    timestamps: Option<String>,
    timestamps_unit: Option<Spanned<String>>,
    task: Option<String>,
    licence: Option<String>,
    #[serde(default)]
    stream: Vec<Spanned<Stream>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stream {
    name: Option<String>,
    from: String,
    kind: Option<Spanned<String>>,
    rate_hz: Option<Spanned<f64>>,
    timestamps: Option<String>,
    timestamps_unit: Option<Spanned<String>>,
    unit: Option<String>,
}

/// A validated mapping.
#[derive(Debug, Default)]
pub(crate) struct Mapping {
    pub(crate) episodes: Option<String>,
    pub(crate) clock: Option<Clock>,
    pub(crate) task: Option<String>,
    pub(crate) licence: Option<String>,
    /// Empty: everything becomes a stream.
    pub(crate) streams: Vec<StreamRequest>,
    path: PathBuf,
}

/// A stream named by the mapping.
#[derive(Debug)]
pub(crate) struct StreamRequest {
    pub(crate) name: String,
    pub(crate) from: String,
    pub(crate) kind: Option<Kind>,
    pub(crate) clock: Option<Clock>,
    pub(crate) unit: Option<String>,
    /// Its line in the mapping.
    pub(crate) line: usize,
}

impl Mapping {
    /// Reads and checks a mapping.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        Self::parse(path, &mapping::read(path)?)
    }

    fn parse(path: &Path, text: &str) -> Result<Self> {
        let file: File = mapping::parse(path, text)?;
        let check = Check { path, text };
        if let Some(episodes) = &file.episodes
            && (!is_inside(episodes.as_ref()) || episodes.as_ref().is_empty())
        {
            let what = format!("episodes {:?} leads out of the folder", episodes.as_ref());
            return Err(check.wrong(episodes.span(), &what));
        }
        let mut streams: Vec<StreamRequest> = Vec::new();
        for stream in &file.stream {
            let request = check.request(stream)?;
            if streams.iter().any(|other| other.name == request.name) {
                let what = format!("stream {:?} is defined twice", request.name);
                return Err(check.wrong(stream.span(), &what));
            }
            streams.push(request);
        }
        Ok(Self {
            clock: check.clock(&file.rate_hz, &file.timestamps, &file.timestamps_unit)?,
            episodes: file.episodes.map(Spanned::into_inner),
            task: file.task,
            licence: file.licence,
            streams,
            path: path.to_owned(),
        })
    }

    /// An error about a stream that it names.
    pub(crate) fn wrong(&self, request: &StreamRequest, what: &str) -> ImportError {
        invalid(format!(
            "{}, line {}: {what}",
            self.path.display(),
            request.line
        ))
    }
}

impl Check<'_> {
    fn request(&self, spanned: &Spanned<Stream>) -> Result<StreamRequest> {
        let stream = spanned.as_ref();
        let wrong = |what: String| self.wrong(spanned.span(), &what);
        if !is_inside(&stream.from) {
            return Err(wrong(format!(
                "from {:?} leads out of the episode",
                stream.from
            )));
        }
        let name = match &stream.name {
            Some(name) => name.clone(),
            None if stream.from.contains(['*', '?']) => {
                return Err(wrong(format!(
                    "{:?} is a pattern and needs a name",
                    stream.from
                )));
            }
            None => stream.from.clone(),
        };
        Ok(StreamRequest {
            name,
            from: stream.from.clone(),
            kind: self.kind(&stream.kind)?,
            clock: self.clock(&stream.rate_hz, &stream.timestamps, &stream.timestamps_unit)?,
            unit: stream.unit.clone(),
            line: self.line(spanned.span().start),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_line() {
        for (text, words) in [
            ("episodes = 7", "line 1"),
            (
                "\nepisodes = \"../x\"",
                "line 2: episodes \"../x\" leads out of the folder",
            ),
            ("rate_hz = 0", "line 1: rate_hz must be greater than zero"),
            ("channel = 1", "channel"),
            (
                "[[stream]]\nfrom = \"/etc/passwd\"",
                "line 1: from \"/etc/passwd\" leads out",
            ),
            (
                "[[stream]]\nfrom = \"a\"\nkind = \"smell\"",
                "line 3: kind \"smell\" is not one of",
            ),
            (
                "[[stream]]\nfrom = \"a*\"",
                "line 1: \"a*\" is a pattern and needs a name",
            ),
            (
                "[[stream]]\nfrom = \"a\"\n[[stream]]\nfrom = \"a\"",
                "line 3: stream \"a\" is defined twice",
            ),
            ("timestamps = \"t\"", "needs timestamps_unit"),
            (
                "timestamps = \"t\"\ntimestamps_unit = \"h\"",
                "line 2: unit \"h\"",
            ),
        ] {
            let error = Mapping::parse(Path::new("map.toml"), text).err();
            let error = error.map(|error| error.to_string()).unwrap_or_default();
            assert!(
                error.contains("map.toml") && error.contains(words),
                "{text}: {error}"
            );
        }
    }
}
