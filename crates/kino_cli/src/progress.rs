//! Progress of long operations: a bar on a terminal, occasional plain lines elsewhere.

use std::io::{IsTerminal, stderr};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kino_import::Progress as Written;

use crate::interrupt::Watch;
use crate::output::{bytes, count, note, one_line};

/// What a pack is doing: it checks the values of all episodes, then writes them.
fn packing(at: &Written) -> String {
    let episodes = count(at.episodes, "episode");
    if at.episodes_checked < at.episodes {
        format!("values of {} of {episodes} checked", at.episodes_checked)
    } else {
        format!("{} of {episodes} written", at.episodes_done)
    }
}

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

    /// Reports that `done` of `total` bytes are done. The rate counts from the first of them.
    pub(crate) fn update(&mut self, done: u64, total: u64, message: &str) {
        if done == 0 {
            self.start = Instant::now();
            self.bar.iter().for_each(ProgressBar::reset_elapsed);
        }
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
        if done == 0 {
            // Values are checked before the first byte is written, and how fast that will be is not known yet.
            return format!("{}: {message}", self.verb);
        }
        let left = total.saturating_sub(done) as f64 / rate;
        let percent = done * 100 / total.max(1);
        let verb = self.verb;
        let (done, total, rate) = (bytes(done), bytes(total), bytes(rate as u64));
        format!("{verb}: {percent}% ({done} of {total}, {rate}/s, {left:.0} s left) {message}")
    }
}

/// Shows the progress of `work` that writes episodes, and tells it to stop after Ctrl-C.
pub(crate) fn watched<T>(
    verb: &'static str,
    work: impl FnOnce(&mut dyn FnMut(Written) -> ControlFlow<()>) -> T,
) -> T {
    let watch = Watch::start();
    let mut progress = Progress::new(verb);
    let done = work(&mut |at| {
        progress.update(at.bytes_done, at.bytes, &packing(&at));
        if watch.as_ref().is_some_and(Watch::is_requested) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    progress.finish();
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_says_that_it_checks_before_it_writes() {
        let mut at = Written {
            episodes_checked: 2,
            episodes: 3,
            ..Written::default()
        };
        assert_eq!(packing(&at), "values of 2 of 3 episodes checked");
        (at.episodes_checked, at.episodes_done) = (3, 1);
        assert_eq!(packing(&at), "1 of 3 episodes written");
    }

    #[test]
    fn a_line_estimates_the_time_left_from_the_first_byte() {
        let progress = Progress::new("pack");
        let checking = progress.line(0, 10, "values of 2 of 3 episodes checked");
        assert_eq!(checking, "pack: values of 2 of 3 episodes checked");
        let writing = progress.line(5, 10, "1 of 3 episodes written");
        assert!(writing.starts_with("pack: 50% (5 B of 10 B, "), "{writing}");
        assert!(writing.contains(" s left)"), "{writing}");
    }

    #[test]
    fn the_rate_counts_from_the_first_byte() {
        let mut progress = Progress::new("pack");
        let Some(long_ago) = Instant::now().checked_sub(Duration::from_secs(1000)) else {
            return;
        };
        progress.start = long_ago;
        progress.update(5, 10, "");
        assert_eq!(progress.start, long_ago);
        progress.update(0, 10, "");
        assert!(progress.start > long_ago);
    }
}
