//! Values that leave their running mean by far more than their noise: forces at contact.
//!
//! ```text
//! distance(row) = √ Σ over elements of (value(row) − mean of the rows in the window before it)²
//! far           = distance > threshold, or > noise × median distance of the episode
//! onset         = the first of `hold` far rows; the next only after a distance below half of that
//! ```

use super::EventRule;

/// The row of each onset, as both start and end: an onset has no duration.
pub(super) fn find(
    rule: &EventRule,
    values: &[f64],
    columns: usize,
    times: &[i64],
) -> Vec<(usize, usize)> {
    let distances = distances(rule, values, columns, times);
    let threshold = match rule.threshold {
        Some(threshold) => threshold,
        None => rule.noise * median(&distances),
    };
    let mut found = Vec::new();
    let (mut in_contact, mut far_rows) = (false, 0);
    for (row, &distance) in distances.iter().enumerate() {
        // A signal without any noise has a median of 0: then any distance is far.
        if distance > threshold {
            far_rows += 1;
            if far_rows == rule.hold && !in_contact {
                let first = row + 1 - rule.hold;
                found.push((first, first));
                in_contact = true;
            }
        } else {
            far_rows = 0;
            in_contact &= distance >= threshold / 2.0 && threshold > 0.0;
        }
    }
    found
}

/// The distance of each row from the mean of the rows in the window before it; 0 if there are none.
fn distances(rule: &EventRule, values: &[f64], columns: usize, times: &[i64]) -> Vec<f64> {
    let window_ns = super::nanoseconds(rule.window_s);
    let mut sums = vec![0.0; columns];
    let mut rows_in = 0_u32;
    let mut start = 0;
    let is_number = |row: &[f64]| row.iter().all(|value| value.is_finite());
    let rows: Vec<&[f64]> = values.chunks_exact(columns).collect();
    let mut out = Vec::with_capacity(rows.len());
    for (row, time) in rows.iter().zip(times) {
        while start < out.len() && time.saturating_sub(times[start]) > window_ns {
            if is_number(rows[start]) {
                sums.iter_mut()
                    .zip(rows[start])
                    .for_each(|(sum, value)| *sum -= value);
                rows_in -= 1;
            }
            start += 1;
        }
        if rows_in == 0 {
            // An empty window discards accumulated rounding errors.
            sums.fill(0.0);
        }
        let usable = rows_in > 0 && is_number(row);
        out.push(if usable {
            distance(row, &sums, f64::from(rows_in))
        } else {
            0.0
        });
        if is_number(row) {
            sums.iter_mut()
                .zip(*row)
                .for_each(|(sum, value)| *sum += value);
            rows_in += 1;
        }
    }
    out
}

fn distance(row: &[f64], sums: &[f64], rows: f64) -> f64 {
    let squares = row
        .iter()
        .zip(sums)
        .map(|(value, sum)| (value - sum / rows).powi(2));
    squares.sum::<f64>().sqrt()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::rule;

    /// Low noise at 1 kHz, with a step of `force` at the given rows.
    fn forces(steps: &[(usize, f64)]) -> (Vec<f64>, Vec<i64>) {
        let mut state = 1_u64;
        let mut noise = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            f64::from(u32::try_from(state >> 40).unwrap()) / f64::from(1 << 24) - 0.5
        };
        let force = |row: usize| {
            let mut before = steps.iter().filter(|(at, _)| *at <= row);
            before.next_back().map_or(0.0, |(_, force)| *force)
        };
        let values = (0..3000).flat_map(|row| [force(row) + noise(), noise(), 5.0 + noise()]);
        let values = values.collect();
        (values, (0..3000).map(|row| row * 1_000_000).collect())
    }

    #[test]
    fn contact_and_release_are_found_once_each() {
        let (values, times) = forces(&[(1000, 20.0), (2000, 0.0)]);
        let found = find(&rule("onset"), &values, 3, &times);
        assert_eq!(found, [(1000, 1000), (2000, 2000)]);
    }

    #[test]
    fn noise_and_slow_drift_are_not_contacts() {
        let (mut values, times) = forces(&[]);
        for (row, value) in values.iter_mut().enumerate() {
            *value += row as f64 * 1e-4;
        }
        assert!(find(&rule("onset"), &values, 3, &times).is_empty());
    }

    #[test]
    fn a_single_spike_is_not_a_contact_and_nan_is_skipped() {
        let (mut values, times) = forces(&[]);
        values[3 * 1500] = 100.0;
        values[3 * 1600] = f64::NAN;
        values[3 * 1700 + 1] = f64::INFINITY;
        assert!(find(&rule("onset"), &values, 3, &times).is_empty());
        let mut given = rule("onset");
        given.threshold = Some(50.0);
        given.hold = 1;
        assert_eq!(find(&given, &values, 3, &times), [(1500, 1500)]);
    }

    #[test]
    fn a_step_in_a_noiseless_signal_is_found() {
        let values: Vec<f64> = (0..100)
            .map(|row| if row < 60 { 0.0 } else { 3.0 })
            .collect();
        let times: Vec<i64> = (0..100).map(|row| row * 10_000_000).collect();
        assert_eq!(find(&rule("onset"), &values, 1, &times), [(60, 60)]);
        assert!(find(&rule("onset"), &[], 1, &[]).is_empty());
    }
}
