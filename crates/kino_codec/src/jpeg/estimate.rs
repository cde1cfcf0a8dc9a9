//! With which settings a JPEG file was compressed, as far as its tables tell.
//!
//! ```text
//! DQT  64 steps per table ──▶ the quality whose tables are closest       libjpeg scales two tables of the JPEG standard
//! SOF  sampling factors   ──▶ 444, 422 or 420
//! ```
//!
//! Most encoders use libjpeg's scale of 1 to 100, and then the tables name the quality exactly. Cameras often have tables
//! of their own: the quality is that of the tables with the least difference, and the result says so.

use crate::error::Result;

use super::header::{Header, take_segment};

/// The luma table of the JPEG standard (K.1), in zigzag order as files have it.
const LUMA: [u16; 64] = [
    16, 11, 12, 14, 12, 10, 16, 14, 13, 14, 18, 17, 16, 19, 24, 40, 26, 24, 22, 22, 24, 49, 35, 37,
    29, 40, 58, 51, 61, 60, 57, 51, 56, 55, 64, 72, 92, 78, 64, 68, 87, 69, 55, 56, 80, 109, 81,
    87, 95, 98, 103, 104, 103, 62, 77, 113, 121, 112, 100, 120, 92, 101, 103, 99,
];

/// The chroma table (K.2), in zigzag order.
const CHROMA: [u16; 64] = [
    17, 18, 18, 24, 21, 24, 47, 26, 26, 47, 99, 66, 56, 66, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
    99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
    99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
];

/// How a JPEG file was compressed, on the scale of this library's `jpeg`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JpegEstimate {
    /// The quality, 1 to 100.
    pub quality: u8,
    /// Chroma subsampling: `444`, `422` or `420`.
    pub subsampling: &'static str,
    /// Whether `jpeg` has the very tables and the subsampling of the file.
    pub is_same: bool,
}

impl JpegEstimate {
    /// Estimates the settings of a file; an error if `jpeg:carry` could not store it.
    pub fn of(file: &[u8]) -> Result<Self> {
        // Afterwards, every table that is used is known to be in the file.
        let channels = Header::parse(file)?.channels;
        let found = Found::read(file)?;
        let luma = found.table(0);
        let chroma = found.table(1).filter(|_| channels > 1);
        let (quality, difference) = (1..=100)
            .map(|quality| {
                let of_luma = difference(luma, &LUMA, quality);
                (quality, of_luma + difference(chroma, &CHROMA, quality))
            })
            .min_by_key(|&(_, difference)| difference)
            .unwrap_or((95, 1));
        let (subsampling, is_known) = found.subsampling(channels);
        Ok(Self {
            quality,
            subsampling,
            is_same: difference == 0 && is_known,
        })
    }

    /// The codec that compresses images like this file.
    pub fn codec(&self) -> String {
        format!("jpeg:q={},sub={}", self.quality, self.subsampling)
    }
}

/// The step that libjpeg makes of a standard one at a quality.
///
/// ```
/// assert_eq!(kino_codec::jpeg_steps(50)[0], 16);
/// ```
pub fn jpeg_steps(quality: u8) -> [u16; 64] {
    LUMA.map(|step| scaled(step, quality))
}

fn scaled(step: u16, quality: u8) -> u16 {
    let quality = u16::from(quality.clamp(1, 100));
    let percent = match quality {
        ..50 => 5000 / quality,
        _ => 200 - 2 * quality,
    };
    let scaled = (u32::from(step) * u32::from(percent) + 50) / 100;
    u16::try_from(scaled.clamp(1, 255)).unwrap_or(255)
}

/// How far a table is from a standard one at a quality; 0 without one.
fn difference(table: Option<&[u16; 64]>, standard: &[u16; 64], quality: u8) -> u64 {
    let steps = table.into_iter().flatten().zip(standard);
    // Relative to the step: one more or less matters where steps are small, thirty do not where they are large.
    steps
        .map(|(&step, &standard)| {
            let expected = scaled(standard, quality);
            1000 * u64::from(step.abs_diff(expected)) / u64::from(expected.max(1))
                + u64::from(step != expected)
        })
        .sum()
}

/// The tables of a file, and which channel uses which.
#[derive(Default)]
struct Found {
    tables: [Option<[u16; 64]>; 4],
    /// Sampling factors and table of each channel.
    channels: Vec<(u8, u8)>,
}

impl Found {
    fn read(file: &[u8]) -> Result<Self> {
        let mut found = Self::default();
        let mut rest = file.get(2..).unwrap_or_default();
        loop {
            match take_segment(&mut rest)? {
                (0xdb, body) => found.add_tables(body),
                (0xc0..=0xc2, body) => {
                    let components = body.get(6..).unwrap_or_default().chunks_exact(3);
                    found.channels = components.map(|one| (one[1], one[2])).collect();
                }
                (0xda, _) => return Ok(found),
                _ => {}
            }
        }
    }

    fn add_tables(&mut self, mut body: &[u8]) {
        while let Some((&kind, rest)) = body.split_first() {
            let bytes = if kind >> 4 == 0 { 1 } else { 2 };
            let Some((steps, after)) = rest.split_at_checked(64 * bytes) else {
                return;
            };
            let mut table = [0; 64];
            for (step, bytes) in table.iter_mut().zip(steps.chunks_exact(bytes)) {
                *step = bytes
                    .iter()
                    .fold(0, |sum, &byte| (sum << 8) | u16::from(byte));
            }
            if let Some(slot) = self.tables.get_mut(usize::from(kind & 15)) {
                *slot = Some(table);
            }
            body = after;
        }
    }

    fn table(&self, channel: usize) -> Option<&[u16; 64]> {
        let (_, table) = self.channels.get(channel)?;
        self.tables.get(usize::from(*table))?.as_ref()
    }

    /// The subsampling, and whether `jpeg` has it.
    fn subsampling(&self, channels: usize) -> (&'static str, bool) {
        if channels == 1 {
            return ("444", true);
        }
        let factors = |channel: usize| self.channels.get(channel).map_or(0x11, |one| one.0);
        let (luma, chroma) = (factors(0), factors(1));
        match (luma, chroma) {
            _ if factors(2) != chroma => ("420", false),
            (0x11, 0x11) => ("444", true),
            (0x21, 0x11) => ("422", true),
            (0x22, 0x11) => ("420", true),
            _ if luma == chroma => ("444", false),
            _ => ("420", false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Encoded;
    use crate::frame::{Dtype, FrameType};
    use crate::frames::Frames;
    use crate::scratch::Scratch;

    fn file(codec: &str, channels: usize) -> Vec<u8> {
        let frame = FrameType::values(Dtype::U8, &[24, 32, channels]).unwrap();
        let pixels: Vec<u8> = (0..24 * 32 * channels)
            .map(|idx| u8::try_from(idx * idx / 31 % 256).unwrap())
            .collect();
        let frames = Frames::values(&frame, &pixels).unwrap();
        let (mut encoded, mut scratch) = (Encoded::default(), Scratch::new());
        let codec = crate::codec(codec).unwrap();
        let page = codec.page_frames(&frame);
        codec
            .encode(&frames, page, &mut encoded, &mut scratch)
            .unwrap();
        encoded.pages.remove(0).bytes
    }

    #[test]
    fn the_settings_of_libjpeg_are_found_exactly() {
        for quality in [1, 5, 15, 49, 50, 51, 75, 90, 95, 100] {
            for subsampling in ["444", "422", "420"] {
                let codec = format!("jpeg:q={quality},sub={subsampling}");
                let found = JpegEstimate::of(&file(&codec, 3)).unwrap();
                assert_eq!(found.codec(), codec);
                assert!(found.is_same, "{codec}");
            }
            let grey = JpegEstimate::of(&file(&format!("jpeg:q={quality}"), 1)).unwrap();
            assert_eq!((grey.quality, grey.is_same), (quality, true));
        }
    }

    #[test]
    fn other_tables_are_an_estimate_that_is_said_to_be_one() {
        let mut changed = file("jpeg:q=75,sub=420", 3);
        let table = changed.windows(2).position(|two| two == [0xff, 0xdb]);
        // The last steps of the luma table: behind marker, length and id.
        changed[table.unwrap() + 5 + 60] += 3;
        let found = JpegEstimate::of(&changed).unwrap();
        assert_eq!((found.quality, found.is_same), (75, false));
        let frame = changed.windows(2).position(|two| two == [0xff, 0xc0]);
        // Luma sampled four times as densely as chroma in a row: `jpeg` does not write that.
        changed[frame.unwrap() + 11] = 0x41;
        assert_eq!(JpegEstimate::of(&changed).unwrap().subsampling, "420");
    }

    #[test]
    fn every_truncation_is_an_error_never_a_panic() {
        let whole = file("jpeg:q=75,sub=420", 3);
        let scan = whole.windows(2).position(|two| two == [0xff, 0xda]);
        for end in 0..scan.unwrap() {
            assert!(JpegEstimate::of(&whole[..end]).is_err(), "{end}");
        }
    }
}
