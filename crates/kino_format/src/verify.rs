//! Checking bytes against what the directory and the index say of them: the reader's page check,
//! and the full check behind `kinograph verify`.
//!
//! Opening checks the tail, an index is checked when it is read, a page when it is read. What is
//! left are bytes that reading never touches: the header, and the zeros that fill pages up to 8 bytes. With
//! [`Shard::verify_header`] and [`Shard::verify_episode`] every bit of the file has been looked at.

use std::ops::Range;

use crate::ends::parse_header;
use crate::error::{FormatError, Result, invalid};
use crate::index::{EpisodeIndex, Run};
use crate::layout::{align_up, verify};
use crate::open::Shard;
use crate::records::NONE;

impl Shard {
    /// Checks the header's bytes, and that header and footer say the same.
    pub fn verify_header(&self, bytes: &[u8]) -> Result<()> {
        let versions = parse_header(bytes)?;
        if versions != self.versions {
            let what = format!("it says {versions:?}, the footer {:?}", self.versions);
            return Err(invalid("header", what));
        }
        Ok(())
    }

    /// Compares the bytes of page `page` of the episode at `slot` with their checksum.
    ///
    /// An error names the page's stream and frames.
    ///
    /// # Panics
    /// If the index has no such page.
    pub fn verify_page(
        &self,
        slot: usize,
        index: &EpisodeIndex,
        page: u32,
        bytes: &[u8],
    ) -> Result<()> {
        let record = index.page(page);
        let (need, have) = (u64::from(record.len), bytes.len() as u64);
        if have != need {
            let part = "page";
            return Err(FormatError::Truncated { part, need, have });
        }
        let episode_start = self.episodes().get(slot).map_or(0, |entry| entry.start);
        let start = episode_start.saturating_add(record.offset());
        // The name costs a walk over the streams, so it is made only for a damaged page.
        verify("page", start, bytes, record.crc).map_err(|error| match error {
            FormatError::Checksum {
                start,
                end,
                stored,
                computed,
                ..
            } => FormatError::Checksum {
                part: self.page_name(slot, index, page),
                start,
                end,
                stored,
                computed,
            },
            other => other,
        })
    }

    /// Everything that is wrong with the episode at `slot`, given all bytes of its
    /// [`range`](crate::DirectoryEntry::range); empty if nothing is.
    ///
    /// A damaged index hides the pages, so it is then the only error.
    pub fn verify_episode(&self, slot: usize, bytes: &[u8]) -> Vec<FormatError> {
        let index = match self.split_index(slot, bytes) {
            Ok(index) => index,
            Err(error) => return vec![error],
        };
        let mut errors = Vec::new();
        for page in 0..index.page_count() {
            // Page counts are stored as `u32`.
            let Ok(page) = u32::try_from(page) else { break };
            let record = index.page(page);
            let (start, end) = (record.offset(), record.offset() + u64::from(record.len));
            let padding = end..align_up(end).unwrap_or(end);
            if let Err(error) = self.verify_page(slot, &index, page, part(bytes, start..end)) {
                errors.push(error);
            }
            if part(bytes, padding).iter().any(|&byte| byte != 0) {
                let name = self.page_name(slot, &index, page);
                let what = format!("the bytes that fill it up after {name} are not zero");
                errors.push(invalid("episode", what));
            }
        }
        let stored = self.episodes().get(slot).map(|entry| entry.hash);
        if errors.is_empty() && stored != Some(*blake3::hash(bytes).as_bytes()) {
            let what = format!("the BLAKE3 of episode {slot} is not the one in the directory");
            errors.push(invalid("episode", what));
        }
        errors
    }

    /// The index at the end of an episode's bytes.
    fn split_index(&self, slot: usize, bytes: &[u8]) -> Result<EpisodeIndex> {
        let Some(entry) = self.episodes().get(slot) else {
            return self.episode_index(slot, Vec::new());
        };
        let (need, have) = (entry.range().end - entry.range().start, bytes.len() as u64);
        if have != need {
            let part = "episode";
            return Err(FormatError::Truncated { part, need, have });
        }
        self.episode_index(slot, part(bytes, entry.pages_len..need).to_vec())
    }

    /// What a page is, for a person who has to decide what its loss means.
    fn page_name(&self, slot: usize, index: &EpisodeIndex, page: u32) -> String {
        let owner = self
            .page_owner(index, page)
            .unwrap_or_else(|| "of no stream".to_owned());
        format!("page {page} of episode {slot} ({owner})")
    }

    fn page_owner(&self, index: &EpisodeIndex, page: u32) -> Option<String> {
        if index.attributes_page() == Some(page) {
            return Some("attributes".to_owned());
        }
        for idx in 0..index.clock_count() {
            let clock = index.clock(idx);
            if let Some(frames) = owned(index, Run::of_clock(&clock), page) {
                return Some(format!("times of clock {idx}, {frames}"));
            }
        }
        for idx in 0..index.stream_count() {
            let stream = index.stream(idx);
            if let Some(frames) = owned(index, Run::of_stream(&stream), page) {
                let name = self.schema().streams.get(stream.stream as usize)?;
                return Some(format!("stream `{}`, {frames}", name.name));
            }
        }
        None
    }
}

/// Which frames of `run` the page holds, if it belongs to it.
fn owned(index: &EpisodeIndex, run: Run, page: u32) -> Option<String> {
    if page == run.shared_page && page != NONE {
        return Some("shared by its pages".to_owned());
    }
    let slice = (run.first_page..run.first_page + run.page_count)
        .contains(&page)
        .then(|| index.page(page).first_frame)
        .and_then(|first| index.slices(run, first..run.end).next())?;
    let first = slice.record.first_frame as usize;
    Some(format!("frames {first}..{}", first + slice.frames))
}

/// Bytes of an episode whose length was compared with the directory's.
fn part(bytes: &[u8], range: Range<u64>) -> &[u8] {
    let start = usize::try_from(range.start).unwrap_or(usize::MAX);
    let end = usize::try_from(range.end).unwrap_or(usize::MAX);
    bytes.get(start..end).unwrap_or_default()
}
