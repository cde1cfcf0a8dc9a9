//! Checking bytes against the directory and the index: the full check behind `kinograph verify`.
//!
//! Opening checks the tail; an index and a page are checked when they are read. That leaves
//! bytes that reading never touches: the header, and the zero padding of pages. With
//! [`Shard::verify_header`] and [`Shard::verify_episode`] every bit of the file has been checked.

use std::cell::LazyCell;
use std::ops::Range;

use crate::ends::parse_header;
use crate::error::{FormatError, Result, invalid};
use crate::index::{EpisodeIndex, Run};
use crate::layout::{align_up, verify};
use crate::open::Shard;
use crate::records::NONE;
use crate::schema::Schema;

impl Shard {
    /// Checks the header's bytes, and that header and footer agree.
    pub fn verify_header(&self, bytes: &[u8]) -> Result<()> {
        let versions = parse_header(bytes)?;
        if versions != self.versions {
            let [here, there] = [versions, self.versions].map(|v| (v.format, v.min_reader));
            let what = format!("its versions are {here:?}, but the footer has {there:?}");
            return Err(invalid("header", what));
        }
        Ok(())
    }

    /// All errors in the episode at `slot`, given all bytes of its
    /// [`range`](crate::DirectoryEntry::range); empty if it is intact.
    ///
    /// A damaged index hides the pages, so it is then the only error.
    pub fn verify_episode(&self, slot: usize, bytes: &[u8]) -> Vec<FormatError> {
        let index = match self.split_index(slot, bytes) {
            Ok(index) => index,
            Err(error) => return vec![error],
        };
        let mut errors = Vec::new();
        // One map for all pages: a million damaged ones must not cost a million walks.
        let owners = LazyCell::new(|| Owners::new(&index, self.schema()));
        // Linked pages are elsewhere: a caller that can read files checks them.
        for page in 0..index.linked_pages().start {
            let record = index.page(page);
            let (start, end) = (record.offset(), record.offset() + u64::from(record.len));
            let place = self.episodes().get(slot).map_or(0, |entry| entry.start) + start;
            if let Err(error) = verify("page", place, part(bytes, start..end), record.crc) {
                errors.push(named(error, || owners.name(slot, page)));
            }
            let padding = end..align_up(end).unwrap_or(end);
            if part(bytes, padding).iter().any(|&byte| byte != 0) {
                let name = owners.name(slot, page);
                let what = format!("the padding after {name} is not zero");
                errors.push(invalid("episode", what));
            }
        }
        let stored = self.episodes().get(slot).map(|entry| entry.hash);
        if errors.is_empty() && stored != Some(*blake3::hash(bytes).as_bytes()) {
            let what = format!("the BLAKE3 at slot {slot} does not match the directory");
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
}

/// The same checksum error with a better name for the part.
fn named(error: FormatError, name: impl FnOnce() -> String) -> FormatError {
    match error {
        FormatError::Checksum {
            start,
            end,
            stored,
            computed,
            ..
        } => FormatError::Checksum {
            part: name(),
            start,
            end,
            stored,
            computed,
        },
        other => other,
    }
}

/// What each page contains, so that a person can judge what its loss means.
///
/// Every page has one owner and the pages of a clock or stream are consecutive, so the
/// owner of a page is the last one that starts at or before it.
struct Owners<'i> {
    index: &'i EpisodeIndex,
    /// First page, name, and the run if the pages hold frames; by first page.
    starts: Vec<(u32, String, Option<Run>)>,
}

impl<'i> Owners<'i> {
    fn new(index: &'i EpisodeIndex, schema: &Schema) -> Self {
        let mut starts = Vec::new();
        if let Some(page) = index.attributes_page() {
            starts.push((page, "attributes".to_owned(), None));
        }
        let clocks = (0..index.clock_count()).map(|idx| {
            let run = Run::of_clock(&index.clock(idx));
            (format!("times of clock {idx}"), run)
        });
        let streams = (0..index.stream_count()).map(|idx| {
            let record = index.stream(idx);
            let described = schema.streams.get(record.stream as usize);
            let name = described.map_or("?", |stream| stream.name.as_str());
            (format!("stream `{name}`"), Run::of_stream(&record))
        });
        for (name, run) in clocks.chain(streams).filter(|(_, run)| run.page_count > 0) {
            if run.shared_page != NONE {
                starts.push((
                    run.shared_page,
                    format!("{name}, shared by its pages"),
                    None,
                ));
            }
            starts.push((run.first_page, name, Some(run)));
        }
        starts.sort_unstable_by_key(|(page, ..)| *page);
        Self { index, starts }
    }

    fn name(&self, slot: usize, page: u32) -> String {
        let after = self.starts.partition_point(|(start, ..)| *start <= page);
        let owner = match after.checked_sub(1).and_then(|idx| self.starts.get(idx)) {
            Some((_, name, Some(run))) => format!("{name}, {}", self.frames(*run, page)),
            Some((_, name, None)) => name.clone(),
            None => "no owner".to_owned(),
        };
        format!("page {page} at slot {slot} ({owner})")
    }

    fn frames(&self, run: Run, page: u32) -> String {
        let first = self.index.page(page).first_frame;
        let slice = self.index.slices(run, first..run.end).next();
        let end = first as usize + slice.map_or(0, |slice| slice.frames);
        format!("frames {first}..{end}")
    }
}

/// Bytes of an episode whose length was compared with the directory's.
fn part(bytes: &[u8], range: Range<u64>) -> &[u8] {
    let start = usize::try_from(range.start).unwrap_or(usize::MAX);
    let end = usize::try_from(range.end).unwrap_or(usize::MAX);
    bytes.get(start..end).unwrap_or_default()
}
