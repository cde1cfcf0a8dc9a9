//! SVG elements, and the frame that most plots share.
//!
//! ```text
//! y title
//!   40 ┤············
//!   20 ┤············     area: where values are drawn
//!    0 └────────────
//!      0     5    10
//!          x title
//! ```
//!
//! All text goes through [`escape`], all coordinates through [`Place`].

use std::fmt::{Display, Formatter, Write};

use super::Plot;
use super::axis::{Axis, Scale};
use super::style::SERIES;

/// The width of every plot in SVG units; it is scaled to the width of the page.
pub(super) const WIDTH: f64 = 480.0;

/// The height of a plot with two axes.
const HEIGHT: f64 = 260.0;

/// Room above the area, for the title of the vertical axis.
const TOP: f64 = 24.0;

/// Room below it, for ticks and the title of the horizontal axis.
const BOTTOM: f64 = 42.0;

/// Room left of it, for ticks.
const LEFT: f64 = 60.0;

/// Room right of it, for half of the last tick's text.
const RIGHT: f64 = 24.0;

/// A row of the legend.
const LEGEND_ROW: f64 = 20.0;

/// The approximate width of a letter: text is not measured here.
pub(super) const LETTER: f64 = 7.0;

/// The name, shortened if it has more letters than that.
pub(super) fn clip(name: &str, most: usize) -> String {
    let is_longer = name.chars().nth(most).is_some();
    let kept = if is_longer {
        most.saturating_sub(1)
    } else {
        most
    };
    let mut short: String = name.chars().take(kept).collect();
    if is_longer && most > 0 {
        short.push('…');
    }
    short
}

/// Escapes text for HTML, XML and attributes. Characters that XML does not allow become a replacement character.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            '\t' | '\n' => escaped.push(letter),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ if letter.is_control() => escaped.push('\u{fffd}'),
            _ => escaped.push(letter),
        }
    }
    escaped
}

/// A coordinate with two decimals; always finite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Place(pub(super) f64);

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        debug_assert!(
            self.0.is_finite(),
            "a value that cannot be drawn got past the axis"
        );
        let place = if self.0.is_finite() { self.0 } else { 0.0 };
        write!(f, "{}", (place * 100.0).round() / 100.0)
    }
}

/// A point of the drawing, `[x, y]`.
pub(super) type Spot = [f64; 2];

/// A plot under construction.
#[derive(Debug)]
pub(super) struct Svg {
    title: String,
    height: f64,
    body: String,
}

/// Which point of a text is placed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    pub(super) fn new(title: &str, height: f64) -> Self {
        Self {
            title: title.to_owned(),
            height,
            body: String::new(),
        }
    }

    /// A plot that shows "no data".
    pub(super) fn empty(title: &str) -> Plot {
        let mut svg = Self::new(title, 60.0);
        svg.text([WIDTH / 2.0, 34.0], Anchor::Middle, "soft", "no data");
        svg.finish()
    }

    pub(super) fn add(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.body.write_fmt(element);
        self.body.push('\n');
    }

    pub(super) fn text(&mut self, [x, y]: Spot, anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.add(format_args!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\" class=\"{class}\">{}</text>",
            Place(x),
            Place(y),
            escape(text)
        ));
    }

    pub(super) fn line(&mut self, class: &str, [x1, y1]: Spot, [x2, y2]: Spot) {
        let (x1, y1, x2, y2) = (Place(x1), Place(y1), Place(x2), Place(y2));
        self.add(format_args!(
            "<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>"
        ));
    }

    /// A rectangle with a tooltip.
    pub(super) fn rect(&mut self, series: usize, rect: Rect, tooltip: &str) {
        let Rect {
            x,
            y,
            width,
            height,
        } = rect;
        self.add(format_args!(
            "<rect class=\"f{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}</title></rect>",
            series % SERIES,
            Place(x),
            Place(y),
            Place(width.max(0.0)),
            Place(height.max(0.0)),
            escape(tooltip)
        ));
    }

    /// The names of the series, from `top` down.
    pub(super) fn legend(&mut self, top: f64, names: &[&str]) {
        let (mut x, mut y) = (LEFT, top);
        for (series, name) in names.iter().enumerate() {
            let width = legend_width(name);
            if x > LEFT && x + width > WIDTH {
                (x, y) = (LEFT, y + LEGEND_ROW);
            }
            let square = Rect {
                x,
                y: y + 4.0,
                width: 11.0,
                height: 11.0,
            };
            self.rect(series, square, name);
            self.text([x + 16.0, y + 14.0], Anchor::Start, "", name);
            x += width;
        }
    }

    pub(super) fn finish(self) -> Plot {
        let svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{}\">\n{}</svg>",
            Place(self.height),
            escape(&self.title),
            self.body
        );
        Plot {
            title: self.title,
            svg,
        }
    }
}

/// The height of a legend.
pub(super) fn legend_height(names: &[&str]) -> f64 {
    let (mut x, mut height) = (LEFT, LEGEND_ROW);
    for name in names {
        let width = legend_width(name);
        if x > LEFT && x + width > WIDTH {
            (x, height) = (LEFT, height + LEGEND_ROW);
        }
        x += width;
    }
    height + 4.0
}

fn legend_width(name: &str) -> f64 {
    32.0 + LETTER * name.chars().take(60).map(|_| 1.0).sum::<f64>()
}

/// A rectangle.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rect {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// An axis, and its scale for the values of a plot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dimension<'a> {
    axis: &'a Axis,
    scale: Scale,
}

impl<'a> Dimension<'a> {
    /// `None` if none of the values can be drawn.
    pub(super) fn new(axis: &'a Axis, values: impl Iterator<Item = f64>) -> Option<Self> {
        let scale = axis.scale(values)?;
        Some(Self { axis, scale })
    }
}

/// A plot with two axes, and the mapping of values to positions in it.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) svg: Svg,
    x: Scale,
    y: Scale,
}

impl Frame {
    /// Draws the axes, and a legend if there is more than one series.
    pub(super) fn new(title: &str, x: Dimension<'_>, y: Dimension<'_>, names: &[&str]) -> Self {
        let has_legend = names.len() > 1;
        let height = HEIGHT
            + if has_legend {
                legend_height(names)
            } else {
                0.0
            };
        let mut frame = Self {
            svg: Svg::new(title, height),
            x: x.scale,
            y: y.scale,
        };
        frame.draw_axes(x.axis, y.axis);
        if has_legend {
            frame.svg.legend(HEIGHT, names);
        }
        frame
    }

    fn draw_axes(&mut self, x_axis: &Axis, y_axis: &Axis) {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        let label = y_axis.label(&self.y);
        self.svg.text([4.0, 14.0], Anchor::Start, "soft", &label);
        for tick in self.y.ticks() {
            let Some(y) = self.y_at(tick) else { continue };
            self.svg.line("grid", [LEFT, y], [right, y]);
            let text = y_axis.tick(&self.y, tick);
            self.svg
                .text([LEFT - 6.0, y + 4.0], Anchor::End, "soft", &text);
        }
        let mut free = f64::MIN;
        for tick in self.x.ticks() {
            let Some(x) = self.x_at(tick) else { continue };
            let text = x_axis.tick(&self.x, tick);
            let half = legend_width(&text) / 2.0 - 14.0;
            self.svg.line("axis", [x, bottom], [x, bottom + 4.0]);
            // Labels that would touch are skipped.
            if x - half >= free {
                self.svg
                    .text([x, bottom + 18.0], Anchor::Middle, "soft", &text);
                free = x + half;
            }
        }
        self.svg.line("axis", [LEFT, bottom], [right, bottom]);
        let middle = LEFT.midpoint(right);
        let label = x_axis.label(&self.x);
        self.svg
            .text([middle, HEIGHT - 6.0], Anchor::Middle, "soft", &label);
    }

    pub(super) fn x_at(&self, value: f64) -> Option<f64> {
        Some(LEFT + self.x.place(value)? * (WIDTH - RIGHT - LEFT))
    }

    pub(super) fn y_at(&self, value: f64) -> Option<f64> {
        Some(HEIGHT - BOTTOM - self.y.place(value)? * (HEIGHT - BOTTOM - TOP))
    }

    /// The position of a point, if both of its coordinates can be drawn.
    pub(super) fn at(&self, x: f64, y: f64) -> Option<Spot> {
        Some([self.x_at(x)?, self.y_at(y)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_once_and_everywhere() {
        assert_eq!(
            escape("a<b>&\"'\u{1b}\n"),
            "a&lt;b&gt;&amp;&quot;&#39;\u{fffd}\n"
        );
        let mut svg = Svg::new("<t>", 10.0);
        svg.text([0.0, 0.0], Anchor::End, "", "<x>");
        svg.legend(0.0, &["<n>"; 30]);
        let Plot { title, svg } = svg.finish();
        assert_eq!(title, "<t>", "the report escapes it");
        assert!(!svg.contains("<t>") && !svg.contains("<x>") && !svg.contains("<n>"));
        super::super::well_formed::check(&svg);
    }

    #[test]
    fn a_place_has_at_most_two_decimals() {
        assert_eq!(Place(1.0 / 3.0).to_string(), "0.33");
        assert_eq!(Place(-0.001).to_string(), "-0");
        assert_eq!(Place(12.0).to_string(), "12");
    }
}
