//! The video track of a file as a file of its own: same packets, same times.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::write::{Mp4Header, Mp4Packet, Mp4Writer};
use super::{Mp4Sample, read_mp4};
use crate::error::Result;
use crate::files::{self, ReadingPath};

/// Copies the packets of a video into a new MP4 file with one track, one table and no fragments.
///
/// Frames that are shown keep their times. What follows the last of them may be left out by readers, as before.
pub fn copy_mp4(source: &Path, target: &Path) -> Result<()> {
    let track = read_mp4(source)?;
    let file = files::open(source).reading(source)?;
    let mut writer = Mp4Writer::create(target, &Mp4Header::of(&track))?;
    let mut data = Vec::new();
    for sample in &track.samples {
        let Mp4Sample { dts, pts, .. } = *sample;
        // The reader has compared every size with the length of the file.
        let len = usize::try_from(sample.size).map_err(io::Error::other);
        data.resize(len.reading(source)?, 0);
        file.read_exact_at(&mut data, sample.offset)
            .reading(source)?;
        writer.push(Mp4Packet {
            data: &data,
            dts,
            pts,
            is_key: sample.is_key,
            is_shown: sample.rank.is_some(),
        })?;
    }
    writer.finish()
}
