//! From a dataset to batches: an exact sample order on any number of ranks, and threads that prepare batches ahead.
//!
//! ```text
//! order/   index i → source, epoch, episode, sample     Order, OrderReader
//!          index range of a rank                        Order::rank_range
//!          checkpoint and resume                        State, Order::restore
//!          whole episodes, by length                    LengthOrder
//! samples.rs   samples of a dataset → what is ordered   Source::of, LengthOrder::of
//! decodes.rs   how often a frame would be decoded       Decodes, AutoShuffle
//! engine/  order, samples → batches, in order           Loader, LoaderOptions, Batch, Report, ShuffleQuality
//! ```
//!
//! `spec/order.md` defines the order bit by bit; `docs/guide/order.md` is its user guide. Nothing in `order/` reads a
//! file or starts a thread: the order is a pure function. The engine does both, and never changes the order;
//! `docs/guide/training.md` is its guide.
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

mod decodes;
mod engine;
mod error;
mod option_table;
mod order;
mod samples;

pub use decodes::Decodes;
pub use engine::{
    ArrayInfo, Batch, ColorJitter, CpuShare, Decode, DecodeTimes, Delivery, DeviceImage,
    DevicePage, FrameOptions, GpuNeeds, GpuShare, ImageArray, ImageDtype, ImageForm, ImageOptions,
    Layout, Loader, LoaderOptions, LoopStep, LoopSteps, LoopTimes, MAX_PREFETCH, Moment, Next,
    Normal, OnError, PerKey, Pin, PinMemory, PlacedImage, RandomJpeg, RandomResizedCrop, Ranks,
    Report, ResizeMode, Run, ShuffleQuality, Size, Stage, Subsampling, TierRoom, TierTimes,
    TraceLog, Trial, VectorDtype, WaitReport, Watch, available_memory, decoded_bytes, group_bytes,
};
pub use error::{LoaderError, Result};
pub use option_table::{Form, OPTIONS, OptionInfo, Part, set_option};
pub use order::{
    AutoShuffle, Batching, Cursor, Deal, EpisodeBatch, GroupSize, LastBatch, LengthOrder,
    LengthReader, LengthSettings, LengthState, Mismatch, Operation, Order, OrderReader, Oversize,
    SampleRef, Settings, Shuffle, Source, State, Step, Uneven, Unit,
};
pub use samples::{LengthMeasure, LengthUnit};
