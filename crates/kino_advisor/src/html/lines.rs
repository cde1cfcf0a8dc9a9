//! Lines: values over time.

use std::fmt::Write;

use super::Plot;
use super::axis::Axis;
use super::style::SERIES;
use super::svg::{Dimension, Frame, Place, Spot, Svg};

/// A line, from point to point.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

impl Line {
    /// A line through these points, in this order.
    pub(crate) fn new(name: &str, points: &[(f64, f64)]) -> Self {
        Self {
            name: name.to_owned(),
            points: points.to_vec(),
        }
    }
}

/// One line per series. A point that cannot be drawn leaves a gap.
pub(crate) fn lines(title: &str, x: &Axis, y: &Axis, series: &[Line]) -> Plot {
    let drawn = || {
        let points = series.iter().flat_map(|line| line.points.iter());
        points.filter(|point| x.drawable(point.0) && y.drawable(point.1))
    };
    let across = Dimension::new(x, drawn().map(|point| point.0));
    let up = Dimension::new(y, drawn().map(|point| point.1));
    let Some((across, up)) = across.zip(up) else {
        return Svg::empty(title);
    };
    let names: Vec<&str> = series.iter().map(|line| line.name.as_str()).collect();
    let mut frame = Frame::new(title, across, up, &names);
    for (idx, line) in series.iter().enumerate() {
        let places = line.points.iter().map(|&(x_value, y_value)| {
            let can = x.drawable(x_value) && y.drawable(y_value);
            can.then(|| frame.at(x_value, y_value)).flatten()
        });
        let path = to_path(places);
        if !path.is_empty() {
            let series = idx % SERIES;
            frame.svg.add(format_args!(
                "<path class=\"path l{series}\" d=\"{path}\"/>"
            ));
        }
    }
    frame.svg.finish()
}

/// SVG path commands for a line, with a gap wherever there is no point.
pub(super) fn to_path(places: impl Iterator<Item = Option<Spot>>) -> String {
    let mut path = String::new();
    let mut is_down = false;
    for place in places {
        if let Some([x, y]) = place {
            let word = if is_down { 'L' } else { 'M' };
            // Writing to a string cannot fail.
            let _ = write!(path, "{word}{} {}", Place(x), Place(y));
        }
        is_down = place.is_some();
    }
    path
}

#[cfg(test)]
mod tests {
    use super::super::well_formed::check;
    use super::*;

    #[test]
    fn there_is_a_line_per_series_with_a_gap_at_values_that_are_not_finite() {
        let points = [(0.0, 1.0), (1.0, f64::NAN), (2.0, 3.0), (3.0, 2.0)];
        let series = [
            Line::new("depth", &points),
            Line::new("ready", &[(0.0, 2.0)]),
        ];
        let Plot { svg, .. } = lines(
            "t",
            &Axis::new("time", "s"),
            &Axis::new("batches", ""),
            &series,
        );
        check(&svg);
        assert!(!svg.contains("NaN"));
        assert_eq!(svg.matches("<path").count(), 2);
        let path = svg
            .split(" d=\"")
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap();
        assert_eq!(
            (path.matches('M').count(), path.matches('L').count()),
            (2, 1),
            "{path}"
        );
        for text in ["time (s)", ">batches<", ">depth<", ">ready<"] {
            assert!(svg.contains(text), "{text}");
        }
    }

    #[test]
    fn one_series_has_no_legend_and_no_series_has_no_plot() {
        let axis = Axis::new("", "");
        assert!(
            !lines("t", &axis, &axis, &[Line::new("n", &[(0.0, 0.0)])])
                .svg
                .contains(">n<")
        );
        assert!(lines("t", &axis, &axis, &[]).svg.contains("no data"));
        let nothing = Line::new("n", &[(f64::INFINITY, 1.0)]);
        assert!(lines("t", &axis, &axis, &[nothing]).svg.contains("no data"));
    }
}
