//! Samples: which frames one training sample is made of.
//!
//! ```text
//! Request ── bind ──▶ Samples ── episode ──▶ EpisodeSamples ── plan ──▶ SampleFrames
//! request.rs          samples.rs              episode.rs                 frames.rs
//! json.rs             bound.rs                anchors.rs, timeline.rs
//!                        └── read ──▶ Sample (read.rs, blend.rs, mask.rs)
//! ```
//!
//! A *window* is the frames of one stream around an anchor, a *sample* one window per requested key. All is
//! integer: frame numbers and nanoseconds. `docs/windows.md` has the exact rules; the words that users of other
//! libraries know are translations into a request (`robomimic.rs`, `lerobot.rs`).

mod anchors;
mod blend;
mod bound;
mod episode;
mod frames;
mod json;
mod lerobot;
mod mask;
mod opened;
mod read;
mod request;
mod robomimic;
mod samples;
mod timeline;

pub(crate) use bound::suggest;
pub use episode::EpisodeSamples;
pub use frames::{NO_FRAME, Out, SampleFrames, WindowFrames};
pub use lerobot::LeRobot;
pub use mask::{Mask, MaskArray, MaskShape, Polarity};
pub use read::{Array, Sample};
pub use request::{Anchor, At, MaskDialect, Pad, Rate, Request, Resolve, Stack, Window};
pub use robomimic::{Goal, NextObs, Robomimic};
pub use samples::{CountSource, Located, Samples};
pub use timeline::SAME_INSTANT_NS;
