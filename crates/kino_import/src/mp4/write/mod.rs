//! Writing an MP4 file: packets that an encoder made, or that were read from another file, as one video track.
//!
//! ```text
//! ftyp │ free │ mdat: packets, one after another … │ moov        free gives its bytes to mdat if that needs 64 bits
//! ```
//!
//! Packets go to the file as they come. What is kept in memory is 40 bytes for each, for the tables of `moov`, which
//! comes last because nothing in it is known before.
//!
//! A reader gets the times that were written: the `pts` of every frame that is shown, and each `dts` too, unless some
//! `pts` is before its `dts`. FFmpeg reads such files with all `dts` so much earlier that none is, and so they are
//! written. An edit list says where the part that is shown begins and ends. It is checked with what FFmpeg makes of it
//! (`edits.rs`) before it is written.
//!
//! | file | job |
//! |---|---|
//! | `boxes.rs` | boxes as bytes |
//! | `samples.rs` | the packets that were written: their checks, and the part that is shown |
//! | `description.rs` | `stsd` |
//! | `tables.rs` | the other tables of `stbl` |
//! | `movie.rs` | `moov` |

mod boxes;
mod description;
mod movie;
mod samples;
mod tables;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::tables::MAX_OFFSET;
use super::{Mp4Codec, Mp4Color, Mp4Orientation, Mp4Pixels, Mp4Track};
use crate::error::{ImportError, Result, invalid};
use crate::export::{create_new, unwritable};
use samples::Samples;

/// FFmpeg reads no larger timescale.
const MAX_TIMESCALE: u32 = i32::MAX.unsigned_abs();

/// What is said about all packets of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mp4Header {
    /// The codec: any but [`Mp4Codec::Other`].
    pub codec: Mp4Codec,
    /// What a decoder needs before the first packet, as in [`Mp4Track::config`].
    pub config: Vec<u8>,
    /// Width of an image as it is coded.
    pub width: u16,
    /// Height of an image as it is coded.
    pub height: u16,
    /// How to turn an image before it is shown.
    pub orientation: Mp4Orientation,
    /// The meaning of the values, if it is known.
    pub color: Option<Mp4Color>,
    /// Bit depth and chroma subsampling, if they are known. Only VP9 needs them; other configurations have them inside.
    pub pixels: Option<Mp4Pixels>,
    /// Units per second of all times.
    pub timescale: u32,
    /// How long the last frame is shown, in units of the timescale.
    pub frame_duration: u32,
}

impl Mp4Header {
    /// The header of a file with the packets of `track`. Its last frame is shown as long as most others.
    pub fn of(track: &Mp4Track) -> Self {
        Self {
            codec: track.codec,
            config: track.config.clone(),
            width: track.width,
            height: track.height,
            orientation: track.orientation,
            color: track.color,
            pixels: track.pixels,
            timescale: track.timescale,
            frame_duration: usual_duration(track),
        }
    }
}

/// The median of the times between two packets; a single frame is shown for a second.
fn usual_duration(track: &Mp4Track) -> u32 {
    let pairs = track.samples.iter().zip(track.samples.iter().skip(1));
    let mut steps: Vec<_> = pairs.map(|(this, next)| next.dts - this.dts).collect();
    let middle = steps.len() / 2;
    let median = match steps.get(middle) {
        Some(_) => *steps.select_nth_unstable(middle).1,
        None => track.timescale.into(),
    };
    u32::try_from(median).unwrap_or(0).clamp(1, MAX_OFFSET)
}

/// A packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mp4Packet<'a> {
    /// Its bytes, as MP4 stores them: NAL units of H.264 and HEVC with their lengths in front.
    pub data: &'a [u8],
    /// When it is decoded.
    pub dts: i64,
    /// When its frame is shown.
    pub pts: i64,
    /// Whether it is a key frame.
    pub is_key: bool,
    /// Whether its frame is shown. One that is not is decoded for others, and comes before or after all that are.
    pub is_shown: bool,
}

/// An MP4 file that is being written. Without [`finish`](Self::finish) it cannot be read.
#[derive(Debug)]
pub struct Mp4Writer {
    muxer: Muxer<BufWriter<File>>,
    path: PathBuf,
}

impl Mp4Writer {
    /// Creates a file, which must not exist.
    pub fn create(path: &Path, header: &Mp4Header) -> Result<Self> {
        let fail = |refusal: Refusal| refusal.of(path);
        check_header(header).map_err(fail)?;
        let file = BufWriter::new(create_new(path)?);
        Ok(Self {
            muxer: Muxer::new(file, header.clone()).map_err(fail)?,
            path: path.to_owned(),
        })
    }

    /// Writes a packet. Packets come in the order in which they are decoded.
    pub fn push(&mut self, packet: Mp4Packet<'_>) -> Result<()> {
        self.muxer.push(packet).map_err(|e| e.of(&self.path))
    }

    /// Writes the tables. The file is complete, and handed to the operating system; what exports it syncs it.
    pub fn finish(self) -> Result<()> {
        let Self { muxer, path } = self;
        let written = muxer.finish().and_then(|mut file| Ok(file.flush()?));
        written.map_err(|refusal| refusal.of(&path))
    }
}

/// Why a file is not written.
#[derive(Debug)]
enum Refusal {
    /// It would not be a valid MP4 file.
    Invalid(String),
    Io(io::Error),
}

/// Refuses to write this.
fn refused(what: String) -> Refusal {
    Refusal::Invalid(what)
}

impl Refusal {
    fn of(self, path: &Path) -> ImportError {
        match self {
            Self::Invalid(what) => invalid(format!(
                "{}: an MP4 file cannot have {what}",
                path.display()
            )),
            Self::Io(error) => unwritable(path, error),
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn check_header(header: &Mp4Header) -> Result<(), Refusal> {
    let Mp4Header {
        timescale,
        frame_duration,
        ..
    } = header;
    if !(1..=MAX_TIMESCALE).contains(timescale) {
        return Err(refused(format!(
            "a timescale of {timescale}; it must be 1 to {MAX_TIMESCALE}"
        )));
    }
    if !(1..=MAX_OFFSET).contains(frame_duration) {
        return Err(refused(format!(
            "a last frame of {frame_duration} units; it must be 1 to {MAX_OFFSET}"
        )));
    }
    description::stsd(header).map(drop)
}

/// Writes packets and tables to anything that can seek.
#[derive(Debug)]
struct Muxer<W> {
    out: W,
    header: Mp4Header,
    samples: Samples,
    /// Where `free` begins.
    free: u64,
    /// Where the next packet begins.
    end: u64,
}

impl<W: Write + Seek> Muxer<W> {
    fn new(mut out: W, header: Mp4Header) -> Result<Self, Refusal> {
        let start = boxes::boxed(b"ftyp", &brands(header.codec));
        let free = start.len() as u64;
        out.write_all(&start)?;
        out.write_all(&boxes::boxed(b"free", &[]))?;
        out.write_all(&boxes::boxed(b"mdat", &[]))?;
        Ok(Self {
            out,
            header,
            samples: Samples::default(),
            free,
            end: free + 16,
        })
    }

    fn push(&mut self, packet: Mp4Packet<'_>) -> Result<(), Refusal> {
        let size = self.samples.add(&packet, self.end)?;
        self.out.write_all(packet.data)?;
        self.end += u64::from(size);
        Ok(())
    }

    fn finish(mut self) -> Result<W, Refusal> {
        let durations = self.samples.durations(self.header.frame_duration)?;
        let tables = tables::tables(self.samples.stored(), self.header.frame_duration);
        let moov = movie::moov(&self.header, &durations, &tables)?;
        self.out.write_all(&moov)?;
        let packets = self.end - self.free - 16;
        let start = match u32::try_from(packets + 8) {
            Ok(size) => {
                let free = boxes::boxed(b"free", &[]);
                [&free[..], &size.to_be_bytes(), b"mdat"].concat()
            }
            Err(_) => boxes::wide_header(b"mdat", packets).to_vec(),
        };
        self.out.seek(SeekFrom::Start(self.free))?;
        self.out.write_all(&start)?;
        Ok(self.out)
    }
}

/// The body of `ftyp`: the brands that FFmpeg writes.
fn brands(codec: Mp4Codec) -> Vec<&'static [u8]> {
    let mut brands: Vec<&[u8]> = vec![b"isom", &[0, 0, 2, 0], b"isom", b"iso2"];
    match codec {
        Mp4Codec::H264 => brands.push(b"avc1"),
        Mp4Codec::Av1 => brands.push(b"av01"),
        _ => {}
    }
    brands.push(b"mp41");
    brands
}
