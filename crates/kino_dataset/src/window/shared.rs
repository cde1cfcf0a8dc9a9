//! The default anchor: the clock that the requested streams share.
//!
//! ```text
//! actions 20 Hz, obs/* 20 Hz, language (text)     ▶  one clock: its frames are the samples
//! cam 30 Hz, action 20 Hz                         ▶  an error that asks, or the preferred stream
//! whole episodes and goals only                   ▶  the episode
//! ```
//!
//! Only streams with offsets count, and of these only such as move: text and constants have no say unless there is nothing
//! else. Two streams share a clock if their times are the same, or if both are regular with one start and one rate; of
//! those the shortest is the anchor, so that every other one has a frame there. The rule looks at one episode, and at
//! nothing that depends on the order of the request.

use kino_format::ClockRecord;

use super::request::{Anchor, At, Window};
use crate::dataset::Dataset;
use crate::episode::Episode;
use crate::error::{DatasetError, Result, invalid};
use crate::stream::Stream;
use kino_format::Kind;

/// Names of the stream that a policy learns to give.
pub const ACTIONS: [&str; 2] = ["actions", "action"];

/// A requested stream and its clock in one episode.
struct Timed {
    name: String,
    /// The place of its clock among the episode's.
    number: u32,
    clock: ClockRecord,
    is_text: bool,
}

/// The anchor of windows for which none is given, by the clocks of the episode at `row`.
///
/// Where the clocks differ, it is the first of `prefer` that the dataset has; if it has none of them, that is an error
/// that asks for an anchor.
pub fn shared_anchor(
    dataset: &Dataset,
    row: usize,
    windows: &[Window],
    prefer: &[&str],
) -> Result<Anchor> {
    let moving = |window: &&Window| matches!(window.at, At::Steps(_) | At::Times(_));
    let mut names: Vec<&str> = windows
        .iter()
        .filter(moving)
        .map(|one| &*one.stream)
        .collect();
    // By name, so that the order of the request has no say.
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return Ok(Anchor::Episode);
    }
    let episode = dataset.episode(row)?;
    let timed = names.iter().map(|name| Timed::open(&episode, name));
    let timed: Vec<Timed> = timed.filter_map(Result::transpose).collect::<Result<_>>()?;
    let moves = timed.iter().any(Timed::moves);
    let timed: Vec<&Timed> = timed.iter().filter(|one| !moves || one.moves()).collect();
    let Some((first, others)) = timed.split_first() else {
        // None of them is in this episode; binding says which episodes have them.
        return Ok(Anchor::Stream(names[0].to_owned()));
    };
    if others.iter().all(|other| first.shares_clock(other)) {
        let shortest = timed
            .iter()
            .min_by_key(|one| (one.clock.frames, one.rank()));
        return Ok(Anchor::Stream(shortest.unwrap_or(first).name.clone()));
    }
    let streams = &dataset.manifest().streams;
    let mut preferred = prefer.iter();
    let preferred = preferred.find(|name| streams.iter().any(|stream| stream.name == **name));
    match preferred {
        Some(name) => Ok(Anchor::Stream((*name).to_owned())),
        None => Err(which_one(&timed)),
    }
}

/// Whether two streams of an episode share a clock; `false` if one of them is missing there.
pub(super) fn share_clock(episode: &Episode, one: &str, other: &str) -> Result<bool> {
    let (one, other) = (Timed::open(episode, one)?, Timed::open(episode, other)?);
    Ok(one
        .zip(other)
        .is_some_and(|(one, other)| one.shares_clock(&other)))
}

impl Timed {
    /// `None` if the episode has no frame of it.
    fn open(episode: &Episode, name: &str) -> Result<Option<Self>> {
        let stream: Stream = match episode.stream(name) {
            Ok(stream) => stream,
            Err(DatasetError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        if stream.is_empty() {
            return Ok(None);
        }
        let number = stream.clock_number();
        Ok(Some(Self {
            name: name.to_owned(),
            number,
            clock: episode.index().clock(number as usize),
            is_text: stream.schema().kind == Kind::Text,
        }))
    }

    /// Text and what is given once per episode do not.
    fn moves(&self) -> bool {
        !self.is_text && self.clock.frames > 1 && self.clock.start_ns < self.clock.end_ns
    }

    fn shares_clock(&self, other: &Self) -> bool {
        let grid = |clock: &ClockRecord| {
            let regular = clock.regular()?;
            Some((regular.start_ns, regular.period_num, regular.period_den))
        };
        self.number == other.number
            || grid(&self.clock).is_some_and(|own| grid(&other.clock) == Some(own))
    }

    /// Actions first, then by name.
    fn rank(&self) -> (usize, &str) {
        let known = ACTIONS.iter().position(|name| *name == self.name);
        (known.unwrap_or(ACTIONS.len()), &self.name)
    }

    fn rate_hz(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let seconds = self.clock.end_ns.abs_diff(self.clock.start_ns) as f64 / 1e9;
        f64::from(self.clock.frames.saturating_sub(1)) / seconds
    }

    fn rate_text(&self) -> String {
        let rate_hz = self.rate_hz();
        // Two digits after the point, as long as they say something.
        let text = format!("{rate_hz:.2}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        match self.clock.regular() {
            Some(_) => format!("{} {text} Hz", self.name),
            None => format!("{} about {text} Hz", self.name),
        }
    }
}

fn which_one(timed: &[&Timed]) -> DatasetError {
    let rates: Vec<String> = timed.iter().map(|one| one.rate_text()).collect();
    let slowest = timed.iter().min_by(|a, b| {
        let rank = |one: &Timed| one.rank().0;
        let by_rate = a.rate_hz().total_cmp(&b.rate_hz());
        rank(a).cmp(&rank(b)).then(by_rate)
    });
    let name = slowest.map_or("", |one| &one.name);
    let is_one_rate = timed.windows(2).all(|pair| {
        let (one, other) = (pair[0].rate_hz(), pair[1].rate_hz());
        (one - other).abs() < 0.01 * one.max(other)
    });
    let how = if is_one_rate {
        "have different clocks"
    } else {
        "run at different rates"
    };
    invalid(format!(
        "the requested streams {how} ({}); say which one's frames are the samples, such as anchor=\"{name}\", or give a rate in Hz, such as anchor=10.0",
        rates.join(", ")
    ))
}
