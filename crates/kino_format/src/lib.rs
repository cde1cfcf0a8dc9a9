//! A shard as bytes: the immutable file that holds whole episodes.
//!
//! ```text
//! ┌────────┬──────────────────────────────┬─────┬────────┬───────────┬────────┐
//! │ header │ episode 0                    │  …  │ schema │ directory │ footer │
//! │  32 B  │ pages … │ index              │     │  JSON  │ 56 B each │  64 B  │
//! └────────┴──────────────────────────────┴─────┴────────┴───────────┴────────┘
//! ```
//!
//! Every part starts where the previous one ends, rounded up to 8 bytes: there are no holes and
//! no overlaps, and a reader checks that. Every part has a CRC32C. Offsets inside an episode are
//! relative to its start, so an episode can move to another shard as one unchanged run of bytes.
//!
//! Nothing here opens a file. [`OpenShard`] requests byte ranges and is fed bytes, so that one
//! parser serves a local file, memory and an object store; [`ShardWriter`] appends bytes to a
//! buffer that its caller drains. The normative text is `spec/format.md`.

mod byte_size;
mod check;
mod clock;
mod ends;
mod error;
mod index;
mod layout;
mod open;
mod pieces;
mod printable;
mod records;
mod schema;
mod verify;
mod write;

pub use byte_size::ByteSize;
pub use clock::{Clock, RegularClock};
pub use error::{FormatError, Result};
pub use index::{EpisodeIndex, PageSlice, Segment};
pub use kino_codec::Kind;
pub use layout::{
    FORMAT_VERSION, MAX_FRAMES, MAX_PAGE_BYTES, MAX_PAGE_FRAMES, MAX_STREAMS, PACKED_VERSION,
    page_checksum,
};
pub use open::{DirectoryEntry, OpenShard, Shard, Step};
pub use pieces::{ForeignFile, PieceRecord, PlacedPiece};
pub use printable::{escape, escape_line, is_unprintable};
pub use records::{ClockRecord, NONE, PageRecord, StreamRecord};
pub use schema::{Schema, StreamSchema, is_variant_name, variant_name, variant_stream};
pub use write::{EpisodeRecords, LinkedPage, PieceBytes, ShardWriter};
