//! One file per verb.

pub(crate) mod cat;
pub(crate) mod info;
pub(crate) mod pack;
pub(crate) mod verify;
