//! Columns that change together, and rarely: fingers read at a third of the rate, repeated frames.
//!
//! When any column of such a group changes, its gate opens. The gate stores when; a column of the group stores
//! its integers only then, and holds the last one in between.

use super::cost::{Histogram, binary};
use super::layout::MAX_GATES;

/// With more columns the search would take too long.
const MAX_COLUMNS: usize = 256;

/// In bits: the minimum gain.
const LEAST_GAIN: f64 = 256.0;

/// The gates of a run.
#[derive(Debug, Default)]
pub(super) struct Gates {
    /// For each gate, whether it opens in each frame; never in the first frame of a page.
    pub(super) opens: Vec<Vec<bool>>,
    /// The gate of each column.
    pub(super) of: Vec<Option<usize>>,
}

/// A gate under construction.
struct Group {
    opens: Vec<bool>,
    columns: Vec<usize>,
    /// How often each of the columns changes.
    changes: Vec<usize>,
}

impl Gates {
    /// Finds gates for columns of integers (empty for columns that have none).
    pub(super) fn find(columns: &[&[i64]], page_frames: usize) -> Self {
        let mut gates = Self {
            opens: Vec::new(),
            of: vec![None; columns.len()],
        };
        if columns.len() > MAX_COLUMNS {
            return gates;
        }
        let mut groups: Vec<Group> = Vec::new();
        for (column, integers) in columns.iter().enumerate() {
            let Some(group) = Group::of(column, integers, page_frames) else {
                continue;
            };
            // The cheapest group to join, if joining is cheaper than staying alone.
            let alone = group.cost(page_frames);
            let joined = groups.iter().enumerate().map(|(idx, other)| {
                let both = other.with(&group);
                (idx, both.cost(page_frames) - other.cost(page_frames), both)
            });
            match joined.min_by(|a, b| a.1.total_cmp(&b.1)) {
                Some((idx, more, both)) if more < alone => groups[idx] = both,
                _ if groups.len() < MAX_GATES => groups.push(group),
                _ => {}
            }
        }
        for group in groups {
            let apart: f64 = group
                .changes
                .iter()
                .map(|n| binary(*n, group.opens.len()))
                .sum();
            if apart - group.cost(page_frames) > LEAST_GAIN {
                for column in group.columns {
                    gates.of[column] = Some(gates.opens.len());
                }
                gates.opens.push(group.opens);
            }
        }
        gates
    }

    /// The integers of a page that a column with `gate` stores.
    pub(super) fn kept(&self, gate: Option<usize>, start: usize, page: &[i64]) -> Vec<i64> {
        let Some(gate) = gate else {
            return page.to_vec();
        };
        let opens = &self.opens[gate][start..start + page.len()];
        let kept = |(idx, _): &(usize, &i64)| *idx == 0 || opens[*idx];
        let integers = page.iter().enumerate().filter(kept);
        integers.map(|(_, integer)| *integer).collect()
    }

    /// For each opening in a page, the number of frames since the previous one.
    pub(super) fn gaps(&self, gate: usize, start: usize, frames: usize) -> Vec<i64> {
        gaps(&self.opens[gate][start..start + frames])
    }
}

/// Distances between the frames of a page in which a gate opens.
fn gaps(opens: &[bool]) -> Vec<i64> {
    let mut gaps = Vec::new();
    let mut gap = 0;
    for opens in opens.iter().skip(1) {
        gap += 1;
        if *opens {
            gaps.push(gap);
            gap = 0;
        }
    }
    gaps
}

impl Group {
    /// A group of one column, if it changes rarely enough.
    fn of(column: usize, integers: &[i64], page_frames: usize) -> Option<Self> {
        let mut opens = vec![false; integers.len()];
        let mut changes = 0;
        for (frame, pair) in integers.windows(2).enumerate() {
            let changed = pair[0] != pair[1] && !(frame + 1).is_multiple_of(page_frames);
            opens[frame + 1] = changed;
            changes += usize::from(changed);
        }
        (changes > 0 && 5 * changes < 3 * integers.len()).then(|| Self {
            opens,
            columns: vec![column],
            changes: vec![changes],
        })
    }

    /// The union of this group and another one.
    fn with(&self, other: &Self) -> Self {
        let both = self.opens.iter().zip(&other.opens).map(|(a, b)| a | b);
        Self {
            opens: both.collect(),
            columns: [&*self.columns, &*other.columns].concat(),
            changes: [&*self.changes, &*other.changes].concat(),
        }
    }

    /// Bits to store when the gate opens, and which of its columns change then.
    fn cost(&self, page_frames: usize) -> f64 {
        let mut histogram = Histogram::default();
        for page in self.opens.chunks(page_frames) {
            histogram.add(&gaps(page));
        }
        let pages = self.opens.len().div_ceil(page_frames);
        let changes = self.changes.iter().map(|n| binary(*n, histogram.len()));
        histogram.bits() + 8.0 * pages as f64 + changes.sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_change_together_share_a_gate() {
        let held =
            |seed: i64| -> Vec<i64> { (0..900).map(|i| (i / 3 * 37 + seed) % 101).collect() };
        let moving: Vec<i64> = (0..900).map(|i| i * i).collect();
        let (a, b) = (held(0), held(5));
        let gates = Gates::find(&[&a, &moving, &b, &[]], 256);
        assert_eq!(gates.of, [Some(0), None, Some(0), None]);
        assert_eq!(gates.opens.len(), 1);
        assert_eq!(gates.gaps(0, 0, 256)[..3], [3, 3, 3]);
        assert_eq!(gates.gaps(0, 256, 256)[..2], [2, 3]);
        assert_eq!(gates.kept(Some(0), 0, &a[..7]), [a[0], a[3], a[6]]);
        assert_eq!(gates.kept(None, 0, &a[..7]), a[..7]);
    }

    #[test]
    fn a_single_change_needs_no_gate() {
        let mut column = vec![0; 900];
        column[500..].fill(7);
        assert_eq!(Gates::find(&[&column], 256).of, [None]);
    }
}
