//! Portions: runs of episodes in on-disk order that are packed without knowing of the others.
//!
//! ```text
//! on-disk order   e4 e9 e1 e7 │ e2 e0 e8 │ e3 e5 e6 …        cut by what is known before anything is read
//! part 1/2        └ portion 0 ┘          └ portion 2 ┘
//! part 2/2                    └ portion 1┘
//! ```

use std::ops::Range;

use kino_dataset::{EpisodePlan, PortionPlan, cut_portions};

use crate::fit::Fitted;
use crate::source::EpisodeSpec;

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
    /// Cuts by decoded bytes, and by their share of the source's bytes.
    pub(crate) fn new(
        source: &Fitted<'_>,
        order: Vec<usize>,
        shard_bytes: u64,
        source_bytes: u64,
    ) -> Self {
        let raw = order.iter().map(|&idx| source.episodes[idx].bytes());
        let all = raw.clone().fold(0, u64::saturating_add);
        let share = |raw: u64| {
            let share = u128::from(raw) * u128::from(source_bytes.min(all));
            u64::try_from(share / u128::from(all.max(1))).unwrap_or(u64::MAX)
        };
        let sizes: Vec<_> = raw.map(|raw| (raw, share(raw))).collect();
        let ranges = cut_portions(&sizes, shard_bytes);
        let mut portion_of = vec![0; source.episodes.len()];
        for (portion, range) in (0..).zip(&ranges) {
            for &idx in &order[range.clone()] {
                portion_of[idx] = portion;
            }
        }
        Self {
            order,
            ranges,
            portion_of,
        }
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
