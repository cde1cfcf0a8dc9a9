//! Windows: which frames one training sample is made of.
//!
//! ```text
//! Request ── bind ──▶ Windows ── episode ──▶ EpisodeWindows ── plan ──▶ SamplePlan
//! request.rs          windows.rs              episode.rs                 plan.rs
//! words.rs            bound.rs                anchors.rs, timeline.rs
//!                        └── read ──▶ Sample (read.rs, blend.rs, mask.rs)
//! ```
//!
//! A *window* is the frames of one stream around an anchor, a *sample* one window per wished key. All is
//! integer: frame numbers and nanoseconds. `docs/windows.md` has the exact rules; the words that users of other
//! libraries know are translations into a request (`robomimic.rs`, `lerobot.rs`, `presets.rs`).

mod anchors;
mod blend;
mod bound;
mod episode;
mod lerobot;
mod mask;
mod opened;
mod plan;
mod presets;
mod read;
mod request;
mod robomimic;
mod timeline;
mod windows;
mod words;

pub use bound::suggest;
pub use episode::EpisodeWindows;
pub use lerobot::LeRobot;
pub use mask::{Mask, MaskArray, MaskShape, Polarity};
pub use plan::{NO_FRAME, Out, SamplePlan, WindowPlan};
pub use presets::{action_chunk, observation, whole_episode};
pub use read::{Array, Sample};
pub use request::{Anchor, At, MaskDialect, Pad, Rate, Request, Resolve, Stack, Window};
pub use robomimic::{Goal, NextObs, Robomimic};
pub use timeline::SAME_INSTANT_NS;
pub use windows::{CountSource, Located, Windows};
