//! What a policy would lose: the codecs that `signal(…)` bounds allow, found before plans are compared, and what the probe says of
//! the candidate plans.

use kino_dataset::{Dataset, Kind, Plan};
use serde::{Deserialize, Serialize};

use super::plan_file::rule_toml;
use super::{CandidatePlan, CodecOption, Planned, PlannerOptions, StreamOptions};
use crate::doctor::{Host, Subject};
use crate::error::{Result, invalid};
use crate::signal::{
    Candidate, Change, Chosen, Contrast, Features, FoundBounds, ProbeHost, ProbeOptions, Probed,
    Verdict, check_episodes, check_streams, find_bounds, is_action, one_percent, probe,
};

/// Lossy plans that are probed, at most: each takes time.
const MOST_PLANS: usize = 4;

/// How a line begins that tells a host what the probe does next.
pub const PROBING: &str = "what a policy would lose: ";

/// What to ask the probe.
#[derive(Debug, Clone, Default)]
pub struct SignalOptions {
    /// Whether the probe also judges the candidate plans that lose something.
    pub verdicts: bool,
    /// How it measures; bounds always by random features, which were compared with rollouts. Without inputs, a policy sees the streams that the loader reads, in the size that it makes of images.
    pub probe: ProbeOptions,
}

/// A codec that loses something, and the stream that it is for.
type Loss = (String, String);

/// What the probe says of candidate plans.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbedPlans {
    /// What each probed candidate loses: streams and codecs.
    pub losses: Vec<Vec<Loss>>,
    /// What was found of them, in the same order.
    pub found: Probed,
}

/// Passes what the probe says to the host of the planner.
struct Probing<'h>(&'h mut dyn Host);

impl ProbeHost for Probing<'_> {
    fn begins(&mut self, what: &str) {
        self.0.begins(&format!("{PROBING}{what}"));
    }

    fn look_up(&mut self) -> Result<()> {
        self.0.look_up()
    }
}

/// Finds the codecs that the `signal(…)` bounds allow; `None` if there is no such bound.
pub(super) fn measure_bounds(
    subject: &Subject,
    options: &PlannerOptions,
    host: &mut dyn Host,
) -> Result<Option<FoundBounds>> {
    let has_bounds = options.bounds.has_signal_bound();
    if !has_bounds && !options.signal.verdicts {
        return Ok(None);
    }
    let (dataset, how) = asked(subject, options)?;
    if how.encoder != Features::Random && !options.signal.verdicts {
        return Err(invalid(
            "an encoder is for what the probe says of plans (`signal`); bounds are found with random features, which were compared with \
            rollouts: omit the encoder",
        ));
    }
    // What cannot be probed is said before anything else is measured.
    if !has_bounds {
        check_episodes(dataset, &how)?;
        return Ok(None);
    }
    check_streams(dataset, &how)?;
    find_bounds(dataset, &options.bounds, &how, &mut Probing(host)).map(Some)
}

/// The dataset, and what a policy sees of it.
fn asked<'a>(
    subject: &'a Subject,
    options: &PlannerOptions,
) -> Result<(&'a Dataset, ProbeOptions)> {
    let samples = subject.windows.first().and_then(|all| all.first());
    let samples = samples.ok_or_else(|| invalid("the training loop requests no stream"))?;
    let dataset = samples.dataset();
    let mut how = options.signal.probe.clone();
    let windows = &samples.request().windows;
    let streams = dataset.manifest().streams.iter();
    let all = streams.clone().filter(|one| one.variant_of.is_none());
    let is_read = |name: &str| windows.iter().any(|window| window.stream == name);
    // A loader that reads everything says nothing about the policy.
    if how.inputs.is_empty() && !all.clone().all(|one| is_read(&one.name)) {
        let is_seen = |kind: Kind| matches!(kind, Kind::Image | Kind::Vector);
        let seen = all.filter(|one| is_read(&one.name) && is_seen(one.kind));
        let seen = seen.filter(|one| !is_action(&one.name) && one.dtype != "text");
        how.inputs = seen
            .map(|one| Chosen {
                stream: one.name.clone(),
                elements: None,
            })
            .collect();
    }
    if how.fit.size.is_none() {
        let images = windows.iter().filter(|window| {
            let mut streams = streams.clone();
            streams.any(|one| one.name == window.stream && one.kind == Kind::Image)
        });
        let mut sizes = images.map(|window| subject.options.images.size_of(&window.key));
        let first = sizes.next().flatten();
        how.fit.size = first.filter(|_| sizes.all(|size| size == first));
    }
    Ok((dataset, how))
}

impl Planned {
    /// Asks the probe about the chosen plan, and about others that lose something.
    pub(super) fn probe(
        &mut self,
        subject: &Subject,
        options: &PlannerOptions,
        host: &mut dyn Host,
    ) -> Result<()> {
        let (dataset, how) = asked(subject, options)?;
        let mut losses: Vec<Vec<Loss>> = Vec::new();
        let mut candidates = Vec::new();
        let chosen = self.choice();
        let shown = self.plans.iter().enumerate();
        let shown = shown
            .filter(|(idx, _)| self.is_shown(*idx))
            .map(|(_, plan)| plan);
        for plan in chosen.into_iter().chain(shown) {
            let lost = self.losses(plan);
            if lost.is_empty() || losses.contains(&lost) || losses.len() == MOST_PLANS {
                continue;
            }
            let mut change = Plan {
                events: self.measured.bounds.events.clone(),
                ..Plan::lossless()
            };
            for (stream, option) in self.lossy(plan) {
                let mut rules = Plan::from_toml(&rule_toml(stream, option))?.rules;
                let protect = self.protect(stream, option);
                rules
                    .iter_mut()
                    .for_each(|rule| rule.protect = protect.to_vec());
                change.rules.extend(rules);
            }
            candidates.push(Candidate {
                name: self.plan_name(plan),
                change: Change::Plan(change),
            });
            losses.push(lost);
        }
        if candidates.is_empty() {
            return Ok(());
        }
        let found = probe(dataset, &candidates, &how, &mut Probing(host))?;
        self.probed = Some(ProbedPlans { losses, found });
        Ok(())
    }

    /// The streams to which a plan does something that loses.
    fn lossy<'a>(
        &'a self,
        plan: &'a CandidatePlan,
    ) -> impl Iterator<Item = (&'a StreamOptions, &'a CodecOption)> {
        let streams = self.measured.streams.iter().zip(&plan.codecs);
        let options =
            streams.filter_map(|(stream, &idx)| stream.options.get(idx).map(|one| (stream, one)));
        options.filter(|(_, one)| !one.is_stored && (!one.is_lossless || one.resize.is_some()))
    }

    fn losses(&self, plan: &CandidatePlan) -> Vec<Loss> {
        let named = |(stream, option): (&StreamOptions, &CodecOption)| {
            (stream.name.clone(), super::text::stored_as(option))
        };
        self.lossy(plan).map(named).collect()
    }

    /// The events around which a stream is exact with this codec.
    pub(super) fn protect(&self, stream: &StreamOptions, option: &CodecOption) -> &[String] {
        let kinds = [Kind::Vector, Kind::Image, Kind::Depth];
        let kind = kinds.into_iter().find(|kind| kind.name() == stream.kind);
        match kind {
            Some(kind) if !option.is_lossless => {
                self.measured.bounds.protected_by(&stream.name, kind)
            }
            _ => &[],
        }
    }

    /// What the probe says of a plan, in a cell of a table.
    pub(super) fn verdict(&self, plan: &CandidatePlan) -> String {
        let lost = self.losses(plan);
        if lost.is_empty() {
            return "nothing lost".to_owned();
        }
        let probed = self.probed.as_ref();
        let candidate = probed.and_then(|probed| {
            let at = probed.losses.iter().position(|one| *one == lost)?;
            probed.found.candidates.get(at)
        });
        let Some(worst) = candidate.and_then(|one| one.worst(Contrast::Total)) else {
            return "not probed".to_owned();
        };
        match (&worst.verdict, worst.increase) {
            (Verdict::Harm, Some(increase)) => format!("harm, +{}", one_percent(increase.mean)),
            (Verdict::Harm, None) => "harm".to_owned(),
            (Verdict::NoHarmAbove { limit }, _) => format!("none above {}", one_percent(*limit)),
            (Verdict::CannotTell { .. }, _) => "cannot tell".to_owned(),
            (Verdict::Identical, _) => "exactly 0".to_owned(),
        }
    }

    /// What the probe says: the bounds, then the plans.
    pub fn signal_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        lines.extend(self.measured.signal.iter().flat_map(FoundBounds::lines));
        if let Some(probed) = &self.probed {
            lines.extend(probed.found.verdicts());
        }
        lines
    }
}
