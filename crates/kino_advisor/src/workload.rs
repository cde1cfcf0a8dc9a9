//! What a training loop requests: windows and options, with the defaults of the Python loader.
//!
//! ```text
//! no windows               every stream, the frame at the anchor
//! wrist = -9..1            ten frames of `wrist`, the last at the anchor
//! anchor                   `actions` or `action`; otherwise the vector stream with the most frames
//! ```

use std::ops::Range;

use kino_dataset::{
    Anchor, At, Dataset, Kind, MaskDialect, Request, Resolve, Samples, Selection, StreamSummary,
    Window,
};
use kino_loader::{LoaderOptions, Order, Settings, Source};

use crate::doctor::Subject;
use crate::error::{Result, invalid};

/// Names of the stream that a policy learns to predict, in order of preference.
const ACTIONS: [&str; 2] = ["actions", "action"];

/// What a training loop requests.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Workload {
    /// Streams, with steps around the anchor; if empty, every stream at the anchor.
    pub windows: Vec<(String, Range<i32>)>,
    /// The order of the samples.
    pub settings: Settings,
    /// How the loader runs.
    pub options: LoaderOptions,
}

impl Workload {
    /// The loader that serves this workload.
    pub fn subject(&self, dataset: &Dataset) -> Result<Subject> {
        let request = self.request(dataset)?;
        let samples = Samples::bind(dataset, request, &Selection::default())?;
        Ok(Subject {
            order: Order::new(Source::of(&samples)?, self.settings)?,
            windows: vec![vec![samples]],
            options: self.options.clone(),
        })
    }

    fn request(&self, dataset: &Dataset) -> Result<Request> {
        let streams = &dataset.manifest().streams;
        let anchor = anchor(streams).ok_or_else(|| {
            invalid(format!(
                "{} has no streams; pack or write an episode first",
                dataset.path().display()
            ))
        })?;
        let every = || {
            streams
                .iter()
                .map(|stream| (stream.name.clone(), 0..1))
                .collect()
        };
        let asked: Vec<(String, Range<i32>)> = match self.windows.is_empty() {
            true => every(),
            false => self.windows.clone(),
        };
        let window = |(name, steps): (String, Range<i32>)| {
            let mut window = Window::new(&name, At::Steps(steps.collect()));
            let is_text = |stream: &StreamSummary| stream.name == name && stream.kind == Kind::Text;
            if streams.iter().any(is_text) {
                // A text holds until the next one replaces it.
                window.resolve = Resolve::Hold {
                    max_staleness_ns: None,
                };
            }
            window
        };
        Ok(Request {
            anchor: Anchor::Stream(anchor.to_owned()),
            windows: asked.into_iter().map(window).collect(),
            masks: MaskDialect::default(),
            drop_first: 0,
            drop_last: 0,
        })
    }
}

/// The stream whose frames are the anchors: a stream of actions, or the longest vector stream.
fn anchor(streams: &[StreamSummary]) -> Option<&str> {
    let named = ACTIONS.iter().find_map(|name| {
        let mut found = streams.iter().filter(|stream| stream.name == *name);
        found.next()
    });
    let longest = || {
        let vectors = streams.iter().filter(|stream| stream.kind == Kind::Vector);
        vectors.max_by_key(|stream| stream.frames)
    };
    let found = named.or_else(longest).or_else(|| streams.first());
    found.map(|stream| stream.name.as_str())
}
