//! Files with unsafe code that call no foreign function, with their tests.

#![allow(dead_code, reason = "only the tests use them")]

#[path = "../../../crates/kino_loader/src/engine/buffers.rs"]
mod buffers;
