//! A loader that is not ours: a torch `DataLoader`, or any iterable of batches.
//!
//! ```text
//! python/kinograph/_doctor_foreign.py   measures             ─▶ ForeignEvidence
//! verdict.rs, changes.rs                what follows from it  ─▶ ForeignDiagnosis
//! text.rs, html.rs                      the diagnosis as text and as HTML
//! ```

mod changes;
mod evidence;
mod html;
#[cfg(test)]
mod tests;
mod text;
mod verdict;

use serde::{Deserialize, Serialize};

pub use evidence::ForeignEvidence;

use super::Diagnosis;
use crate::idle_cost::{GpuPrice, Idle};

/// What the doctor found about a loader that is not ours.
pub type ForeignDiagnosis = Diagnosis<ForeignEvidence>;

/// A diagnosis of either kind of loader.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Found {
    /// One of our loaders.
    Ours(Box<Diagnosis>),
    /// Any other.
    Foreign(Box<ForeignDiagnosis>),
}

impl Found {
    /// The report, as one self-contained HTML file.
    pub fn to_html(&self) -> String {
        match self {
            Self::Ours(found) => found.to_html(),
            Self::Foreign(found) => found.to_html(),
        }
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ours(found) => found.fmt(f),
            Self::Foreign(found) => found.fmt(f),
        }
    }
}

/// Derives the verdict and the changes from what was measured of a loader that is not ours.
pub fn examine(evidence: ForeignEvidence, gpu_price: Option<GpuPrice>) -> ForeignDiagnosis {
    let verdict = verdict::judge(&evidence);
    Diagnosis {
        changes: changes::changes(&evidence, &verdict),
        verdict,
        idle: Idle::of(evidence.fed.compute_ratio, gpu_price),
        evidence,
    }
}
