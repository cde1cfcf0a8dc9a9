//! Decodes every frame, and checks the statistics against the decoded values.

use std::collections::BTreeMap;

use kino_codec::{CodecError, Scratch};

use super::tally::Tally;
use super::{Check, Damage, PIECE_BYTES};
use crate::episode::Episode;
use crate::error::{DatasetError, Result};
use crate::stats::{Recount, StreamStats};
use crate::stream::Stream;

/// Statistics of more channels than this, over all streams, are not recomputed.
const MOST_CHANNELS: usize = 1 << 20;

/// Texts decoded at a time.
const TEXTS: usize = 4096;

/// Statistics being recomputed, by stream name.
type Recounts = BTreeMap<String, Recount>;

impl Check<'_> {
    /// Decodes every frame. Statistics are compared where everything could be read.
    pub(super) fn frames(&mut self, known: Option<(&Tally, &BTreeMap<String, StreamStats>)>) {
        let mut recounts = Recounts::new();
        if let Some((tally, stats)) = known {
            recounts = begin(tally, stats);
        }
        let rows: Vec<usize> = self.own_rows().collect();
        for row in rows {
            if self.is_stopped {
                return;
            }
            if let Err(error) = self.decode_episode(row, &mut recounts) {
                self.report(error);
                recounts.clear();
            }
            self.advance(self.dataset.table().bytes(row).unwrap_or(0));
        }
        let Some((tally, stats)) = known else { return };
        for (name, recount) in &recounts {
            let (Some(stats), Some(stream)) = (stats.get(name), tally.streams.get(name)) else {
                continue;
            };
            if let Some(what) = recount.refute(stats, stream.max_abs_error) {
                self.damage(format!("{}, stream `{name}`", self.stats_place()), what);
            }
        }
    }

    fn decode_episode(&mut self, row: usize, recounts: &mut Recounts) -> Result<()> {
        let episode = self.dataset.episode(row)?;
        let names: Vec<_> = episode
            .streams()
            .map(|stream| stream.name.clone())
            .collect();
        episode.read_attributes()?;
        for name in names {
            match self.decode_stream(&episode, &name, recounts.get_mut(&name)) {
                Ok(frames) => self.found.frames += frames,
                Err(error) => {
                    recounts.remove(&name);
                    self.report_of_stream(&name, error);
                }
            }
        }
        Ok(())
    }

    /// A decoder that is missing is no damage, and the same in every episode.
    fn report_of_stream(&mut self, name: &str, error: DatasetError) {
        let DatasetError::Codec {
            source: source @ (CodecError::Unavailable { .. } | CodecError::Foreign { .. }),
            ..
        } = error
        else {
            return self.report(error);
        };
        let stream = Damage {
            place: format!("stream `{name}`"),
            what: source.to_string(),
        };
        if !self.found.undecodable.contains(&stream) {
            self.found.undecodable.push(stream);
        }
    }

    fn decode_stream(
        &mut self,
        episode: &Episode,
        name: &str,
        mut recount: Option<&mut Recount>,
    ) -> Result<u64> {
        let stream = episode.stream(name)?;
        stream.clock()?;
        let Some(ty) = stream.frame_type().as_values() else {
            return self.decode_texts(&stream);
        };
        let size = ty.frame_bytes();
        let step = (usize::try_from(PIECE_BYTES).unwrap_or(1 << 20) / size.max(1)).max(1);
        let (mut out, mut scratch) = (Vec::new(), Scratch::new());
        let own = stream.own_start();
        for start in (0..stream.len()).step_by(step) {
            if self.is_stopped {
                return Ok(0);
            }
            let end = stream.len().min(start + step);
            out.resize((end - start) * size, 0);
            stream.read_into(start..end, &mut out, &mut scratch)?;
            if let Some(recount) = &mut recount {
                // Statistics describe what a stream stores itself.
                let shared = own.clamp(start, end) - start;
                recount.add(&out[shared * size..]);
            }
            self.advance(0);
        }
        Ok(stream.len() as u64)
    }

    fn decode_texts(&mut self, stream: &Stream) -> Result<u64> {
        for start in (0..stream.len()).step_by(TEXTS) {
            if self.is_stopped {
                return Ok(0);
            }
            stream.read_text(start..stream.len().min(start + TEXTS))?;
            self.advance(0);
        }
        Ok(stream.len() as u64)
    }
}

/// The streams whose statistics are recomputed: those whose counts are right.
fn begin(tally: &Tally, stats: &BTreeMap<String, StreamStats>) -> Recounts {
    let mut channels_left = MOST_CHANNELS;
    let mut recounts = Recounts::new();
    for (name, stream) in &tally.streams {
        let Some((ty, channels)) = stream.counted() else {
            continue;
        };
        let is_right = stats
            .get(name)
            .is_some_and(|stats| stream.refute_counts(stats).is_none());
        let is_known = stream.unread_frames == 0;
        if is_right && is_known && stream.has_one_type() && channels <= channels_left {
            channels_left -= channels;
            recounts.insert(name.clone(), Recount::new(&ty, channels));
        }
    }
    recounts
}
