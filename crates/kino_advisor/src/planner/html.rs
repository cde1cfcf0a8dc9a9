//! The choice as an HTML report: bytes against throughput, where a batch's time goes, the codecs of each stream.

use super::Planned;
use super::text::stored_as;
use crate::html::{
    Axis, Better, HtmlReport, Plot, Point, Scatter, StackedBar, scatter, stacked_bars,
};

impl Planned {
    /// The report, as one self-contained file.
    pub fn to_html(&self) -> String {
        self.report().to_html()
    }

    /// The report as part of another page, such as a notebook.
    pub fn to_fragment(&self) -> String {
        self.report().to_fragment()
    }

    fn report(&self) -> HtmlReport {
        let mut report = HtmlReport::new(&format!("kinograph plan: {}", self.measured.whole.name));
        let mut sentences = self.explanation().into_iter();
        if let Some(first) = sentences.next() {
            report = report.verdict(&first);
        }
        for sentence in sentences {
            report = report.text(&sentence);
        }
        for line in self.setting() {
            report = report.text(&line);
        }
        report = table(report.heading("Plans"), &self.plan_rows())
            .figure(
                self.front(),
                "Bytes of the whole recording against samples per second. The line connects the plans that no other plan beats.",
            )
            .figure(
                self.stages(),
                "CPU time and storage time of a batch. Storage runs beside decoding, which shares the cores with the training loop.",
            );
        if !self.split_points.is_empty() {
            report = report.heading("Split points").text(&self.split_title());
            report = table(report, &self.split_rows());
        }
        report = table(report.heading("Streams"), &self.stream_rows()).figure(
            self.codecs(),
            "Candidate codecs of the streams that are loaded: stored bytes and time to decode a frame, on one core.",
        );
        let signal = self.signal_lines();
        if !signal.is_empty() {
            report = report.heading("What a policy would lose, by the probe");
            for line in signal {
                report = report.text(&line);
            }
            report = table(report, &self.looked_rows());
        }
        report = report.heading("What follows");
        for line in self.answer_lines() {
            report = report.text(&line);
        }
        report
    }

    fn front(&self) -> Plot {
        let points: Vec<Point> = self
            .plans
            .iter()
            .enumerate()
            .map(|(idx, plan)| Point {
                name: self.plan_name(plan),
                group: match (idx == self.chosen, plan.is_allowed, plan.is_lossless) {
                    (true, ..) => "chosen",
                    (_, false, _) => "loses more than allowed",
                    (_, true, true) => "lossless",
                    (_, true, false) => "lossy",
                }
                .to_owned(),
                x: plan.prediction.bytes,
                y: plan.prediction.samples_per_s,
            })
            .collect();
        scatter(&Scatter {
            title: "Bytes and throughput",
            x: &Axis::log("dataset", "B"),
            y: &Axis::new("samples per second", ""),
            points: &points,
            better: Some((Better::Lower, Better::Higher)),
        })
    }

    fn stages(&self) -> Plot {
        let shown = self.plans.iter().enumerate();
        let shown = shown
            .filter(|(idx, plan)| *idx == self.chosen || plan.is_on_front || !plan.name.is_empty());
        let rows: Vec<StackedBar> = shown
            .map(|(_, plan)| {
                let prediction = &plan.prediction;
                StackedBar::new(
                    &self.plan_name(plan),
                    &[prediction.decode_s, prediction.other_s, prediction.fetch_s],
                )
            })
            .collect();
        stacked_bars(
            "Time of a batch",
            &Axis::new("time", "s"),
            &["decoding (CPU)", "everything else (CPU)", "storage"],
            &rows,
        )
    }

    fn codecs(&self) -> Plot {
        let loaded = self
            .measured
            .streams
            .iter()
            .filter(|stream| stream.window > 0.0);
        let points: Vec<Point> = loaded
            .flat_map(|stream| {
                stream.options.iter().map(|option| Point {
                    name: stored_as(option),
                    group: stream.name.clone(),
                    x: option.bytes,
                    y: option.decode_ns / 1e9,
                })
            })
            .collect();
        scatter(&Scatter {
            title: "Codecs",
            x: &Axis::log("stored bytes of a frame", "B"),
            y: &Axis::log("time to decode a frame", "s"),
            points: &points,
            better: None,
        })
    }
}

fn table(report: HtmlReport, rows: &[Vec<String>]) -> HtmlReport {
    let Some((head, rows)) = rows.split_first() else {
        return report;
    };
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    report.table(&head, rows)
}
