//! A value that moves from one zone of its range to the other: a gripper that opens or closes.

use super::EventRule;

/// The rows of each transition: the last in the zone it leaves, the first in the zone it reaches.
pub(super) fn find(rule: &EventRule, values: &[f64], columns: usize) -> Vec<(usize, usize)> {
    let mut found: Vec<_> = (0..columns)
        .flat_map(|column| {
            let values = values.iter().skip(column).step_by(columns).copied();
            find_in_column(rule, values)
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn find_in_column(
    rule: &EventRule,
    values: impl Iterator<Item = f64> + Clone,
) -> Vec<(usize, usize)> {
    // A value that is not finite is in no zone.
    let finite = values.clone().filter(|value| value.is_finite());
    let (min, max) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), value| {
        (value.min(min), value.max(max))
    });
    let range = max - min;
    if !(range > 0.0 && range >= rule.min_range) {
        return Vec::new();
    }
    let (low, high) = (min + rule.low * range, min + rule.high * range);
    let mut found = Vec::new();
    // The zone seen last, and its last row.
    let mut last: Option<(bool, usize)> = None;
    for (row, value) in values.enumerate() {
        let is_high = match value {
            value if value >= high => true,
            value if value <= low => false,
            _ => continue,
        };
        if let Some((_, from)) = last.filter(|(was_high, _)| *was_high != is_high) {
            found.push((from, row));
        }
        last = Some((is_high, row));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::rule;

    #[test]
    fn opening_and_closing_are_found_and_jitter_is_not() {
        let gripper = [0.04, 0.041, 0.03, 0.01, 0.0, 0.012, 0.0, 0.02, 0.039, 0.04];
        let found = find(&rule("transition"), &gripper, 1);
        assert_eq!(found, [(2, 3), (6, 8)]);
    }

    #[test]
    fn every_column_counts_and_simultaneous_transitions_count_once() {
        let pair = [0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0];
        assert_eq!(find(&rule("transition"), &pair, 2), [(1, 2)]);
    }

    #[test]
    fn small_movements_and_nan_are_not_transitions() {
        for values in [
            &[0.5; 6][..],
            &[0.0, 1e-4, 0.0],
            &[f64::NAN, f64::INFINITY, 1.0],
            &[],
        ] {
            assert!(
                find(&rule("transition"), values, 1).is_empty(),
                "{values:?}"
            );
        }
        let holes = [0.0, f64::NAN, 1.0];
        assert_eq!(find(&rule("transition"), &holes, 1), [(0, 2)]);
    }
}
