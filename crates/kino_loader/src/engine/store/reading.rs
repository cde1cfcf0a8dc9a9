//! Which pages of an episode are read and decoded before a sample needs them, and which are read by themselves.
//!
//! ```text
//! pages     0 1 2 3 4 5 6 7 8 9      a remote dataset, whose next batches need pages 3 and 7
//! reads     [0 1 2][3][4 5 6][7][8 9]     3 and 7 first, the others behind them
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::pages::WindowFit;

/// Which frames of an episode are decoded before a sample needs them: by position of the stream that stores them, and fit.
#[derive(Debug, Default)]
pub(crate) enum Ahead {
    /// All of them.
    #[default]
    All,
    /// Those of some samples that follow each other.
    Run(BTreeMap<(usize, WindowFit), Range<u32>>),
    /// None.
    Nothing,
}

impl Ahead {
    /// Whether some of these frames of a stored stream are among them.
    pub(crate) fn has(&self, stream: (usize, WindowFit), frames: &Range<u32>) -> bool {
        match self {
            Self::All => true,
            Self::Nothing => false,
            Self::Run(ranges) => ranges
                .get(&stream)
                .is_some_and(|range| range.start < frames.end && frames.start < range.end),
        }
    }
}

/// How the pages of a stored stream are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) ahead: &'a Ahead,
    /// Frames that one of the next batches needs.
    pub(super) needed: Option<&'a BTreeSet<u32>>,
}

impl Reading<'_> {
    /// Whether one of the next batches needs some of these frames.
    pub(super) fn is_needed(&self, frames: &Range<u32>) -> bool {
        let inside = |needed: &BTreeSet<u32>| needed.range(frames.clone()).next().is_some();
        self.needed.is_some_and(inside)
    }
}
