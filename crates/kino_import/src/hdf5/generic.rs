//! Any other layout: episodes, streams and clocks from a mapping, or guessed from names and lengths.
//!
//! ```text
//! episodes.rs: where are episodes? ─▶ guess.rs, or the mapping's [[stream]]s ─▶ clocks ─▶ spec.rs: streams
//! ```

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::defect::{Action, Defect};
use crate::error::{ImportError, Result};
use crate::hdf5::element::Element;
use crate::hdf5::episodes::{self, Episode, Found, summary};
use crate::hdf5::file::H5File;
use crate::hdf5::guess::{self, Guess, is_small};
use crate::hdf5::labels::Labels;
use crate::hdf5::mapping::Episodes;
use crate::hdf5::objects::Objects;
use crate::hdf5::robomimic::{self, Splits};
use crate::hdf5::setup::Setup;
use crate::hdf5::spec::{Request, Streams};
use crate::hdf5::tree::{Leaf, Node, below, shown};
use crate::hdf5::{Contents, frames, stem, times};
use crate::shift::find_shifts;
use crate::source::EpisodeSpec;

/// Builds the specs of a file's episodes.
pub(crate) fn read_episodes(
    file: &Arc<H5File>,
    mut root: Node,
    setup: &mut Setup<'_>,
) -> Result<Contents> {
    let found = episodes::find(file, &root, setup.mapping)?;
    let mut contents = Contents::default();
    let mut splits = match take_mask(&mut root, &found) {
        Some(mask) => robomimic::read_splits(file, mask, &mut contents)?,
        None => Splits::new(),
    };
    let shown = summary(&root);
    let mut builder = SpecBuilder {
        file,
        setup,
        objects: Objects::new(root),
        by: &found.by,
        shown,
        read: HashMap::new(),
        used: HashSet::new(),
        unnamed: BTreeSet::new(),
        whole: None,
    };
    for episode in &found.list {
        let id = builder.id(episode);
        contents.add(file, &id, |contents| {
            let mut spec = builder.episode(episode, contents)?;
            if let Some(spec) = &mut spec {
                let splits = splits.remove(&episode.id);
                spec.splits.extend(splits.unwrap_or_default());
            }
            Ok(spec)
        })?;
    }
    robomimic::note_absent(file, splits, &mut contents);
    builder.keep_the_rest(&found, &mut contents)?;
    builder.note_unnamed(&mut contents);
    Ok(contents)
}

/// Lists of episodes per split, as robomimic's tools write them.
fn take_mask(root: &mut Node, found: &Found) -> Option<Node> {
    let is_text = |leaf: &&Leaf| matches!(leaf.element, Element::FixedText { .. } | Element::Text);
    let is_lists = root.group("mask")?.all_leaves().iter().all(is_text);
    (is_lists && found.by != Episodes::File).then(|| root.take_group("mask"))?
}

/// A dataset, the nanoseconds per unit, and the rows; `u64::MAX` for all of them.
pub(super) type TimesKey = (String, i64, u64, u64);

/// Builds the spec of one episode after another.
pub(super) struct SpecBuilder<'a, 's> {
    pub(super) file: &'a Arc<H5File>,
    pub(super) setup: &'a mut Setup<'s>,
    pub(super) objects: Objects,
    by: &'a Episodes,
    /// A summary of the file, for messages.
    shown: String,
    /// Timestamps that were read: whole datasets, and slices of them.
    pub(super) read: HashMap<TimesKey, Arc<[i64]>>,
    /// Datasets that are streams or timestamps.
    pub(super) used: HashSet<String>,
    /// Datasets of episodes that the mapping does not name.
    pub(super) unnamed: BTreeSet<String>,
    /// Arrays that hold the rows of all episodes.
    whole: Option<Guess>,
}

impl SpecBuilder<'_, '_> {
    pub(super) fn id(&self, episode: &Episode) -> String {
        match episode.id.as_str() {
            "" => stem(self.file.path()),
            id => id.to_owned(),
        }
    }

    /// One episode, or `None` if it has no frames.
    fn episode(
        &mut self,
        episode: &Episode,
        contents: &mut Contents,
    ) -> Result<Option<EpisodeSpec>> {
        let mapping = self.setup.mapping;
        let mut draft = Streams::default();
        let requests = if mapping.streams.is_empty() {
            self.guessed(episode, &mut draft)?
        } else {
            self.mapped(episode, &mut draft)?
        };
        for request in requests {
            self.used.insert(request.leaf.path.clone());
            draft.add(self.file, request)?;
        }
        // Those of all rows serve the next episode too.
        let is_shared = episode.rows.is_some();
        self.read
            .retain(|(.., end), _| is_shared && *end == u64::MAX);
        draft
            .defects
            .retain(|defect| self.is_news(&episode.base, defect));
        contents.defects.append(&mut draft.defects);
        if draft.streams.is_empty() {
            contents.note_empty(self.file, shown(&episode.base));
            return Ok(None);
        }
        find_shifts(&mut draft.streams);
        let mut attributes = self.objects.attributes_below(&episode.base);
        if episode.rows.is_some() {
            attributes.clear();
        }
        attributes.append(&mut draft.attributes);
        let said = Labels {
            attributes: &attributes,
            root: self.objects.attributes_of(""),
        };
        let froms = mapping.labels();
        let froms = froms.filter(|(_, from)| said.find(from).is_some());
        self.setup.labelled.extend(froms.map(|(key, _)| key));
        Ok(Some(EpisodeSpec {
            id: self.id(episode),
            splits: said.splits(mapping.split.as_ref()),
            task: said.task(mapping.task.as_ref()),
            success: said.success(mapping.success.as_ref()),
            licence: mapping.licence.clone(),
            object: match &episode.rows {
                Some(rows) => format!("/[{}:{}]", rows.start, rows.end),
                None => shown(&episode.base).to_owned(),
            },
            attributes,
            streams: draft.streams,
            ..EpisodeSpec::default()
        }))
    }

    /// Streams guessed from names and lengths.
    fn guessed(&mut self, episode: &Episode, draft: &mut Streams) -> Result<Vec<Request>> {
        let guess = self.guess(episode)?;
        let mut requests = Vec::new();
        for stream in &guess.streams {
            let rows = match (&episode.rows, stream.leaf.rows()) {
                (Some(rows), own) if own == guess.rows => rows.clone(),
                (Some(_), _) => continue,
                (None, own) => 0..own.unwrap_or(0),
            };
            let clock = match stream.times {
                Some(idx) => {
                    let times = &guess.times[idx];
                    self.part(&times.leaf, times.unit_ns, &times.values, &rows)?
                }
                None => self.usual_clock(episode, &stream.leaf, &rows)?,
            };
            let leaf = stream.leaf.clone();
            requests.push(Request {
                index: stream.index,
                ..Request::new(stream.name.clone(), leaf, rows, clock)
            });
        }
        self.note_units(&guess, draft);
        if episode.rows.is_some() {
            self.whole = Some(guess);
            return Ok(requests);
        }
        for leaf in guess.rest {
            let name = below(&episode.base, &leaf.path).to_owned();
            self.set_aside(leaf, name, guess.rows, draft)?;
        }
        Ok(requests)
    }

    fn guess(&mut self, episode: &Episode) -> Result<Guess> {
        if let Some(whole) = self.whole.take() {
            return Ok(whole);
        }
        let is_given = self.setup.options.rate_hz.is_some() || self.setup.mapping.clock.is_some();
        let leaves = self.objects.of_episode(episode, self.by);
        let times = if is_given {
            Vec::new()
        } else {
            guess::find_times(self.file, &episode.base, &leaves)?
        };
        let mut guess = guess::guess(&episode.base, &leaves, times);
        if episode.rows.is_some() {
            let first = guess.streams.first();
            guess.rows = guess.rows.or(first.and_then(|one| one.leaf.rows()));
        }
        self.check_fit(&leaves, &guess)?;
        Ok(guess)
    }

    /// Refuses a file that is not one episode, if nothing else in it is.
    fn check_fit(&self, leaves: &[Leaf], guess: &Guess) -> Result<()> {
        let left = guess.rest.iter().filter(|leaf| !is_small(leaf)).count();
        let has_rows = leaves
            .iter()
            .any(|leaf| leaf.rows().is_some_and(|rows| rows > 1));
        if *self.by != Episodes::File || has_rows && guess.streams.len() >= left {
            return Ok(());
        }
        let what = format!(
            "has an unknown layout: looked for episodes in numbered groups (`demo_0/action`), in rows \
             (`episode_ends`), and for a single episode of datasets with equal length; found {}",
            self.shown
        );
        Err(ImportError::unsupported(
            self.file.path(),
            "/",
            &what,
            "describe the layout in a mapping (`kinograph pack --suggest-mapping` writes a draft), or write \
             the episodes from Python with `kinograph.pack(episodes(), target)` (docs/guide/import.md#anything-else)",
        ))
    }

    /// A dataset that is not a stream: an attribute if it is small, otherwise a defect or a note.
    fn set_aside(
        &mut self,
        leaf: Leaf,
        name: String,
        rows: Option<u64>,
        draft: &mut Streams,
    ) -> Result<()> {
        if is_small(&leaf) || leaf.rows() == Some(1) {
            return draft.aside(self.file, leaf, name);
        }
        if self.setup.mapping.streams.is_empty() {
            let what = self.left_over(&leaf, rows);
            draft.skip(self.file, &leaf, what);
        } else {
            self.unnamed.insert(leaf.path);
        }
        Ok(())
    }

    /// Notes the guessed unit, once for all episodes.
    fn note_units(&mut self, guess: &Guess, draft: &mut Streams) {
        for times in guess.times.iter().filter(|times| times.is_guess) {
            let name = times.leaf.name();
            if self.setup.noted.insert(format!("{name} {}", times.unit_ns)) {
                let what = format!(
                    "is read as timestamps in {}, guessed from its values, as are others of this name; a mapping can set \
                     another unit, `--rate` another clock",
                    times::unit_name(times.unit_ns)
                );
                let place = self.file.place(&times.leaf.path);
                draft.defects.push(Defect::new(place, what, Action::Noted));
            }
        }
    }

    /// Why a large dataset is not a stream.
    fn left_over(&self, leaf: &Leaf, rows: Option<u64>) -> String {
        let start = match leaf.element {
            Element::Number { .. } if leaf.shape.len() == 1 && leaf.row_bytes() == 1 => {
                frames::read_rows(self.file, leaf, 0..12).unwrap_or_default()
            }
            _ => Vec::new(),
        };
        if start.get(4..8) == Some(b"ftyp") {
            return "contains an MP4 file as bytes, which is not decoded; decode it and write the episodes from Python \
                    with `kinograph.pack(episodes(), target)`"
                .to_owned();
        }
        match (&leaf.element, leaf.rows(), rows) {
            (Element::Other(what), ..) => format!("contains {what}"),
            (_, Some(own), Some(rows)) => format!(
                "has {own} rows, but most datasets have {rows}; name it in a mapping with its own rate_hz or timestamps \
                 (`kinograph pack --suggest-mapping` writes a draft)"
            ),
            _ => format!(
                "does not have one row per frame: its shape is {:?}",
                leaf.shape
            ),
        }
    }

    /// What is beside the episodes.
    fn keep_the_rest(&mut self, found: &Found, contents: &mut Contents) -> Result<()> {
        if found.by == Episodes::File {
            return Ok(());
        }
        // Arrays that hold the rows of all episodes belong to the file.
        let inside = match found.by {
            Episodes::Rows(..) => &[],
            _ => found.list.as_slice(),
        };
        contents
            .attributes
            .append(&mut self.objects.attributes_outside(inside));
        let rows = self.whole.take().and_then(|guess| guess.rows);
        let rest = self.objects.outside(inside);
        let rest: Vec<Leaf> = rest.into_iter().cloned().collect();
        let mut aside = Streams::default();
        for leaf in rest {
            let is_marker = matches!(&found.by, Episodes::Rows(_, marker) if *marker == leaf.path);
            if self.used.contains(&leaf.path) || is_marker {
                continue;
            }
            let path = leaf.path.clone();
            self.set_aside(leaf, path, rows, &mut aside)?;
        }
        contents.attributes.append(&mut aside.attributes);
        contents.defects.append(&mut aside.defects);
        Ok(())
    }

    /// Keeps a note for the first episode only, if the others have the same.
    fn is_news(&mut self, base: &str, defect: &Defect) -> bool {
        let place = defect.place.replacen(base, "", 1);
        let place = place.rsplit(':').next().unwrap_or_default();
        let key = format!("{place}: {}", defect.what);
        defect.is_fault() || self.setup.noted.insert(key)
    }
}
