//! The draft of a mapping: what was found in a file, what was guessed, and what needs filling in.
//!
//! The draft reproduces what an import without a mapping does, so it can be used unchanged and edited line by line.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use crate::error::{ImportError, Result};
use crate::hdf5::element::Element;
use crate::hdf5::episodes::{self, Episode, Found};
use crate::hdf5::file::H5File;
use crate::hdf5::frame_type::{Typed, typed};
use crate::hdf5::guess::{self, Guess, Stream, is_small};
use crate::hdf5::mapping::{Episodes, Mapping};
use crate::hdf5::objects::Objects;
use crate::hdf5::rows::Form;
use crate::hdf5::spec::Request;
use crate::hdf5::times::unit_name;
use crate::hdf5::tree::{Leaf, below};
use crate::hdf5::{first_three, in_order, labels, walk};
use crate::open::ImportOptions;
use crate::source::ClockSpec;
use crate::suggest::{comment, quoted};

/// How many episodes are inspected.
const EPISODES: usize = 16;

/// A longer text is not a task description.
const LONG_TEXT: usize = 300;

/// Drafts a mapping of these files, from the first of them.
pub(crate) fn suggest(paths: &[PathBuf], options: &ImportOptions) -> Result<String> {
    let paths = in_order(paths);
    let Some(path) = paths.first() else {
        return Ok(String::new());
    };
    let file = H5File::open(path, options.memory_bytes)?;
    let (root, _) = walk::walk(&file, options)?;
    let found = episodes::find(&file, &root, &Mapping::default())?;
    let mut draft = Draft {
        file: &file,
        objects: Objects::new(root),
        options,
        text: String::new(),
    };
    draft.head(paths.len(), &found);
    let looked_at = draft.look(&found)?;
    draft.rate(&looked_at);
    draft.labels(&found);
    draft.streams(&looked_at)?;
    draft.rest(&looked_at);
    Ok(draft.text)
}

struct Draft<'a> {
    file: &'a H5File,
    objects: Objects,
    options: &'a ImportOptions,
    text: String,
}

/// An episode and the guess about its datasets.
type LookedAt = (Episode, Guess);

impl Draft<'_> {
    fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    fn head(&mut self, files: usize, found: &Found) {
        let name = self.file.path().file_name().unwrap_or_default();
        let name = comment(&name.to_string_lossy());
        self.line(format!(
            "# A draft of a mapping, from {name}. Check it, then:\n\
             #   kinograph pack --mapping THIS_FILE SOURCE TARGET\n\
             # Every key is described in docs/guide/import.md.\n"
        ));
        let ids = found.list.iter().map(|episode| comment(&episode.id));
        let count = found.list.len();
        match &found.by {
            Episodes::File => {
                let noun = if files == 1 { "file" } else { "files" };
                self.line(format!("# Each file is one episode ({files} {noun})."));
                self.line("episodes = \"/\"");
            }
            Episodes::Groups(pattern) => {
                let noun = if count == 1 { "group" } else { "groups" };
                self.line(format!("# {count} {noun}: {}", first_three(ids)));
                self.line(format!("episodes = {}", quoted(pattern)));
            }
            Episodes::Rows(marker, path) => {
                self.line(format!("# {count} episodes in rows of the arrays."));
                self.line(format!("{} = {}", marker.key(), quoted(path)));
            }
        }
    }

    /// Guesses the datasets of the first episodes.
    fn look(&self, found: &Found) -> Result<Vec<LookedAt>> {
        let count = match found.by {
            Episodes::Rows(..) => 1,
            _ => EPISODES,
        };
        let mut looked_at = Vec::new();
        for episode in found.list.iter().take(count) {
            let leaves = self.objects.of_episode(episode, &found.by);
            let times = match self.options.rate_hz {
                Some(_) => Ok(Vec::new()),
                None => guess::find_times(self.file, &episode.base, &leaves),
            };
            match times.map(|times| guess::guess(&episode.base, &leaves, times)) {
                Ok(guess) => looked_at.push((episode.clone(), guess)),
                // A damaged episode is reported when it is packed.
                Err(ImportError::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(looked_at)
    }

    fn rate(&mut self, looked_at: &[LookedAt]) {
        let streams = looked_at.iter().flat_map(|(_, guess)| &guess.streams);
        let without = streams.filter(|stream| stream.times.is_none());
        let leaves: Vec<Leaf> = without.map(|stream| stream.leaf.clone()).collect();
        let Some(first) = leaves.first() else {
            return;
        };
        self.line("");
        let above = self.objects.attributes_above(first);
        let said = above.into_iter().find_map(labels::rate_hz);
        match (self.options.rate_hz, said) {
            (Some(rate_hz), _) => self.line(format!("rate_hz = {rate_hz:?}")),
            (None, Some(rate_hz)) => {
                self.line(format!(
                    "rate_hz = {rate_hz:?}  # from an attribute of the file"
                ));
            }
            (None, None) => {
                self.line(
                    "# FILL IN: the file does not specify a frame rate.\n\
                     # rate_hz = 20.0\n\
                     # Or a dataset of timestamps, for all streams with that many rows:\n\
                     # timestamps = \"time\"\n\
                     # timestamps_unit = \"s\"",
                );
            }
        }
    }

    fn labels(&mut self, found: &Found) {
        let Some(first) = found.list.first() else {
            return;
        };
        let attributes = match first.rows {
            Some(_) => serde_json::Map::new(),
            None => self.objects.attributes_below(&first.base),
        };
        self.line(
            "\n# Episode metadata: a fixed text, or where each episode stores it.\n\
             # task = \"open the drawer\"",
        );
        let texts = attributes.iter().filter_map(|(name, value)| match value {
            Value::String(text) if text.len() < LONG_TEXT => Some((name, text)),
            _ => None,
        });
        let texts: Vec<_> = texts.take(6).collect();
        for (name, text) in texts {
            let text: String = text.chars().take(40).collect();
            let (from, text) = (quoted(name), comment(&text));
            self.line(format!("# task = {{ from = {from} }}  # {text}"));
        }
        self.line(
            "# split = \"train\"\n# success = { from = \"success\" }\n# licence = \"CC-BY-4.0\"",
        );
    }

    fn streams(&mut self, looked_at: &[LookedAt]) -> Result<()> {
        let mut all: BTreeMap<&str, (usize, &LookedAt, &Stream)> = BTreeMap::new();
        for looked in looked_at {
            let (episode, guess) = looked;
            for stream in &guess.streams {
                if episode.rows.is_some() && stream.leaf.rows() != guess.rows {
                    continue;
                }
                let entry = all.entry(&stream.name).or_insert((0, looked, stream));
                entry.0 += 1;
            }
        }
        for (count, looked, stream) in all.into_values() {
            self.stream(looked, stream, count < looked_at.len())?;
        }
        Ok(())
    }

    fn stream(&mut self, looked: &LookedAt, stream: &Stream, is_optional: bool) -> Result<()> {
        let (episode, guess) = looked;
        let leaf = &stream.leaf;
        let clock = ClockSpec::Regular { rate_hz: 1.0 };
        let request = Request {
            index: stream.index,
            ..Request::new(stream.name.clone(), leaf.clone(), 0..1, clock)
        };
        self.line("");
        let inside = below(&episode.base, &leaf.path);
        let shown = comment(inside);
        let Typed { form, kind, .. } = match typed(self.file, &request) {
            Ok(Ok(typed)) => typed,
            Ok(Err(what)) => {
                self.line(format!("# Not a stream: {shown}: {}", comment(&what)));
                return Ok(());
            }
            Err(ImportError::Corrupt { what, .. }) => {
                self.line(format!("# Damaged: {shown}: {}", comment(&what)));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.line(format!("[[stream]]\nname = {}", quoted(&stream.name)));
        self.line(format!("from = {}  # {}", quoted(inside), shape(leaf)));
        let form_note = match &form {
            Form::Files(encoded) if encoded.carried => "  # JPEG files, stored unchanged",
            Form::Files(_) => "  # PNG files",
            _ => "",
        };
        self.line(format!("kind = {}{form_note}", quoted(kind.name())));
        if let Form::ChannelsFirst(_) = form {
            self.line("layout = \"chw\"");
        }
        if let Some(index) = stream.index {
            self.line(format!("index = {index}  # on the second axis"));
        }
        if let Some(times) = stream.times.map(|idx| &guess.times[idx]) {
            let from = below(&episode.base, &times.leaf.path);
            let unit = quoted(unit_name(times.unit_ns));
            let guessed = if times.is_guess {
                "  # CHECK: guessed from the values"
            } else {
                ""
            };
            self.line(format!("timestamps = {}", quoted(from)));
            self.line(format!("timestamps_unit = {unit}{guessed}"));
        }
        if is_optional {
            self.line("optional = true  # not every episode has it");
        }
        Ok(())
    }

    /// Datasets that are not streams.
    fn rest(&mut self, looked_at: &[LookedAt]) {
        let mut all = BTreeMap::new();
        for (episode, guess) in looked_at {
            let rows = episode.rows.is_some();
            let odd = guess.streams.iter().map(|stream| &stream.leaf);
            let odd = odd.filter(|leaf| rows && leaf.rows() != guess.rows);
            for leaf in guess.rest.iter().chain(odd) {
                all.entry(below(&episode.base, &leaf.path))
                    .or_insert((leaf, guess.rows));
            }
        }
        for (inside, (leaf, rows)) in all {
            let (name, what) = (comment(inside), shape(leaf));
            self.line("");
            match leaf.rows() {
                _ if is_small(leaf) => {
                    self.line(format!("# {name}, {what}: an attribute of the episode"));
                }
                Some(own) => {
                    let rows = rows.map_or(String::new(), |rows| format!(", most have {rows}"));
                    let quoted = quoted(inside);
                    self.line(format!(
                        "# {name}, {what}, has {own} rows{rows}. To import it:\n\
                         # [[stream]]\n\
                         # name = {quoted}\n\
                         # from = {quoted}\n\
                         # rate_hz = 100.0  # FILL IN, or timestamps and timestamps_unit"
                    ));
                }
                None => self.line(format!("# {name}, {what}: cannot be a stream")),
            }
        }
    }
}

/// `uint8 [40, 64, 64, 3]`.
fn shape(leaf: &Leaf) -> String {
    let element = match &leaf.element {
        Element::Number { dtype, .. } => dtype.name(),
        Element::FixedText { .. } | Element::Text => "text",
        Element::Bytes => "bytes",
        Element::Other(what) => what,
    };
    format!("{element} {:?}", leaf.shape)
}
