//! Readable numbers: three digits, and a unit prefix that fits the size.

/// A value with its unit: `0.0125` of `s` is `12.5 ms`, `3200000` of `B` is `3.20 MB`. A value that is not finite is
/// `–`.
pub(crate) fn to_quantity(value: f64, unit: &str) -> String {
    let (factor, unit) = step_of(value, unit);
    let number = to_number(value / factor);
    if unit.is_empty() {
        number
    } else {
        format!("{number} {unit}")
    }
}

/// The divisor of a unit for values of this size, and the unit with its prefix.
pub(super) fn step_of(value: f64, unit: &str) -> (f64, String) {
    // A computed power of ten may be slightly too small.
    let size = value.abs() * (1.0 + 1e-9);
    let steps: &[(f64, &str)] = match unit {
        "s" => &[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")],
        "B" => &[(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")],
        "B/s" => &[(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")],
        _ => return (1.0, unit.to_owned()),
    };
    let fits = steps.iter().find(|(factor, _)| size >= *factor);
    match fits.or(steps.last()) {
        Some(&(factor, name)) if size > 0.0 => (factor, name.to_owned()),
        _ => (1.0, unit.to_owned()),
    }
}

/// Three digits, or all digits before the decimal point.
pub(super) fn to_number(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let size = value.abs();
    match size {
        0.0 => "0".to_owned(),
        _ if !(1e-3..1e7).contains(&size) => format!("{value:.2e}"),
        _ if size >= 100.0 || (value - value.round()).abs() < size * 1e-9 => format!("{value:.0}"),
        _ if size >= 10.0 => format!("{value:.1}"),
        _ if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_has_three_digits_and_a_fitting_unit() {
        let cases = [
            (0.0125, "s", "12.5 ms"),
            (1.5, "s", "1.50 s"),
            (0.0, "s", "0 s"),
            (1234.0, "", "1234"),
            (0.25, "s", "250 ms"),
            (3.2e-7, "s", "320 ns"),
            (5e-10, "s", "0.500 ns"),
            (3.2e6, "B", "3.20 MB"),
            (512.0, "B", "512 B"),
            (0.953, "", "0.953"),
            (12.0, "batches", "12 batches"),
            (1e9, "", "1.00e9"),
            (-0.25, "s", "-250 ms"),
            (0.0, "B", "0 B"),
            (f64::NAN, "s", "– s"),
            (f64::INFINITY, "", "–"),
        ];
        for (value, unit, expected) in cases {
            assert_eq!(to_quantity(value, unit), expected, "{value} {unit}");
        }
    }
}
