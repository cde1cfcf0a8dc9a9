//! What an episode's index may contain: every rule that later code relies on, checked once.
//!
//! ```text
//! pages       are contiguous from the episode's start and fill it; each is referenced exactly once
//! clocks      are a formula or a list of times, never both, and end at their stated time
//! streams     have as many frames as their clock, pages for each frame they store, and a base that
//!             has the frames they share
//! ```
//!
//! A correct checksum does not mean a trustworthy writer: every field is
//! untrusted. Time and memory are linear in the index's bytes. `spec/format.md` numbers the rules.

use crate::error::{FormatError, Result, invalid};
use crate::index::{EpisodeIndex, PART, Run, to_u32};
use crate::layout::{MAX_FRAMES, MAX_PAGE_BYTES, MAX_PAGE_FRAMES, align_up};
use crate::records::{ClockRecord, NONE, StreamRecord};
use crate::schema::{Schema, StreamSchema};
use std::collections::HashSet;

impl EpisodeIndex {
    /// Checks all records against each other, the schema and the `pages_len` bytes of pages.
    pub(crate) fn check(&mut self, pages_len: u64, schema: &Schema) -> Result<()> {
        self.check_tiling(pages_len, schema)?;
        let mut named = Named(vec![false; self.page_count()]);
        if let Some(page) = self.attributes_page() {
            named.name_without_frames(page, self)?;
        }
        for idx in 0..self.clock_count() {
            let clock = self.check_clock(idx)?;
            self.check_run(Run::of_clock(&clock), &mut named)?;
        }
        // So far only pages that are read with the episode were referenced.
        let linked = self.linked_pages();
        if named
            .0
            .iter()
            .skip(linked.start as usize)
            .any(|&named| named)
        {
            return Err(invalid(PART, "attributes or timestamps are linked"));
        }
        let mut seen = HashSet::with_capacity(self.stream_count());
        for idx in 0..self.stream_count() {
            let (stream, described) = self.check_stream(idx, schema)?;
            if !seen.insert(described.name.as_str()) {
                return Err(wrong("stream", idx, "appears in the episode twice"));
            }
            self.check_run(Run::of_stream(&stream), &mut named)?;
            self.check_sizes(idx, &stream, described)?;
        }
        match named.0.iter().position(|named| !named) {
            Some(page) => Err(wrong("page", page, "is not referenced by anything")),
            None => Ok(()),
        }
    }

    /// Pages follow each other, each padded to 8 bytes. Those that are not linked, and the pieces of others that are
    /// in the shard, fill the episode exactly.
    fn check_tiling(&mut self, pages_len: u64, schema: &Schema) -> Result<()> {
        let mut position = 0;
        for idx in 0..self.page_count() {
            let page = self.page(to_u32(idx)?);
            if page.len as usize > MAX_PAGE_BYTES {
                let what = format!(
                    "has {} bytes, at most {MAX_PAGE_BYTES} are allowed",
                    page.len
                );
                return Err(wrong("page", idx, &what));
            }
            if page.offset() != position {
                let what = format!("is at offset {} instead of {position}", page.offset());
                return Err(wrong("page", idx, &what));
            }
            position = align_up(position + u64::from(page.len)).unwrap_or(u64::MAX);
        }
        let stored_end = match self.linked_start() {
            u64::MAX => position,
            own_end => self.check_pieces(own_end, schema)?,
        };
        if stored_end != pages_len {
            let what = format!(
                "its pages end at {stored_end}, but the episode's pages end at {pages_len}"
            );
            return Err(invalid(PART, what));
        }
        Ok(())
    }

    fn check_clock(&self, idx: usize) -> Result<ClockRecord> {
        let (clock, zero) = ClockRecord::parse(self.clock_bytes(idx));
        let error = |what: &str| wrong("clock", idx, what);
        if zero != 0 {
            return Err(error("has reserved bytes that are not zero"));
        }
        if clock.frames > MAX_FRAMES {
            return Err(error("has too many frames"));
        }
        if (clock.period_num == 0) != (clock.period_den == 0) {
            return Err(error("has only one half of a period"));
        }
        // Callers may subtract freely: the duration fits an i64.
        let duration = clock.end_ns.checked_sub(clock.start_ns);
        let ends_well = match duration {
            Some(0) => true,
            Some(duration) => duration > 0 && clock.frames > 1,
            None => false,
        };
        if !ends_well {
            return Err(error("ends before it starts, or has an invalid duration"));
        }
        let has_pages = clock.page_count > 0;
        let Some(regular) = clock.regular() else {
            return if has_pages == (clock.frames > 0) {
                Ok(clock)
            } else {
                Err(error("has times without pages, or pages without times"))
            };
        };
        if has_pages {
            return Err(error("has both a period and pages with times"));
        }
        if regular.checked_time_ns(clock.frames.saturating_sub(1)) != Some(clock.end_ns) {
            return Err(error("has an end time that does not match its period"));
        }
        Ok(clock)
    }

    fn check_stream<'s>(
        &self,
        idx: usize,
        schema: &'s Schema,
    ) -> Result<(StreamRecord, &'s StreamSchema)> {
        let (stream, zero) = StreamRecord::parse(self.stream_bytes(idx));
        let error = |what: &str| wrong("stream", idx, what);
        let Some(described) = schema.streams.get(stream.stream as usize) else {
            return Err(error("is not in the schema"));
        };
        if zero != 0 {
            return Err(error("has reserved bytes that are not zero"));
        }
        let clock = stream.clock as usize;
        if clock >= self.clock_count() || self.clock(clock).frames != stream.frames {
            return Err(error("has a different number of frames than its clock"));
        }
        if stream.own_start > stream.frames {
            return Err(error("shares more frames than it has"));
        }
        let errors = [stream.max_abs_error, stream.sum_squared_error];
        if !errors.iter().all(|error| (0.0..=f64::MAX).contains(error)) {
            return Err(error("has an error value that is negative or not a number"));
        }
        self.check_base(idx, &stream, schema)?;
        Ok((stream, described))
    }

    /// Shared frames exist in the base, have the same type, and are stored there rather than shared in turn.
    fn check_base(&self, idx: usize, stream: &StreamRecord, schema: &Schema) -> Result<()> {
        let error = |what: &str| wrong("stream", idx, what);
        if stream.base == NONE {
            return if stream.own_start == 0 && stream.base_first == 0 {
                Ok(())
            } else {
                Err(error("shares frames but has no base"))
            };
        }
        // A stream that is its own base has a base that has a base: the next check rejects it.
        if stream.base as usize >= self.stream_count() {
            return Err(error("shares frames with a stream that does not exist"));
        }
        let base = self.stream(stream.base as usize);
        let end = stream.base_first.checked_add(stream.own_start);
        if base.base != NONE || end.is_none_or(|end| end > base.frames) {
            return Err(error("shares frames that its base does not store"));
        }
        let frame_of = |record: &StreamRecord| {
            let stream = schema.streams.get(record.stream as usize)?;
            Some((&stream.dtype, &stream.shape))
        };
        if frame_of(&base) != frame_of(stream) {
            return Err(error("shares frames of another type"));
        }
        Ok(())
    }

    /// The pages of a run exist, are referenced once, and their frames increase from the run's start to its end.
    fn check_run(&self, run: Run, named: &mut Named) -> Result<()> {
        if run.shared_page != NONE {
            if run.page_count == 0 {
                let what = "is shared by a clock or stream without pages";
                return Err(wrong("page", run.shared_page as usize, what));
            }
            if self.linked_pages().contains(&run.shared_page) {
                let what = "is shared by others, and linked";
                return Err(wrong("page", run.shared_page as usize, what));
            }
            named.name_without_frames(run.shared_page, self)?;
        }
        let end_page = run.first_page.checked_add(run.page_count);
        let Some(end_page) = end_page.filter(|&end| end as usize <= self.page_count()) else {
            return Err(invalid(
                PART,
                "the pages of a clock or stream end after the last",
            ));
        };
        let linked_from = self.linked_pages().start;
        if run.first_page < linked_from && end_page > linked_from {
            return Err(invalid(PART, "only some pages of a stream are linked"));
        }
        for page in run.first_page..end_page {
            named.name(page)?;
            let start = self.page(page).first_frame;
            let next = if page + 1 < end_page {
                self.page(page + 1).first_frame
            } else {
                run.end
            };
            let right_start = page > run.first_page || start == run.start;
            if !right_start || start >= next || (next - start) as usize > MAX_PAGE_FRAMES {
                let what = format!("cannot hold frames {start}..{next}");
                return Err(wrong("page", page as usize, &what));
            }
        }
        Ok(())
    }

    /// Frames have pages unless they have no bytes, no page decodes to more than a reader must allocate,
    /// and the number of bytes before encoding matches the frames.
    fn check_sizes(
        &self,
        idx: usize,
        stream: &StreamRecord,
        described: &StreamSchema,
    ) -> Result<()> {
        let frame = described.frame_type()?;
        let frame_bytes = frame.as_values().map(|ty| ty.frame_bytes());
        let has_frames = stream.frames > stream.own_start && frame_bytes != Some(0);
        if has_frames != (stream.page_count > 0) {
            let what = "has frames without pages, or pages without frames";
            return Err(wrong("stream", idx, what));
        }
        // Text has no fixed size; its codec bounds what a page may become.
        let Some(frame_bytes) = frame_bytes else {
            return Ok(());
        };
        let pages = self.slices(Run::of_stream(stream), stream.own_start..stream.frames);
        let max_frames = pages.map(|slice| slice.frames).max().unwrap_or(0);
        let most = kino_codec::max_page_bytes(&described.codec);
        if max_frames.saturating_mul(frame_bytes) > most {
            let what = format!("has a page that decodes to over {most} bytes");
            return Err(wrong("stream", idx, &what));
        }
        if u64::from(stream.frames).checked_mul(frame_bytes as u64) != Some(stream.raw_bytes) {
            let what = format!(
                "has {} bytes for {} frames of {frame_bytes} bytes",
                stream.raw_bytes, stream.frames
            );
            return Err(wrong("stream", idx, &what));
        }
        Ok(())
    }
}

/// Which pages have been referenced so far.
struct Named(Vec<bool>);

impl Named {
    fn name(&mut self, page: u32) -> Result<()> {
        match self.0.get_mut(page as usize) {
            Some(named) if !*named => {
                *named = true;
                Ok(())
            }
            Some(_) => Err(wrong("page", page as usize, "is referenced twice")),
            None => Err(wrong("page", page as usize, "does not exist")),
        }
    }

    /// References a page of attributes, or one that other pages share.
    fn name_without_frames(&mut self, page: u32, index: &EpisodeIndex) -> Result<()> {
        self.name(page)?;
        if index.page(page).first_frame != 0 {
            let what = "holds no frames, so its first frame must be 0";
            return Err(wrong("page", page as usize, what));
        }
        Ok(())
    }
}

/// An error about the record `noun` number `idx`.
fn wrong(noun: &str, idx: usize, what: &str) -> FormatError {
    invalid(PART, format!("{noun} {idx} {what}"))
}
