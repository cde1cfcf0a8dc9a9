//! A report: one self-contained HTML file with tables and plots.
//!
//! ```text
//! HtmlReport::new(title)
//!   .verdict(sentence)  .alarm(sentence)  .heading(text)  .text(text)
//!   .table(head, rows)
//!   .figure(plot, caption)      plot: bars, stacked_bars, histogram, lines, scatter
//!   .to_html()                  a file        .to_fragment()   part of another page, such as a notebook
//! ```
//!
//! Everything here is a pure function from data to text: no clock, no file, no thread. The report is also well-formed
//! XML, has no scripts, follows the light or dark theme of the reader's system, and fits a phone. All text is escaped
//! in one place (`svg.rs`), and only finite values reach a plot (`axis.rs`): what cannot be drawn is skipped.
//!
//! | file | holds |
//! |---|---|
//! | `axis.rs` | from values to positions, and the ticks |
//! | `quantity.rs` | readable numbers: `12.5 ms`, `3.2 MB` |
//! | `svg.rs` | elements, escaping, the frame of a plot with its axes |
//! | `bars.rs`, `histogram.rs`, `lines.rs`, `scatter.rs` | one plot each |
//! | `style.rs` | colors and sizes |

mod axis;
mod bars;
mod histogram;
mod lines;
mod quantity;
mod scatter;
mod style;
mod svg;
#[cfg(test)]
mod well_formed;

use std::fmt::Write;

pub(crate) use axis::Axis;
pub(crate) use bars::{Bar, StackedBar, bars, stacked_bars};
pub(crate) use histogram::{Bin, histogram};
pub(crate) use lines::{Line, lines};
pub(crate) use quantity::to_quantity;
pub(crate) use scatter::{Better, Point, Scatter, scatter};

use svg::escape;

/// A plot, ready for a [`HtmlReport`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plot {
    title: String,
    svg: String,
}

/// Builds a report; [`to_html`](Self::to_html) gives the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HtmlReport {
    title: String,
    body: String,
}

impl HtmlReport {
    /// An empty report.
    pub(crate) fn new(title: &str) -> Self {
        let title = escape(title);
        Self {
            body: format!("<h1>{title}</h1>\n"),
            title,
        }
    }

    /// Adds the conclusion, for a reader in a hurry.
    pub(crate) fn verdict(self, sentence: &str) -> Self {
        self.element("p class=\"verdict\"", sentence)
    }

    /// Adds a warning that must not be overlooked.
    pub(crate) fn alarm(self, sentence: &str) -> Self {
        self.element("p class=\"verdict alarm\"", sentence)
    }

    /// Adds a heading.
    pub(crate) fn heading(self, text: &str) -> Self {
        self.element("h2", text)
    }

    /// Adds a paragraph.
    pub(crate) fn text(self, text: &str) -> Self {
        self.element("p", text)
    }

    /// Adds a table; the first column holds names, the others figures. Rows that are too short are filled with empty
    /// cells.
    pub(crate) fn table(mut self, head: &[&str], rows: &[Vec<String>]) -> Self {
        self.body += "<div class=\"wide\"><table>\n<thead><tr>";
        for name in head {
            self.write(format_args!("<th>{}</th>", escape(name)));
        }
        self.body += "</tr></thead>\n<tbody>\n";
        for row in rows {
            self.body += "<tr>";
            for idx in 0..head.len().max(row.len()) {
                let cell = row.get(idx).map_or("", String::as_str);
                self.write(format_args!("<td>{}</td>", escape(cell)));
            }
            self.body += "</tr>\n";
        }
        self.body += "</tbody></table></div>\n";
        self
    }

    /// Adds a plot, with its title above and a caption below.
    pub(crate) fn figure(mut self, plot: Plot, caption: &str) -> Self {
        let Plot { title, svg } = plot;
        let (title, caption) = (escape(&title), escape(caption));
        self.write(format_args!("<figure><h3>{title}</h3>\n{svg}\n"));
        if !caption.is_empty() {
            self.write(format_args!("<figcaption>{caption}</figcaption>"));
        }
        self.body += "</figure>\n";
        self
    }

    /// The report as a file.
    pub(crate) fn to_html(&self) -> String {
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
             <title>{}</title>\n<style>{}</style></head>\n<body>\n{}</body></html>\n",
            self.title,
            style::WHOLE_PAGE,
            self.to_fragment()
        )
    }

    /// The report as part of another page. Its styles do not affect the rest of that page.
    pub(crate) fn to_fragment(&self) -> String {
        format!(
            "<div class=\"kinograph\"><style>{}</style>\n{}</div>\n",
            style::STYLE,
            self.body
        )
    }

    fn element(mut self, tag: &str, text: &str) -> Self {
        let name = tag.split(' ').next().unwrap_or(tag);
        self.write(format_args!("<{tag}>{}</{name}>\n", escape(text)));
        self
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.body.write_fmt(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NASTY: &str = "a<b> & \"c\" 'd' \u{0}\u{8}]]>";

    #[test]
    fn a_full_report_is_well_formed_and_self_contained() {
        let page = HtmlReport::new(NASTY)
            .verdict(NASTY)
            .alarm(NASTY)
            .heading(NASTY)
            .text(NASTY)
            .table(
                &[NASTY, "b", "c"],
                &[vec![NASTY.into()], vec!["1".into(); 4]],
            )
            .figure(
                bars(NASTY, &Axis::new(NASTY, NASTY), &[Bar::new(NASTY, 1.0)]),
                NASTY,
            );
        for text in [page.to_html(), page.to_fragment()] {
            well_formed::check(&text);
            assert!(
                !text.contains("<script") && !text.contains("http"),
                "{text}"
            );
            assert!(text.contains("prefers-color-scheme: dark"));
        }
        assert!(page.to_html().contains("width=device-width"));
        assert_eq!(page.to_html().matches("<td></td>").count(), 2);
    }

    #[test]
    fn an_empty_report_is_well_formed() {
        well_formed::check(&HtmlReport::new("").to_html());
        well_formed::check(&HtmlReport::new("").table(&[], &[]).to_html());
    }
}
