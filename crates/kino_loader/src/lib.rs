//! Which sample comes when: the order of training, exactly and on any number of ranks.
//!
//! ```text
//! order/   index i → source, epoch, episode, window     Order, OrderReader
//!          index range of a rank                        Order::rank_range
//!          stop here, go on there                       State, Order::restore
//!          whole episodes, by length                    LengthOrder
//! windows.rs   windows of a dataset → what is ordered   Source::of, LengthOrder::of
//! ```
//!
//! `spec/order.md` says what is computed, to the bit; `docs/order.md` is for those who train. Nothing in
//! `order/` reads a file or starts a thread: the order is a function of numbers.

mod engine;
mod error;
mod order;
mod windows;

pub use engine::{
    ArrayInfo, ArrayType, Batch, Loader, LoaderOptions, Next, Normal, OnError, PictureNumber,
    Pictures, Report, Stage, StageReport,
};
pub use error::{LoaderError, Result};
pub use order::{
    ALGORITHM, Batching, Cursor, Draw, EpisodeBatch, LengthOrder, LengthReader, LengthRestored,
    LengthSettings, LengthState, MAX_INDEX, Mismatch, Operation, Order, OrderReader, Oversize,
    PoolSize, Restored, SampleRef, Settings, Shuffle, Source, State, Step, Tail, Uneven, Unit,
};
