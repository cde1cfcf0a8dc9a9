//! A diagnosis as text: the verdict, the measurements, what to change.

use std::fmt;

use super::evidence::FedRun;
use super::{Diagnosis, FreeRun};

/// What to do about an alarm, if the changes are listed below it.
pub(super) const NEXT: &str = "Start with the first change below.";

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let evidence = &self.evidence;
        let setting = &evidence.setting;
        self.write_verdict(f)?;
        writeln!(
            f,
            "{}, batch size {}: {}",
            setting.dataset,
            setting.batch,
            setting.windows.join(", ")
        )?;
        if let Some(shuffle) = &setting.shuffle {
            writeln!(f, "{shuffle}")?;
        }
        if let Some(emulated) = &setting.emulated_storage {
            writeln!(f, "storage was slowed down to {emulated}")?;
        }
        write_load(f, setting.load, setting.cores)?;
        write_fed(f, evidence.step_s, &evidence.fed)?;
        writeln!(
            f,
            "{:28}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "ms per batch", "total", "schedule", "fetch", "decode", "collate"
        )?;
        for (name, run) in self.runs() {
            writeln!(
                f,
                "{name:28}{:>10.2}{:>10.2}{:>10.2}{:>10.2}{:>10.2}",
                run.batch_s * 1e3,
                run.schedule_s * 1e3,
                run.fetch_s * 1e3,
                run.decode_s * 1e3,
                run.collate_s * 1e3
            )?;
        }
        if let Some(without) = &evidence.without {
            writeln!(
                f,
                "with a loader that does no work: compute ratio {:.3}",
                without.nothing.compute_ratio
            )?;
        }
        if evidence.whole.decode_excess >= 1.05 {
            writeln!(
                f,
                "each frame is decoded {:.1} times per epoch",
                evidence.whole.decode_excess
            )?;
        }
        self.write_changes(f)
    }
}

impl<E> Diagnosis<E> {
    /// The verdict, an alarm, and what waiting costs.
    pub(super) fn write_verdict(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.verdict.sentence)?;
        if let Some(alarm) = self.idle.alarm(NEXT) {
            writeln!(f, "{alarm}")?;
        }
        if let Some(cost) = &self.idle.cost {
            writeln!(f, "{cost}")?;
        }
        writeln!(f)
    }

    /// What to change; with a price, also what that saves.
    pub(super) fn write_changes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\nwhat to change, with the predicted compute ratio and speedup{}",
            self.idle
                .cost
                .map_or("", |_| ", and what a day would cost less")
        )?;
        for change in &self.changes {
            write!(f, "  {:.3}  {:5.2}×", change.compute_ratio, change.gain)?;
            if let Some(cost) = &self.idle.cost {
                write!(f, "  {:9.2}", cost.saved_per_day(change.compute_ratio))?;
            }
            writeln!(f, "  {}", change.how)?;
        }
        Ok(())
    }
}

/// A warning, if other processes distort the figures.
pub(super) fn write_load(f: &mut fmt::Formatter<'_>, load: f64, cores: usize) -> fmt::Result {
    if load <= cores as f64 / 2.0 {
        return Ok(());
    }
    writeln!(
        f,
        "other processes were running ({load:.1} on {cores} cores): expect better figures on an idle machine"
    )
}

/// The loop with its step.
pub(super) fn write_fed(f: &mut fmt::Formatter<'_>, step_s: f64, fed: &FedRun) -> fmt::Result {
    writeln!(
        f,
        "step {:.1} ms, {} steps: compute ratio {:.3}, utilisation {:.3}, wait p50 {:.2} ms, p99 {:.2} ms, prefetch depth {}\n",
        step_s * 1e3,
        fed.steps,
        fed.compute_ratio,
        fed.utilisation,
        quantile(&fed.waits_s, 0.5) * 1e3,
        quantile(&fed.waits_s, 0.99) * 1e3,
        fed.prefetch
    )
}

impl Diagnosis {
    /// Every run of the loader alone, with its name.
    pub(super) fn runs(&self) -> Vec<(&'static str, &FreeRun)> {
        let mut runs = vec![("whole loader", &self.evidence.whole)];
        if let Some(without) = &self.evidence.without {
            runs.extend([
                ("reading only", &without.only_fetch),
                ("without reading", &without.without_fetch),
                ("without decoding", &without.without_decode),
                ("without collating", &without.without_collate),
            ]);
            let more = [
                ("without the CPU limit", &without.without_cpu_limit),
                ("with adaptive prefetch", &without.chosen_prefetch),
            ];
            runs.extend(
                more.into_iter()
                    .filter_map(|(name, run)| Some((name, run.as_ref()?))),
            );
        }
        runs
    }
}

/// The value below which this fraction of the values lies; 0 for an empty slice.
pub(crate) fn quantile(values: &[f64], fraction: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    let place = (0..last).take_while(|&idx| (idx as f64) < fraction * last as f64);
    sorted.get(place.count()).copied().unwrap_or(0.0)
}

/// Whether a codec changes values, for people: who follows the advice must know.
pub(super) fn loss(codec: &str) -> String {
    match kino_codec::codec(codec).map(|codec| codec.bound()) {
        Ok(kino_codec::Bound::Lossless) => "lossless".to_owned(),
        Ok(kino_codec::Bound::Unbounded) | Err(_) => "LOSSY: it changes values".to_owned(),
        Ok(bound) => format!("LOSSY: it changes values, by at most {bound}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_values() {
        assert_eq!(quantile(&[], 0.5), 0.0);
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 0.5), 2.0);
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 1.0), 3.0);
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 0.0), 1.0);
    }
}
