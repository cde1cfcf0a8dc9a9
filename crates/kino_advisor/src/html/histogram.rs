//! A histogram: one column per bin.

use super::Plot;
use super::axis::Axis;
use super::svg::{Dimension, Frame, Rect, Svg};

/// A range of values, and how many fell into it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bin {
    /// The lower end, included.
    pub(crate) from: f64,
    /// The upper end, excluded.
    pub(crate) to: f64,
    /// The count or amount.
    pub(crate) count: f64,
}

/// One column per bin, as wide as the bin. On a log axis, a bin that starts at 0 is drawn from half of its upper end.
pub(crate) fn histogram(title: &str, x: &Axis, y: &Axis, bins: &[Bin]) -> Plot {
    let drawn: Vec<Bin> = bins
        .iter()
        .map(|bin| Bin {
            from: if x.drawable(bin.from) {
                bin.from
            } else {
                bin.to / 2.0
            },
            ..*bin
        })
        .filter(|bin| x.drawable(bin.from) && x.drawable(bin.to) && bin.from < bin.to)
        .filter(|bin| y.drawable(bin.count) && bin.count >= 0.0)
        .collect();
    let ends = drawn.iter().flat_map(|bin| [bin.from, bin.to]);
    let columns = Dimension::new(x, ends);
    let counts = Dimension::new(y, drawn.iter().map(|bin| bin.count));
    let Some((columns, counts)) = columns.zip(counts) else {
        return Svg::empty(title);
    };
    let mut frame = Frame::new(title, columns, counts, &[]);
    for bin in drawn {
        let (low, high) = (frame.at(bin.from, 0.0), frame.at(bin.to, bin.count));
        let Some(([left, bottom], [right, top])) = low.zip(high) else {
            continue;
        };
        let tooltip = format!(
            "{} to {}: {}",
            x.quantity(bin.from),
            x.quantity(bin.to),
            y.quantity(bin.count)
        );
        let rect = Rect {
            x: left + 0.5,
            y: top,
            width: right - left - 1.0,
            height: bottom - top,
        };
        frame.svg.rect(0, rect, &tooltip);
    }
    frame.svg.finish()
}

#[cfg(test)]
mod tests {
    use super::super::well_formed::check;
    use super::*;

    fn bin(from: f64, to: f64, count: f64) -> Bin {
        Bin { from, to, count }
    }

    #[test]
    fn each_bin_is_a_column_as_wide_as_it_is() {
        let bins = [bin(0.0, 1e-6, 5.0), bin(1e-6, 1e-3, 2.0)];
        let Plot { svg, .. } =
            histogram("t", &Axis::log("wait", "s"), &Axis::new("steps", ""), &bins);
        check(&svg);
        assert_eq!(svg.matches("<rect").count(), 2);
        assert!(svg.contains("1 µs to 1 ms: 2"), "{svg}");
        assert!(svg.contains(">steps<") && svg.contains(">wait<"));
    }

    #[test]
    fn bins_that_cannot_be_drawn_are_skipped() {
        let bins = [
            bin(f64::NAN, 1.0, 1.0),
            bin(0.0, f64::INFINITY, 1.0),
            bin(2.0, 1.0, 1.0),
            bin(1.0, 2.0, f64::NAN),
            bin(1.0, 2.0, -1.0),
        ];
        let axis = Axis::new("", "");
        let Plot { svg, .. } = histogram("t", &axis, &axis, &bins);
        check(&svg);
        // The first has an upper end, so its lower end can be derived.
        assert_eq!(svg.matches("<rect").count(), 1, "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert!(
            histogram("t", &axis, &axis, &bins[1..])
                .svg
                .contains("no data")
        );
        assert!(histogram("t", &axis, &axis, &[]).svg.contains("no data"));
    }
}
