//! Which columns share a class: those whose residuals are so similar that one table costs less than two.

use super::cost::Histogram;
use super::layout::MAX_CLASSES;

/// What a class costs besides its values, in bits: per magnitude that occurs (a table entry) …
const ENTRY_BITS: f64 = 20.0;
/// … and per page (four ANS states, a length, padding to a byte).
const PAGE_BITS: f64 = 44.0;

/// The most values the library takes in a chunk.
const MAX_NUMBERS: usize = 1 << 24;

/// The run that the columns are from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) pages: usize,
    /// How many times as many frames they represent: a table is paid once, values and pages each time.
    pub(super) times: f64,
}

/// The class of each column of integers; classes are numbered from zero.
///
/// Columns are sorted by the mean magnitude of their residuals. Neighbours are joined, those that gain
/// most first, until no pair gains.
pub(super) fn group(columns: &[Histogram], seen: Seen) -> Vec<usize> {
    let mut order: Vec<usize> = (0..columns.len()).collect();
    order.sort_by(|a, b| columns[*a].mean_size().total_cmp(&columns[*b].mean_size()));
    let mut groups: Vec<Group> = order
        .iter()
        .map(|column| Group::new(vec![*column], columns[*column].clone(), seen))
        .collect();
    let mut gains: Vec<f64> = groups
        .windows(2)
        .map(|pair| pair[0].gain(&pair[1], seen))
        .collect();
    loop {
        let best = gains.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        let Some((left, gain)) = best else {
            break;
        };
        if *gain <= 0.0 && groups.len() < MAX_CLASSES {
            break;
        }
        let right = groups.remove(left + 1);
        groups[left] = groups[left].with(&right, seen);
        gains.remove(left);
        if left > 0 {
            gains[left - 1] = groups[left - 1].gain(&groups[left], seen);
        }
        if left < gains.len() {
            gains[left] = groups[left].gain(&groups[left + 1], seen);
        }
    }
    let mut classes = vec![0; columns.len()];
    for (class, group) in groups.iter().enumerate() {
        for column in &group.columns {
            classes[*column] = class;
        }
    }
    classes
}

struct Group {
    columns: Vec<usize>,
    histogram: Histogram,
    cost: f64,
}

impl Group {
    fn new(columns: Vec<usize>, histogram: Histogram, seen: Seen) -> Self {
        let entries = ENTRY_BITS * histogram.sizes() as f64 / seen.times;
        let cost = histogram.bits() + entries + PAGE_BITS * seen.pages as f64;
        Self {
            columns,
            histogram,
            cost,
        }
    }

    fn with(&self, other: &Self, seen: Seen) -> Self {
        let columns = [&*self.columns, &*other.columns].concat();
        Self::new(columns, self.histogram.merged(&other.histogram), seen)
    }

    /// Bits gained by joining both into one class.
    fn gain(&self, other: &Self, seen: Seen) -> f64 {
        if self.histogram.len() + other.histogram.len() > MAX_NUMBERS {
            return f64::NEG_INFINITY;
        }
        self.cost + other.cost - self.with(other, seen).cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(pages: usize) -> Seen {
        Seen { pages, times: 1.0 }
    }

    #[test]
    fn similar_columns_share_a_class() {
        let noise = |size: i64| -> Vec<i64> { (0..2000).map(|i| i * 7919 % size).collect() };
        let columns = [noise(5), noise(5000), noise(5), noise(5003)].map(|n| Histogram::of(&n));
        assert_eq!(group(&columns, pages(8)), [0, 1, 0, 1]);
    }

    #[test]
    fn short_runs_get_few_classes() {
        let noise = |size: i64| -> Vec<i64> { (0..20).map(|i| i * 7919 % size).collect() };
        let columns = [noise(50), noise(60), noise(70)].map(|n| Histogram::of(&n));
        assert_eq!(group(&columns, pages(1)), [0, 0, 0]);
        assert!(group(&[], pages(1)).is_empty());
    }

    #[test]
    fn there_are_never_too_many_classes() {
        let column = |i: i64| Histogram::of(&vec![i << 20; 100_000]);
        let columns: Vec<Histogram> = (0..300).map(column).collect();
        let classes = group(&columns, pages(1));
        assert!(*classes.iter().max().unwrap() < MAX_CLASSES);
    }
}
