//! Measures the machine, the data and the training loop, and says what to change.
//!
//! ```text
//! doctor/      a loader, a step → verdict, evidence, changes     diagnose, Diagnosis
//! bench/       what things cost here, and two results compared   bench_loader, bench_au, bench_storage, compare
//! report.rs    what a loader and a training loop did → a page    Measured, LoopReport
//! page/        data → one HTML page with tables and plots        html::HtmlReport
//! workload.rs  what a training loop asks for, in a few words     Workload
//! machine.rs   what the figures were measured on                 Machine
//! ```

mod bench;
mod doctor;
mod error;
pub mod html;
mod machine;
mod report;
mod workload;

pub use bench::{
    AuOptions, BenchResult, Better, Comparison, Figure, MeasuredDataset, Row, bench_au,
    bench_loader, bench_storage, compare,
};
pub use doctor::{
    Cause, Change, Diagnosis, Differences, DoctorOptions, Emulated, Evidence, FedRun, FreeRun,
    Host, Remedy, Setting, StreamCosts, Subject, Verdict, changes, diagnose, judge,
};
pub use error::{AdvisorError, Result};
pub use machine::Machine;
pub use report::{LoopReport, Measured, Spread, StepMoment};
pub use workload::Workload;
