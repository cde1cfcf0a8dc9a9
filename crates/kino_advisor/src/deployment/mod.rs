//! From training to a robot: live frames that look like the training frames, and a check whether they do.
//!
//! ```text
//! dataset ──▶ Parity      live frame ──▶ the frame that the loader would have delivered     parity.rs, how_stored.rs
//!         ──▶ Reference   what the training frames look like, and how much they differ      reference.rs
//! both in one small JSON file beside a checkpoint; the robot needs no dataset
//!
//! live frames, Reference ──▶ Deployment: warnings with figures, worst first                 check.rs, compare.rs, text.rs
//! ```
//!
//! A policy that was trained on raw frames and is fed JPEG loses much more than one that was trained on JPEG and is fed raw
//! frames, so the two directions have different severities (`docs/guide/deploy.md`).

mod check;
mod compare;
mod how_stored;
mod live;
mod parity;
mod reference;
mod text;

pub use check::{CheckedStream, Deployment, Deviation, Severity};
pub use how_stored::{Fidelity, HowStored};
pub use live::LiveFrames;
pub use parity::{LiveFrame, Parity, StreamParity};
pub use reference::{Reference, Spread, StreamReference, TrainingData};

#[cfg(test)]
mod tests;
