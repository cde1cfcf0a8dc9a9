//! `moof`: the tables of a fragmented file, a fragment at a time.
//!
//! ```text
//! moof ─┬─ traf ─┬─ tfhd     track, defaults, where offsets are counted from
//!       │        ├─ tfdt     decode time of the first sample
//!       │        └─ trun …   runs of samples: duration, size, flags and delay of each, or the defaults
//!       └─ traf …
//! ```
//!
//! A run without a field of its own for each sample can claim any number of them: they end with the file.

use super::boxes::{Fault, Fields, children, corrupt, find, need};
use super::edits::{LONGEST, Timed, Timeline};
use super::movie::Movie;
use super::tables::{check_count, check_offset, check_place};

/// Flags of `tfhd`.
mod tfhd {
    pub(super) const BASE_DATA_OFFSET: u32 = 0x01;
    pub(super) const DESCRIPTION: u32 = 0x02;
    pub(super) const DURATION: u32 = 0x08;
    pub(super) const SIZE: u32 = 0x10;
    pub(super) const FLAGS: u32 = 0x20;
    pub(super) const BASE_IS_MOOF: u32 = 0x2_0000;
}

/// Flags of `trun`.
mod trun {
    pub(super) const DATA_OFFSET: u32 = 0x01;
    pub(super) const FIRST_FLAGS: u32 = 0x04;
    pub(super) const DURATION: u32 = 0x100;
    pub(super) const SIZE: u32 = 0x200;
    pub(super) const FLAGS: u32 = 0x400;
    pub(super) const DELAY: u32 = 0x800;
}

/// Flags of a sample that is not a key frame: it depends on others, or is not a sync sample.
const NOT_KEY: u32 = 0x0101_0000;

/// What `trex` or `tfhd` says about the samples of a track.
#[derive(Debug, Clone, Copy)]
struct Defaults {
    duration: u32,
    size: u32,
    flags: u32,
}

/// A run of samples of one track.
struct Run<'a> {
    flags: u32,
    count: u32,
    /// Relative to the base of its `traf`.
    data_offset: Option<i32>,
    first_flags: Option<u32>,
    rows: Fields<'a>,
}

/// A sample of a run.
struct RunSample {
    duration: u32,
    size: u32,
    flags: u32,
    delay: u32,
}

/// Appends the samples of fragments.
pub(super) fn append(
    timeline: &mut Timeline,
    movie: &Movie<'_>,
    moofs: &[(u64, Vec<u8>)],
    file_len: u64,
) -> Result<(), Fault> {
    let listed = timeline.samples.len();
    let mut fragments = Fragments {
        movie,
        file_len,
        timeline,
        least_delay: 0,
    };
    for (start, moof) in moofs {
        fragments.add_moof(*start, moof)?;
    }
    // FFmpeg shows all of them later by the most negative delay.
    let shift = fragments.timeline.shift.max(-fragments.least_delay);
    let added = fragments.timeline.samples.get_mut(listed..);
    for sample in added.unwrap_or_default() {
        sample.pts += shift;
    }
    Ok(())
}

struct Fragments<'a> {
    movie: &'a Movie<'a>,
    file_len: u64,
    timeline: &'a mut Timeline,
    least_delay: i64,
}

impl Fragments<'_> {
    fn add_moof(&mut self, start: u64, moof: &[u8]) -> Result<(), Fault> {
        // Where the data of the next track begins, if nothing says so.
        let mut next = start;
        for traf in children(moof, "moof") {
            let traf = traf?;
            if traf.kind == *b"traf" {
                next = self.add_traf(start, next, traf.body)?;
            }
        }
        Ok(())
    }

    /// Adds the samples of a track, if it is the one that is read. Returns where its data ends.
    fn add_traf(&mut self, moof_start: u64, implicit: u64, traf: &[u8]) -> Result<u64, Fault> {
        let (mut fields, _, flags) = Fields::full(need(traf, b"tfhd", "traf")?, "tfhd")?;
        let track = fields.u32()?;
        let Some(mut defaults) = self.defaults(track)? else {
            return Ok(implicit);
        };
        let base = if flags & tfhd::BASE_DATA_OFFSET != 0 {
            fields.u64()?
        } else if flags & tfhd::BASE_IS_MOOF != 0 {
            moof_start
        } else {
            implicit
        };
        if flags & tfhd::DESCRIPTION != 0 {
            fields.skip(4)?;
        }
        let fields = &mut fields;
        read_if(flags & tfhd::DURATION, fields, &mut defaults.duration)?;
        read_if(flags & tfhd::SIZE, fields, &mut defaults.size)?;
        read_if(flags & tfhd::FLAGS, fields, &mut defaults.flags)?;
        if track == self.movie.track_id
            && let Some(tfdt) = find(traf, b"tfdt", "traf")?
        {
            self.timeline.end = decode_time(tfdt)?;
        }
        let mut next = base;
        for child in children(traf, "traf") {
            let child = child?;
            if child.kind == *b"trun" {
                let run = Run::parse(child.body)?;
                let start = run
                    .data_offset
                    .map_or(Some(next), |by| base.checked_add_signed(by.into()));
                let start = start.ok_or_else(|| corrupt("trun", "begins before the file"))?;
                next = if track == self.movie.track_id {
                    self.add_run(run, start, defaults)?
                } else {
                    run.end(start, defaults)?
                };
            }
        }
        Ok(next)
    }

    /// What `trex` says about a track; `None` for one that has no fragments.
    fn defaults(&self, track: u32) -> Result<Option<Defaults>, Fault> {
        for child in children(self.movie.extends.unwrap_or_default(), "mvex") {
            let child = child?;
            if child.kind != *b"trex" {
                continue;
            }
            let (mut fields, _, _) = Fields::full(child.body, "trex")?;
            if fields.u32()? == track {
                fields.skip(4)?;
                return Ok(Some(Defaults {
                    duration: fields.u32()?,
                    size: fields.u32()?,
                    flags: fields.u32()?,
                }));
            }
        }
        if track == self.movie.track_id {
            let what = "has fragments of the video track, but no box trex for it";
            return Err(corrupt("moov", what));
        }
        Ok(None)
    }

    /// Adds a run of the track that is read. Returns where its data ends.
    fn add_run(&mut self, mut run: Run<'_>, start: u64, defaults: Defaults) -> Result<u64, Fault> {
        let edit = self.movie.edit;
        let by = edit.map_or(0, |edit| edit.wait - edit.start);
        let samples = &mut self.timeline.samples;
        let before = samples.last().map(|sample| sample.dts);
        let mut offset = start;
        for number in 0..run.count {
            let sample = run.next(number, defaults)?;
            check_place(offset, sample.size, self.file_len, "trun")?;
            check_offset(sample.duration, "trun")?;
            check_offset(sample.delay, "trun")?;
            let delay = i64::from(sample.delay.cast_signed());
            self.least_delay = self.least_delay.min(delay);
            let dts = self.timeline.end + by;
            samples.push(Timed {
                offset,
                size: sample.size,
                dts,
                pts: dts + delay,
                is_key: sample.flags & NOT_KEY == 0,
                // Of fragments that overlap in time, the first is shown.
                is_shown: before.is_none_or(|before| before < dts),
            });
            check_count(samples.len(), self.file_len)?;
            self.timeline.end += i64::from(sample.duration);
            offset += u64::from(sample.size);
        }
        Ok(offset)
    }
}

impl<'a> Run<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, Fault> {
        let (mut fields, _, flags) = Fields::full(body, "trun")?;
        let count = fields.u32()?;
        let data_offset = (flags & trun::DATA_OFFSET != 0).then(|| fields.i32());
        let data_offset = data_offset.transpose()?;
        let first_flags = (flags & trun::FIRST_FLAGS != 0).then(|| fields.u32());
        let first_flags = first_flags.transpose()?;
        let per_sample = trun::DURATION | trun::SIZE | trun::FLAGS | trun::DELAY;
        let row_len = u64::from(4 * (flags & per_sample).count_ones());
        if u64::from(count) * row_len > fields.rest().len() as u64 {
            let what = format!("claims {count} samples, in {} bytes", fields.rest().len());
            return Err(corrupt("trun", what));
        }
        Ok(Self {
            flags,
            count,
            data_offset,
            first_flags,
            rows: fields,
        })
    }

    /// The next sample.
    fn next(&mut self, number: u32, defaults: Defaults) -> Result<RunSample, Fault> {
        let first_flags = self.first_flags.filter(|_| number == 0);
        let mut sample = RunSample {
            duration: defaults.duration,
            size: defaults.size,
            flags: first_flags.unwrap_or(defaults.flags),
            delay: 0,
        };
        let rows = &mut self.rows;
        read_if(self.flags & trun::DURATION, rows, &mut sample.duration)?;
        read_if(self.flags & trun::SIZE, rows, &mut sample.size)?;
        read_if(self.flags & trun::FLAGS, rows, &mut sample.flags)?;
        read_if(self.flags & trun::DELAY, rows, &mut sample.delay)?;
        Ok(sample)
    }

    /// Where the data of a run ends.
    fn end(mut self, start: u64, defaults: Defaults) -> Result<u64, Fault> {
        let mut len = 0;
        if self.flags & trun::SIZE == 0 {
            len = u64::from(self.count) * u64::from(defaults.size);
        } else {
            for number in 0..self.count {
                len += u64::from(self.next(number, defaults)?.size);
            }
        }
        let end = start.checked_add(len);
        end.ok_or_else(|| corrupt("trun", "ends after the file"))
    }
}

/// Reads a field that may be absent.
fn read_if(is_there: u32, fields: &mut Fields<'_>, value: &mut u32) -> Result<(), Fault> {
    if is_there != 0 {
        *value = fields.u32()?;
    }
    Ok(())
}

/// `tfdt`
fn decode_time(tfdt: &[u8]) -> Result<i64, Fault> {
    let (mut fields, version, _) = Fields::full(tfdt, "tfdt")?;
    let time = if version == 1 {
        fields.u64()?
    } else {
        fields.u32()?.into()
    };
    let limited = i64::try_from(time).ok().filter(|&time| time < LONGEST);
    limited.ok_or_else(|| corrupt("tfdt", "has a time that is too long"))
}
