//! One file per command; `../lib.rs` lists them and calls them.

pub(crate) mod bench;
pub(crate) mod cache;
pub(crate) mod cat;
pub(crate) mod commit;
pub(crate) mod copy;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod gc;
pub(crate) mod info;
pub(crate) mod link;
pub(crate) mod pack;
pub(crate) mod plan;
pub(crate) mod probe;
pub(crate) mod repack;
pub(crate) mod verify;
