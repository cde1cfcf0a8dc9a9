//! The search of `bounds.rs`: how far each stream has come, which goes a step further, and whether that is kept.

use kino_dataset::{Plan, SignalEvidence, StreamSummary};

use super::arms::Spec;
use super::bounds::{CONTRAST, FoundBound, FoundBounds, Looked};
use super::gather::{Gathered, Lane};
use super::judge::{Judge, one_percent, percent, with_role};
use super::layout::{Role, is_action};
use super::losses::Of;
use super::outcome::{Arm, Control, Effort, Outcome, Region, Skill, Verdict};
use super::problem::Problem;
use super::rungs::{Ladder, Rung};
use super::trained::Trained;
use super::{Candidate, Change, ProbeHost, ProbeOptions};
use crate::error::Result;

/// The arms of every control of the streams that may lose something.
pub(super) fn controls(lanes: &[Lane]) -> Vec<(&'static str, Spec)> {
    let mut found = Vec::new();
    for (lane, own) in lanes.iter().enumerate() {
        for (number, variant) in own.variants.iter().enumerate() {
            if let Of::Control(name) = variant.of {
                found.push((name, spec(lanes.len(), &[(lane, number + 1)])));
            }
        }
    }
    found
}

fn spec(lanes: usize, changed: &[(usize, usize)]) -> Spec {
    let mut versions = vec![0; lanes];
    for &(lane, version) in changed {
        versions[lane] = version;
    }
    Spec {
        of: Of::Candidate(0),
        lanes: changed.iter().map(|(lane, _)| *lane).collect(),
        versions,
    }
}

/// The streams, and how far each has come.
#[derive(Default)]
pub(super) struct Search {
    pub(super) ladders: Vec<Ladder>,
    /// Steps that each has taken.
    taken: Vec<usize>,
    /// Why each does not go further.
    reasons: Vec<Option<String>>,
    /// The outcome that decided the last step that was kept.
    kept: Option<Outcome>,
    /// Streams that are not searched.
    settled: Vec<FoundBound>,
    looked: Vec<Looked>,
    inputs: Vec<String>,
    targets: Vec<String>,
    skill: Vec<Skill>,
    controls: Vec<Control>,
    pub(super) effort: Effort,
}

impl Search {
    pub(super) fn refuse(&mut self, summary: &StreamSummary, percent: f64, reason: &str) {
        let frame_bytes = summary.bytes as f64 / summary.frames.max(1) as f64;
        self.settled.push(FoundBound {
            stream: summary.name.clone(),
            percent,
            codec: None,
            frame_bytes,
            lossless_frame_bytes: frame_bytes,
            reason: format!("cannot tell: {reason}"),
            evidence: None,
        });
    }

    pub(super) fn add(&mut self, ladder: Ladder) {
        if ladder.rungs.is_empty() {
            self.settled.push(FoundBound {
                reason: format!("nothing lossy is smaller than {}", ladder.lossless.codec),
                ..lossless(&ladder)
            });
            return;
        }
        self.ladders.push(ladder);
        self.taken.push(0);
        self.reasons.push(None);
    }

    /// Steps of all streams.
    pub(super) fn steps(&self) -> usize {
        self.ladders.iter().map(|ladder| ladder.rungs.len()).sum()
    }

    /// A candidate per step: every stream that has so many, with its codec.
    pub(super) fn candidates(&self, asked: &Plan) -> Result<Vec<Candidate>> {
        let most = self.ladders.iter().map(|ladder| ladder.rungs.len()).max();
        let candidate = |step: usize| {
            let mut plan = Plan {
                events: asked.events.clone(),
                ..Plan::lossless()
            };
            for ladder in &self.ladders {
                let Some(rung) = ladder.rungs.get(step) else {
                    continue;
                };
                let quoted = |text: &str| serde_json::Value::from(text).to_string();
                let text = format!(
                    "[[stream]]\nmatch = {}\ncodec = {}",
                    quoted(&ladder.stream.replace('*', "?")),
                    quoted(&rung.codec)
                );
                let mut rule = Plan::from_toml(&text)?.rules;
                rule.iter_mut()
                    .for_each(|rule| rule.protect.clone_from(&ladder.asked.protect));
                plan.rules.extend(rule);
            }
            Ok(Candidate {
                name: format!("step {}", step + 1),
                change: Change::Plan(plan),
            })
        };
        (0..most.unwrap_or(0)).map(candidate).collect()
    }

    pub(super) fn run(
        &mut self,
        lanes: &[Lane],
        gathered: &Gathered,
        options: &ProbeOptions,
        host: &mut dyn ProbeHost,
    ) -> Result<()> {
        self.inputs = with_role(lanes, &[Role::Camera, Role::Vector]);
        self.targets = with_role(lanes, &[Role::Target]);
        let how = (options.seeds, options.seed);
        let problem = Problem::of(lanes, &gathered.folds, &gathered.near, how);
        let trained = Trained::of(problem, host)?;
        let mut judge = Judge::new(&trained.problem, lanes, &trained.raw, options.margin);
        judge.skill = judge.skills();
        for (name, spec) in controls(lanes) {
            let stream = spec.lanes.first().map(|lane| &*lanes[*lane].source.name);
            host.begins(&format!(
                "whether {name} of `{}` is seen",
                stream.unwrap_or_default()
            ));
            let errors = trained.errors(&spec.versions, host)?;
            judge.add_control(name, &spec, &errors);
        }
        let targets: Vec<String> = trained
            .problem
            .groups
            .iter()
            .map(|one| one.stream.clone())
            .collect();
        while let Some(at) = self.next() {
            let name = self.ladders[at].stream.clone();
            let asked = targets.iter().filter(|target| is_asked(target, options));
            let is_able = asked.map(|target| judge.is_able(&name, target, CONTRAST));
            if let Err(reason) = is_able.collect::<Result<(), String>>() {
                self.reasons[at] = Some(format!("cannot tell: {reason}"));
                continue;
            }
            let number = self.looked.len() + 1;
            let rung = self.ladders[at].rungs[self.taken[at]].clone();
            host.begins(&format!("step {number}: `{name}` as {}", rung.codec));
            let spec = self.spec(lanes, at);
            let errors = trained.errors(&spec.versions, host)?;
            let arm = judge.arm(&spec, &errors);
            self.decide(at, rung, &arm, options);
        }
        self.effort = judge.effort(gathered);
        (self.skill, self.controls) = (judge.skill, judge.controls);
        Ok(())
    }

    /// The stream whose next step saves most.
    fn next(&self) -> Option<usize> {
        let open = (0..self.ladders.len()).filter(|&at| self.reasons[at].is_none());
        let saving = open.filter_map(|at| Some((at, self.ladders[at].saving(self.taken[at])?)));
        let most = saving.max_by(|a, b| a.1.total_cmp(&b.1));
        most.map(|(at, _)| at)
    }

    /// All streams where they are, and `at` a step further.
    fn spec(&self, lanes: &[Lane], at: usize) -> Spec {
        let mut changed = Vec::new();
        for (idx, ladder) in self.ladders.iter().enumerate() {
            let taken = self.taken[idx] + usize::from(idx == at);
            let Some(step) = taken.checked_sub(1) else {
                continue;
            };
            let lane = lanes
                .iter()
                .position(|one| one.source.name == ladder.stream);
            let version = lane.and_then(|lane| {
                let mut variants = lanes[lane].variants.iter();
                variants.position(|one| one.of == Of::Candidate(step))
            });
            changed.extend(lane.zip(version.map(|version| version + 1)));
        }
        spec(lanes.len(), &changed)
    }

    /// Keeps a step, or says why not.
    fn decide(&mut self, at: usize, rung: Rung, arm: &Arm, options: &ProbeOptions) {
        let lossy = |idx: &usize| *idx == at || self.taken[*idx] > 0;
        let bounds = (0..self.ladders.len()).filter(lossy);
        let percent = bounds
            .map(|idx| self.ladders[idx].asked.percent)
            .fold(f64::INFINITY, f64::min);
        let found = decisive(arm, percent / 100.0, options);
        let (outcome, refusal) = match found {
            Ok(outcome) => (Some(outcome), None),
            Err((outcome, reason)) => (outcome, Some(reason)),
        };
        self.looked.push(Looked {
            stream: self.ladders[at].stream.clone(),
            codec: rung.codec.clone(),
            frame_bytes: rung.frame_bytes,
            increase: outcome.and_then(|one| one.increase),
            is_kept: refusal.is_none(),
        });
        match refusal {
            Some(reason) => self.reasons[at] = Some(format!("with {}, {reason}", rung.codec)),
            None => {
                self.taken[at] += 1;
                self.kept = outcome.cloned();
            }
        }
    }

    /// What was measured of a stream that has become lossy.
    fn evidence(&self, ladder: &Ladder, rung: &Rung) -> Option<SignalEvidence> {
        let outcome = self.kept.as_ref()?;
        let increase = outcome.increase?;
        let is_same = |one: &&Outcome| {
            (&one.target, one.region, one.contrast)
                == (&outcome.target, Region::Everywhere, CONTRAST)
        };
        let own = self
            .controls
            .iter()
            .filter(|one| one.stream == ladder.stream);
        let seen = own.filter_map(|control| {
            Some((control, control.outcomes.iter().find(is_same)?.increase?))
        });
        let (control, seen) = seen.max_by(|a, b| a.1.low.total_cmp(&b.1.low))?;
        let skill = self
            .skill
            .iter()
            .filter(|one| (&one.target, one.region) == (&outcome.target, Region::Everywhere));
        let over = skill
            .flat_map(|one| [one.over_constant, one.over_vectors])
            .flatten();
        Some(SignalEvidence {
            bound: format!("signal({}%)", ladder.asked.percent),
            codec: rung.codec.clone(),
            contrast: CONTRAST.name().to_owned(),
            target: outcome.target.clone(),
            increase: increase.mean,
            low: increase.low,
            high: increase.high,
            control: control.name.clone(),
            control_increase: seen.mean,
            skill: over.map(|one| one.low).reduce(f64::min)?,
            episodes: self.effort.episodes as u64,
            frames: self.effort.anchors as u64,
            frame_bytes: rung.frame_bytes,
            lossless_frame_bytes: ladder.lossless.frame_bytes,
        })
    }

    pub(super) fn finish(mut self) -> FoundBounds {
        let mut streams = std::mem::take(&mut self.settled);
        for (idx, ladder) in self.ladders.iter().enumerate() {
            let rung = self.taken[idx].checked_sub(1).map(|at| &ladder.rungs[at]);
            streams.push(FoundBound {
                codec: rung.map(|rung| rung.codec.clone()),
                frame_bytes: ladder.frame_bytes(self.taken[idx]),
                reason: self.reasons[idx].clone().unwrap_or_default(),
                evidence: rung.and_then(|rung| self.evidence(ladder, rung)),
                ..lossless(ladder)
            });
        }
        FoundBounds {
            contrast: CONTRAST,
            streams,
            looked: self.looked,
            inputs: self.inputs,
            targets: self.targets,
            skill: self.skill,
            controls: self.controls,
            effort: self.effort,
        }
    }
}

fn lossless(ladder: &Ladder) -> FoundBound {
    FoundBound {
        stream: ladder.stream.clone(),
        percent: ladder.asked.percent,
        codec: None,
        frame_bytes: ladder.lossless.frame_bytes,
        lossless_frame_bytes: ladder.lossless.frame_bytes,
        reason: String::new(),
        evidence: None,
    }
}

/// Whether the error of a target decides: those that the caller names, otherwise the actions.
fn is_asked(target: &str, options: &ProbeOptions) -> bool {
    !options.targets.is_empty() || is_action(target)
}

/// The outcome with the highest upper end, if all are below the limit; otherwise the one that is not, and why.
///
/// Everywhere, the upper end counts. Near events and elsewhere there are fewer frames, and the bound must not be shown to be broken.
/// Further targets, such as the state of a simulator, count if they can be predicted.
fn decisive<'a>(
    arm: &'a Arm,
    limit: f64,
    options: &ProbeOptions,
) -> Result<&'a Outcome, (Option<&'a Outcome>, String)> {
    let mut worst: Option<(f64, &Outcome)> = None;
    for one in arm.outcomes.iter().filter(|one| one.contrast == CONTRAST) {
        let (target, is_everywhere) = (&one.target, one.region == Region::Everywhere);
        let increase = match (&one.verdict, one.increase) {
            (Verdict::CannotTell { reason }, _) if is_everywhere && is_asked(target, options) => {
                return Err((Some(one), format!("cannot tell about `{target}`: {reason}")));
            }
            (Verdict::CannotTell { .. }, _) | (_, None) => continue,
            (_, Some(increase)) => increase,
        };
        let end = if is_everywhere {
            increase.high
        } else {
            increase.low
        };
        if end >= limit {
            return Err((
                Some(one),
                format!(
                    "the error of `{target}` grows by {} {}, and that it is less than {} is not shown",
                    percent(increase),
                    one.region.name(),
                    one_percent(limit)
                ),
            ));
        }
        if is_everywhere && worst.is_none_or(|(high, _)| increase.high > high) {
            worst = Some((increase.high, one));
        }
    }
    worst
        .map(|(_, one)| one)
        .ok_or_else(|| (None, "cannot tell: nothing is predicted".to_owned()))
}
