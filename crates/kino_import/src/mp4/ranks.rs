//! The order in which frames are shown.

use super::Mp4Sample;
use super::boxes::{Fault, corrupt};
use super::edits::Timed;

/// Numbers the frames that are shown by their times, which must differ.
pub(super) fn ranked(timed: &[Timed]) -> Result<Vec<Mp4Sample>, Fault> {
    let sample = |timed: &Timed| Mp4Sample {
        offset: timed.offset,
        size: timed.size,
        dts: timed.dts,
        pts: timed.pts,
        is_key: timed.is_key,
        rank: None,
    };
    let mut samples: Vec<_> = timed.iter().map(sample).collect();
    let shown = timed.iter().zip(&mut samples);
    let mut shown: Vec<_> = shown
        .filter_map(|(timed, sample)| timed.is_shown.then_some(sample))
        .collect();
    shown.sort_unstable_by_key(|sample| sample.pts);
    let same = shown
        .iter()
        .zip(shown.iter().skip(1))
        .find(|(a, b)| a.pts == b.pts);
    if let Some((frame, _)) = same {
        let what = format!("shows two frames at the same time, {} units", frame.pts);
        return Err(corrupt("ctts", what));
    }
    for (rank, sample) in (0..).zip(shown) {
        sample.rank = Some(rank);
    }
    Ok(samples)
}
