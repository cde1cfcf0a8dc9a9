//! What a training loop asks of a dataset, in a few words: windows, batch, pool. Whatever is left out is as in the Python loader.
//!
//! ```text
//! nothing said             every stream, the frame at the anchor
//! wrist = -9..1            ten frames of `wrist`, the last at the anchor
//! anchor                   the clock that the streams share; if they have several, `actions`, `action` or the longest vector
//! ```

use std::ops::Range;

use kino_dataset::{
    ACTIONS, At, Dataset, Kind, Request, Samples, Selection, StreamSummary, Window, shared_anchor,
};
use kino_loader::{
    CpuShare, ImageDtype, ImageOptions, LoaderOptions, Order, PerKey, PoolSize, Settings, Shuffle,
    Size, Source, Unit, default_threads,
};

use crate::doctor::Subject;
use crate::error::{Result, invalid};

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
                    pool: PoolSize::Bytes(bytes),
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
        if asked.is_empty() {
            let path = dataset.path().display();
            return Err(invalid(format!("{path} has no stream to load")));
        }
        let window =
            |(name, steps): (String, Range<i32>)| Window::new(&name, At::Steps(steps.collect()));
        let windows: Vec<Window> = asked.into_iter().map(window).collect();
        let anchor = shared_anchor(dataset, 0, &windows, &preferred(streams))?;
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
