//! Whether live frames look like the training frames, and what to do if not.
//!
//! What can differ is in `compare.rs`. A cause explains its symptoms: frames that are JPEG files are not also reported as
//! blurred. Severities follow what was measured on policies (`docs/guide/deploy.md`): a codec that a policy has never seen
//! costs most.

use std::collections::BTreeMap;

use kino_dataset::Figure;
use serde::Serialize;

use super::compare::Comparison;
use super::live::{LiveFrames, Mismatch};
use super::parity::{Parity, StreamParity};
use super::reference::{StreamReference, is_jpeg};
use crate::error::{Result, invalid};

/// Fewer frames than this are a matter of luck.
const FEW_FRAMES: usize = 3;

/// How bad a deviation is likely to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Policies failed because of the like.
    High,
    /// Worth a look before a robot moves.
    Medium,
}

/// One way in which live frames differ from training frames.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Deviation {
    /// The key of the camera.
    pub stream: String,
    /// What was compared.
    pub check: String,
    /// How bad it is likely to be.
    pub severity: Severity,
    /// What was found.
    pub what: String,
    /// Why it matters.
    pub why: String,
    /// What to do.
    pub action: String,
    /// The figures behind it.
    pub measured: BTreeMap<String, f64>,
}

/// What was compared of one camera.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckedStream {
    /// Live frames that were looked at.
    pub frames: usize,
    /// Training frames that they were compared with, and the episodes these are from.
    pub training: (usize, usize),
    /// Each figure: live, training, and how many standard deviations they are apart, of the limit.
    pub figures: BTreeMap<Figure, [f64; 4]>,
    /// The JPEG quality seen in live frames and in training frames.
    pub jpeg: [Option<u8>; 2],
}

/// How live frames compare with training frames.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Deployment {
    /// The dataset's folder name and version.
    pub dataset: (String, u64),
    /// Each camera.
    pub streams: BTreeMap<String, CheckedStream>,
    /// What differs, worst first.
    pub warnings: Vec<Deviation>,
    /// What the user should know besides.
    pub notes: Vec<String>,
}

impl Deployment {
    /// Compares live frames with the reference of a parity.
    pub fn of(live: &[LiveFrames], parity: &Parity) -> Result<Self> {
        let Some(reference) = &parity.reference else {
            return Err(invalid(
                "this parity has no reference of the training frames; make it with `ds.parity(reference=True)`, or give the dataset",
            ));
        };
        let (name, version, _) = &parity.dataset;
        let mut found = Self {
            dataset: (name.clone(), *version),
            streams: BTreeMap::new(),
            warnings: Vec::new(),
            notes: Vec::new(),
        };
        for frames in live {
            let key = parity.key(&frames.key)?;
            let Some(known) = reference.streams.get(&key.stored.stream) else {
                return Err(invalid(format!(
                    "`{}` is not a camera of 8-bit images of at least 16 × 16 pixels, so there is nothing to compare; remove it",
                    frames.key
                )));
            };
            known.check()?;
            found.add(frames, key, known)?;
        }
        found.warnings.sort_by_key(|one| one.severity);
        Ok(found)
    }

    fn add(
        &mut self,
        live: &LiveFrames,
        key: &StreamParity,
        known: &StreamReference,
    ) -> Result<()> {
        let seen = live.look_at(key)?;
        let comparison = Comparison {
            key,
            known,
            seen: &seen,
        };
        let is_comparable = seen
            .mismatches
            .iter()
            .all(|one| matches!(one, Mismatch::Dtype { .. }));
        let codec = comparison.codecs();
        let colors = comparison.colors();
        let mut warnings = comparison.mismatches();
        warnings.extend(codec.clone());
        warnings.extend(colors.clone());
        warnings.extend(comparison.borders());
        let figures = comparison.figures();
        for (&figure, values) in &figures {
            let is_explained = match figure {
                Figure::RedGreen
                | Figure::BlueGreen
                | Figure::Brightness
                | Figure::Contrast
                | Figure::Darkest
                | Figure::Brightest => colors.is_some(),
                Figure::Sharpness | Figure::Noise | Figure::Blocking | Figure::Flat => {
                    codec.is_some() || !is_comparable
                }
            };
            if !is_explained && values[2] > values[3] {
                warnings.push(comparison.figure(figure, *values));
            }
        }
        let frames = seen.frames.len();
        if (1..FEW_FRAMES).contains(&frames) {
            self.notes.push(format!(
                "`{}`: {frames} frames say little; give ten or more, of several moments",
                live.key
            ));
        }
        if known.episodes < 4 {
            self.notes.push(format!(
                "`{}`: the training data has {} episodes, too few to know how much scenes and light vary",
                live.key, known.episodes
            ));
        }
        self.streams.insert(
            live.key.clone(),
            CheckedStream {
                frames,
                training: (known.frames, known.episodes),
                figures,
                jpeg: [seen.jpeg, known.jpeg].map(|seen| is_jpeg(seen).map(|one| one.quality)),
            },
        );
        self.warnings.extend(warnings);
        Ok(())
    }
}
