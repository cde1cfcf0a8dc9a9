//! What codecs cost: measured on this machine, on these frames, and recorded.

mod candidates;
mod comparison;
mod measure;
mod reader;
mod record;
mod sample;
mod stored;

pub use candidates::{candidates, carriers};
pub use comparison::{classic, comparable};
pub use measure::{Effort, Measured, measure};
pub use record::{Cost, CostRecord, cpu_name};
pub use sample::CostSample;
pub use stored::measure_stored;
