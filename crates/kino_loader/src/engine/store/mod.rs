//! The frame store: decoded frames, their budget and their lifetime.

mod cache;
mod episode_frames;
mod in_flight;
mod pages;
mod stored_tier;

pub(crate) use cache::{Budget, EpisodeKey, FrameCache, KEPT, RoomFor};
pub(crate) use episode_frames::{DecodedPage, EpisodeFrames, NextStep, PageId, SpanId, Values};
pub(crate) use in_flight::InFlightLimit;
pub(crate) use pages::{Ahead, SlotId, Wanted, frames_of};
pub(crate) use stored_tier::{Deciding, StoredTier};
pub use stored_tier::{TierRoom, TierTimes};
