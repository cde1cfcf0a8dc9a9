//! Video decoded by NVDEC: a decoder per engine, fed in turns from one thread, frames mapped once they are needed.
//!
//! ```text
//! page 0 ─▶ session 0: parser ─▶ decoder ─▶ surfaces, shown in order ─┐ a few at a time
//! page 1 ─▶ session 1: …                                             ├─▶ mapped as NV12 ─▶ RGB, in memory of ours ─▶ unmapped
//! page 2 ─▶ session 0, behind page 0                                 ─┘
//! ```
//!
//! | file | |
//! |---|---|
//! | `page.rs` | what the source gives: pages of packets |
//! | `session.rs`, `state.rs` | a parser and a decoder, and the surfaces between them; what the parser calls |
//! | `sessions.rs` | the sessions of a device, by what they decode; what it cannot decode |
//!
//! Mapping waits for the decoder, so everything is submitted first, a packet for each session in turn: then several engines work at
//! once. `images/video.rs` does that, and makes pixels of frames.

mod page;
mod session;
mod sessions;
mod state;

pub use page::{VideoPacket, VideoPackets, VideoPage};
pub(crate) use session::{Mapped, Session};
pub(crate) use sessions::{Kind, Sessions};
pub(crate) use state::Refusal;
