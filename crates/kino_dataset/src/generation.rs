//! Lossy encodings that frames went through before the one they are stored with.
//!
//! ```text
//! camera ─ jpeg:q=95 ─▶ dataset ─ repack ─ jpeg:q=80 ─▶ dataset
//!          generation 1            generation 2, measured against generation 1
//! ```
//!
//! A stream records the error of its own encoding against what was encoded. If that had lost something before, its
//! frames are further from the original than that error says, so the manifest keeps the earlier generations too.

use kino_codec::Bound;
use serde::{Deserialize, Serialize};

use crate::manifest::StreamSummary;

/// A lossy encoding of a stream, before the one it has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Generation {
    /// The codec's canonical name; one that carries files if the recording had them.
    pub codec: String,
    /// The largest difference to what was encoded; `None` if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_abs_error: Option<f64>,
    /// The peak signal-to-noise ratio of 8-bit images; `None` if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub psnr_db: Option<f64>,
}

impl Generation {
    /// Files of a recording that were decoded: what they had lost is not known.
    pub fn of_files(codec: &str) -> Self {
        Self {
            codec: codec.to_owned(),
            max_abs_error: None,
            psnr_db: None,
        }
    }
}

/// Whether frames that were stored with this codec may have lost something: by it, or before, if it stores files that
/// were compressed elsewhere.
pub(crate) fn is_lossy(codec: &str) -> bool {
    // A codec that is unknown here cannot be decoded either.
    kino_codec::codec(codec).is_ok_and(|codec| codec.bound() != Bound::Lossless)
}

impl StreamSummary {
    /// The lossy encodings that its frames have gone through, the one they are stored with included.
    pub fn lossy_generations(&self) -> Vec<Generation> {
        let lossy = self.codecs.iter().find(|codec| is_lossy(codec));
        let own = lossy.map(|codec| {
            let is_measured = kino_codec::codec(codec).is_ok_and(|codec| codec.carries().is_none());
            Generation {
                codec: codec.clone(),
                max_abs_error: is_measured.then_some(self.max_abs_error),
                psnr_db: self.psnr_db().filter(|_| is_measured),
            }
        });
        self.generations.iter().cloned().chain(own).collect()
    }
}

/// The largest difference to the original after all of these, if each was measured: the sum of their errors.
pub fn total_error(generations: &[Generation]) -> Option<f64> {
    generations.iter().map(|one| one.max_abs_error).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_carries_files_counts_as_lossy_and_lossless_codecs_do_not() {
        for (codec, expected) in [
            ("jpeg:carry", true),
            ("video:coding=h264", true),
            ("jpeg:q=95,sub=444", true),
            ("vector:abs=1e-4", true),
            ("vector", false),
            ("predict:level=1", false),
            ("raw", false),
        ] {
            assert_eq!(is_lossy(codec), expected, "{codec}");
        }
    }

    #[test]
    fn errors_add_up_only_if_all_are_known() {
        let measured = |error| Generation {
            max_abs_error: Some(error),
            ..Generation::of_files("vector:abs=1")
        };
        assert_eq!(total_error(&[measured(0.5), measured(0.25)]), Some(0.75));
        let files = Generation::of_files("jpeg:carry");
        assert_eq!(total_error(&[files, measured(0.25)]), None);
    }
}
