//! A page of video on its way to the device: its packets, and which of its frames were shown.

use std::ops::Range;

use super::memory::ImageMemory;
use crate::video::{Refusal, VideoPackets, VideoPage};

/// A page on its way.
pub(super) struct Job<'b> {
    pub(super) page: &'b dyn VideoPage,
    pub(super) packets: VideoPackets,
    pub(super) kept: Range<usize>,
    /// By kept frame.
    pub(super) memories: Vec<Option<ImageMemory>>,
    /// All of its frames go to the place of the first: only the time counts.
    pub(super) is_trial: bool,
    /// The last frame that was shown, and how many were.
    pub(super) last: Option<usize>,
    pub(super) shown: usize,
    pub(super) attempts: usize,
    pub(super) refusal: Option<Refusal>,
}

impl<'b> Job<'b> {
    pub(super) fn new(page: &'b dyn VideoPage) -> Result<Self, String> {
        let (packets, kept) = (page.packets()?, page.frames());
        let fits = |range: &Range<usize>| {
            range.start <= range.end && range.end <= packets.bytes.len() && !range.is_empty()
        };
        if packets.packets.is_empty() || !packets.packets.iter().all(|packet| fits(&packet.range)) {
            return Err("a packet is not inside of its page".to_owned());
        }
        let mut shows = vec![0_u32; kept.len()];
        for frame in packets.packets.iter().filter_map(|packet| packet.frame) {
            let idx = frame.checked_sub(kept.start);
            if let Some(shows) = idx.and_then(|idx| shows.get_mut(idx)) {
                *shows += 1;
            }
        }
        if kept.is_empty() || shows.iter().any(|&count| count != 1) {
            return Err("a frame has no packet, or several".to_owned());
        }
        Ok(Self {
            page,
            memories: kept.clone().map(|_| None).collect(),
            packets,
            kept,
            is_trial: false,
            last: None,
            shown: 0,
            attempts: 0,
            refusal: None,
        })
    }

    pub(super) fn packet(&self, number: usize) -> &[u8] {
        let range = self.packets.packets[number].range.clone();
        &self.packets.bytes[range]
    }

    /// Whether a group ends with a packet.
    pub(super) fn ends_group(&self, number: usize) -> bool {
        let next = self.packets.packets.get(number + 1);
        next.is_none_or(|next| next.starts_group)
    }

    pub(super) fn is_kept(&self, packet: usize) -> bool {
        let frame = self.packets.packets.get(packet).and_then(|one| one.frame);
        frame.is_some_and(|frame| self.kept.contains(&frame))
    }

    /// Checks that images are shown in the order of their frames, each once.
    pub(super) fn check_order(&mut self, numbers: &[usize]) -> Result<(), Refusal> {
        for number in numbers {
            let packet = self.packets.packets.get(*number);
            let packet = packet.ok_or_else(|| damaged("an image belongs to no packet"))?;
            if let Some(frame) = packet.frame {
                if self.last.is_some_and(|last| last >= frame) {
                    return Err(damaged(&format!(
                        "frame {frame} is shown after a later one"
                    )));
                }
                self.last = Some(frame);
                self.shown += 1;
            }
        }
        Ok(())
    }

    /// Checks that no image is missing, once all packets were parsed.
    pub(super) fn check_count(&self) -> Result<(), Refusal> {
        let packets = self.packets.packets.iter();
        let expected = packets.filter(|packet| packet.frame.is_some()).count();
        if self.shown == expected {
            return Ok(());
        }
        let shown = self.shown;
        Err(damaged(&format!(
            "{shown} images are shown, not {expected}"
        )))
    }
}

pub(super) fn damaged(what: &str) -> Refusal {
    Refusal::Damaged(what.to_owned())
}
