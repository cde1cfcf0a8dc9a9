//! What the probe found, as an HTML report.

use super::outcome::{Contrast, Probed};
use crate::html::{Axis, Bar, HtmlReport, Plot, bars};

impl Probed {
    /// The report, as one self-contained file.
    pub fn to_html(&self) -> String {
        self.report().to_html()
    }

    /// The report as part of another page, such as a notebook.
    pub fn to_fragment(&self) -> String {
        self.report().to_fragment()
    }

    fn report(&self) -> HtmlReport {
        let mut report = HtmlReport::new(&format!("kinograph probe: {}", self.name));
        for verdict in self.verdicts() {
            report = report.verdict(&verdict);
        }
        for contrast in Contrast::ALL {
            let caption = match contrast {
                Contrast::Total => {
                    "Trained on compressed frames, scored on raw ones; above 0 is worse. Intervals of 95 %."
                }
                Contrast::Information => {
                    "Trained and scored on compressed frames: what parity at deployment would not bring back."
                }
                Contrast::Mismatch => {
                    "Trained on raw frames, scored on compressed ones: a camera that compresses in front of the policy."
                }
            };
            report = report.figure(self.plot(contrast), caption);
        }
        let rows = self.rows();
        if let Some((head, rows)) = rows.split_first() {
            let head: Vec<&str> = head.iter().map(String::as_str).collect();
            report = report.heading("Contrasts").table(&head, rows);
        }
        for line in self.legend() {
            report = report.text(line);
        }
        report = report.heading("Streams");
        for line in self.change_lines() {
            report = report.text(&line);
        }
        report = report.heading("How far this carries");
        for line in self.setting() {
            report = report.text(&line);
        }
        report
    }

    fn plot(&self, contrast: Contrast) -> Plot {
        let mut found = Vec::new();
        for candidate in &self.candidates {
            for outcome in candidate.outcomes(contrast) {
                if let Some(increase) = outcome.increase {
                    let name = format!("{}, {}", candidate.name, outcome.target);
                    let ends = [
                        ("low", increase.low),
                        ("mean", increase.mean),
                        ("high", increase.high),
                    ];
                    found.extend(
                        ends.map(|(end, value)| {
                            Bar::new(&format!("{name} ({end})"), 100.0 * value)
                        }),
                    );
                }
            }
        }
        bars(
            &format!("Increase of the error: {}", contrast.name()),
            &Axis::new("increase", "%"),
            &found,
        )
    }
}
