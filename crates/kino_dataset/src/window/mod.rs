//! Samples: which frames one training sample is made of.
//!
//! ```text
//! Request ── bind ──▶ Samples ── episode ──▶ EpisodeSamples ── plan ──▶ SampleFrames
//! request.rs          samples.rs              episode.rs                 frames.rs
//! json.rs             bound.rs, shared.rs     anchors.rs, timeline.rs, survey.rs
//!                        └── read ──▶ Sample (read.rs, blend.rs, mask.rs, include.rs)
//! ```
//!
//! A *window* is the frames of one stream around an anchor, a *sample* one window per requested key. All is
//! integer: frame numbers and nanoseconds. `docs/reference/samples.md` has the exact rules; the options that users of other
//! libraries know are translated into a request (`robomimic.rs`, `lerobot.rs`).

mod anchors;
mod blend;
mod bound;
mod episode;
mod frames;
mod include;
mod json;
mod lerobot;
mod mask;
mod opened;
mod read;
mod request;
mod robomimic;
mod samples;
mod shared;
mod survey;
mod timeline;
mod variants;

pub use bound::suggest;
pub use episode::EpisodeSamples;
pub use frames::{NO_FRAME, Out, SampleFrames, WindowFrames};
pub use include::{Described, Description, Include};
pub use lerobot::LeRobot;
pub use mask::{Mask, MaskArray, MaskDialect, MaskShape};
pub use read::{Array, Sample};
pub use request::{Anchor, At, Pad, Rate, Request, Resolve, Stack, Window};
pub use robomimic::{Goal, NextObs, Robomimic};
pub use samples::{CountSource, Samples};
pub use shared::{ACTIONS, shared_anchor};
