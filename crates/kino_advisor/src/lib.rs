//! Measures the machine, the dataset and the training loop, and recommends what to change.
//!
//! ```text
//! doctor/      a loader and a step → verdict, evidence, changes           diagnose, Diagnosis
//!   foreign/   the same for a loader that is not ours, measured in Python   examine, ForeignDiagnosis
//! idle_cost.rs what idle GPUs cost, and when to raise an alarm            GpuPrice, Idle
//! epoch_cost.rs what an epoch of a remote dataset costs, before it is read   EpochCost
//! bench/       costs on this machine, and comparing two results        bench_loader, bench_au, bench_storage, compare
//! planner/     data, storage, machine, step → the codec of every stream   choose_plan, Planned
//! signal/      a dataset and codecs → what a policy would lose          probe, Probed, find_bounds
//! report.rs    what a loader and a training loop did → a report           Measured
//! deployment/  live frames like the training frames, and a check       Parity, Deployment
//! html/        data → one HTML report with tables and plots
//! workload.rs  what a training loop requests, in a short form             Workload
//! machine.rs   the machine that the figures were measured on
//! ```

mod bench;
mod deployment;
mod doctor;
mod epoch_cost;
mod error;
mod html;
mod idle_cost;
mod machine;
mod memory_advice;
mod planner;
mod report;
mod signal;
mod workload;

pub use bench::{
    AuOptions, BenchResult, Better, Comparison, bench_au, bench_loader, bench_storage, compare,
};
pub use deployment::{
    CheckedStream, Deployment, Deviation, Fidelity, HowStored, LiveFrame, LiveFrames, Parity,
    Reference, Severity, Spread, StreamParity, StreamReference, TrainingData,
};
pub use doctor::{
    Cause, Diagnosis, DoctorOptions, Emulated, ForeignDiagnosis, ForeignEvidence, Found, Host,
    Remedy, Subject, diagnose, examine,
};
pub use epoch_cost::{EpochCost, StoragePrice};
pub use error::{AdvisorError, Result};
pub use idle_cost::{ALARM_RATIO, GpuPrice, Idle, IdleCost};
pub use planner::{
    Answers, CandidatePlan, CodecOption, FewerDecodes, HostNeeds, Limits, LoaderCost, Measurements,
    MemoryFit, PROBING, Planned, PlannerOptions, Prediction, ProbedPlans, Question, SignalOptions,
    SplitPoint, StorageCost, StreamOptions, Verified, Whole, choose_plan,
};
pub use report::Measured;
pub use signal::{
    Arm, Candidate, Change, Changed, Chosen, Contrast, Control, Effort, Features, FoundBound,
    FoundBounds, Interval, Lesson, LessonCamera, Looked, Network, Outcome, ProbeHost, ProbeOptions,
    Probed, ProbedCandidate, Region, Skill, Verdict, find_bounds, probe, set_network,
};
pub use workload::Workload;
