//! The streams named by a mapping, one episode after another.

use crate::defect::{Action, Defect};
use crate::error::{ImportError, Result};
use crate::hdf5::Contents;
use crate::hdf5::episodes::Episode;
use crate::hdf5::generic::SpecBuilder;
use crate::hdf5::guess::is_small;
use crate::hdf5::mapping::StreamRequest;
use crate::hdf5::spec::{Request, Streams};
use crate::hdf5::tree::{Leaf, below};

impl SpecBuilder<'_, '_> {
    pub(super) fn mapped(
        &mut self,
        episode: &Episode,
        draft: &mut Streams,
    ) -> Result<Vec<Request>> {
        let mapping = self.setup.mapping;
        let mut requests = Vec::new();
        for (number, wanted) in mapping.streams.iter().enumerate() {
            let path = self.path(episode, &wanted.from);
            let leaves: Vec<Leaf> = self.objects.matching(&path).cloned().collect();
            self.setup.found[number] |= !leaves.is_empty() || wanted.is_optional;
            if leaves.is_empty() && !wanted.is_optional {
                let line = wanted.line;
                let what = format!("does not exist, but line {line} of the mapping names it");
                let place = self.file.place(&path);
                draft
                    .defects
                    .push(Defect::new(place, what, Action::Skipped));
            }
            if leaves.len() > 1 && wanted.name.is_some() {
                let what = format!(
                    "{:?} matches {} datasets; remove `name`, and each becomes its own stream",
                    wanted.from,
                    leaves.len()
                );
                return Err(mapping.wrong(wanted, &what));
            }
            for leaf in leaves {
                requests.extend(self.wanted(episode, wanted, leaf)?);
            }
        }
        // If arrays hold the rows of all episodes, the others are not part of this episode.
        if episode.rows.is_none() {
            self.set_aside_unnamed(&episode.base, &requests, draft)?;
        }
        Ok(requests)
    }

    /// Datasets the mapping does not name: an attribute if constant, otherwise a note.
    fn set_aside_unnamed(
        &mut self,
        base: &str,
        requests: &[Request],
        draft: &mut Streams,
    ) -> Result<()> {
        let rest = self.objects.below(base).iter();
        let is_used = |leaf: &&Leaf| requests.iter().any(|used| used.leaf.path == leaf.path);
        let rest: Vec<_> = rest.filter(|leaf| !is_used(leaf)).cloned().collect();
        for leaf in rest {
            let is_row = requests.iter().any(|used| leaf.rows() == Some(used.frames));
            if leaf.rows() == Some(1) || is_small(&leaf) && !is_row {
                let name = below(base, &leaf.path).to_owned();
                draft.aside(self.file, leaf, name)?;
            } else {
                self.unnamed.insert(leaf.path);
            }
        }
        Ok(())
    }

    /// A dataset as the mapping requests it.
    fn wanted(
        &mut self,
        episode: &Episode,
        wanted: &StreamRequest,
        leaf: Leaf,
    ) -> Result<Option<Request>> {
        let own = leaf.rows().unwrap_or(0);
        let rows = episode.rows.clone().unwrap_or(0..own);
        if rows.end > own || own == 0 {
            let what = match leaf.rows() {
                Some(_) => format!("has {own} rows, but the episode is rows {rows:?}"),
                None => "is a scalar, not one row per frame".to_owned(),
            };
            return Err(ImportError::incomplete(self.file.path(), &leaf.path, what));
        }
        let clock = match &wanted.clock {
            Some(clock) => self.clock(episode, clock, &leaf, &rows)?,
            None => self.usual_clock(episode, &leaf, &rows)?,
        };
        let name = match &wanted.name {
            Some(name) => name.clone(),
            None => below(&episode.base, &leaf.path).to_owned(),
        };
        Ok(Some(Request {
            kind: wanted.kind,
            layout: wanted.layout,
            index: wanted.index,
            unit: wanted.unit.clone(),
            ..Request::new(name, leaf, rows, clock)
        }))
    }

    /// A path of the mapping, resolved in an episode.
    pub(super) fn path(&self, episode: &Episode, from: &str) -> String {
        match from {
            "." => episode.base.clone(),
            from if from.starts_with('/') => from.replace("{episode}", &self.id(episode)),
            from => format!("{}/{from}", episode.base),
        }
    }

    /// Notes the datasets that the mapping does not name, once for all files.
    pub(super) fn note_unnamed(&mut self, contents: &mut Contents) {
        self.unnamed.retain(|path| !self.used.contains(path));
        if self.unnamed.is_empty() || !self.setup.noted.insert("unnamed".to_owned()) {
            return;
        }
        let names: Vec<_> = self.unnamed.iter().take(20).map(String::as_str).collect();
        let more = match self.unnamed.len() - names.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let what = format!(
            "has datasets that the mapping does not name: {}{more}",
            names.join(", ")
        );
        contents.note(self.file, "/", what, Action::Noted);
    }
}
