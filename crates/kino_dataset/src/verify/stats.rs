//! Checks the statistics against the shards: they must count as many values as every stream stores.

use std::collections::BTreeMap;

use kino_codec::ValueType;
use kino_format::Kind;

use super::Check;
use super::tally::{StreamTally, Tally};
use crate::stats::{StreamStats, channels_of};

impl StreamTally {
    /// The type and the number of channels of its statistics; `None` if it has none.
    pub(super) fn counted(&self) -> Option<(ValueType, usize)> {
        let frame = self.schema.frame_type().ok()?;
        let ty = frame.as_values().filter(|ty| ty.frame_bytes() > 0)?;
        let is_image = matches!(self.schema.kind, Kind::Image | Kind::Depth);
        let channels = channels_of(is_image, ty);
        (self.own_frames > self.unread_frames).then(|| (ty.clone(), channels))
    }

    /// What is wrong with the counts of its statistics.
    pub(super) fn refute_counts(&self, stats: &StreamStats) -> Option<String> {
        let Some((ty, channels)) = self.counted() else {
            return (stats.frames > 0).then(|| "it has no frames of values of its own".to_owned());
        };
        if stats.channels() != channels {
            let stated = stats.channels();
            return Some(format!(
                "it has {stated} channels, but its frames have {channels}"
            ));
        }
        let frames = self.own_frames.saturating_sub(self.unread_frames);
        if stats.frames != frames {
            let (stated, seen) = (stats.frames, frames);
            return Some(format!("`frames` is {stated}, but {seen} in the shards"));
        }
        let values = (ty.elements() / channels) as u64;
        let values = values.saturating_mul(frames);
        let counts = stats.count.iter().zip(&stats.nonfinite);
        for (channel, (&finite, &nonfinite)) in counts.enumerate() {
            if finite.checked_add(nonfinite) != Some(values) {
                return Some(format!(
                    "channel {channel} counts {finite} finite and {nonfinite} other values, but the shards have {values} values"
                ));
            }
            if nonfinite > 0 && !ty.dtype().is_float() {
                let dtype = ty.dtype().name();
                return Some(format!(
                    "channel {channel} counts {dtype} values that are not finite"
                ));
            }
        }
        None
    }
}

impl Check<'_> {
    /// Compares the counts of the statistics with what the episodes hold.
    pub(super) fn counts(&mut self, tally: &Tally, stats: &BTreeMap<String, StreamStats>) {
        let place = self.stats_place();
        for (name, stream) in &tally.streams {
            let what = match stats.get(name) {
                Some(stats) => stream.refute_counts(stats),
                None => stream
                    .counted()
                    .map(|_| "its statistics are missing".to_owned()),
            };
            if let Some(what) = what {
                self.damage(format!("{place}, stream `{name}`"), what);
            }
        }
        for name in stats.keys() {
            if !tally.streams.contains_key(name) {
                self.damage(format!("{place}, stream `{name}`"), "no episode has it");
            }
        }
    }
}
