//! Progress of long operations: a bar on a terminal, occasional plain lines elsewhere.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::{bytes, note, one_line};

/// Interval of plain lines.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Shows the progress of an operation on bytes.
#[derive(Debug)]
pub(crate) struct Progress {
    verb: &'static str,
    bar: Option<ProgressBar>,
    start: Instant,
    last_line: Instant,
}

impl Progress {
    /// Progress of `verb` ("pack", "verify"), on stderr.
    pub(crate) fn new(verb: &'static str) -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
            let template = "{prefix} [{bar:30}] {percent:>3}%  {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left  {msg}";
            let style = ProgressStyle::with_template(template);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸ "));
            bar.set_prefix(verb);
            bar
        });
        Self {
            verb,
            bar,
            start: Instant::now(),
            last_line: Instant::now(),
        }
    }

    /// Reports that `done` of `total` bytes are done.
    pub(crate) fn update(&mut self, done: u64, total: u64, message: &str) {
        if let Some(bar) = &self.bar {
            bar.set_length(total);
            bar.set_position(done);
            bar.set_message(one_line(message));
        } else if self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            note(&self.line(done, total, message));
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate and a remaining time for display"
    )]
    fn line(&self, done: u64, total: u64, message: &str) -> String {
        let seconds = self.start.elapsed().as_secs_f64().max(1e-9);
        let rate = done as f64 / seconds;
        let left = if rate > 0.0 {
            total.saturating_sub(done) as f64 / rate
        } else {
            0.0
        };
        let percent = done * 100 / total.max(1);
        let verb = self.verb;
        let (done, total, rate) = (bytes(done), bytes(total), bytes(rate as u64));
        format!("{verb}: {percent}% ({done} of {total}, {rate}/s, {left:.0} s left) {message}")
    }
}
