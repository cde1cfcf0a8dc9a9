//! The mapping: a small TOML file that says what a folder cannot.
//!
//! ```toml
//! episodes = "session_*/take_*"        # each file or folder of this name is an episode
//! timestamps = "states.csv/time_s"     # the times of all streams of as many frames, instead of rate_hz = 20
//! timestamps_unit = "s"                # or ms, us, ns
//! task = "open the drawer"
//! licence = "CC-BY-4.0"
//!
//! [[stream]]                           # without any, everything becomes a stream
//! name = "obs/joints"
//! from = "states.csv/joint.*"          # an array, a folder of pictures, or columns that become one vector
//! kind = "vector"                      # or image, depth, text
//! rate_hz = 100.0                      # or timestamps and timestamps_unit of its own
//! ```

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use kino_dataset::Kind;
use serde::Deserialize;
use toml::Spanned;

use crate::error::{ImportError, Result, invalid};
use crate::plans::is_rate;
use crate::zip::is_inside;

/// A mapping longer than this is none.
const MAX_BYTES: u64 = 1 << 20;

/// What a mapping says.
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

/// A mapping that was checked.
#[derive(Debug, Default)]
pub(crate) struct Mapping {
    pub(crate) episodes: Option<String>,
    pub(crate) clock: Option<Clock>,
    pub(crate) task: Option<String>,
    pub(crate) licence: Option<String>,
    /// Empty: everything becomes a stream.
    pub(crate) streams: Vec<Wish>,
    path: PathBuf,
}

/// A stream that the mapping names.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) name: String,
    pub(crate) from: String,
    pub(crate) kind: Option<Kind>,
    pub(crate) clock: Option<Clock>,
    pub(crate) unit: Option<String>,
    /// Where it stands in the mapping.
    pub(crate) line: usize,
}

/// Where the times of a stream come from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Clock {
    /// Frames per second.
    Rate(f64),
    /// An array or column, and how many nanoseconds its unit has.
    Field(String, i64),
}

impl Mapping {
    /// Reads and checks a mapping.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let io = |source| ImportError::Io {
            path: path.to_owned(),
            source,
        };
        if fs::metadata(path).map_err(io)?.len() > MAX_BYTES {
            return Err(invalid(format!(
                "{}: is no mapping, it is too long",
                path.display()
            )));
        }
        Self::parse(path, &fs::read_to_string(path).map_err(io)?)
    }

    fn parse(path: &Path, text: &str) -> Result<Self> {
        let file: File = toml::from_str(text)
            .map_err(|error| invalid(format!("{}: {error}", path.display())))?;
        let check = Check { path, text };
        if let Some(episodes) = &file.episodes
            && (!is_inside(episodes.as_ref()) || episodes.as_ref().is_empty())
        {
            let what = format!("episodes {:?} leads out of the folder", episodes.as_ref());
            return Err(check.wrong(episodes.span(), &what));
        }
        let mut streams: Vec<Wish> = Vec::new();
        for stream in &file.stream {
            let wish = check.wish(stream)?;
            if streams.iter().any(|other| other.name == wish.name) {
                let what = format!("stream {:?} is there twice", wish.name);
                return Err(check.wrong(stream.span(), &what));
            }
            streams.push(wish);
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
    pub(crate) fn wrong(&self, wish: &Wish, what: &str) -> ImportError {
        invalid(format!(
            "{}, line {}: {what}",
            self.path.display(),
            wish.line
        ))
    }
}

/// Checks the parts of a mapping, and knows where they stand.
struct Check<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Check<'_> {
    fn wrong(&self, span: Range<usize>, what: &str) -> ImportError {
        let line = line_of(self.text, span.start);
        invalid(format!("{}, line {line}: {what}", self.path.display()))
    }

    fn clock(
        &self,
        rate_hz: &Option<Spanned<f64>>,
        field: &Option<String>,
        unit: &Option<Spanned<String>>,
    ) -> Result<Option<Clock>> {
        if let Some(rate_hz) = rate_hz {
            let value = *rate_hz.as_ref();
            return match field {
                Some(_) => {
                    Err(self.wrong(rate_hz.span(), "rate_hz and timestamps exclude each other"))
                }
                None if is_rate(&value) => Ok(Some(Clock::Rate(value))),
                None => Err(self.wrong(rate_hz.span(), "rate_hz must be a number above zero")),
            };
        }
        let Some(field) = field else {
            return Ok(None);
        };
        let Some(unit) = unit else {
            return Err(invalid(format!(
                "{}: timestamps needs timestamps_unit = \"s\", \"ms\", \"us\" or \"ns\"",
                self.path.display()
            )));
        };
        let unit_ns = unit_ns(unit.as_ref()).ok_or_else(|| {
            let what = format!("the unit {:?} is none of s, ms, us, ns", unit.as_ref());
            self.wrong(unit.span(), &what)
        })?;
        Ok(Some(Clock::Field(field.clone(), unit_ns)))
    }

    fn wish(&self, spanned: &Spanned<Stream>) -> Result<Wish> {
        let stream = spanned.as_ref();
        let wrong = |what: String| self.wrong(spanned.span(), &what);
        if !is_inside(&stream.from) {
            return Err(wrong(format!(
                "from {:?} leads out of the episode",
                stream.from
            )));
        }
        let kind = stream.kind.as_ref().map(|kind| {
            kind_named(kind.as_ref()).ok_or_else(|| {
                let what = format!(
                    "kind {:?} is none of vector, image, depth, text",
                    kind.as_ref()
                );
                self.wrong(kind.span(), &what)
            })
        });
        let name = match &stream.name {
            Some(name) => name.clone(),
            None if stream.from.contains(['*', '?']) => {
                return Err(wrong(format!("{:?} needs a name", stream.from)));
            }
            None => stream.from.clone(),
        };
        Ok(Wish {
            name,
            from: stream.from.clone(),
            kind: kind.transpose()?,
            clock: self.clock(&stream.rate_hz, &stream.timestamps, &stream.timestamps_unit)?,
            unit: stream.unit.clone(),
            line: line_of(self.text, spanned.span().start),
        })
    }
}

fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or_default();
    1 + before.iter().filter(|&&byte| byte == b'\n').count()
}

/// How many nanoseconds a unit has.
pub(crate) fn unit_ns(name: &str) -> Option<i64> {
    match name {
        "s" => Some(1_000_000_000),
        "ms" => Some(1_000_000),
        "us" => Some(1000),
        "ns" => Some(1),
        _ => None,
    }
}

fn kind_named(name: &str) -> Option<Kind> {
    let kinds = [Kind::Vector, Kind::Image, Kind::Depth, Kind::Text];
    kinds.into_iter().find(|kind| kind.name() == name)
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
            ("rate_hz = 0", "line 1: rate_hz must be a number above zero"),
            ("colour = 1", "colour"),
            (
                "[[stream]]\nfrom = \"/etc/passwd\"",
                "line 1: from \"/etc/passwd\" leads out",
            ),
            (
                "[[stream]]\nfrom = \"a\"\nkind = \"smell\"",
                "line 3: kind \"smell\" is none of",
            ),
            ("[[stream]]\nfrom = \"a*\"", "line 1: \"a*\" needs a name"),
            (
                "[[stream]]\nfrom = \"a\"\n[[stream]]\nfrom = \"a\"",
                "line 3: stream \"a\" is there twice",
            ),
            ("timestamps = \"t\"", "needs timestamps_unit"),
            (
                "timestamps = \"t\"\ntimestamps_unit = \"h\"",
                "line 2: the unit \"h\"",
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
