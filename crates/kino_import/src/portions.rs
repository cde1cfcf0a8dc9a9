//! Portions: runs of episodes in on-disk order that are packed without knowing of the others.
//!
//! ```text
//! on-disk order   e4 e9 e1 e7 │ e2 e0 e8 │ e3 e5 e6 …        cut by what is known before anything is read
//! part 1/2        └ portion 0 ┘          └ portion 2 ┘
//! part 2/2                    └ portion 1┘
//! ```
//!
//! Inside a portion shards are closed when they are full; the last one is closed where the portion ends. So a shard is
//! never larger than in a pack without portions, and of a portion's shards one may be smaller. A recording of up to
//! sixteen shards' worth of decoded frames is one portion.

use std::ops::Range;

use kino_dataset::{EpisodePlan, PortionPlan};

use crate::fit::Fitted;
use crate::source::EpisodeSpec;

/// A portion has decoded frames of at least this many shards, so that most of its shards are full even after strong
/// compression.
const RAW_SHARDS: u64 = 16;

/// The episodes in on-disk order, cut into portions.
#[derive(Debug)]
pub(crate) struct Cut {
    /// All episodes, in on-disk order.
    pub(crate) order: Vec<usize>,
    /// The portions, as ranges of `order`.
    pub(crate) ranges: Vec<Range<usize>>,
    /// The portion of each episode.
    pub(crate) portion_of: Vec<u64>,
}

impl Cut {
    /// Cuts so that a portion has at least a shard's worth of source bytes, and several of decoded ones: of video, a few
    /// source bytes are many frames.
    pub(crate) fn new(
        source: &Fitted<'_>,
        order: Vec<usize>,
        shard_bytes: u64,
        source_bytes: u64,
    ) -> Self {
        let bytes = |idx: &usize| source.episodes[*idx].bytes();
        let all = order.iter().map(bytes).fold(0, u64::saturating_add);
        let mut cut = Self {
            portion_of: vec![0; source.episodes.len()],
            ranges: Vec::new(),
            order,
        };
        let (mut start, mut raw) = (0, 0_u64);
        for (place, idx) in cut.order.iter().enumerate() {
            cut.portion_of[*idx] = cut.ranges.len() as u64;
            raw = raw.saturating_add(bytes(idx));
            let share = u128::from(raw) * u128::from(source_bytes.min(all));
            let is_enough = raw >= shard_bytes.saturating_mul(RAW_SHARDS)
                && share >= u128::from(shard_bytes) * u128::from(all);
            if is_enough || place + 1 == cut.order.len() {
                cut.ranges.push(start..place + 1);
                (start, raw) = (place + 1, 0);
            }
        }
        cut
    }

    /// The episodes of a portion that have streams, in on-disk order.
    pub(crate) fn episodes<'a>(
        &'a self,
        source: &'a Fitted<'_>,
        portion: usize,
    ) -> impl Iterator<Item = usize> + 'a {
        let range = self.ranges.get(portion).cloned().unwrap_or_default();
        let all = self.order[range].iter().copied();
        all.filter(|&idx| !source.episodes[idx].streams.is_empty())
    }

    /// The plan of a portion.
    pub(crate) fn plan(&self, source: &Fitted<'_>, portion: usize) -> PortionPlan {
        let episodes = self.episodes(source, portion);
        let bytes = episodes.map(|idx| source.episodes[idx].bytes());
        let bytes = bytes.fold(0, u64::saturating_add);
        PortionPlan::of(&self.planned(source, portion), bytes)
    }

    /// The episodes of a portion as its receipt lists them.
    pub(crate) fn planned(&self, source: &Fitted<'_>, portion: usize) -> Vec<EpisodePlan> {
        let planned = |idx: usize| EpisodePlan {
            id: source.ids[idx].clone(),
            frames: longest(&source.episodes[idx]),
            dropped: false,
        };
        self.episodes(source, portion).map(planned).collect()
    }
}

/// The frames of the longest stream.
fn longest(episode: &EpisodeSpec) -> u64 {
    let frames = episode.streams.iter().map(|stream| stream.frames);
    frames.max().unwrap_or(0)
}
