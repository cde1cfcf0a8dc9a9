//! What becomes of each stream: copied, encoded again, or dropped.
//!
//! | the plan | stored as | the stream is |
//! |---|---|---|
//! | says nothing about it | anything | copied |
//! | names a codec | that codec, in pages of that length | copied |
//! | | another one | encoded again |
//! | has a lossless rule without a codec | one of the codecs that it would try, or a lossy one | copied |
//! | resizes it | another size | encoded again |
//! | has a bound or a quality | what it would become, or nothing is saved on the first frames | copied |
//! | | anything else | encoded again |
//! | has a rule for a variant of it | without that variant, in any episode | the variant is added |
//!
//! A variant is encoded from the stream that it is one of, also if it is there already and changes.
//!
//! Encoding again what was lossy already, with a loss, is a *second generation*: [`GenerationLoss`](super::GenerationLoss).

use std::collections::BTreeMap;

use kino_codec::FrameType;

use crate::dataset::Dataset;
use crate::error::{DatasetError, Result, codec_at, invalid};
use crate::generation::{Generation, is_lossy};
use crate::manifest::StreamSummary;
use crate::part::Part;
use crate::plan::{Arrival, Choice, Plan, Rule, Trial, carried};
use crate::resize::Size;
use crate::stored_stream::StoredStream;

use super::found::{Found, FoundStream};
use super::sample::{SampleSizes, try_first};
use super::variants::{added_variants, check_variants};

/// What happens to a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Its pages are copied as they are.
    Copy,
    /// Its frames are decoded and encoded again.
    Encode,
    /// It is left out.
    Drop,
    /// It is new: a variant of another stream, encoded from its frames.
    Add,
}

impl Action {
    /// The word used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copied",
            Self::Encode => "encoded",
            Self::Drop => "dropped",
            Self::Add => "added",
        }
    }

    /// Whether frames are decoded and encoded.
    pub(super) fn encodes(self) -> bool {
        matches!(self, Self::Encode | Self::Add)
    }
}

/// A stream, and what happens to it.
#[derive(Debug, Clone)]
pub struct StreamChange {
    /// The stream in the dataset, over all its episodes; of one that is added, only its name and type.
    pub stored: StreamSummary,
    /// Bytes of its pages in the episodes that are taken.
    pub bytes: u64,
    /// What happens to it.
    pub action: Action,
    /// The codec that it gets; `None` unless it is encoded again.
    pub codec: Option<String>,
    /// The size that its frames have, if they are resized.
    pub resized_from: Option<Size>,
    /// The shape of its frames afterwards.
    pub shape: Vec<usize>,
    /// Why it is copied although the plan has a rule for it, or that it changes with another stream.
    pub note: Option<String>,
    /// The codecs that were tried on its first frames.
    pub trial: Option<Trial>,
    /// What its first frames take, as they are and encoded again.
    pub sample: Option<SampleSizes>,
    /// The lossy encodings that its frames have gone through, if it is encoded again.
    pub generations: Vec<Generation>,
    /// Whether it would lose something a second time.
    pub is_second_loss: bool,
    /// How it is encoded again.
    pub(super) choice: Option<Choice>,
    /// The codecs with which it is copied in the episodes that have them, although it is encoded again in others.
    pub(super) kept: Vec<String>,
    /// Whether all its frames are stored anew, because the stream that it shares some with is dropped.
    pub(super) is_unshared: bool,
    /// The stream whose frames are encoded, and the bytes of its pages; `None` if they are its own.
    pub(super) source: Option<(String, u64)>,
    /// The stream that it is a variant of in what is written.
    pub(super) variant_of: Option<String>,
}

impl StreamChange {
    fn new(stored: &StreamSummary, action: Action, bytes: u64) -> Self {
        Self {
            stored: stored.clone(),
            bytes,
            action,
            codec: None,
            resized_from: None,
            shape: stored.shape.clone(),
            note: None,
            trial: None,
            sample: None,
            generations: Vec::new(),
            is_second_loss: false,
            choice: None,
            kept: Vec::new(),
            is_unshared: false,
            source: None,
            variant_of: stored.variant_of.clone(),
        }
    }

    /// The estimated bytes of its pages afterwards; `None` if its frames could not be tried.
    pub fn estimated_bytes(&self) -> Option<u64> {
        match (self.action, &self.sample) {
            (Action::Drop, _) => Some(0),
            (Action::Copy, _) => Some(self.bytes),
            (Action::Encode | Action::Add, None) => None,
            (Action::Encode | Action::Add, Some(sample)) => {
                let compared = self.source.as_ref().map_or(self.bytes, |(_, bytes)| *bytes);
                let bytes = u128::from(compared) * u128::from(sample.encoded);
                u64::try_from(bytes / u128::from(sample.stored.max(1))).ok()
            }
        }
    }
}

/// Decides about every stream of a dataset.
pub(super) fn decide(
    dataset: &Dataset,
    found: &Found,
    plan: &Plan,
    part: &Part,
) -> Result<Vec<StreamChange>> {
    check_variants(dataset, plan)?;
    let none = FoundStream::default();
    let mut changes: Vec<StreamChange> = Vec::new();
    let added = added_variants(dataset, plan, part);
    for stored in dataset.manifest().streams.iter().chain(&added) {
        let stream = found.get(&stored.name).unwrap_or(&none);
        let is_added = stored.episodes == 0 && stored.variant_of.is_some();
        let is_taken = part.takes_stream(&stored.name) && found.contains_key(&stored.name);
        let change = if is_taken || is_added {
            let base = stream.base.as_deref();
            let is_unshared = base.is_some_and(|base| {
                !part.takes_stream(base) || is_resized_alone(dataset, plan, stored, base)
            });
            Deciding {
                dataset,
                plan,
                stored,
                stream,
                source: stored.variant_of.as_ref().and_then(|base| found.get(base)),
                is_unshared,
            }
            .decide()?
        } else {
            StreamChange::new(stored, Action::Drop, stream.bytes)
        };
        changes.push(change);
    }
    if changes.iter().all(|change| change.action == Action::Drop) {
        return Err(invalid(
            "no stream is left in any episode; check `--streams`, `--exclude` and `--episodes`",
        ));
    }
    tell_of_bases(found, &mut changes);
    for change in &mut changes {
        // Without its stream it stands alone.
        change.variant_of = change
            .variant_of
            .take()
            .filter(|base| part.takes_stream(base));
    }
    Ok(changes)
}

/// Whether a stream and the one that it shares frames with would have different sizes.
fn is_resized_alone(dataset: &Dataset, plan: &Plan, stored: &StreamSummary, base: &str) -> bool {
    let new_type = |one: &StreamSummary| {
        let frame = one.frame_type().ok()?;
        Some(plan.stored_frame(&one.name, one.kind, &frame))
    };
    let mut streams = dataset.manifest().streams.iter();
    let base = streams.find(|one| one.name == base);
    base.is_some_and(|base| new_type(base) != new_type(stored))
}

/// Notes the streams that share frames with one that is encoded again.
fn tell_of_bases(found: &Found, changes: &mut [StreamChange]) {
    let encoded = changes.iter().filter(|one| one.action.encodes());
    let encoded: BTreeMap<String, Option<String>> = encoded
        .map(|one| (one.stored.name.clone(), one.codec.clone()))
        .collect();
    for change in changes.iter_mut() {
        let base = found.get(&change.stored.name);
        let base = base.and_then(|stream| stream.base.as_ref());
        if let (Some(base), Action::Copy) = (base, change.action)
            && encoded.contains_key(base)
        {
            change.note = Some(format!("shares frames with {base}, which is encoded again"));
        }
    }
}

fn frame_shape(frame: &FrameType) -> Vec<usize> {
    frame
        .as_values()
        .map_or_else(Vec::new, |ty| ty.shape().to_vec())
}

/// Whether a stream with this codec is already stored as chosen.
fn is_as_chosen(choice: &Choice, codec: &str) -> bool {
    if choice.codec.spec().to_string() == codec {
        return true;
    }
    // Nothing that was lost comes back, and copying loses nothing.
    let is_final = !choice.is_named() && is_lossy(codec);
    !choice.is_lossy() && (is_final || choice.clone().keep(codec))
}

/// One stream, and what is known of it.
struct Deciding<'a> {
    dataset: &'a Dataset,
    plan: &'a Plan,
    stored: &'a StreamSummary,
    stream: &'a FoundStream,
    /// The stream that it is a variant of, whose frames are encoded.
    source: Option<&'a FoundStream>,
    is_unshared: bool,
}

impl Deciding<'_> {
    fn decide(&self) -> Result<StreamChange> {
        let (name, kind) = (&self.stored.name, self.stored.kind);
        let mut change = StreamChange::new(self.stored, Action::Copy, self.stream.bytes);
        change.is_unshared = self.is_unshared;
        let is_mentioned = match self.stored.variant() {
            Some(_) => self.rule().is_some(),
            None => self.plan.mentions(name, kind),
        };
        let named = self.rule();
        let named = named.and_then(|rule| rule.codec.as_deref());
        if let Some(files) = named.filter(|codec| carried(codec).is_some()) {
            self.check_carried(files)?;
            return Ok(change);
        }
        let is_variant = self.stored.variant_of.is_some() && is_mentioned;
        let first = self.stream.codecs.first();
        let first = first.or_else(|| self.source.filter(|_| is_variant)?.codecs.first());
        let Some((codec, _)) = first else {
            return Ok(change);
        };
        if !is_mentioned && !self.is_unshared {
            return Ok(change);
        }
        let frame = self.stored.frame_type()?;
        let mut choice = if is_mentioned {
            self.choose(&frame)?
        } else {
            let place = format!("stream `{name}`");
            Choice::of(codec, &frame).map_err(codec_at(place))?
        };
        let is_forced = self.is_unshared || choice.resize().is_some() || self.has_other_pages()?;
        let mut kept = self.kept(&choice, is_forced);
        let other = self.first_other(&kept);
        let source = self.source.filter(|_| is_variant);
        let is_missing = source.is_some() && self.is_missing_somewhere();
        if other.is_none() && !is_missing {
            return Ok(change);
        }
        let base = self.stored.variant_of.clone().unwrap_or_default();
        let first = source.and_then(|source| source.codecs.first());
        let (Some(row), tried) = (match source {
            Some(_) => (first.map(|(_, row)| *row), &base),
            None => (other, name),
        }) else {
            return Ok(change);
        };
        if let Some((sample, trial)) = try_first(self.dataset, row, tried, &mut choice)? {
            change.sample = Some(sample);
            change.trial = trial;
            let chosen = choice.codec.spec().to_string();
            kept.extend(Some(chosen).filter(|_| !is_forced));
            if self.first_other(&kept).is_none() && !is_missing {
                change.note = change.trial.as_ref().and_then(Trial::why_lossless);
                return Ok(change);
            }
            let may_stay = !is_forced && source.is_none();
            if sample.saves_nothing() && !choice.is_named() && may_stay {
                change.note = Some(self.why_copied(&choice, &sample));
                return Ok(change);
            }
        }
        change.kept = kept;
        change.action = match self.stored.episodes {
            0 => Action::Add,
            _ => Action::Encode,
        };
        change.codec = Some(choice.codec.spec().to_string());
        change.source = source.map(|source| (base.clone(), source.bytes));
        let encoded = source.and_then(|_| self.summary(&base));
        change.generations = encoded.unwrap_or(self.stored).lossy_generations();
        change.is_second_loss = choice.is_lossy() && !change.generations.is_empty();
        change.resized_from = choice.resize().map(|resize| resize.source().size);
        change.shape = frame_shape(&choice.stored_frame(&frame));
        change.choice = Some(choice);
        Ok(change)
    }

    /// The plan's rule for it.
    fn rule(&self) -> Option<&Rule> {
        let (plan, kind) = (self.plan, self.stored.kind);
        match (&self.stored.variant_of, self.stored.variant()) {
            (Some(base), variant @ Some(_)) => plan.variant_rule(base, kind, variant),
            _ => plan.rule(&self.stored.name, kind),
        }
    }

    /// The plan's choice for it.
    fn choose(&self, frame: &FrameType) -> Result<Choice> {
        let (plan, kind) = (self.plan, self.stored.kind);
        match (&self.stored.variant_of, self.stored.variant()) {
            (Some(base), Some(variant)) => plan.choose_variant(base, variant, kind, frame),
            _ => plan.choose(&self.stored.name, kind, frame, Arrival::Values),
        }
    }

    /// What the dataset says of another stream.
    fn summary(&self, name: &str) -> Option<&StreamSummary> {
        let mut streams = self.dataset.manifest().streams.iter();
        streams.find(|one| one.name == name)
    }

    /// Whether an episode has the stream that it is a variant of, and not the variant.
    fn is_missing_somewhere(&self) -> bool {
        let base = self.stored.variant_of.as_deref();
        let base = base.and_then(|base| self.summary(base));
        base.is_some_and(|base| base.episodes > self.stored.episodes)
    }

    /// The codecs with which the stream is already stored as chosen; none if it is encoded again whatever they are.
    fn kept(&self, choice: &Choice, is_forced: bool) -> Vec<String> {
        let codecs = self.stream.codecs.iter().map(|(codec, _)| codec);
        let kept = codecs.filter(|codec| !is_forced && is_as_chosen(choice, codec));
        kept.cloned().collect()
    }

    /// The first row in which the stream has another codec than these.
    fn first_other(&self, kept: &[String]) -> Option<usize> {
        let mut codecs = self.stream.codecs.iter();
        let other = codecs.find(|(codec, _)| !kept.contains(codec));
        other.map(|(_, row)| *row)
    }

    /// Whether the plan asks for pages of another length than those of a lossless stream's first episode. A lossy one
    /// is not encoded again for that alone.
    fn has_other_pages(&self) -> Result<bool> {
        let rule = self.rule();
        let wanted = rule.and_then(|rule| rule.page_frames);
        let (Some(wanted), Some((codec, row))) = (wanted, self.stream.codecs.first()) else {
            return Ok(false);
        };
        if is_lossy(codec) && rule.is_some_and(|rule| rule.codec.is_none()) {
            return Ok(false);
        }
        let episode = self.dataset.episode(*row)?;
        let mut streams = episode.streams();
        let Some(position) = streams.position(|one| one.name == self.stored.name) else {
            return Ok(false);
        };
        drop(streams);
        let stored = StoredStream::open(episode, position)?;
        let mut pages = stored.pages(stored.frames());
        let first = pages.next().map_or(0, |page| page.frames);
        let is_only = pages.next().is_none();
        Ok(first != wanted.get() && !(is_only && first < wanted.get()))
    }

    /// Refuses to store what is not files as files.
    fn check_carried(&self, files: &str) -> Result<(), DatasetError> {
        let mut codecs = self.stream.codecs.iter().map(|(codec, _)| codec.as_str());
        match codecs.find(|codec| carried(codec) != carried(files)) {
            None if !self.is_unshared => Ok(()),
            other => Err(invalid(format!(
                "stream `{}` is stored as {}, and `{files}` only stores files as a recording has them; name another codec, \
                 or remove the rule to copy it",
                self.stored.name,
                other.unwrap_or("part of another stream")
            ))),
        }
    }

    /// Why a stream with a rule is copied.
    fn why_copied(&self, choice: &Choice, sample: &SampleSizes) -> String {
        let codec = choice.codec.spec();
        let stored = self.stored.codecs.join(" ");
        format!(
            "stays {stored}, because `{codec}` is no smaller: its first {} frames take {} as they are and {} encoded again",
            sample.frames,
            kino_format::ByteSize::new(sample.stored),
            kino_format::ByteSize::new(sample.encoded)
        )
    }
}
