//! All storage: versions, the episode table, episodes and their streams, the writer.
//!
//! ```text
//! demos.kino/
//!   versions/00000001.json     the contents of version 1                  manifest.rs, commit.rs
//!   episodes/<hash>.parquet    one row per episode                        table/
//!   stats/<hash>.json          mean, std, min, max, quantiles per stream  stats/
//!   shards/<hash>.kshard       pages of whole episodes                    kino_format
//!   links/<shard>.<slot>.crc   checksums of linked pages, filled in later  links/
//!   staging/                   unfinished work, which readers ignore      staging.rs
//! ```
//!
//! Write: [`DatasetWriter`] → [`EpisodeWriter`] → [`DatasetWriter::commit`].
//! Read: [`Dataset`] → [`Episode`] → [`Stream`]. Train: [`Request`] → [`Samples`] → [`Sample`].
//! Store again with another plan: [`Repack`]. Check: [`verify`]. Clean up: [`collect_garbage`].

mod appearance;
mod assembler;
mod attributes;
mod commit;
mod compare;
mod complete;
mod copy;
mod costs;
mod dataset;
mod draft;
mod emulate;
mod encode;
mod encode_queue;
mod episode;
mod episode_info;
mod episode_records;
mod episode_writer;
mod error;
mod events;
mod find_last;
mod garbage;
mod generation;
mod hash;
mod lease;
mod links;
mod local;
mod local_files;
mod long_run;
mod manifest;
mod next_version;
mod open_stream;
mod open_together;
mod overwrite;
mod pages;
mod part;
mod partial;
mod pipeline;
mod plan;
mod portions;
mod protection;
mod read_ahead;
mod read_size;
mod read_version;
mod receipts;
mod remote;
mod repack;
mod resize;
mod resume;
mod rivals;
mod sample;
mod selection;
mod settled;
mod shard_file;
mod shard_links;
mod shard_slot;
mod spill;
mod staging;
mod stats;
mod store;
mod stored_stream;
mod stream;
mod stream_info;
mod table;
mod target;
mod turn;
mod usage;
mod verify;
mod window;
mod writer;
mod writer_options;

pub use appearance::{Appearance, Figure, JpegSeen, JpegTrace};
pub use attributes::JsonMap;
pub use commit::{Committed, SourceRecord};
pub use complete::{EpisodeCounts, complete_episodes, has_filter};
pub use copy::{Copied, copy_dataset};
pub use costs::{
    Cost, CostRecord, CostSample, Effort, Measured, candidates, carriers, classic, comparable,
    cpu_name, measure, measure_stored,
};
pub use dataset::{Dataset, OpenOptions};
pub use emulate::{SlowStorage, Stall, Storage, parse_duration};
pub use episode::Episode;
pub use episode_info::EpisodeInfo;
pub use episode_writer::EpisodeWriter;
pub use error::{DatasetError, ErrorKind, Result};
pub use events::{Detect, EventRule, Protected, find_events, to_numbers};
pub use garbage::{Collect, Garbage, Interrupted, StagedWork, WorkState, collect_garbage};
pub use generation::{Generation, total_error};
pub use hash::Hash;
pub use kino_format::{
    ByteSize, Clock, Kind, MAX_FRAMES, MAX_STREAMS, PageSlice, RegularClock, StreamSchema, escape,
    escape_line, is_unprintable, variant_name, variant_stream,
};
pub use kino_storage::at_once;
pub use kino_storage::{
    CacheListing, CacheReport, CachedShard, RequestReport, clear_cache, create_folder, limit_cache,
    list_cache,
};
pub use links::{LinkedFile, Links};
pub use local::{check_local, check_writable, is_url, to_url};
pub use manifest::{Manifest, StreamSummary};
pub use pages::{LinkedPiece, NewPage, PageCheck, Pages};
pub use part::{Part, ending_number};
pub use plan::{
    Arrival, Choice, GIVEN, Plan, SignalBound, SignalEvidence, Trial, Tried, matches_pattern,
};
pub use portions::{
    CommittedPortions, EpisodePlan, Notes, PackPlan, PartOf, PortionPlan, PortionWork, Portions,
    PortionsProgress, Received, cut_portions, portions_progress,
};
pub use read_ahead::{Pieces, ReadAhead, ReadLimits, Share, Task};
pub use read_size::ReadSize;
pub use remote::{CacheChoice, StorageReport, cache_folder};
pub use repack::{
    Action, GenerationLoss, Repack, RepackOptions, RepackProgress, Repacked, RepackedPart,
    SampleSizes, StreamChange,
};
pub use resize::{
    Filter, Fit, FitScratch, Fitted, Pixels, Resize, ResizeMode, ResizeScratch, ResizeTables, Size,
    Taps, check_cut, image_size,
};
pub use sample::sample_episodes;
pub use selection::{Episodes, Selection};
pub use stats::StreamStats;
pub use stored_stream::StoredStream;
pub use stream::Stream;
pub use stream_info::{SharedFrames, StreamInfo, Times};
pub use table::{Column, EpisodeRow, EpisodeTable, Label};
pub use target::check_start;
pub use usage::StreamUsage;
pub use verify::{Damage, Level, Verified, verify, verify_dataset, verify_part, verify_while};
pub use window::{
    ACTIONS, Anchor, Array, At, CountSource, Described, Description, EpisodeSamples, Goal, Include,
    LeRobot, Mask, MaskArray, MaskDialect, MaskShape, NO_FRAME, NextObs, Out, Pad, Rate, Request,
    Resolve, Robomimic, Sample, SampleFrames, Samples, Stack, Window, WindowFrames, shared_anchor,
    suggest,
};
pub use writer::DatasetWriter;
pub use writer_options::{Start, WriterOptions, parse_time, to_time};
