//! The mapping of HDF5 files: a small TOML file that describes a custom layout.
//!
//! ```toml
//! episodes = "data/demo_*"             # groups that are an episode each; "/" if each file is one
//! rate_hz = 20.0                       # or timestamps = "time" and timestamps_unit = "s"
//! task = { from = "lang" }             # an attribute or a scalar dataset of the episode, or a text
//! split = { from = "/@split" }         # "/@" names an attribute of the file
//! success = { from = "success" }
//! licence = "CC-BY-4.0"
//!
//! [[stream]]                           # without any, every dataset of the common length
//! from = "obs/*"                       # datasets of the episode, each under its own name; `**` crosses `/`
//!
//! [[stream]]
//! name = "front"
//! from = "/images/{episode}/front"     # from the root of the file, with the name of the episode
//! kind = "image"                       # or vector, depth, text
//! layout = "chw"                       # or hwc
//! index = 0                            # which entry of the second axis: one camera of [N, cameras, H, W, C]
//! timestamps = "/images/{episode}/t"   # or rate_hz
//! timestamps_unit = "ms"               # or s, us, ns
//! optional = true                      # not every episode has it
//! ```
//!
//! Instead of `episodes`, one of `episode_ends`, `episode_lengths` and `episode_index` names a dataset that says which
//! rows belong to which episode, in arrays that hold the rows of all of them.

use std::path::{Path, PathBuf};

use kino_dataset::Kind;
use serde::Deserialize;
use toml::Spanned;

use crate::error::{ImportError, Result, invalid};
use crate::hdf5::spec::ImageLayout;
use crate::mapping::{self, Check, Clock};

/// The mapping as parsed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    episodes: Option<Spanned<String>>,
    episode_ends: Option<Spanned<String>>,
    episode_lengths: Option<Spanned<String>>,
    episode_index: Option<Spanned<String>>,
    rate_hz: Option<Spanned<f64>>,
    timestamps: Option<String>,
    timestamps_unit: Option<Spanned<String>>,
    task: Option<Said>,
    split: Option<Said>,
    success: Option<From>,
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
    layout: Option<Spanned<String>>,
    index: Option<u64>,
    rate_hz: Option<Spanned<f64>>,
    timestamps: Option<String>,
    timestamps_unit: Option<Spanned<String>>,
    unit: Option<String>,
    #[serde(default)]
    optional: bool,
}

/// A property of an episode: the same for all of them, or where to find it.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum Said {
    Text(String),
    From(From),
}

/// An attribute, or a scalar dataset.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct From {
    pub(crate) from: String,
}

/// Where the episodes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Episodes {
    /// Each file is one.
    File,
    /// Groups, or datasets, of this pattern.
    Groups(String),
    /// Rows of arrays, as this dataset says.
    Rows(Marker, String),
}

/// How a dataset gives the rows of episodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marker {
    /// One value per episode: the end of its rows, exclusive.
    Ends,
    /// One value per episode: its number of rows.
    Lengths,
    /// One value per row: its episode.
    Index,
}

impl Marker {
    /// Its key in a mapping.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Ends => "episode_ends",
            Self::Lengths => "episode_lengths",
            Self::Index => "episode_index",
        }
    }
}

/// A validated mapping.
#[derive(Debug, Default)]
pub(crate) struct Mapping {
    /// Default: detected from the layout.
    pub(crate) episodes: Option<Episodes>,
    pub(crate) clock: Option<Clock>,
    pub(crate) task: Option<Said>,
    pub(crate) split: Option<Said>,
    pub(crate) success: Option<From>,
    pub(crate) licence: Option<String>,
    /// Empty: every dataset of the common length becomes a stream.
    pub(crate) streams: Vec<StreamRequest>,
    path: PathBuf,
}

/// A stream named by the mapping.
#[derive(Debug)]
pub(crate) struct StreamRequest {
    /// Default: the path of each dataset inside the episode.
    pub(crate) name: Option<String>,
    pub(crate) from: String,
    pub(crate) kind: Option<Kind>,
    pub(crate) layout: Option<ImageLayout>,
    pub(crate) index: Option<u64>,
    pub(crate) clock: Option<Clock>,
    pub(crate) unit: Option<String>,
    pub(crate) is_optional: bool,
    /// Its line in the mapping.
    pub(crate) line: usize,
}

impl Mapping {
    /// Reads and checks a mapping; without one, everything is detected from the layout.
    pub(crate) fn read(path: Option<&Path>) -> Result<Self> {
        match path {
            Some(path) => Self::parse(path, &mapping::read(path)?),
            None => Ok(Self::default()),
        }
    }

    fn parse(path: &Path, text: &str) -> Result<Self> {
        let file: File = mapping::parse(path, text)?;
        let check = Check { path, text };
        let mut streams: Vec<StreamRequest> = Vec::new();
        for stream in &file.stream {
            let request = check.stream(stream)?;
            let is_same = |other: &StreamRequest| {
                request.name.is_some() && other.name == request.name
                    || request.name.is_none() && other.name.is_none() && other.from == request.from
            };
            if streams.iter().any(is_same) {
                let name = request.name.as_ref().unwrap_or(&request.from);
                let what = format!("stream {name:?} is defined twice");
                return Err(check.wrong(stream.span(), &what));
            }
            streams.push(request);
        }
        Ok(Self {
            clock: check.clock(&file.rate_hz, &file.timestamps, &file.timestamps_unit)?,
            episodes: check.episodes(&file)?,
            task: file.task,
            split: file.split,
            success: file.success,
            licence: file.licence,
            streams,
            path: path.to_owned(),
        })
    }

    /// The attributes of episodes it uses, by key.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (&'static str, &From)> {
        let texts = [("task", &self.task), ("split", &self.split)];
        let texts = texts.into_iter().filter_map(|(key, said)| match said {
            Some(Said::From(from)) => Some((key, from)),
            _ => None,
        });
        texts.chain(self.success.iter().map(|from| ("success", from)))
    }

    /// An error about a stream it names.
    pub(crate) fn wrong(&self, request: &StreamRequest, what: &str) -> ImportError {
        let path = self.path.display();
        invalid(format!("{path}, line {}: {what}", request.line))
    }

    /// An error about another key.
    pub(crate) fn unfit(&self, what: &str) -> ImportError {
        invalid(format!("{}: {what}", self.path.display()))
    }
}

impl Check<'_> {
    fn episodes(&self, file: &File) -> Result<Option<Episodes>> {
        let markers = [
            (Marker::Ends, &file.episode_ends),
            (Marker::Lengths, &file.episode_lengths),
            (Marker::Index, &file.episode_index),
        ];
        let groups = file.episodes.as_ref().map(|pattern| {
            let inside = pattern.as_ref().trim_matches('/');
            let episodes = match inside {
                "" => Episodes::File,
                inside => Episodes::Groups(inside.to_owned()),
            };
            (pattern.span(), episodes)
        });
        let rows = markers.into_iter().filter_map(|(marker, path)| {
            let path = path.as_ref()?;
            Some((path.span(), Episodes::Rows(marker, rooted(path.as_ref()))))
        });
        let mut all = groups.into_iter().chain(rows);
        let first = all.next();
        match all.next() {
            Some((span, _)) => Err(self.wrong(
                span,
                "episodes, episode_ends, episode_lengths and episode_index are mutually exclusive; keep one",
            )),
            None => Ok(first.map(|(_, episodes)| episodes)),
        }
    }

    fn stream(&self, spanned: &Spanned<Stream>) -> Result<StreamRequest> {
        let stream = spanned.as_ref();
        let layout = match &stream.layout {
            None => None,
            Some(layout) => match layout.as_ref().as_str() {
                "hwc" => Some(ImageLayout::Hwc),
                "chw" => Some(ImageLayout::Chw),
                other => {
                    let what = format!("layout {other:?} is not one of hwc, chw");
                    return Err(self.wrong(layout.span(), &what));
                }
            },
        };
        Ok(StreamRequest {
            name: stream.name.clone(),
            from: stream.from.trim_end_matches('/').to_owned(),
            kind: self.kind(&stream.kind)?,
            layout,
            index: stream.index,
            clock: self.clock(&stream.rate_hz, &stream.timestamps, &stream.timestamps_unit)?,
            unit: stream.unit.clone(),
            is_optional: stream.optional,
            line: self.line(spanned.span().start),
        })
    }
}

/// A path from the root of the file.
fn rooted(path: &str) -> String {
    format!("/{}", path.trim_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_example_parses() {
        let page = include_str!("mapping.rs");
        let example = page.split("```").nth(1).unwrap().trim_start_matches("toml");
        let lines = example.lines().map(|line| line.trim_start_matches("//!"));
        let example: Vec<_> = lines.collect();
        let mapping = Mapping::parse(Path::new("map.toml"), &example.join("\n")).unwrap();
        let groups = Episodes::Groups("data/demo_*".to_owned());
        assert_eq!(mapping.episodes, Some(groups));
        assert_eq!(mapping.clock, Some(Clock::Rate(20.0)));
        let front = &mapping.streams[1];
        assert_eq!(front.layout, Some(ImageLayout::Chw));
        let times = Clock::Field("/images/{episode}/t".to_owned(), 1_000_000);
        assert_eq!(front.clock, Some(times));
        assert!(front.is_optional && !mapping.streams[0].is_optional);
    }

    #[test]
    fn errors_name_the_line() {
        for (text, words) in [
            ("episodes = 7", "line 1"),
            (
                "episodes = \"a\"\nepisode_ends = \"b\"",
                "line 2: episodes, episode_ends",
            ),
            (
                "\nrate_hz = -1",
                "line 2: rate_hz must be greater than zero",
            ),
            ("frames = 1", "frames"),
            (
                "[[stream]]\nfrom = \"a\"\nlayout = \"nchw\"",
                "line 3: layout \"nchw\" is not one of hwc, chw",
            ),
            (
                "[[stream]]\nfrom = \"a\"\nkind = \"smell\"",
                "line 3: kind \"smell\" is not one of",
            ),
            (
                "[[stream]]\nfrom = \"a\"\n[[stream]]\nfrom = \"a\"",
                "line 3: stream \"a\" is defined twice",
            ),
            ("task = { form = \"x\" }", "task"),
            ("timestamps = \"t\"", "needs timestamps_unit"),
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
