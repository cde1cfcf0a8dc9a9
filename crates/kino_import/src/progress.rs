//! Progress of a pack or an export, reported to a caller who may stop it.

use std::ops::ControlFlow;

use kino_dataset::RepackProgress;

use crate::error::{ImportError, Result};

/// How far a pack or an export is. Bytes are decoded frame bytes that were encoded, checked and written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Episodes whose values were checked: all of them, before the first is written.
    pub episodes_checked: u64,
    /// Episodes finished.
    pub episodes_done: u64,
    /// All episodes.
    pub episodes: u64,
    /// Frame bytes written.
    pub bytes_done: u64,
    /// Frame bytes in total; text does not count.
    pub bytes: u64,
}

impl From<RepackProgress> for Progress {
    /// A repack checks nothing beforehand.
    fn from(at: RepackProgress) -> Self {
        Self {
            episodes_checked: at.episodes.1,
            episodes_done: at.episodes.0,
            episodes: at.episodes.1,
            bytes_done: at.bytes.0,
            bytes: at.bytes.1,
        }
    }
}

/// Reports progress to the caller.
pub(crate) struct Reporter<'a> {
    pub(crate) progress: Progress,
    pub(crate) report: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
}

impl<'a> Reporter<'a> {
    pub(crate) fn new(
        report: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
        episodes: usize,
        bytes: impl Iterator<Item = u64>,
    ) -> Self {
        let progress = Progress {
            episodes_checked: episodes as u64,
            episodes: episodes as u64,
            bytes: bytes.fold(0, u64::saturating_add),
            ..Progress::default()
        };
        Self { progress, report }
    }

    /// Reports, and stops if the caller asks for it.
    pub(crate) fn tell(&mut self) -> Result<()> {
        match (self.report)(self.progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(ImportError::Stopped),
        }
    }
}
