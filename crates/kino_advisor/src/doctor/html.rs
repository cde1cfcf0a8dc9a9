//! A diagnosis as an HTML report: where a step's time goes, the load of each stage, waits, prefetched batches, and
//! codecs.

use super::evidence::FedRun;
use super::text::{NEXT, quantile};
use super::{Diagnosis, FreeRun};
use crate::html::{
    Axis, Bar, Better, Bin, HtmlReport, Line, Plot, Point, Scatter, StackedBar, bars, histogram,
    lines, scatter, stacked_bars, to_quantity,
};

/// Bins in the histogram of waits.
const BINS: usize = 24;

/// Maximum number of points in a line.
const POINTS: usize = 400;

impl Diagnosis {
    /// The report, as one self-contained file.
    pub fn to_html(&self) -> String {
        let evidence = &self.evidence;
        let setting = &evidence.setting;
        let mut report = HtmlReport::new(&format!("kinograph doctor: {}", setting.dataset))
            .verdict(&self.verdict.sentence);
        report = self.with_idle(report).text(&format!(
            "Batch size {}: {}. {} decoding threads and {} reading threads on {} cores.",
            setting.batch,
            setting.windows.join(", "),
            setting.threads,
            setting.readers,
            setting.cores
        ));
        if let Some(shuffle) = &setting.shuffle {
            report = report.text(&format!("{shuffle}."));
        }
        if let Some(emulated) = &setting.emulated_storage {
            report = report.text(&format!("Storage was slowed down to {emulated}."));
        }
        report = self.with_changes(report.heading("What to change"));
        report = report
            .heading("Measurements")
            .figure(
                self.step(),
                "Time of a step: computing, and waiting for the batch.",
            )
            .figure(
                takes_plot(evidence.step_s, &self.runs()),
                "Time to load a batch with all stages, and with one stage disabled at a time. The shorter the bar, the more that stage costs.",
            )
            .figure(
                self.load(),
                "Busy threads per stage while the loader runs alone.",
            )
            .figure(
                waits(&evidence.fed),
                "How long each step waited for its batch.",
            )
            .figure(
                ahead(&evidence.fed),
                "Batches ready when a step requested one; at 0 the step had to wait.",
            );
        if let Some(plot) = self.codecs() {
            report = report.figure(
                plot,
                "Costs on this machine, measured by `kinograph bench codecs`, for the frames of the streams that are read.",
            );
        }
        report.to_html()
    }

    fn step(&self) -> Plot {
        let mut loops = vec![("this loader", &self.evidence.fed)];
        if let Some(without) = &self.evidence.without {
            loops.push(("a loader that does no work", &without.nothing));
        }
        step_plot(&loops)
    }

    fn load(&self) -> Plot {
        let run = &self.evidence.whole;
        let busy = |name: &str, seconds: f64| Bar::new(name, seconds / run.batch_s.max(1e-12));
        let rows = [
            busy("schedule", run.schedule_s),
            busy("fetch", run.fetch_s),
            busy("decode", run.decode_s),
            busy("collate", run.collate_s),
        ];
        bars("Load of each stage", &Axis::new("busy threads", ""), &rows)
    }

    /// Codecs of the streams that are read: compression ratio against decoding time.
    fn codecs(&self) -> Option<Plot> {
        let streams = self.evidence.streams.iter();
        let points = streams.flat_map(|stream| {
            let known = stream.known.iter();
            known.map(|cost| Point {
                name: cost.codec.clone(),
                group: stream.name.clone(),
                x: cost.ratio,
                y: cost.decode_ns / 1e9,
            })
        });
        let points: Vec<Point> = points.collect();
        (!points.is_empty()).then(|| {
            scatter(&Scatter {
                title: "Codecs",
                x: &Axis::log("compression ratio", ""),
                y: &Axis::log("decoding time per frame", "s"),
                points: &points,
                better: Some((Better::Higher, Better::Lower)),
            })
        })
    }
}

impl<E> Diagnosis<E> {
    /// An alarm, and what waiting costs.
    pub(super) fn with_idle(&self, mut report: HtmlReport) -> HtmlReport {
        if let Some(alarm) = self.idle.alarm(NEXT) {
            report = report.alarm(&alarm);
        }
        match &self.idle.cost {
            Some(cost) => report.text(&format!("In money, {cost}.")),
            None => report,
        }
    }

    pub(super) fn with_changes(&self, report: HtmlReport) -> HtmlReport {
        let cost = self.idle.cost;
        let rows = self.changes.iter().map(|change| {
            let mut row = vec![
                change.how.clone(),
                format!("{:.3}", change.compute_ratio),
                format!("{:.2}×", change.gain),
                to_quantity(change.batch_s, "s"),
            ];
            row.extend(cost.map(|cost| format!("{:.2}", cost.saved_per_day(change.compute_ratio))));
            row
        });
        let rows: Vec<Vec<String>> = rows.collect();
        let mut head = vec![
            "change",
            "predicted compute ratio",
            "speedup",
            "time per batch",
        ];
        head.extend(cost.map(|_| "saved per day"));
        report.table(&head, &rows)
    }
}

/// Where the time of a step goes, in each of these loops.
pub(super) fn step_plot(loops: &[(&str, &FedRun)]) -> Plot {
    let wait = |run: &FedRun| run.waits_s.iter().sum::<f64>() / run.waits_s.len().max(1) as f64;
    let rows: Vec<StackedBar> = loops
        .iter()
        .map(|(name, run)| StackedBar::new(name, &[run.step_s, wait(run)]))
        .collect();
    let axis = Axis::new("per step", "s");
    stacked_bars(
        "Where a step's time goes",
        &axis,
        &["compute", "wait"],
        &rows,
    )
}

/// How long a batch takes in each of these runs, beside a step.
pub(super) fn takes_plot(step_s: f64, runs: &[(&str, &FreeRun)]) -> Plot {
    let mut rows = vec![Bar::new("training step", step_s)];
    rows.extend(runs.iter().map(|(name, run)| Bar::new(name, run.batch_s)));
    bars("Time to load a batch", &Axis::new("per batch", "s"), &rows)
}

pub(super) fn waits(run: &FedRun) -> Plot {
    // A few slow steps would squeeze all others into the first bin; count them in the last.
    let end = quantile(&run.waits_s, 0.99).max(1e-6) * 1.05;
    let width = end / BINS as f64;
    let bins: Vec<Bin> = (0..BINS)
        .map(|idx| {
            let (from, to) = (idx as f64 * width, (idx + 1) as f64 * width);
            let is_last = idx + 1 == BINS;
            let inside = |wait: &&f64| **wait >= from && (**wait < to || is_last);
            Bin {
                from,
                to,
                count: run.waits_s.iter().filter(inside).count() as f64,
            }
        })
        .collect();
    let (x, y) = (Axis::new("wait", "s"), Axis::new("steps", ""));
    histogram("Waits", &x, &y, &bins)
}

fn ahead(run: &FedRun) -> Plot {
    let every = run.ahead.len().div_ceil(POINTS).max(1);
    let steps = run.ahead.iter().enumerate().step_by(every);
    let points: Vec<(f64, f64)> = steps
        .map(|(step, &ready)| (step as f64, ready as f64))
        .collect();
    let (x, y) = (Axis::new("step", ""), Axis::new("batches ready", ""));
    lines("Prefetched batches", &x, &y, &[Line::new("ready", &points)])
}
