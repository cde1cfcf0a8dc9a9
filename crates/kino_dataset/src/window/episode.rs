//! The windows of one episode: its clocks, opened once, and the plan of each of its samples.
//!
//! A step of a stream on the anchors' own clock is the anchor's frame number plus the step: no time is looked at. On any
//! other clock the frame at the anchor's time is searched, and steps count from there.

use std::sync::Arc;

use kino_format::Clock;

use super::anchors::{self, Anchors, Samples, Track, find, moments, rate_anchors, step_in};
use super::bound::{Bound, BoundStream};
use super::frames::{NO_FRAME, Out, SampleFrames, WindowFrames};
use super::request::{Anchor, At, Pad, Window};
use super::survey::{Missing, missing_streams};
use super::timeline::{Side, Timeline};
use crate::dataset::Dataset;
use crate::episode::Episode;
use crate::error::{DatasetError, Result, corrupt, invalid};
use crate::stream::Stream;

/// The windows of one episode, ready to be planned and read.
#[derive(Debug)]
pub struct EpisodeSamples {
    bound: Arc<Bound>,
    episode: Episode,
    /// As `Bound::streams`.
    streams: Vec<Stream>,
    anchors: Anchors,
    /// One per window.
    tracks: Vec<Track>,
    samples: Samples,
    /// The index of its first sample among all.
    first: u64,
}

impl EpisodeSamples {
    /// Of an episode whose first sample is number `first` of all.
    pub(super) fn of(bound: Arc<Bound>, episode: Episode, first: u64) -> Result<Self> {
        let opened = Opened::new(&bound, episode)?;
        let opened = opened.map_err(|missing| missing_streams(&bound, &[missing]))?;
        let anchors = opened.read_anchors()?;
        let windows = &bound.request.windows;
        let tracks: Vec<Track> = (0..windows.len())
            .map(|idx| opened.read_track(idx))
            .collect::<Result<_>>()?;
        let dropping: Vec<_> = (windows.iter().zip(&tracks))
            .filter(|(window, _)| window.drops())
            .map(|(window, track)| (window, track.clone()))
            .collect();
        let samples = anchors::samples(&bound.request, &anchors, &dropping);
        let Opened {
            episode, streams, ..
        } = opened;
        Ok(Self {
            bound,
            episode,
            streams,
            anchors,
            tracks,
            samples,
            first,
        })
    }

    /// The episode.
    pub fn episode(&self) -> &Episode {
        &self.episode
    }

    /// How many samples it has.
    pub fn len(&self) -> u32 {
        self.samples.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many anchors it has, dropped ones included.
    pub fn anchors(&self) -> u32 {
        self.anchors.len()
    }

    /// The stream of a window; windows of one stream share it.
    pub fn stream(&self, window: usize) -> Option<&Stream> {
        self.streams.get(*self.bound.stream_of.get(window)?)
    }

    pub(super) fn bound(&self) -> &Bound {
        &self.bound
    }

    /// Plans one sample into `out`, whose buffers are used again: no allocation after the first call.
    pub fn plan(&self, sample: u32, out: &mut SampleFrames) -> Result<()> {
        let Some(anchor) = self.samples.get(sample) else {
            return Err(invalid(format!(
                "episode `{}` has no sample {sample}; it has {}",
                self.episode.id(),
                self.len()
            )));
        };
        out.row = self.episode.row();
        out.anchor = anchor;
        out.sample = self.first + u64::from(sample);
        out.time_ns = self.anchors.time_ns(anchor);
        let windows = &self.bound.request.windows;
        out.windows
            .resize_with(windows.len(), WindowFrames::default);
        for ((window, track), plan) in windows.iter().zip(&self.tracks).zip(&mut out.windows) {
            plan.clear();
            match track {
                Track::Number(frames) => plan_numbers(window, *frames, anchor, plan),
                Track::Time(timeline) => self.plan_times(window, timeline, anchor, plan),
                Track::All(frames) => {
                    plan.frames.extend(0..*frames);
                    plan.state.resize(*frames as usize, Out::Real);
                }
                Track::One(frame) => plan.push(*frame, Out::Real),
            }
            if window.resolve.blends() && !matches!(track, Track::Time(_)) {
                plan.other
                    .extend(plan.frames.iter().map(|&frame| (frame, 0.0)));
            }
        }
        Ok(())
    }

    fn plan_times(
        &self,
        window: &Window,
        timeline: &Timeline,
        anchor: u32,
        plan: &mut WindowFrames,
    ) {
        let blends = window.resolve.blends();
        let anchor_ns = self.anchors.time_ns(anchor);
        let mut cursor = None;
        for moment in moments(&window.at) {
            let mut found = find(timeline, window, anchor_ns, moment, &mut cursor);
            if found.pad(window) == Some(Pad::Zero) {
                found.frame = NO_FRAME;
                found.other = (NO_FRAME, 0.0);
            }
            plan.push(found.frame, found.out);
            if blends {
                plan.other.push(found.other);
            }
        }
    }
}

/// Steps on the anchors' own clock.
fn plan_numbers(window: &Window, frames: u32, anchor: u32, plan: &mut WindowFrames) {
    let At::Steps(steps) = &window.at else { return };
    plan.frames.reserve(steps.len());
    plan.state.reserve(steps.len());
    for &step in steps {
        let (frame, state, pad) = match step_in(frames, anchor, step) {
            (frame, None) => (frame, Out::Real, Pad::Edge),
            (frame, Some(Side::Before)) => (frame, Out::Before, window.before),
            (frame, Some(Side::After)) => (frame, Out::After, window.after),
        };
        plan.push(if pad == Pad::Zero { NO_FRAME } else { frame }, state);
    }
}

/// An episode with the streams of a request.
pub(super) struct Opened<'a> {
    bound: &'a Bound,
    episode: Episode,
    streams: Vec<Stream>,
}

impl<'a> Opened<'a> {
    /// Opens its streams; the inner error says which streams it does not have.
    pub(super) fn new(
        bound: &'a Bound,
        episode: Episode,
    ) -> Result<std::result::Result<Self, Missing>> {
        let dataset = episode.dataset();
        let mut streams = Vec::with_capacity(bound.streams.len());
        let mut missing = Vec::new();
        for (idx, stream) in bound.streams.iter().enumerate() {
            let opened = match episode.stream(&stream.name) {
                Ok(stream) => stream,
                Err(DatasetError::NotFound { .. }) => {
                    missing.push(idx);
                    continue;
                }
                Err(error) => return Err(error),
            };
            check_type(dataset, &opened, stream)?;
            if opened.is_empty() {
                missing.push(idx);
            }
            streams.push(opened);
        }
        if !missing.is_empty() {
            let episode = episode.id().to_owned();
            return Ok(Err(Missing {
                episode,
                streams: missing,
            }));
        }
        Ok(Ok(Self {
            bound,
            episode,
            streams,
        }))
    }

    /// Decoded bytes of a stream.
    pub(super) fn raw_bytes(&self, stream: usize) -> u64 {
        self.streams[stream].raw_bytes()
    }

    pub(super) fn frames(&self, stream: usize) -> u32 {
        u32::try_from(self.streams[stream].len()).unwrap_or(u32::MAX)
    }

    pub(super) fn read_anchors(&self) -> Result<Anchors> {
        let (start_ns, end_ns) = self.bounds_ns();
        match (&self.bound.request.anchor, self.bound.anchor) {
            (Anchor::Rate(rate), _) => {
                let clock = rate_anchors(*rate, start_ns, end_ns).ok_or_else(|| {
                    invalid(format!(
                        "anchor: at {}/{} Hz episode `{}` has over {} anchors; use a lower rate",
                        rate.num,
                        rate.den,
                        self.episode.id(),
                        u32::MAX
                    ))
                })?;
                Ok(Anchors::Clock(Clock::Regular(clock)))
            }
            (Anchor::Stream(_), Some(stream)) => self.read_clock(stream).map(Anchors::Clock),
            _ => Ok(Anchors::Start(start_ns)),
        }
    }

    /// The first and the last time of any stream of the episode, also of those that are not asked for.
    fn bounds_ns(&self) -> (i64, i64) {
        let index = self.episode.index();
        let clocks = (0..index.clock_count()).map(|idx| index.clock(idx));
        let timed = clocks.filter(|clock| clock.frames > 0);
        timed.fold((i64::MAX, i64::MIN), |(start, end), clock| {
            (start.min(clock.start_ns), end.max(clock.end_ns))
        })
    }

    pub(super) fn read_track(&self, window: usize) -> Result<Track> {
        let stream = self.bound.stream_of[window];
        let frames = self.frames(stream);
        let window = &self.bound.request.windows[window];
        let is_anchors_clock = self.bound.anchor.is_some_and(|anchor| {
            self.streams[anchor].clock_number() == self.streams[stream].clock_number()
        });
        match &window.at {
            At::All => Ok(Track::All(frames)),
            At::Last => Ok(Track::One(frames.saturating_sub(1))),
            At::FromEnd(back) => Ok(Track::One(frames.saturating_sub(1).saturating_sub(*back))),
            At::Steps(_) if is_anchors_clock && window.latency_ns == 0 => Ok(Track::Number(frames)),
            At::Steps(_) | At::Times(_) => {
                let timeline = Timeline::new(self.read_clock(stream)?);
                let place = || {
                    self.episode
                        .place(&format!("stream `{}`", self.bound.streams[stream].name))
                };
                timeline
                    .map(Track::Time)
                    .ok_or_else(|| corrupt(place(), "it has frames but no times"))
            }
        }
    }

    /// The clock of a stream; times that streams share are read once.
    fn read_clock(&self, stream: usize) -> Result<Clock> {
        let number = self.streams[stream].clock_number();
        let same = |stream: &&Stream| stream.clock_number() == number;
        let first = self.streams.iter().find(same);
        first.unwrap_or(&self.streams[stream]).clock().cloned()
    }
}

/// Samples and batches are laid out by the manifest's type: frames of another type would be read as garbage.
fn check_type(dataset: &Dataset, opened: &Stream, bound: &BoundStream) -> Result<()> {
    if *opened.frame_type() == bound.frame {
        return Ok(());
    }
    let episode = opened.episode();
    let what = format!(
        "its frames are {}, version {} of the dataset says {}",
        opened.frame_type(),
        dataset.manifest().version,
        bound.frame
    );
    Err(corrupt(
        episode.place(&format!("stream `{}`", bound.name)),
        what,
    ))
}
