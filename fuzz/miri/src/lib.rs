//! Files with unsafe code that call no foreign function, and what hands batches from thread to thread, with their tests.

#![allow(dead_code, reason = "only the tests use them")]

#[path = "../../../crates/kino_loader/src/engine/assembler/buffers.rs"]
mod buffers;

#[path = "../../../crates/kino_loader/src/engine/assembler/countdown.rs"]
mod countdown;
