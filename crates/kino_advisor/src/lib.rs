//! Measures the machine, the data and the training loop, and says what to change.
//!
//! ```text
//! page/        data → one HTML page with tables and plots        page::Page
//! report.rs    what a loader and a training loop did → a page    Measured, LoopReport
//! ```

pub mod page;
mod report;

pub use report::{LoopReport, Measured, Spread, StepMoment};
