//! What a training loop requests: windows and options, with the defaults of the Python loader.
//!
//! ```text
//! no windows               every stream but variants, the frame at the anchor
//! wrist = -9..1            ten frames of `wrist`, the last at the anchor
//! anchor                   the clock that the streams share; if they have several, `actions`, `action` or the longest vector
//! ```

use std::ops::Range;

use kino_dataset::{
    ACTIONS, At, Dataset, EpisodeCounts, Episodes, Kind, Part, Request, Samples, Selection,
    StreamSummary, Window, complete_episodes, shared_anchor,
};
use kino_loader::{LoaderOptions, Order, Settings, Source};
use serde_json::{Value, json};

use crate::doctor::Subject;
use crate::error::{Result, invalid};

/// What a training loop asks for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Workload {
    /// Streams, with steps around the anchor; if empty, every stream at the anchor but variants of others.
    pub windows: Vec<(String, Range<i32>)>,
    /// Which sample comes when, as [`Settings::choose`] reads it; all defaults if null.
    pub order: Value,
    /// How the loader works.
    pub options: LoaderOptions,
}

impl Workload {
    /// The loader that serves this workload.
    pub fn subject(&self, dataset: &Dataset) -> Result<Subject> {
        self.bind(dataset, &Part::default(), &Selection::default(), 0)
    }

    /// The loader that serves this workload from the complete episodes of a part of a dataset: their rows, and what the
    /// part holds.
    pub fn subject_of_part(
        &self,
        dataset: &Dataset,
        part: &Part,
    ) -> Result<(Subject, Vec<usize>, EpisodeCounts)> {
        let requested: Vec<_> = self.windows.iter().map(|(name, _)| name.clone()).collect();
        let (rows, counts) = complete_episodes(dataset, part, &requested)?;
        let first = rows.first().copied().unwrap_or(0);
        let is_all = rows.len() == dataset.len();
        let selection = Selection {
            episodes: (!is_all)
                .then(|| Episodes::Rows(rows.iter().map(|&row| row as u64).collect())),
            ..Selection::default()
        };
        let subject = self.bind(dataset, part, &selection, first)?;
        Ok((subject, rows, counts))
    }

    /// The loader on the selected episodes, of which `first` is one.
    fn bind(
        &self,
        dataset: &Dataset,
        part: &Part,
        selection: &Selection,
        first: usize,
    ) -> Result<Subject> {
        let request = self.request(dataset, part, first)?;
        let samples = Samples::bind(dataset, request, selection)?;
        let source = Source::of(&samples)?;
        let written = match &self.order {
            Value::Null => &json!({}),
            written => written,
        };
        let parts = [(source.clone(), 1.0)];
        let settings = Settings::choose(written, &parts, std::slice::from_ref(&samples))?;
        Ok(Subject {
            order: Order::new(source, settings)?,
            windows: vec![vec![samples]],
            options: self.options.clone(),
        })
    }

    fn request(&self, dataset: &Dataset, part: &Part, first: usize) -> Result<Request> {
        let streams = &dataset.manifest().streams;
        let every = || {
            let is_taken =
                |one: &&StreamSummary| one.variant_of.is_none() && part.takes_stream(&one.name);
            let streams = streams.iter().filter(is_taken);
            let windows = streams.map(|stream| (stream.name.clone(), 0..1));
            windows.collect()
        };
        let asked: Vec<(String, Range<i32>)> = if self.windows.is_empty() {
            every()
        } else {
            self.windows.clone()
        };
        if asked.is_empty() {
            let path = dataset.path().display();
            return Err(invalid(format!("{path} has no stream to load")));
        }
        let window =
            |(name, steps): (String, Range<i32>)| Window::new(&name, At::Steps(steps.collect()));
        let windows: Vec<Window> = asked.into_iter().map(window).collect();
        let anchor = shared_anchor(dataset, first, &windows, &preferred(streams))?;
        Ok(Request::new(anchor, windows))
    }
}

/// Whose frames are the samples where clocks differ: a command has to run on any dataset. Actions, or else the vector
/// stream with the most frames.
fn preferred(streams: &[StreamSummary]) -> Vec<&str> {
    let vectors = streams.iter().filter(|stream| stream.kind == Kind::Vector);
    let longest = vectors.max_by_key(|stream| stream.frames);
    let longest = longest.or(streams.first()).map(|stream| &*stream.name);
    ACTIONS.into_iter().chain(longest).collect()
}
