//! The assembler: batches in preparation, their slots and their memory.

mod collate;
mod direct;
mod fields;
mod prefetch;
mod slots;

pub(crate) use collate::Collate;
pub(crate) use direct::Spot;
pub(crate) use fields::{ArrayInfo, ArrayType};
pub(crate) use fields::{Fields, too_large};
pub use prefetch::MAX_PREFETCH;
pub(crate) use prefetch::{Controller, most_bytes};
pub(crate) use slots::{BatchId, BatchJob, SampleJob, steps_of};
