//! What a training loop asks of a dataset, in a few words: windows, batch, pool. Whatever is left out is as in the Python loader.
//!
//! ```text
//! nothing said             every stream, the frame at the anchor
//! wrist = -9..1            ten frames of `wrist`, the last at the anchor
//! anchor                   `actions` or `action`; else the stream of numbers with the most frames
//! ```

use std::ops::Range;

use kino_dataset::{
    Anchor, At, Dataset, Kind, MaskDialect, Request, Resolve, Samples, Selection, StreamSummary,
    Window,
};
use kino_loader::{
    CpuShare, GroupSize, ImageDtype, ImageOptions, LoaderOptions, Order, PerKey, Settings, Shuffle,
    Size, Source, Unit, default_threads,
};

use crate::doctor::Subject;
use crate::error::{Result, invalid};

/// Names of the stream that a policy learns to give.
const ACTIONS: [&str; 2] = ["actions", "action"];

/// What a training loop asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Streams with steps around the anchor; every stream at the anchor if empty.
    pub windows: Vec<(String, Range<i32>)>,
    /// Samples per batch.
    pub batch: u32,
    /// Where the order's randomness comes from.
    pub seed: u64,
    /// Decoded bytes of the episodes that are mixed at a time; everything at once if `None`.
    pub pool_bytes: Option<u64>,
    /// The budget of decoded frames; two pools and a bit if `None`.
    pub memory_bytes: Option<u64>,
    /// Threads that decode; chosen if `None`.
    pub threads: Option<usize>,
    /// Batches ahead; chosen if `None`.
    pub prefetch: Option<usize>,
    /// The share of the CPU; no limit if `None`.
    pub cpu: Option<CpuShare>,
    /// What images are resized to.
    pub image_size: Option<Size>,
    /// The numbers of images.
    pub image_number: ImageDtype,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            windows: Vec::new(),
            batch: 64,
            seed: 0,
            pool_bytes: Some(1_000_000_000),
            memory_bytes: None,
            threads: None,
            prefetch: None,
            cpu: None,
            image_size: None,
            image_number: ImageDtype::U8,
        }
    }
}

impl Workload {
    /// The loader that serves it.
    pub fn subject(&self, dataset: &Dataset) -> Result<Subject> {
        let request = self.request(dataset)?;
        let windows = Samples::bind(dataset, request, &Selection::default())?;
        let settings = Settings {
            seed: self.seed,
            batch: self.batch,
            shuffle: match self.pool_bytes {
                Some(bytes) => Shuffle::Groups {
                    size: GroupSize::Bytes(bytes),
                    unit: Unit::Episodes,
                },
                None => Shuffle::Global,
            },
            ..Settings::default()
        };
        let order = Order::new(Source::of(&windows)?, settings)?;
        let pool = self.pool_bytes.unwrap_or(1 << 30);
        let threads = self.cpu.map_or_else(default_threads, CpuShare::threads);
        let size = self.image_size.map_or(PerKey::None, PerKey::All);
        let options = LoaderOptions {
            // Room for two groups; a tenth more, because the last episode of a group may be long.
            memory_bytes: self
                .memory_bytes
                .unwrap_or(pool.saturating_mul(22) / 10 + (1 << 20)),
            threads: self.threads.unwrap_or(threads),
            depth: self.prefetch,
            cpu: self.cpu,
            images: ImageOptions {
                size,
                number: self.image_number,
                ..ImageOptions::default()
            },
            ..LoaderOptions::default()
        };
        Ok(Subject {
            order,
            windows: vec![vec![windows]],
            options,
        })
    }

    fn request(&self, dataset: &Dataset) -> Result<Request> {
        let streams = &dataset.manifest().streams;
        let anchor = anchor(streams)
            .ok_or_else(|| invalid(format!("{} has no stream", dataset.path().display())))?;
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
                // What was said last holds until something else is said.
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

/// The stream whose frames are the anchors.
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
