//! What a loader and a training loop did, as an HTML report.
//!
//! ```text
//! LoopReport             the loop, from outside: waits, steps, compute; works with any loader
//! kino_loader::Report    the loader, from inside; Kinograph loaders only
//!   └▶ Measured ──▶ report: verdict │ where a step goes │ load of each stage │ waits │ prefetched batches │ memory
//! ```
//!
//! Nothing is measured here: `python/kinograph/_loop.py` does that, in the user's own loop.

use kino_loader::{Moment, Report, Stage, WaitReport};
use serde::{Deserialize, Serialize};

use crate::html::{
    Axis, Bar, Bin, HtmlReport, Line, StackedBar, bars, histogram, lines, stacked_bars, to_quantity,
};
use crate::idle_cost::Idle;

/// The distribution of a time over the steps.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Spread {
    /// Mean.
    pub mean_s: f64,
    /// Median.
    pub p50_s: f64,
    /// 90th percentile.
    pub p90_s: f64,
    /// 99th percentile.
    pub p99_s: f64,
    /// Maximum.
    pub longest_s: f64,
}

/// A few consecutive steps.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StepMoment {
    /// When the last of them ended, in seconds since the loop started.
    pub at_s: f64,
    /// The number of steps.
    pub steps: u64,
    /// Their mean wait.
    pub wait_s: f64,
    /// Their mean duration.
    pub step_s: f64,
}

/// What a training loop did, seen from outside. A step lasts from requesting a batch to requesting the next.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LoopReport {
    /// From the first request of a batch to the end of the last step.
    pub elapsed_s: f64,
    /// Completed steps.
    pub steps: u64,
    /// Seconds that all of them waited, including the first.
    pub wait_s: f64,
    /// Seconds that all of them computed, including the first.
    pub compute_s: f64,
    /// Compute time ÷ time since the loop started.
    pub compute_ratio: f64,
    /// The same without the first step: accelerator utilisation as MLPerf Storage defines it.
    pub utilisation: f64,
    /// Whether the loop marked its compute; if not, everything but waiting counts as compute.
    pub is_marked: bool,
    /// The clock that timed compute: `cpu` or `cuda`.
    pub clock: String,
    /// Marks whose times the device had not reported yet.
    pub pending: u64,
    /// Waits of all steps but the first.
    pub wait: Spread,
    /// Compute of all steps but the first.
    pub compute: Spread,
    /// Durations of all steps but the first.
    pub step: Spread,
    /// Histogram of the waits.
    pub waits: WaitReport,
    /// The most recent steps, in at most 512 moments.
    pub recent: Vec<StepMoment>,
}

/// Everything that goes into a report.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Measured {
    /// What was measured.
    pub title: String,
    /// The conclusion, as a sentence.
    pub verdict: String,
    /// How much the loop waits, and what that costs.
    pub idle: Idle,
    /// The loop.
    #[serde(rename = "loop")]
    pub training: LoopReport,
    /// The loader, if it is a Kinograph loader.
    pub loader: Option<Report>,
}

impl Measured {
    /// What to do about an alarm in a report.
    pub const NEXT: &str = "Find the stage that is slow with kinograph.doctor(loader, step=...), or `kinograph doctor`.";

    /// The median time of a step without waiting, if any step was timed.
    pub fn step_s(&self) -> Option<f64> {
        Some(self.training.compute.p50_s).filter(|&seconds| seconds > 0.0)
    }

    /// The HTML report as a file.
    pub fn to_html(&self) -> String {
        self.html_report().to_html()
    }

    /// The HTML report as part of another page. Its styles do not affect the rest of that page.
    pub fn to_html_fragment(&self) -> String {
        self.html_report().to_fragment()
    }

    fn html_report(&self) -> HtmlReport {
        let mut report = HtmlReport::new(&self.title).verdict(&self.verdict);
        if let Some(alarm) = self.idle.alarm(Self::NEXT) {
            report = report.alarm(&alarm);
        }
        if let Some(cost) = &self.idle.cost {
            report = report.text(&format!("In money, {cost}."));
        }
        let report = self.with_loop(report);
        match &self.loader {
            Some(loader) => with_loader(report, loader),
            None => report,
        }
    }

    fn with_loop(&self, report: HtmlReport) -> HtmlReport {
        let done = &self.training;
        let seconds = |value: f64| to_quantity(value, "s");
        let row = |name: &str, value: String| vec![name.to_owned(), value];
        let figures = [
            row("steps", done.steps.to_string()),
            row("time", seconds(done.elapsed_s)),
            row("compute ratio", format!("{:.3}", done.compute_ratio)),
            row(
                "accelerator utilisation",
                format!("{:.3}", done.utilisation),
            ),
            row("time to first batch", seconds(done.waits.first_s)),
            row(
                "stalls (waits of at least 1 ms)",
                done.waits.stalls.to_string(),
            ),
            row("time spent in stalls", seconds(done.waits.stall_s)),
        ];
        let spread = |name: &str, spread: &Spread| {
            let times = [
                spread.mean_s,
                spread.p50_s,
                spread.p90_s,
                spread.p99_s,
                spread.longest_s,
            ];
            let cells = times.into_iter().map(seconds);
            std::iter::once(name.to_owned()).chain(cells).collect()
        };
        let spreads: [Vec<String>; 3] = [
            spread("wait", &done.wait),
            spread("compute", &done.compute),
            spread("step", &done.step),
        ];
        report.table(&["", "value"], &figures)
            .figure(
                step_plot(done),
                if done.is_marked {
                    "Mean of all steps but the first. \"compute\" is what the loop marked; \"other\" is neither marked nor waiting."
                } else {
                    "Mean of all steps but the first. The loop did not mark its compute, so everything but waiting counts as compute."
                },
            )
            .table(&["", "mean", "p50", "p90", "p99", "longest"], &spreads)
            .figure(
                wait_plot(&done.waits),
                "Every wait but the first. Waits below 1 ms do not slow a training loop down.",
            )
            .figure(recent_plot(&done.recent), "The most recent steps; neighbouring steps are averaged.")
    }
}

fn step_plot(done: &LoopReport) -> crate::html::Plot {
    let other = (done.step.mean_s - done.wait.mean_s - done.compute.mean_s).max(0.0);
    let parts = [done.wait.mean_s, done.compute.mean_s, other];
    stacked_bars(
        "Where a step's time goes",
        &Axis::new("time", "s"),
        &["wait", "compute", "other"],
        &[StackedBar::new("step", &parts)],
    )
}

fn wait_plot(waits: &WaitReport) -> crate::html::Plot {
    let bins: Vec<Bin> = waits
        .buckets
        .iter()
        .map(|bucket| Bin {
            from: bucket.from_s,
            to: bucket.to_s,
            count: bucket.count as f64,
        })
        .collect();
    let axis = Axis::log("wait for a batch", "s");
    histogram(
        "How long the loop waited",
        &axis,
        &Axis::new("steps", ""),
        &bins,
    )
}

fn recent_plot(recent: &[StepMoment]) -> crate::html::Plot {
    let points = |value: fn(&StepMoment) -> f64| -> Vec<(f64, f64)> {
        recent.iter().map(|one| (one.at_s, value(one))).collect()
    };
    let series = [
        Line::new("wait", &points(|one| one.wait_s)),
        Line::new("step", &points(|one| one.step_s)),
    ];
    let time = Axis::new("time since the loop started", "s");
    lines(
        "Step and wait over time",
        &time,
        &Axis::new("time per step", "s"),
        &series,
    )
}

fn with_loader(report: HtmlReport, loader: &Report) -> HtmlReport {
    let made = Stage::ALL.iter().filter(|&&stage| stage != Stage::Wait);
    let load: Vec<Bar> = made
        .clone()
        .map(|&stage| Bar::new(stage.name(), loader.stage(stage).busy_s / loader.elapsed_s))
        .collect();
    let samples = loader.samples.max(1) as f64;
    let stages: Vec<Vec<String>> = made
        .map(|&stage| {
            let done = loader.stage(stage);
            vec![
                stage.name().to_owned(),
                to_quantity(done.busy_s, "s"),
                to_quantity(done.busy_s / samples, "s"),
                done.tasks.to_string(),
                to_quantity(done.bytes as f64, "B"),
            ]
        })
        .collect();
    let caption = format!(
        "Mean number of busy threads. Currently {} threads decode and {} read.",
        loader.threads_active, loader.readers_active
    );
    report
        .heading("The loader")
        .figure(
            bars("Load of each stage", &Axis::new("busy threads", ""), &load),
            &caption,
        )
        .table(&["stage", "busy", "per sample", "tasks", "bytes"], &stages)
        .figure(
            ready_plot(&loader.timeline),
            "Batches ready whenever one was taken, and the prefetch depth.",
        )
        .figure(
            queue_plot(&loader.timeline),
            "Tasks waiting for a thread whenever a batch was taken.",
        )
        .table(&["", "value"], &loader_rows(loader))
}

fn ready_plot(timeline: &[Moment]) -> crate::html::Plot {
    let series = [
        Line::new("ready", &over_time(timeline, |one| one.ready)),
        Line::new(
            "prefetch depth",
            &over_time(timeline, |one| one.depth as f64),
        ),
    ];
    timeline_plot("Prefetched batches", "batches", &series)
}

fn queue_plot(timeline: &[Moment]) -> crate::html::Plot {
    let series = [
        Line::new("reads", &over_time(timeline, |one| one.reads_queued)),
        Line::new(
            "pages and samples",
            &over_time(timeline, |one| one.work_queued),
        ),
    ];
    timeline_plot("Queues", "tasks", &series)
}

fn over_time(timeline: &[Moment], value: fn(&Moment) -> f64) -> Vec<(f64, f64)> {
    timeline.iter().map(|one| (one.at_s, value(one))).collect()
}

fn timeline_plot(title: &str, what: &str, series: &[Line]) -> crate::html::Plot {
    let time = Axis::new("time since the loader started", "s");
    lines(title, &time, &Axis::new(what, ""), series)
}

fn loader_rows(loader: &Report) -> Vec<Vec<String>> {
    let bytes = |bytes: u64| to_quantity(bytes as f64, "B");
    let unknown = || "unknown".to_owned();
    let rows = [
        (
            "decode amplification",
            format!("{:.3}", loader.decode_amplification()),
        ),
        (
            "read amplification",
            format!("{:.3}", loader.read_amplification()),
        ),
        (
            "samples with all frames cached",
            loader.cache_hits.to_string(),
        ),
        (
            "samples that waited for a page",
            loader.cache_misses.to_string(),
        ),
        (
            "samples skipped and replaced",
            loader.substituted.to_string(),
        ),
        ("decoded frames, peak", bytes(loader.cache_peak_bytes)),
        (
            "bytes read but not yet decoded, peak",
            bytes(loader.stored_peak_bytes),
        ),
        ("batch buffers", bytes(loader.batch_buffer_bytes)),
        (
            "process memory",
            loader.process_bytes.map_or_else(unknown, bytes),
        ),
        (
            "process memory, peak",
            loader.process_peak_bytes.map_or_else(unknown, bytes),
        ),
    ];
    rows.into_iter()
        .map(|(name, value)| vec![name.to_owned(), value])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_every_plot_with_and_without_data() {
        let empty = Measured::default();
        assert!(empty.to_html().contains("no data"));
        let json = r#"{"title": "lift", "verdict": "the loop waits <1 %",
            "loop": {"steps": 9, "step": {"mean_s": 0.5}, "wait": {"mean_s": 0.1}, "compute": {"mean_s": 0.3},
                     "waits": {"first_s": 1.0, "longest_s": 0.2, "stalls": 1, "stall_s": 0.2,
                               "buckets": [{"from_s": 0.1, "to_s": 0.2, "count": 3}]},
                     "recent": [{"at_s": 1, "wait_s": 0.1, "step_s": 0.2}]},
            "loader": {"elapsed_s": 4.0, "stages": [{"stage": "decode", "busy_s": 8.0, "tasks": 3, "bytes": 5}]}}"#;
        let measured: Measured = serde_json::from_str(json).unwrap();
        let html = measured.to_html();
        for text in [
            "the loop waits &lt;1 %",
            "wait: 100 ms",
            "other: 100 ms",
            "decode: 2",
            "The loader",
        ] {
            assert!(html.contains(text), "{text}");
        }
        assert_eq!(html.matches("<svg").count(), 6);
        assert!(!html.contains("NaN"));
    }
}
