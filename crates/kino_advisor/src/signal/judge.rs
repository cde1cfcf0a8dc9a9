//! From errors to verdicts: which arms there are, what they lose, and whether the probe would have seen it.

use super::arms::{ArmErrors, Errors, Names, RawErrors, Spec, arms, changes, not_probed};
use super::gather::{Gathered, Lane};
use super::interval::{Interval, interval, mean};
use super::layout::Role;
use super::losses::Of;
use super::outcome::{
    Arm, Contrast, Control, Effort, Outcome, Probed, ProbedCandidate, Region, Skill, Verdict,
};
use super::problem::Problem;
use super::text::below;
use super::{Candidate, ProbeHost, ProbeOptions};
use crate::error::Result;

/// Fits every arm, and says what it loses.
pub(super) fn measure(
    lanes: &[Lane],
    gathered: &Gathered,
    (candidates, names): (&[Candidate], &Names),
    options: &ProbeOptions,
    host: &mut dyn ProbeHost,
) -> Result<Probed> {
    let problem = Problem::of(
        lanes,
        &gathered.folds,
        &gathered.near,
        (options.seeds, options.seed),
    );
    let specs = arms(lanes, candidates.len());
    let mut raw = RawErrors::default();
    let mut errors: Vec<ArmErrors> = specs.iter().map(|_| ArmErrors::default()).collect();
    let mut penalties = Vec::new();
    // If every frame came back bit by bit, there is nothing to fit.
    for number in (0..options.seeds).filter(|_| !specs.is_empty()) {
        host.look_up()?;
        host.begins(&format!(
            "the regression, features {} of {}",
            number + 1,
            options.seeds
        ));
        let seed = problem.seed(number, &mut penalties, &mut raw);
        for (spec, errors) in specs.iter().zip(&mut errors) {
            host.look_up()?;
            problem.arm(&seed, &spec.versions, &penalties, errors);
        }
    }
    let judge = Judge::new(&problem, lanes, &raw, options.margin);
    Ok(judge.finish((&specs, &errors), gathered, (candidates, names)))
}

/// Says what errors mean; first of raw frames, then of the controls.
pub(super) struct Judge<'a> {
    problem: &'a Problem<'a>,
    lanes: &'a [Lane],
    raw: &'a RawErrors,
    margin: f64,
    pub(super) skill: Vec<Skill>,
    pub(super) controls: Vec<Control>,
}

impl<'a> Judge<'a> {
    pub(super) fn new(
        problem: &'a Problem<'a>,
        lanes: &'a [Lane],
        raw: &'a RawErrors,
        margin: f64,
    ) -> Self {
        Self {
            problem,
            lanes,
            raw,
            margin,
            skill: Vec::new(),
            controls: Vec::new(),
        }
    }

    /// What a control that was done to a stream has shown.
    pub(super) fn add_control(&mut self, name: &str, spec: &Spec, errors: &ArmErrors) {
        let stream = spec
            .lanes
            .iter()
            .map(|lane| self.lanes[*lane].source.name.clone())
            .collect();
        let outcomes = self.outcomes(errors, |_, _, _| Ok(()));
        self.controls.push(Control {
            name: name.to_owned(),
            stream,
            outcomes,
        });
    }

    /// What was done.
    pub(super) fn effort(&self, gathered: &Gathered) -> Effort {
        let stride =
            |lane: &Lane| Some((lane.source.name.clone(), lane.encoder.as_ref()?.stride()?));
        Effort {
            episodes: gathered.episodes,
            anchors: gathered.near.len(),
            near_events: gathered.near.iter().filter(|near| **near).count(),
            folds: gathered.folds.len(),
            seeds: self.problem.seeds,
            features: self.problem.width(),
            strides: self.lanes.iter().filter_map(stride).collect(),
            margin: self.margin,
            ..Effort::default()
        }
    }

    fn finish(
        mut self,
        (specs, errors): (&[Spec], &[ArmErrors]),
        gathered: &Gathered,
        (candidates, names): (&[Candidate], &Names),
    ) -> Probed {
        let lanes = self.lanes;
        if !specs.is_empty() {
            self.skill = self.skills();
        }
        for (spec, errors) in specs.iter().zip(errors) {
            if let Of::Control(name) = spec.of {
                self.add_control(name, spec, errors);
            }
        }
        let of_candidate = |(idx, candidate): (usize, &Candidate)| {
            let own = specs
                .iter()
                .zip(errors)
                .filter(|(spec, _)| spec.of == Of::Candidate(idx));
            let mut arms: Vec<Arm> = own.map(|(spec, errors)| self.arm(spec, errors)).collect();
            if arms.is_empty() {
                arms.extend(self.identical(idx));
            }
            ProbedCandidate {
                name: candidate.name.clone(),
                changes: changes(lanes, idx, names),
                not_probed: not_probed(lanes, candidate, names),
                arms,
            }
        };
        let found: Vec<ProbedCandidate> = candidates.iter().enumerate().map(of_candidate).collect();
        Probed {
            name: String::new(),
            inputs: with_role(lanes, &[Role::Camera, Role::Vector]),
            targets: with_role(lanes, &[Role::Target]),
            effort: self.effort(gathered),
            skill: self.skill,
            controls: self.controls,
            candidates: found,
        }
    }

    /// Regions that have anchors, and are not all of them.
    fn regions(&self) -> Vec<(usize, Region)> {
        let has = |(idx, _): &(usize, Region)| {
            let seeds = self.raw.full.iter().flatten().flatten();
            *idx == 0 || (1..3).all(|idx| seeds.clone().any(|regions| regions[idx].is_finite()))
        };
        Region::ALL.into_iter().enumerate().filter(has).collect()
    }

    pub(super) fn skills(&self) -> Vec<Skill> {
        let mut found = Vec::new();
        let has_images = self.problem.has_images();
        for (group, target) in self.problem.groups.iter().enumerate() {
            for (idx, region) in self.regions() {
                let full = of(&self.raw.full, group, idx);
                let below = |simple: &Errors| {
                    let found = growth(&of(simple, group, idx), &full)?;
                    // A growth of −20 % is an error that is 20 % below.
                    Some(Interval {
                        mean: -found.mean,
                        low: -found.high,
                        high: -found.low,
                    })
                };
                found.push(Skill {
                    target: target.stream.clone(),
                    region,
                    unexplained: mean(full.iter().flatten().copied()).unwrap_or(f64::NAN),
                    over_constant: below(&self.raw.constant),
                    over_vectors: (has_images && self.problem.has_vectors())
                        .then(|| below(&self.raw.vectors))
                        .flatten(),
                });
            }
        }
        found
    }

    /// Every contrast of an arm; `able` says whether harm would be seen.
    fn outcomes(
        &self,
        errors: &ArmErrors,
        able: impl Fn(&str, (Region, Contrast), Option<Interval>) -> Result<(), String>,
    ) -> Vec<Outcome> {
        let mut found = Vec::new();
        for contrast in Contrast::ALL {
            let compressed = match contrast {
                Contrast::Total => &errors.total,
                Contrast::Information => &errors.information,
                Contrast::Mismatch => &errors.mismatch,
            };
            for (group, target) in self.problem.groups.iter().enumerate() {
                for (idx, region) in self.regions() {
                    let raw = of(&self.raw.full, group, idx);
                    let compressed = of(compressed, group, idx);
                    let increase = growth(&raw, &compressed);
                    found.push(Outcome {
                        target: target.stream.clone(),
                        region,
                        contrast,
                        increase,
                        verdict: Verdict::of(
                            increase,
                            able(&target.stream, (region, contrast), increase),
                        ),
                    });
                }
            }
        }
        found
    }

    pub(super) fn arm(&self, spec: &Spec, errors: &ArmErrors) -> Arm {
        let has_image = spec.lanes.iter().any(|lane| self.problem.is_camera(*lane));
        let streams: Vec<String> = spec
            .lanes
            .iter()
            .map(|lane| self.lanes[*lane].source.name.clone())
            .collect();
        let outcomes = self.outcomes(errors, |target, (region, contrast), increase| {
            self.has_skill(target, region, has_image)?;
            // Harm that is shown needs no control: the probe has seen it.
            match increase {
                Some(increase) if increase.low > 0.0 => Ok(()),
                _ => streams
                    .iter()
                    .try_for_each(|stream| self.has_seen(stream, target, (region, contrast))),
            }
        });
        Arm { streams, outcomes }
    }

    /// Whether harm that is done to a stream would be seen, everywhere.
    pub(super) fn is_able(
        &self,
        stream: &str,
        target: &str,
        contrast: Contrast,
    ) -> Result<(), String> {
        let mut lanes = self.lanes.iter().enumerate();
        let is_image =
            lanes.any(|(idx, lane)| lane.source.name == stream && self.problem.is_camera(idx));
        self.has_skill(target, Region::Everywhere, is_image)?;
        self.has_seen(stream, target, (Region::Everywhere, contrast))
    }

    /// Whether a target is predicted better than by simpler means, with confidence.
    fn has_skill(&self, target: &str, region: Region, has_image: bool) -> Result<(), String> {
        let skill = self
            .skill
            .iter()
            .find(|one| one.target == target && one.region == region);
        let Some(skill) = skill else {
            return Err("it was not predicted".to_owned());
        };
        let needs = |found: Option<Interval>, than: &str| match found {
            None => Err("too few episodes have such moments".to_owned()),
            Some(found) if found.low > self.margin => Ok(()),
            Some(found) => Err(format!(
                "no skill: the error is {}, and must be {} below it with confidence",
                below(found, than),
                one_percent(self.margin)
            )),
        };
        needs(skill.over_constant, "a constant")?;
        match skill.over_vectors {
            Some(found) if has_image => needs(Some(found), "the vectors alone"),
            _ => Ok(()),
        }
    }

    /// Whether a control of this stream was seen.
    fn has_seen(
        &self,
        stream: &str,
        target: &str,
        (region, contrast): (Region, Contrast),
    ) -> Result<(), String> {
        let mut names = Vec::new();
        for control in self.controls.iter().filter(|one| one.stream == stream) {
            let outcome = control.outcomes.iter();
            let outcome = outcome.clone().find(|one| {
                one.target == target && one.region == region && one.contrast == contrast
            });
            if outcome
                .and_then(|one| one.increase)
                .is_some_and(|increase| increase.low > 0.0)
            {
                return Ok(());
            }
            names.push(control.name.as_str());
        }
        Err(format!(
            "not even {} of `{stream}` is seen",
            names.join(" or ")
        ))
    }

    /// The outcome of a candidate that changes no bit.
    fn identical(&self, candidate: usize) -> Option<Arm> {
        let is_own = |lane: &&Lane| {
            lane.variants
                .iter()
                .any(|one| one.of == Of::Candidate(candidate))
        };
        let streams: Vec<String> = self
            .lanes
            .iter()
            .filter(is_own)
            .map(|lane| lane.source.name.clone())
            .collect();
        let outcome = |target: &str, contrast| Outcome {
            target: target.to_owned(),
            region: Region::Everywhere,
            contrast,
            increase: Some(Interval::exactly(0.0)),
            verdict: Verdict::Identical,
        };
        let groups = self.problem.groups.iter();
        let outcomes =
            groups.flat_map(|group| Contrast::ALL.map(|contrast| outcome(&group.stream, contrast)));
        (!streams.is_empty()).then(|| Arm {
            outcomes: outcomes.collect(),
            streams,
        })
    }
}

/// The streams that are used like this.
pub(super) fn with_role(lanes: &[Lane], wanted: &[Role]) -> Vec<String> {
    let has = |lane: &&Lane| {
        let mut uses = lane.source.uses.iter();
        uses.any(|one| wanted.contains(&one.role))
    };
    let names = lanes.iter().filter(has);
    names.map(|lane| lane.source.name.clone()).collect()
}

/// The errors of a group in a region: by seed and fold.
fn of(errors: &Errors, group: usize, region: usize) -> Vec<Vec<f64>> {
    let fold = |fold: &Vec<[f64; 3]>| fold.get(group).map_or(f64::NAN, |regions| regions[region]);
    errors
        .iter()
        .map(|seed| seed.iter().map(fold).collect())
        .collect()
}

/// By which share errors grow from `from` to `to`: the mean of their logarithms over folds and seeds, because an error that
/// explodes in one fold would otherwise hide those of all others.
fn growth(from: &[Vec<f64>], to: &[Vec<f64>]) -> Option<Interval> {
    let ratio = |from: &f64, to: &f64| (to / from).ln();
    let seeds = from.iter().zip(to);
    let ratios: Vec<Vec<f64>> = seeds
        .map(|(from, to)| from.iter().zip(to).map(|(a, b)| ratio(a, b)).collect())
        .collect();
    let found = interval(&ratios)?;
    Some(Interval {
        mean: found.mean.exp_m1(),
        low: found.low.exp_m1(),
        high: found.high.exp_m1(),
    })
}

pub(crate) fn one_percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent.abs() {
        0.0 => "0 %".to_owned(),
        size if size < 0.1 => format!("{percent:.2} %"),
        size if size < 10.0 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

pub(super) fn percent(interval: Interval) -> String {
    let [mean, low, high] = [interval.mean, interval.low, interval.high].map(one_percent);
    format!("{mean} [{low} to {high}]")
}
