//! Horizontal bars, one per row, each with its name and value; and stacked bars.
//!
//! ```text
//! decode    ███████████████  12.5 ms          ours  ██████████▒▒▒░  14 ms
//! fetch     ███  2.1 ms                       torch ███▒▒▒▒▒▒▒▒▒▒░░░░  18 ms
//! ```
//!
//! Bars are horizontal, so that names have room on a phone.

use super::Plot;
use super::axis::{Axis, Scale};
use super::svg::{Anchor, LETTER, Rect, Svg, WIDTH, clip, legend_height};

/// Distance from one bar to the next.
const ROW: f64 = 28.0;

/// The most width that names may take.
const NAMES: f64 = 150.0;

/// The most letters of a name.
const NAME_LETTERS: usize = 21;

/// Room right of the longest bar, for its value.
const VALUES: f64 = 76.0;

/// Room below the bars, for the axis title.
const BOTTOM: f64 = 24.0;

/// A bar.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bar {
    name: String,
    value: f64,
}

impl Bar {
    /// A bar of this length.
    pub(crate) fn new(name: &str, value: f64) -> Self {
        Self {
            name: name.to_owned(),
            value,
        }
    }
}

/// A bar of several segments, one per series.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StackedBar {
    name: String,
    parts: Vec<f64>,
}

impl StackedBar {
    /// A bar of these segments, from the left.
    pub(crate) fn new(name: &str, parts: &[f64]) -> Self {
        Self {
            name: name.to_owned(),
            parts: parts.to_vec(),
        }
    }
}

/// One bar per value. A value that is negative or not finite has no bar, and is shown as `–`.
pub(crate) fn bars(title: &str, axis: &Axis, bars: &[Bar]) -> Plot {
    let rows: Vec<StackedBar> = bars
        .iter()
        .map(|bar| StackedBar::new(&bar.name, &[bar.value]))
        .collect();
    stacked_bars(title, axis, &[], &rows)
}

/// One bar per row, of segments named by `series`. The sum is shown at the end of each.
pub(crate) fn stacked_bars(title: &str, axis: &Axis, series: &[&str], rows: &[StackedBar]) -> Plot {
    let sums = rows.iter().map(|row| sum(axis, row));
    let Some(scale) = axis.scale(sums.flatten()) else {
        return Svg::empty(title);
    };
    let has_legend = series.len() > 1;
    let legend = if has_legend {
        legend_height(series)
    } else {
        0.0
    };
    let bottom = rows.iter().map(|_| ROW).sum::<f64>();
    let mut svg = Svg::new(title, bottom + BOTTOM + legend);
    let left = names_width(rows);
    let bars = Bars {
        axis,
        scale: &scale,
        series,
        left,
    };
    let mut top = 0.0;
    for row in rows {
        svg.text(
            [0.0, top + 18.0],
            Anchor::Start,
            "",
            &clip(&row.name, NAME_LETTERS),
        );
        let end = bars.draw(&mut svg, row, top);
        let value = sum(axis, row).map_or("–".to_owned(), |sum| axis.quantity(sum));
        svg.text([end + 6.0, top + 18.0], Anchor::Start, "soft", &value);
        top += ROW;
    }
    svg.line("axis", [left, 0.0], [left, bottom]);
    svg.text(
        [left, bottom + 16.0],
        Anchor::Start,
        "soft",
        &axis.label(&scale),
    );
    if has_legend {
        svg.legend(bottom + BOTTOM, series);
    }
    svg.finish()
}

/// What the bars of a plot share.
struct Bars<'a> {
    axis: &'a Axis,
    scale: &'a Scale,
    series: &'a [&'a str],
    /// Where they begin.
    left: f64,
}

impl Bars<'_> {
    /// Draws the segments of a row; returns where they end.
    fn draw(&self, svg: &mut Svg, row: &StackedBar, top: f64) -> f64 {
        let (mut done, mut end) = (0.0, self.left);
        if sum(self.axis, row).is_none() {
            return end;
        }
        for (idx, &part) in row.parts.iter().enumerate() {
            done += part;
            let Some(place) = self.scale.place(done) else {
                continue;
            };
            let next = self.left + place * (WIDTH - self.left - VALUES);
            let name = self.series.get(idx).map_or(row.name.as_str(), |name| name);
            let tooltip = format!("{name}: {}", self.axis.quantity(part));
            let rect = Rect {
                x: end,
                y: top + 4.0,
                width: next - end,
                height: ROW - 8.0,
            };
            svg.rect(idx, rect, &tooltip);
            end = next;
        }
        end
    }
}

/// The length of a bar, if it has one.
fn sum(axis: &Axis, row: &StackedBar) -> Option<f64> {
    let is_length = |part: &f64| *part >= 0.0 && axis.drawable(*part);
    let sum = row.parts.iter().sum();
    (row.parts.iter().all(is_length) && axis.drawable(sum)).then_some(sum)
}

fn names_width(rows: &[StackedBar]) -> f64 {
    let widths = rows.iter().map(|row| {
        let letters = clip(&row.name, NAME_LETTERS)
            .chars()
            .map(|_| LETTER)
            .sum::<f64>();
        letters + 10.0
    });
    widths.fold(20.0, f64::max).min(NAMES + 20.0)
}

#[cfg(test)]
mod tests {
    use super::super::well_formed::check;
    use super::*;

    #[test]
    fn each_bar_has_its_name_and_its_value() {
        let Plot { svg, .. } = bars(
            "t",
            &Axis::new("time", "s"),
            &[Bar::new("decode <1>", 0.0125), Bar::new("fetch", 0.002)],
        );
        check(&svg);
        for text in ["decode &lt;1&gt;", "12.5 ms", "fetch", "2 ms", "time (ms)"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert_eq!(svg.matches("<rect").count(), 2);
    }

    #[test]
    fn segments_are_drawn_end_to_end_and_the_sum_is_shown() {
        let rows = [StackedBar::new("ours", &[1.0, 2.0, 1.0])];
        let Plot { svg, .. } = stacked_bars("t", &Axis::new("", "s"), &["a", "b", "c"], &rows);
        check(&svg);
        assert!(svg.contains(">4 s<") && svg.contains("b: 2 s"), "{svg}");
        let numbers = |key: &str| -> Vec<f64> {
            let parts = svg.split("<rect").skip(1).take(3);
            parts
                .map(|rect| {
                    let value = rect.split(&format!(" {key}=\"")).nth(1).unwrap();
                    value.split('"').next().unwrap().parse().unwrap()
                })
                .collect()
        };
        let (x, width) = (numbers("x"), numbers("width"));
        assert!((x[0] + width[0] - x[1]).abs() < 0.03 && (x[1] + width[1] - x[2]).abs() < 0.03);
        assert!((width[1] / width[0] - 2.0).abs() < 0.01);
    }

    #[test]
    fn a_value_that_is_not_a_length_has_no_bar() {
        let values = [f64::NAN, f64::INFINITY, -1.0, 3.0, 0.0];
        let rows: Vec<Bar> = values.iter().map(|&value| Bar::new("x", value)).collect();
        let Plot { svg, .. } = bars("t", &Axis::new("", ""), &rows);
        check(&svg);
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert_eq!(
            (svg.matches("<rect").count(), svg.matches('–').count()),
            (2, 3)
        );
        for none in [&rows[..0], &rows[..2]] {
            assert!(bars("t", &Axis::new("", ""), none).svg.contains("no data"));
        }
    }

    #[test]
    fn a_long_name_is_shortened() {
        assert_eq!(
            clip("observation/agentview", NAME_LETTERS),
            "observation/agentview"
        );
        assert_eq!(
            clip("observation/agentview_image", NAME_LETTERS),
            "observation/agentvie…"
        );
        assert_eq!(clip("ab", 0), "");
    }
}
