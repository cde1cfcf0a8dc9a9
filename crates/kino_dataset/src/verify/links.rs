//! Checks what pages are linked to: the files, and every linked page.

use std::collections::HashSet;

use super::{Check, Level};
use crate::error::{ErrorKind, Result};
use crate::links::Modified;

impl Check<'_> {
    /// Checks every linked file, and every page in those that are there.
    pub(super) fn links(&mut self, level: Level) {
        let dataset = self.dataset;
        let Some(links) = dataset.links() else {
            return;
        };
        let mut lost = HashSet::new();
        for file in links.files() {
            if self.is_stopped {
                return;
            }
            self.found.files += 1;
            let checked = match level {
                Level::Bytes => links.check(&file.file, Modified::Allowed),
                Level::Decode => links.verify(self.store, file, &mut |bytes| self.advance(bytes)),
            };
            if let Err(error) = checked {
                // Other pages of a file that is there are checked one by one.
                let is_there = error.kind() == ErrorKind::Corrupt && level == Level::Decode;
                if !is_there || links.check(&file.file, Modified::Allowed).is_err() {
                    lost.insert(file.file.path.clone());
                }
                self.report(error);
            }
        }
        for row in 0..dataset.len() {
            if let Err(error) = self.linked_pages(row, &lost) {
                self.report(error);
            }
        }
    }

    /// Reads the linked pages of an episode, except those in files that are known to be lost.
    fn linked_pages(&mut self, row: usize, lost: &HashSet<String>) -> Result<()> {
        let episode = self.dataset.episode(row)?;
        let index = episode.index();
        let files = &episode.schema().files;
        for page in index.linked_pages() {
            if self.is_stopped {
                return Ok(());
            }
            let record = index.page(page);
            let len = u64::from(record.len);
            let range = record.offset()..record.offset() + len;
            let is_lost = index.pieces(range).any(|placed| {
                let file = files.get(placed.piece.file as usize);
                file.is_some_and(|file| lost.contains(&file.path))
            });
            if !is_lost {
                let place = episode.place(&format!("page {page}"));
                match episode.read_page(&record, &place) {
                    Ok(_) => self.found.bytes += len,
                    Err(error) => self.report(error),
                }
            }
            self.advance(len);
        }
        Ok(())
    }
}
