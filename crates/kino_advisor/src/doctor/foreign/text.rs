//! The diagnosis of a loader that is not ours, as text.

use std::fmt;

use super::ForeignDiagnosis;
use super::evidence::{ForeignSetting, LoaderKind, Moved};
use crate::doctor::FreeRun;
use crate::doctor::text::{write_fed, write_load};

/// How to measure what Kinograph would bring.
pub(super) const PACK: &str = "What Kinograph would bring was not measured. To measure it, run `kinograph pack SOURCE my.kino` \
and pass dataset=\"my.kino\" with the same windows and batch size.";

impl fmt::Display for ForeignDiagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let evidence = &self.evidence;
        let setting = &evidence.setting;
        self.write_verdict(f)?;
        writeln!(f, "{}", setting.describe())?;
        write_load(f, setting.load, setting.cores)?;
        if let Some(note) = self.note() {
            writeln!(f, "{note}")?;
        }
        write_fed(f, evidence.step_s, &evidence.fed)?;
        writeln!(
            f,
            "{:28}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "ms per batch", "total", "blocked", "computing", "collate", "CPU"
        )?;
        for (name, run) in self.runs() {
            writeln!(
                f,
                "{name:28}{:>10.2}{:>10.2}{:>10.2}{:>10.2}{:>10.2}",
                run.batch_s * 1e3,
                run.fetch_s * 1e3,
                run.decode_s * 1e3,
                run.collate_s * 1e3,
                run.cpu_s * 1e3
            )?;
        }
        writeln!(
            f,
            "blocked and computing are those of `__getitem__`; all but the total are sums over all workers"
        )?;
        if let Some(without) = &evidence.without {
            writeln!(
                f,
                "with one batch again and again: compute ratio {:.3}",
                without.nothing.compute_ratio
            )?;
        }
        writeln!(f, "first batch after {:.2} s", evidence.start_s)?;
        self.write_changes(f)?;
        self.write_kinograph(f)
    }
}

impl ForeignDiagnosis {
    /// Every run of the loader alone, with its name.
    pub(super) fn runs(&self) -> Vec<(&'static str, &FreeRun)> {
        let mut runs = vec![("whole loader", &self.evidence.whole)];
        if let Some(without) = &self.evidence.without {
            let more = without.more_workers.as_ref().map(|more| &more.run);
            let all = [
                ("same samples again", without.without_fetch.as_ref()),
                ("items ready", without.without_dataset.as_ref()),
                ("batches ready", without.without_collate.as_ref()),
                ("half of the batch", without.half_batch.as_ref()),
                ("more workers", more),
            ];
            runs.extend(all.into_iter().filter_map(|(name, run)| Some((name, run?))));
        }
        runs
    }

    /// What limits the figures.
    pub(super) fn note(&self) -> Option<&'static str> {
        let (setting, whole) = (&self.evidence.setting, &self.evidence.whole);
        self.evidence.without.as_ref()?;
        match setting.kind {
            LoaderKind::Batches => {
                Some("only a torch DataLoader can be taken apart; of this one the loop is known")
            }
            _ if setting.dropped_bytes > 0 => None,
            _ if !setting.is_first_pass || whole.fetch_bytes < 1.0 => Some(
                "nothing was read from disk: the files may have been in the page cache; name them with files= to measure without it",
            ),
            _ => None,
        }
    }

    /// This loader and Kinograph's, side by side.
    pub(super) fn sides(&self) -> Option<Vec<[String; 4]>> {
        let (evidence, moved) = (&self.evidence, self.evidence.kinograph.as_ref()?);
        let side = |name: &str, batch: u64, run: &FreeRun, ratio: f64| {
            // The last batch of an epoch may be smaller.
            let batch = if run.samples > 0.0 {
                run.samples
            } else {
                batch as f64
            };
            let known = batch > 0.0;
            let figure = |value: String| if known { value } else { "unknown".to_owned() };
            [
                name.to_owned(),
                figure(format!("{:.0}", batch / run.batch_s.max(1e-12))),
                figure(format!("{:.3}", run.cpu_s / batch * 1e3)),
                format!("{ratio:.3}"),
            ]
        };
        let now = evidence.setting.batch.unwrap_or(0);
        let ratio = evidence.fed.compute_ratio;
        Some(vec![
            side("this loader", now, &evidence.whole, ratio),
            side(
                &moved.loader,
                moved.batch,
                &moved.whole,
                moved.fed.compute_ratio,
            ),
        ])
    }

    fn write_kinograph(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(sides), Some(moved)) = (self.sides(), &self.evidence.kinograph) else {
            return writeln!(f, "\n{PACK}");
        };
        writeln!(f, "\n{}", moved.how())?;
        writeln!(
            f,
            "{:>12}{:>16}{:>16}",
            "samples/s", "CPU ms/sample", "compute ratio"
        )?;
        for [name, rate, cpu, ratio] in sides {
            writeln!(f, "{rate:>12}{cpu:>16}{ratio:>16}  {name}")?;
        }
        Ok(())
    }
}

impl Moved {
    /// How the two loaders were compared.
    pub(super) fn how(&self) -> &'static str {
        if self.is_step_emulated {
            "moving to Kinograph, measured in a loop whose step is emulated for the time that yours takes"
        } else {
            "moving to Kinograph, measured in the same loop with your step"
        }
    }
}

impl ForeignSetting {
    /// The loader in a line.
    pub(super) fn describe(&self) -> String {
        let mut text = self.loader.clone();
        if let Some(batch) = self.batch {
            text += &format!(", batch size {batch}");
        }
        if self.kind == LoaderKind::Batches {
            return text;
        }
        text += &format!(", num_workers {}", self.num_workers);
        if let Some(factor) = self.prefetch_factor {
            text += &format!(", prefetch_factor {factor}");
        }
        for (is_set, name) in [
            (self.pin_memory, "pin_memory"),
            (self.persistent_workers, "persistent_workers"),
        ] {
            if is_set {
                text += &format!(", {name}");
            }
        }
        text + &format!(", {} cores", self.cores)
    }
}
