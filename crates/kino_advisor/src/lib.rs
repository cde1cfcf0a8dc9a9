//! Measures the machine, the dataset and the training loop, and recommends what to change.
//!
//! ```text
//! doctor/      a loader and a step → verdict, evidence, changes           diagnose, Diagnosis
//! bench/       costs on this machine, and comparing two results        bench_loader, bench_au, bench_storage, compare
//! report.rs    what a loader and a training loop did → a report           Measured, LoopReport
//! html/        data → one HTML report with tables and plots               HtmlReport
//! workload.rs  what a training loop requests, in a short form             Workload
//! machine.rs   the machine that the figures were measured on              Machine
//! ```

mod bench;
mod doctor;
mod error;
mod html;
mod machine;
mod report;
mod workload;

pub use bench::{
    AuOptions, BenchResult, Better, Comparison, Figure, MeasuredDataset, Row, bench_au,
    bench_loader, bench_storage, compare,
};
pub use doctor::{
    Cause, Change, Diagnosis, Differences, DoctorOptions, Emulated, Evidence, FedRun, FreeRun,
    Host, Remedy, Setting, StreamCosts, Subject, Verdict, diagnose,
};
pub use error::{AdvisorError, Result};
pub use machine::Machine;
pub use report::{LoopReport, Measured, Spread, StepMoment};
pub use workload::Workload;
