//! What raw frames teach, fitted once and kept, to be asked about one arm after the other.

use super::ProbeHost;
use super::arms::{ArmErrors, RawErrors};
use super::problem::{Problem, Seed};
use crate::error::Result;

/// The fits on raw frames, of every set of features.
pub(super) struct Trained<'a> {
    pub(super) problem: Problem<'a>,
    pub(super) raw: RawErrors,
    seeds: Vec<Seed>,
    penalties: Vec<Vec<f64>>,
}

impl<'a> Trained<'a> {
    pub(super) fn of(problem: Problem<'a>, host: &mut dyn ProbeHost) -> Result<Self> {
        let (mut raw, mut penalties) = (RawErrors::default(), Vec::new());
        let mut seeds = Vec::with_capacity(problem.seeds);
        for number in 0..problem.seeds {
            host.look_up()?;
            host.begins(&format!(
                "the regression on raw frames, features {} of {}",
                number + 1,
                problem.seeds
            ));
            seeds.push(problem.seed(number, &mut penalties, &mut raw));
        }
        Ok(Self {
            problem,
            raw,
            seeds,
            penalties,
        })
    }

    /// The errors with these versions of the streams.
    pub(super) fn errors(&self, versions: &[usize], host: &mut dyn ProbeHost) -> Result<ArmErrors> {
        let mut errors = ArmErrors::default();
        for seed in &self.seeds {
            host.look_up()?;
            self.problem
                .arm(seed, versions, &self.penalties, &mut errors);
        }
        Ok(errors)
    }
}
