//! Which packets make a page.
//!
//! ```text
//! decode order   I0 P3 B1 B2 | I4 P7 B5 B6 | C8 b6' b7' P11 …        b6', b7' are shown before C8 and need what is before it
//! pages          frames 0–3  | 4–7, with C8, which is not shown | 8–11, without b6' and b7'
//! ```
//!
//! A page shows the frames from one access point up to another. It has the packets from its access point up to the last
//! that one of its frames needs, except those that are shown before its access point. Where groups are closed, as those of
//! most encoders are, every packet is in exactly one page; where they are open, the access point after a page is also in
//! the page. An episode that begins inside a group has all of the group's packets before it in its first page.

use std::ops::Range;

use kino_codec::FrameType;

use crate::mp4::Mp4Sample;

/// A page ends with the group that reaches this many frames: enough to be worth a task of a loader.
const PAGE_FRAMES: u64 = 30;

/// Or this many bytes: enough to be worth a read.
const PAGE_BYTES: u64 = 256 << 10;

/// Where the frames of a file are.
#[derive(Debug)]
pub(crate) struct Groups {
    /// For each frame, in presentation order: its time and its packet's position in decode order.
    shown: Vec<(i64, u32)>,
    /// For each access point, in order: its packet, and the number of the first frame that it is needed for.
    points: Vec<Point>,
    /// The packets, in order, from which another configuration is valid: a page has one.
    parts: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Point {
    sample: usize,
    /// The first frame that is shown no earlier than it.
    frame: u64,
}

/// A page to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PagePlan {
    /// The frames that it shows, counted from the first of the episode.
    pub(crate) frames: Range<u64>,
    pub(crate) packets: Vec<PlannedPacket>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlannedPacket {
    /// Its position in decode order in the file.
    pub(crate) sample: usize,
    /// The frame of the page that it shows.
    pub(crate) frame: Option<usize>,
    pub(crate) starts_group: bool,
}

impl PagePlan {
    /// Runs of packets that follow each other in decode order.
    pub(super) fn runs(&self) -> impl Iterator<Item = Range<usize>> {
        self.packets
            .chunk_by(|a, b| a.sample + 1 == b.sample)
            .filter_map(|run| Some(run.first()?.sample..run.last()?.sample + 1))
    }
}

impl Groups {
    /// `points` are the packets at which decoding can begin, in decode order.
    pub(crate) fn new(samples: &[Mp4Sample], points: Vec<usize>) -> Result<Self, String> {
        let mut shown: Vec<(i64, u32)> = Vec::new();
        for (sample, position) in samples.iter().zip(0..) {
            if sample.rank.is_some() {
                shown.push((sample.pts, position));
            }
        }
        shown.sort_unstable();
        let point = |sample: usize| Point {
            sample,
            frame: shown.partition_point(|(pts, _)| *pts < samples[sample].pts) as u64,
        };
        let mut points: Vec<Point> = points.into_iter().map(point).collect();
        // In a sane file they are shown in the order in which they are decoded; of others, the first counts.
        let mut last = None;
        points.retain(|point| {
            let is_later = last.is_none_or(|last| samples[point.sample].pts > last);
            if is_later {
                last = Some(samples[point.sample].pts);
            }
            is_later
        });
        if points.is_empty() {
            return Err("has no frame at which decoding can begin".to_owned());
        }
        Ok(Self {
            shown,
            points,
            parts: Vec::new(),
        })
    }

    /// Ends a page before each of these packets, which are in order.
    pub(crate) fn with_parts(self, parts: Vec<usize>) -> Self {
        Self { parts, ..self }
    }

    /// The first packet that can be decoded.
    pub(super) fn first_packet(&self) -> usize {
        self.points.first().map_or(0, |point| point.sample)
    }

    /// The time of each frame.
    pub(super) fn times(&self) -> impl Iterator<Item = i64> {
        self.shown.iter().map(|(pts, _)| *pts)
    }

    /// The pages of a range of frames.
    pub(crate) fn pages(
        &self,
        samples: &[Mp4Sample],
        frame: &FrameType,
        frames: &Range<u64>,
    ) -> Result<Vec<PagePlan>, String> {
        let max_page_bytes = kino_codec::max_page_bytes("video");
        if frames.end > self.shown.len() as u64 || frames.start > frames.end {
            return Err(format!("has {} frames, not {frames:?}", self.shown.len()));
        }
        let frame_bytes = frame.as_values().map_or(1, |ty| ty.frame_bytes().max(1));
        let most = (max_page_bytes / frame_bytes) as u64;
        let mut pages = Vec::new();
        let mut start = frames.start;
        while start < frames.end {
            let first = self.points.partition_point(|point| point.frame <= start);
            let Some(first) = first.checked_sub(1) else {
                return Err(format!(
                    "has no frame at or before frame {start} at which decoding can begin"
                ));
            };
            let end = self.page_end(samples, first, start..frames.end, most)?;
            pages.push(self.page(samples, first, start..end, frames.start));
            start = end;
        }
        Ok(pages)
    }

    /// Where the page that begins with `frames.start` ends, at most at `frames.end`.
    fn page_end(
        &self,
        samples: &[Mp4Sample],
        first: usize,
        frames: Range<u64>,
        most: u64,
    ) -> Result<u64, String> {
        let mut end = frames.start;
        let mut bytes = 0;
        for group in first.. {
            let next = self.points.get(group + 1);
            let group_end = next.map_or(frames.end, |next| next.frame.min(frames.end));
            if group_end - frames.start > most {
                if end > frames.start {
                    break;
                }
                return Err(format!(
                    "has a group of {} frames, and a page cannot have more than {most} of this size; encode it with a \
                     key frame at least every {most} frames (`ffmpeg -g {most}`), or store it with another codec",
                    group_end - frames.start
                ));
            }
            let until = next.map_or(samples.len(), |next| next.sample);
            let packets = &samples[self.points[group].sample..until];
            bytes += packets.iter().map(|one| u64::from(one.size)).sum::<u64>();
            end = group_end;
            let is_full = end - frames.start >= PAGE_FRAMES || bytes >= PAGE_BYTES;
            let is_last = next.is_some_and(|next| self.parts.binary_search(&next.sample).is_ok());
            if end == frames.end || ((is_full || is_last) && end > frames.start) {
                break;
            }
        }
        Ok(end)
    }

    /// The page of these frames of the file, decoded from an access point.
    fn page(
        &self,
        samples: &[Mp4Sample],
        first: usize,
        frames: Range<u64>,
        episode: u64,
    ) -> PagePlan {
        let place = |frame: u64| usize::try_from(frame).unwrap_or(usize::MAX);
        let shown = &self.shown[place(frames.start)..place(frames.end)];
        let point = self.points[first];
        let last = shown.iter().map(|(_, position)| *position as usize).max();
        let last = last.unwrap_or(point.sample);
        let begins = samples[point.sample].pts;
        let mut packets: Vec<PlannedPacket> = Vec::new();
        let candidates = samples.iter().enumerate();
        for (sample, found) in candidates.take(last + 1).skip(point.sample) {
            // What is shown before the point needs packets before it.
            if found.pts < begins {
                continue;
            }
            let place = (found.pts, u32::try_from(sample).unwrap_or(u32::MAX));
            packets.push(PlannedPacket {
                sample,
                frame: shown.binary_search(&place).ok(),
                starts_group: sample == point.sample,
            });
        }
        self.mark_groups(samples, first, &mut packets);
        PagePlan {
            frames: frames.start - episode..frames.end - episode,
            packets,
        }
    }

    /// Marks the further access points of a page at which a closed group starts.
    fn mark_groups(&self, samples: &[Mp4Sample], first: usize, packets: &mut [PlannedPacket]) {
        let Some(last) = packets.last().map(|packet| packet.sample) else {
            return;
        };
        for point in &self.points[first + 1..] {
            if point.sample > last {
                break;
            }
            let begins = samples[point.sample].pts;
            let Some(at) = packets.iter().position(|one| one.sample == point.sample) else {
                continue;
            };
            let (before, after) = packets.split_at(at);
            let is_before = |packet: &PlannedPacket| samples[packet.sample].pts < begins;
            let is_closed = before.iter().all(is_before) && !after.iter().any(is_before);
            packets[at].starts_group |= is_closed;
        }
    }
}

#[cfg(test)]
mod tests;
