//! `moov`: the video track that is read, and what it says about time and orientation.

use super::Mp4Orientation;
use super::boxes::{Fault, Fields, children, corrupt, find, need, unsupported};
use super::description::{self, Description};
use super::edits::{self, Edit};

/// The video track of a file.
pub(super) struct Movie<'a> {
    pub(super) track_id: u32,
    pub(super) timescale: u32,
    pub(super) orientation: Mp4Orientation,
    pub(super) description: Description,
    pub(super) edit: Option<Edit>,
    /// The body of `stbl`.
    pub(super) tables: &'a [u8],
    /// The body of `mvex`.
    pub(super) extends: Option<&'a [u8]>,
}

/// `tkhd`
struct TrackHeader {
    is_enabled: bool,
    id: u32,
    orientation: Mp4Orientation,
}

impl<'a> Movie<'a> {
    pub(super) fn parse(moov: &'a [u8]) -> Result<Self, Fault> {
        if find(moov, b"cmov", "moov")?.is_some() {
            return Err(unsupported("moov", "is compressed", REMUX));
        }
        let (track, header) = video_track(moov)?;
        let media = need(track, b"mdia", "trak")?;
        let information = need(media, b"minf", "mdia")?;
        let tables = need(information, b"stbl", "minf")?;
        let timescale = timescale(need(media, b"mdhd", "mdia")?, "mdhd")?;
        let stsd = need(tables, b"stsd", "stbl")?;
        let description = description::parse(stsd)?;
        check_data_references(information, description.data_reference)?;
        let edit = match find(track, b"edts", "trak")? {
            Some(edts) => {
                let movie_timescale = timescale_of_movie(moov)?;
                edits::parse(edts, timescale, movie_timescale)?
            }
            None => None,
        };
        Ok(Self {
            track_id: header.id,
            timescale,
            orientation: header.orientation,
            description,
            edit,
            tables,
            extends: find(moov, b"mvex", "moov")?,
        })
    }
}

/// What to do with a file that FFmpeg can rewrite.
pub(super) const REMUX: &str = "rewrite it with `ffmpeg -i IN.mp4 -c copy OUT.mp4`";

/// The first enabled video track, or else the first.
fn video_track(moov: &[u8]) -> Result<(&[u8], TrackHeader), Fault> {
    let mut disabled = None;
    for track in children(moov, "moov") {
        let track = track?;
        if track.kind != *b"trak" || !is_video(track.body)? {
            continue;
        }
        let header = track_header(need(track.body, b"tkhd", "trak")?)?;
        if header.is_enabled {
            return Ok((track.body, header));
        }
        disabled.get_or_insert((track.body, header));
    }
    disabled.ok_or_else(|| corrupt("moov", "has no video track"))
}

fn is_video(track: &[u8]) -> Result<bool, Fault> {
    let media = need(track, b"mdia", "trak")?;
    let (mut handler, _, _) = Fields::full(need(media, b"hdlr", "mdia")?, "hdlr")?;
    handler.skip(4)?;
    Ok(handler.kind()? == *b"vide")
}

fn track_header(tkhd: &[u8]) -> Result<TrackHeader, Fault> {
    let (mut fields, version, flags) = Fields::full(tkhd, "tkhd")?;
    let times = if version == 1 { 8 } else { 4 };
    fields.skip(2 * times)?;
    let id = fields.u32()?;
    // Duration with a reserved field; reserved, layer, group, volume.
    fields.skip(4 + times + 16)?;
    let mut matrix = [0; 9];
    for value in &mut matrix {
        *value = fields.i32()?;
    }
    Ok(TrackHeader {
        is_enabled: flags & 1 == 1,
        id,
        orientation: orientation(&matrix)?,
    })
}

/// What a matrix does to an image. Scaling is ignored, as FFmpeg does when it reads packets.
fn orientation(matrix: &[i32; 9]) -> Result<Mp4Orientation, Fault> {
    let [a, b, _, c, d, ..] = *matrix;
    let (is_mirrored, degrees) = match (a.signum(), b.signum(), c.signum(), d.signum()) {
        // Some old recorders leave it empty.
        (1, 0, 0, 1) | (0, 0, 0, 0) => (false, 0),
        (0, 1, -1, 0) => (false, 90),
        (-1, 0, 0, -1) => (false, 180),
        (0, -1, 1, 0) => (false, 270),
        (-1, 0, 0, 1) => (true, 0),
        (0, -1, -1, 0) => (true, 90),
        (1, 0, 0, -1) => (true, 180),
        (0, 1, 1, 0) => (true, 270),
        _ => {
            let what = "turns the images by an angle that is not a multiple of 90 degrees";
            return Err(unsupported("tkhd", what, REMUX));
        }
    };
    Ok(Mp4Orientation {
        is_mirrored,
        degrees,
    })
}

/// The timescale of `mdhd` or `mvhd`.
fn timescale(header: &[u8], object: &'static str) -> Result<u32, Fault> {
    let (mut fields, version, _) = Fields::full(header, object)?;
    fields.skip(if version == 1 { 16 } else { 8 })?;
    match fields.u32()? {
        0 => Err(corrupt(object, "has timescale 0")),
        timescale => Ok(timescale),
    }
}

fn timescale_of_movie(moov: &[u8]) -> Result<u32, Fault> {
    timescale(need(moov, b"mvhd", "moov")?, "mvhd")
}

/// Refuses a track whose samples are in another file.
fn check_data_references(information: &[u8], used: u16) -> Result<(), Fault> {
    let Some(dinf) = find(information, b"dinf", "minf")? else {
        return Ok(());
    };
    let Some(dref) = find(dinf, b"dref", "dinf")? else {
        return Ok(());
    };
    let (mut fields, _, _) = Fields::full(dref, "dref")?;
    fields.u32()?;
    for (number, reference) in (1..).zip(children(fields.rest(), "dref")) {
        let reference = reference?;
        let (fields, _, flags) = Fields::full(reference.body, "dref")?;
        // Some recorders forget the flag, but name no file either.
        let names_none = reference.kind == *b"url " && fields.rest().iter().all(|&byte| byte == 0);
        if number == used && flags & 1 == 0 && !names_none {
            let what = "keeps its samples in another file";
            return Err(unsupported("dref", what, REMUX));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_turns_and_mirrors_by_its_signs() {
        // A point of the image (x right, y down) is (x, y) → (ax + cy, bx + dy).
        let apply = |[a, b, c, d]: [i32; 4]| {
            let found = orientation(&[a, b, 0, c, d, 0, 0, 0, 1 << 30]).unwrap();
            let (x, y) = (3, 1);
            let expected = (a * x + c * y, b * x + d * y);
            let (x, y) = (if found.is_mirrored { -x } else { x }, y);
            let turned = match found.degrees {
                0 => (x, y),
                90 => (-y, x),
                180 => (-x, -y),
                _ => (y, -x),
            };
            assert_eq!(turned, expected, "{found:?}");
        };
        for one in [1, -1] {
            for other in [1, -1] {
                apply([one, 0, 0, other]);
                apply([0, one, other, 0]);
            }
        }
        assert!(orientation(&[7, 7, 0, -7, 7, 0, 0, 0, 1 << 30]).is_err());
    }
}
