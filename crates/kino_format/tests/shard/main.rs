//! Whole shards: written, read back, damaged at every bit, truncated at every byte, and forged.
//!
//! One test binary with a file per question, because each binary is linked on its own.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "in a test an unexpected error is a failure, and the shards are small"
)]

mod damage;
mod fixture;
mod golden;
mod hostile;
mod links;
mod lookup;
mod round_trip;
mod seal;
