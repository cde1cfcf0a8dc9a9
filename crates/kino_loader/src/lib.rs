//! From a dataset to batches: which sample comes when, exactly and on any number of ranks, and threads that make it ahead.
//!
//! ```text
//! order/   index i → source, epoch, episode, window     Order, OrderReader
//!          index range of a rank                        Order::rank_range
//!          stop here, go on there                       State, Order::restore
//!          whole episodes, by length                    LengthOrder
//! windows.rs   windows of a dataset → what is ordered   Source::of, LengthOrder::of
//! engine/  order, windows → batches, in order           Loader, LoaderOptions, Batch, Report
//! ```
//!
//! `spec/order.md` says what is computed, to the bit; `docs/order.md` is for those who train. Nothing in
//! `order/` reads a file or starts a thread: the order is a function of numbers. The engine does both, and changes nothing
//! of what the order says; `docs/loader.md` is its guide.
//!
//! ```no_run
//! use kino_dataset::{Dataset, Request, Selection, Samples};
//! use kino_loader::{Loader, LoaderOptions, Order, Settings, Source};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dataset = Dataset::open("lift.kino".as_ref())?;
//! let request = Request::from_json(
//!     r#"{"anchor": {"stream": "actions"}, "windows": [{"stream": "actions", "at": {"steps": [0, 1, 2]}}]}"#,
//! )?;
//! let windows = Samples::bind(&dataset, request, &Selection::default())?;
//! let order = Order::new(Source::of(&windows)?, Settings::default())?;
//! let mut loader = Loader::start(order, vec![vec![windows]], LoaderOptions::default())?;
//! while let Some(batch) = loader.next_batch()? {
//!     println!("batch {}: {:?}", batch.number(), batch.infos());
//! }
//! # Ok(())
//! # }
//! ```

mod engine;
mod error;
mod order;
mod samples;

pub use engine::{
    ArrayInfo, ArrayType, Batch, CpuShare, CropPlace, FloatDtype, ImageDtype, ImageOptions, Loader,
    LoaderOptions, Metering, Moment, Next, Normal, OnError, PerKey, Report, Size, Stage,
    StageReport, TraceEvent, TraceLog, Trial, WaitBucket, WaitReport, Watch, decoded_bytes,
    default_threads,
};
pub use error::{LoaderError, Result};
pub use order::{
    ALGORITHM, Batching, Cursor, Draw, EpisodeBatch, LengthOrder, LengthReader, LengthRestored,
    LengthSettings, LengthState, MAX_INDEX, Mismatch, Operation, Order, OrderReader, Oversize,
    PoolSize, Restored, SampleRef, Settings, Shuffle, Source, State, Step, Tail, Uneven, Unit,
};
