//! Video files from packets that the dataset stores as they are: nothing is decoded or encoded.
//!
//! ```text
//! pages   I0 P3 B1 B2 │ C4 P7 b… C8 (not shown) b6 b7 │ C8 P11 …        a page may repeat the first packet of the next
//! file    I0 P3 B1 B2   C4 P7 b… C8 b6 b7 P11 …                         every packet once, in decode order
//! ```

use std::fs;
use std::path::Path;

use kino_codec::{VideoCoding, VideoColor, VideoMatrix, VideoPage};
use kino_dataset::Stream;

use crate::error::{Result, invalid};
use crate::export::WritingPath;
use crate::mp4::{
    Mp4Chroma, Mp4Codec, Mp4Color, Mp4Header, Mp4Orientation, Mp4Packet, Mp4Pixels, Mp4Writer,
};

/// Units of time per frame, as FFmpeg uses for whole rates.
const UNITS: u32 = 512;

/// The largest denominator of a rate: 30000 ÷ 1001 has 1001.
const MAX_DENOMINATOR: u32 = 1001;

/// A packet of the file.
struct Packet {
    data: Vec<u8>,
    /// Which frame of the episode it shows.
    frame: Option<usize>,
    is_key: bool,
}

/// The packets of an episode's camera, and what is said about all of them.
struct Film {
    config: Vec<u8>,
    color: VideoColor,
    packets: Vec<Packet>,
}

/// Writes the packets of a stream to an MP4 file at this rate.
pub(super) fn write(stream: &Stream, coding: VideoCoding, rate_hz: f64, path: &Path) -> Result<()> {
    let film = gather(stream)?;
    let ty = stream.frame_type().as_values();
    let (height, width) = match ty.map(|ty| ty.shape()) {
        Some([height, width, ..]) => (*height, *width),
        _ => return Err(invalid("a video has a height and a width")),
    };
    let side =
        |side: usize| u16::try_from(side).map_err(|_| invalid("a side is too large for MP4"));
    let (numerator, denominator) = fraction(rate_hz);
    let (timescale, duration) = (numerator * UNITS, denominator * UNITS);
    let header = Mp4Header {
        codec: codec(coding),
        config: film.config,
        width: side(width)?,
        height: side(height)?,
        orientation: Mp4Orientation::default(),
        color: color(film.color),
        pixels: (coding == VideoCoding::Vp9).then_some(Mp4Pixels {
            bit_depth: 8,
            chroma: Mp4Chroma::Yuv420,
        }),
        timescale,
        frame_duration: duration,
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).writing(folder)?;
    }
    let mut file = Mp4Writer::create(path, &header)?;
    let times = times(&film.packets);
    for (packet, (dts, pts)) in film.packets.iter().zip(times) {
        file.push(Mp4Packet {
            data: &packet.data,
            dts: dts * i64::from(duration),
            pts: pts * i64::from(duration),
            is_key: packet.is_key,
            is_shown: packet.frame.is_some(),
        })?;
    }
    file.finish()
}

/// All packets in decode order, each once.
fn gather(stream: &Stream) -> Result<Film> {
    let mut film: Option<Film> = None;
    stream.each_stored_page(|frames, bytes| {
        let page = VideoPage::parse(bytes, frames.len());
        let page = page.map_err(|error| invalid_page(&error.to_string()))?;
        let film = film.get_or_insert_with(|| Film {
            config: page.config.to_vec(),
            color: page.color,
            packets: Vec::new(),
        });
        if (film.config.as_slice(), film.color) != (page.config, page.color) {
            return Err(invalid_page(
                "its pages come from different videos; export it with --cameras images",
            ));
        }
        film.add(frames.start, &page);
        Ok(())
    })?;
    film.ok_or_else(|| invalid("an episode without frames cannot be a video"))
}

fn invalid_page(what: &str) -> kino_dataset::DatasetError {
    kino_dataset::DatasetError::Invalid {
        what: format!("the stored video cannot be written as a file: {what}"),
    }
}

impl Film {
    /// Adds the packets of a page, whose first frame is `start`.
    fn add(&mut self, start: usize, page: &VideoPage<'_>) {
        for packet in &page.packets {
            let frame = packet.frame.map(|frame| start + frame);
            // The page before may have had it already, because frames of it need it.
            let waiting = self.packets.iter_mut().rev();
            let mut waiting =
                waiting.take_while(|known| known.frame.is_none_or(|known| known < start));
            let known = waiting.find(|known| known.frame.is_none() && known.data == packet.bytes);
            match known.filter(|_| start > 0 && frame.is_some()) {
                Some(known) => {
                    known.frame = frame;
                    known.is_key |= packet.starts_group;
                }
                None => self.packets.push(Packet {
                    data: packet.bytes.to_vec(),
                    frame,
                    is_key: packet.starts_group,
                }),
            }
        }
    }
}

/// When each packet is decoded and shown, in frames. What is not shown comes before the first frame, or after the last.
fn times(packets: &[Packet]) -> Vec<(i64, i64)> {
    let to_i64 = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let first = packets.iter().position(|packet| packet.frame == Some(0));
    let first = first.unwrap_or(0);
    let hidden = packets[..first].iter().filter(|one| one.frame.is_none());
    let (mut before, mut after) = (-to_i64(hidden.count()), to_i64(packets.len()));
    let shown: Vec<i64> = packets
        .iter()
        .enumerate()
        .map(|(position, packet)| match packet.frame {
            Some(frame) => to_i64(frame),
            None if position < first => {
                before += 1;
                before - 1
            }
            None => {
                after += 1;
                after - 1
            }
        })
        .collect();
    // Decoded as late as possible, but never after it is shown.
    let late = shown.iter().enumerate();
    let delay = late.map(|(position, pts)| to_i64(position) - pts).max();
    let delay = delay.unwrap_or(0);
    let decoded = (0..).map(|position| position - delay);
    decoded.zip(shown).collect()
}

fn codec(coding: VideoCoding) -> Mp4Codec {
    match coding {
        VideoCoding::Av1 => Mp4Codec::Av1,
        VideoCoding::H264 => Mp4Codec::H264,
        VideoCoding::Hevc => Mp4Codec::Hevc,
        VideoCoding::Vp9 => Mp4Codec::Vp9,
        _ => Mp4Codec::Mp4v { object_type: 0x20 },
    }
}

/// What a file must say about the meaning of values, unless it is what readers assume.
fn color(color: VideoColor) -> Option<Mp4Color> {
    const UNSPECIFIED: u16 = 2;
    let matrix = match color.matrix {
        VideoMatrix::Bt601 if !color.is_full_range => return None,
        VideoMatrix::Bt601 => 6,
        VideoMatrix::Bt709 => 1,
        VideoMatrix::Bt2020 => 9,
    };
    Some(Mp4Color {
        primaries: UNSPECIFIED,
        transfer: UNSPECIFIED,
        matrix,
        is_full_range: Some(color.is_full_range),
    })
}

/// A rate as a fraction: the one with the smallest denominator that is within a billionth of it.
fn fraction(rate_hz: f64) -> (u32, u32) {
    let near = |denominator: &u32| {
        let numerator = (rate_hz * f64::from(*denominator)).round();
        (numerator / f64::from(*denominator) - rate_hz).abs() <= rate_hz * 1e-9
    };
    let denominator = (1..=MAX_DENOMINATOR).find(near).unwrap_or(1000);
    let numerator = crate::values::to_whole((rate_hz * f64::from(denominator)).round());
    // So that 512 units of it still fit a timescale.
    let numerator = u32::try_from(numerator).unwrap_or(1).clamp(1, 1 << 21);
    (numerator, denominator)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(frame: Option<usize>) -> Packet {
        Packet {
            data: Vec::new(),
            frame,
            is_key: false,
        }
    }

    #[test]
    fn rates_are_the_fractions_they_were() {
        for (rate_hz, expected) in [
            (30.0, (30, 1)),
            (29.97, (2997, 100)),
            (30_000.0 / 1001.0, (30_000, 1001)),
            (12.5, (25, 2)),
            (1.0 / 3.0, (1, 3)),
        ] {
            assert_eq!(fraction(rate_hz), expected);
        }
    }

    #[test]
    fn nothing_is_decoded_after_it_is_shown() {
        let shown = [None, Some(0), Some(3), Some(1), Some(2), None];
        let packets: Vec<_> = shown.into_iter().map(packet).collect();
        let times = times(&packets);
        assert!(times.iter().all(|(dts, pts)| dts <= pts), "{times:?}");
        assert!(times.iter().zip(&times[1..]).all(|(a, b)| a.0 < b.0));
        assert_eq!(times[0].1, -1);
        assert!(times[5].1 > 3);
    }
}
