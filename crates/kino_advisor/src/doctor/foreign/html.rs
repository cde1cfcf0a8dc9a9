//! The diagnosis of a loader that is not ours, as an HTML report.

use super::ForeignDiagnosis;
use super::text::PACK;
use crate::doctor::html::{step_plot, takes_plot, waits};
use crate::html::{Axis, Bar, HtmlReport, Plot, bars};

impl ForeignDiagnosis {
    /// The report, as one self-contained file.
    pub fn to_html(&self) -> String {
        let evidence = &self.evidence;
        let setting = &evidence.setting;
        let mut report = HtmlReport::new(&format!("kinograph doctor: {}", setting.loader))
            .verdict(&self.verdict.sentence);
        report = self
            .with_idle(report)
            .text(&format!("{}.", setting.describe()));
        if let Some(note) = self.note() {
            report = report.text(&format!("Note: {note}."));
        }
        report = self.with_changes(report.heading("What to change"));
        report = self.with_kinograph(report.heading("Moving to Kinograph"));
        let mut loops = vec![("this loader", &evidence.fed)];
        if let Some(without) = &evidence.without {
            loops.push(("one batch again and again", &without.nothing));
        }
        if let Some(moved) = &evidence.kinograph {
            loops.push(("Kinograph", &moved.fed));
        }
        report
            .heading("Measurements")
            .figure(
                step_plot(&loops),
                "Time of a step: computing, and waiting for the batch.",
            )
            .figure(
                takes_plot(evidence.step_s, &self.runs()),
                "Time to load a batch: all of it, and with one more stage taken away each time. The shorter the bar, the more that stage costs.",
            )
            .figure(
                self.load(),
                "Busy workers while the loader runs alone; blocked and computing are those of `__getitem__`.",
            )
            .figure(
                waits(&evidence.fed),
                "How long each step waited for its batch.",
            )
            .to_html()
    }

    fn with_kinograph(&self, report: HtmlReport) -> HtmlReport {
        let (Some(sides), Some(moved)) = (self.sides(), &self.evidence.kinograph) else {
            return report.text(PACK);
        };
        let rows: Vec<Vec<String>> = sides.into_iter().map(Vec::from).collect();
        report.text(&format!("{}.", moved.how())).table(
            &["loader", "samples/s", "CPU ms/sample", "compute ratio"],
            &rows,
        )
    }

    fn load(&self) -> Plot {
        let run = &self.evidence.whole;
        let busy = |name: &str, seconds: f64| Bar::new(name, seconds / run.batch_s.max(1e-12));
        let rows = [
            busy("blocked", run.fetch_s),
            busy("computing", run.decode_s),
            busy("collate", run.collate_s),
        ];
        bars("Load of each stage", &Axis::new("busy workers", ""), &rows)
    }
}
