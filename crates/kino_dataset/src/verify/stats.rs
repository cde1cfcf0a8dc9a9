//! The statistics against the shards: of every stream of numbers, as many values as are stored.

use std::collections::BTreeMap;

use kino_codec::ValueType;
use kino_format::Kind;

use super::Check;
use super::tally::{StreamTally, Tally};
use crate::stats::{StreamStats, channels_of};

impl StreamTally {
    /// The type and the number of channels that its statistics are about; `None` if it has none.
    pub(super) fn counted(&self) -> Option<(ValueType, usize)> {
        let frame = self.schema.frame_type().ok()?;
        let ty = frame.as_values().filter(|ty| ty.frame_bytes() > 0)?;
        let is_image = matches!(self.schema.kind, Kind::Image | Kind::Depth);
        let channels = channels_of(is_image, ty);
        (self.own_frames > 0).then(|| (ty.clone(), channels))
    }

    /// What is wrong with the counts of its statistics.
    pub(super) fn refute_counts(&self, stats: &StreamStats) -> Option<String> {
        let Some((ty, channels)) = self.counted() else {
            return (stats.frames > 0).then(|| "it has no frames of numbers of its own".to_owned());
        };
        if stats.channels() != channels {
            let stated = stats.channels();
            return Some(format!("{stated} channels, its frames have {channels}"));
        }
        if stats.frames != self.own_frames {
            let (stated, seen) = (stats.frames, self.own_frames);
            return Some(format!("`frames` is {stated}, the shards say {seen}"));
        }
        let values = (ty.elements() / channels) as u64;
        let values = values.saturating_mul(self.own_frames);
        let counts = stats.count.iter().zip(&stats.nonfinite);
        for (channel, (&finite, &nonfinite)) in counts.enumerate() {
            if finite.checked_add(nonfinite) != Some(values) {
                return Some(format!(
                    "channel {channel} counts {finite} and {nonfinite} values, the shards hold {values}"
                ));
            }
            if nonfinite > 0 && !ty.dtype().is_float() {
                let dtype = ty.dtype().name();
                return Some(format!("channel {channel}: {dtype} that is not finite"));
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
                None => stream.counted().map(|_| "it is missing".to_owned()),
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
