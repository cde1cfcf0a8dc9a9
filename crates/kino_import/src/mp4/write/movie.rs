//! `moov`: everything about the track but its packets.

use super::super::Mp4Orientation;
use super::super::edits::Edit;
use super::boxes::{boxed, full, table, words};
use super::{Mp4Header, Refusal, description};

/// The only track.
const TRACK_ID: u32 = 1;

/// Enabled, and part of the presentation.
const TRACK_FLAGS: u8 = 3;

/// 1 in the matrix of a header.
const ONE: i32 = 1 << 16;

/// The language `und`: undetermined.
const LANGUAGE: [u8; 2] = [0x55, 0xc4];

/// What `moov` says about times, in units of the timescale.
pub(super) struct Durations {
    pub(super) edit: Edit,
    /// From when the first packet is decoded to when the last frame ends.
    pub(super) media: u64,
}

/// The box `moov` around the tables of `stbl`. The movie has the timescale of the track, so that an edit list can name
/// every time of the track exactly; FFmpeg's muxer rounds to milliseconds.
pub(super) fn moov(
    header: &Mp4Header,
    durations: &Durations,
    tables: &[u8],
) -> Result<Vec<u8>, Refusal> {
    let Edit { wait, duration, .. } = durations.edit;
    let shown = wait.saturating_add(duration).unsigned_abs();
    let stbl = boxed(b"stbl", &[&description::stsd(header)?, tables]);
    let vmhd = full(b"vmhd", 0, 1, &[&[0; 8]]);
    let minf = boxed(b"minf", &[&vmhd, &data_in_this_file(), &stbl]);
    let mdhd_rest = [&LANGUAGE[..], &[0; 2]].concat();
    let mdhd = dated(b"mdhd", 0, &[header.timescale], durations.media, &mdhd_rest);
    let mdia = boxed(b"mdia", &[&mdhd, &handler(), &minf]);
    let edts = boxed(b"edts", &[&edit_list(durations.edit)]);
    let tkhd = dated(b"tkhd", TRACK_FLAGS, &[TRACK_ID, 0], shown, &track(header));
    let trak = boxed(b"trak", &[&tkhd, &edts, &mdia]);
    let mvhd = dated(b"mvhd", 0, &[header.timescale], shown, &presentation());
    Ok(boxed(b"moov", &[&mvhd, &trak]))
}

/// A header with dates, which are left empty, some fields, and a duration.
fn dated(kind: &[u8; 4], flags: u8, fields: &[u32], duration: u64, rest: &[u8]) -> Vec<u8> {
    let fields = words(fields.iter().copied());
    match u32::try_from(duration) {
        Ok(short) => full(
            kind,
            0,
            flags,
            &[&[0; 8], &fields, &short.to_be_bytes(), rest],
        ),
        Err(_) => full(
            kind,
            1,
            flags,
            &[&[0; 16], &fields, &duration.to_be_bytes(), rest],
        ),
    }
}

/// What follows the duration in `mvhd`: normal speed and volume, the images as they are, the number of the next track.
fn presentation() -> Vec<u8> {
    let matrix = matrix([ONE, 0, 0, ONE], [0, 0]);
    let speed_and_volume = [0, 1, 0, 0, 1, 0];
    let next = (TRACK_ID + 1).to_be_bytes();
    [&speed_and_volume[..], &[0; 10], &matrix, &[0; 24], &next].concat()
}

/// What follows the duration in `tkhd`: how to turn the images, and their size.
fn track(header: &Mp4Header) -> Vec<u8> {
    let (width, height) = (i32::from(header.width), i32::from(header.height));
    let turn = turn(header.orientation);
    let [a, b, c, d] = turn.map(|sign| sign * ONE);
    // What is turned to the left of or above the origin moves back.
    let back = |x: i32, y: i32| {
        let moved = (x.min(0) * width + y.min(0) * height).saturating_neg();
        moved.saturating_mul(ONE)
    };
    let place = [back(turn[0], turn[2]), back(turn[1], turn[3])];
    let matrix = matrix([a, b, c, d], place);
    let size = [header.width, header.height].map(|side| u32::from(side) << 16);
    [&[0; 16][..], &matrix, &words(size)].concat()
}

/// What an orientation does to a point: (x, y) → (ax + cy, bx + dy). The other direction of `movie::orientation`.
fn turn(orientation: Mp4Orientation) -> [i32; 4] {
    let mirror = if orientation.is_mirrored { -1 } else { 1 };
    let [a, b, c, d] = match orientation.degrees {
        90 => [0, 1, -1, 0],
        180 => [-1, 0, 0, -1],
        270 => [0, -1, 1, 0],
        _ => [1, 0, 0, 1],
    };
    [mirror * a, mirror * b, c, d]
}

fn matrix([a, b, c, d]: [i32; 4], [x, y]: [i32; 2]) -> Vec<u8> {
    let values = [a, b, 0, c, d, 0, x, y, 1 << 30];
    values
        .iter()
        .flat_map(|value| value.to_be_bytes())
        .collect()
}

/// `hdlr`: a video track.
fn handler() -> Vec<u8> {
    let name = b"VideoHandler\0";
    full(b"hdlr", 0, 0, &[&[0; 4], b"vide", &[0; 12], name])
}

/// `dinf`: the packets are in this file.
fn data_in_this_file() -> Vec<u8> {
    let here = full(b"url ", 0, 1, &[]);
    boxed(b"dinf", &[&full(b"dref", 0, 0, &[&words([1]), &here])])
}

/// `elst`: a wait, if there is one, then the part that is shown.
fn edit_list(edit: Edit) -> Vec<u8> {
    const NORMAL_SPEED: u32 = 1 << 16;
    let shown = (edit.duration, edit.start);
    let wait = (edit.wait > 0).then_some((edit.wait, -1));
    let segments: Vec<_> = wait.into_iter().chain([shown]).collect();
    let short = |(duration, start): &(i64, i64)| {
        let start = i32::try_from(*start).ok()?.cast_unsigned();
        Some([u32::try_from(*duration).ok()?, start, NORMAL_SPEED])
    };
    let rows: Option<Vec<_>> = segments.iter().map(short).collect();
    if let Some(rows) = rows {
        return table(b"elst", &rows);
    }
    let long = segments.iter().flat_map(|(duration, start)| {
        let speed = NORMAL_SPEED.to_be_bytes();
        [&duration.to_be_bytes()[..], &start.to_be_bytes(), &speed].concat()
    });
    let long: Vec<u8> = long.collect();
    let count = super::boxes::count(segments.len());
    full(b"elst", 1, 0, &[&count, &long])
}
