//! Video whose packets are stored as they are: which packets a range of frames needs, in pages.
//!
//! ```text
//! file-000.mp4    I P B B P  I P B B P  I …        packets in decode order
//! access points   ▲          ▲          ▲          where decoding can begin (access.rs)
//! pages           |          |          |          whole groups, up to 30 frames or 256 KiB (pages.rs)
//! ```
//!
//! An episode may begin and end inside a group: its first page begins with the packets of the whole group up to it,
//! whose images are not shown. A file that cannot be carried says why, and is decoded instead.
//!
//! Here are MP4 files. Packets can also be in messages (`mcap/video.rs`): whatever has them is [`Packets`].

mod access;
mod config;
mod pages;
mod pixels;

use std::borrow::Cow;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use kino_codec::{
    CodecError, ContainerColor, Dtype, FrameType, VideoCoding, VideoColor, VideoEntry, VideoPacket,
    VideoPage, probe_video, video_page_head,
};
use kino_sync::Mutex;

use crate::error::{ImportError, Result};
use crate::files::{self, ReadingPath};
use crate::link::{Extent, PageExtent};
use crate::mp4::{Mp4Chroma, Mp4Codec, Mp4Pixels, Mp4Track, read_mp4};
use crate::video::{Pixels, VideoInfo};

pub(crate) use access::starts_group;
pub(crate) use pages::{Groups, PagePlan};
pub(crate) use pixels::PixelReaders;

use access::access_points;
use pages::PlannedPacket;

/// A video whose packets are read page by page.
pub(crate) trait Packets {
    /// The file that it is in.
    fn path(&self) -> &Path;

    /// Its name in the file.
    fn name(&self) -> &str;

    fn coding(&self) -> VideoCoding;

    /// The type of its frames.
    fn frame(&self) -> &FrameType;

    /// The pages of a range of frames, by their number in presentation order; or why there are none.
    fn pages(&self, frames: &Range<u64>) -> Result<Cow<'_, [PagePlan]>, String>;

    /// The bytes of a page.
    fn page_bytes(&self, plan: &PagePlan) -> Result<Vec<u8>>;
}

/// A video file whose packets can be stored as they are.
#[derive(Debug)]
pub(crate) struct PacketFile {
    path: Arc<Path>,
    file: Mutex<File>,
    track: Mp4Track,
    groups: Groups,
    coding: VideoCoding,
    color: VideoColor,
    frame: FrameType,
}

/// Why the packets of a file cannot be stored as they are.
#[derive(Debug)]
pub(crate) enum NotCarried {
    /// What is in the way, as a predicate of the file.
    Because(String),
    /// A library that decodes it is missing, so that it cannot be checked either.
    NoDecoder(String),
}

impl PacketFile {
    /// Opens a file, finds its groups and decodes its first image.
    pub(crate) fn open(path: &Path) -> Result<Self, NotCarried> {
        let because = NotCarried::Because;
        let mut track = read_mp4(path).map_err(|error| because(error.what()))?;
        let coding = coding_of(&track)?;
        track.config = config::without_messages(coding, track.config);
        let size = [track.height.into(), track.width.into()];
        let frame = frame_of(size, track.pixels)?;
        let (mut file, _) = files::open_with_len(path)
            .reading(path)
            .map_err(|error| because(error.what()))?;
        let starts = access_points(&track, coding, &mut file)
            .map_err(|error| because(format!("cannot be read ({error})")))?;
        let groups = Groups::new(&track.samples, starts).map_err(because)?;
        let mut opened = Self {
            path: Arc::from(path),
            file: Mutex::new(file),
            track,
            groups,
            coding,
            color: VideoColor::default(),
            frame,
        };
        opened.color = opened.probe()?;
        Ok(opened)
    }

    /// Decodes the first image.
    fn probe(&self) -> Result<VideoColor, NotCarried> {
        let first = self.groups.first_packet();
        let packet = self.read(first..first + 1);
        let packet = packet.map_err(|error| NotCarried::Because(error.what()))?;
        let page = VideoPage {
            config: &self.track.config,
            color: VideoColor::default(),
            packets: vec![VideoPacket {
                bytes: &packet,
                frame: Some(0),
                starts_group: true,
            }],
        };
        let said = self.track.color.map(|color| ContainerColor {
            matrix: Some(color.matrix),
            is_full_range: color.is_full_range,
        });
        let probed = probe_video(self.coding, &self.frame, &page, said.unwrap_or_default());
        probed.map_err(not_carried)
    }

    /// Size, pixel format and times.
    pub(crate) fn info(&self) -> VideoInfo {
        let scale = i128::from(self.track.timescale.max(1));
        let mut times: Vec<_> = self.groups.times().collect();
        for time in &mut times {
            // To the nearest nanosecond.
            let ns = (i128::from(*time) * 2_000_000_000 + scale).div_euclid(2 * scale);
            *time = i64::try_from(ns).unwrap_or(i64::MAX);
        }
        let is_deep = self.frame.as_values().map(kino_codec::ValueType::dtype) == Some(Dtype::U16);
        VideoInfo {
            height: usize::from(self.track.height),
            width: usize::from(self.track.width),
            pixels: if is_deep {
                Pixels::Grey16
            } else {
                Pixels::Rgb8
            },
            times_ns: times,
        }
    }

    /// Where the bytes of a page are: a head, and packets in the file.
    pub(crate) fn page_extent(&self, plan: &PagePlan) -> PageExtent {
        let sample = |packet: &PlannedPacket| &self.track.samples[packet.sample];
        let entry = |packet: &PlannedPacket| VideoEntry {
            size: sample(packet).size as usize,
            frame: packet.frame,
            starts_group: packet.starts_group,
        };
        let table: Vec<_> = plan.packets.iter().map(entry).collect();
        let head = video_page_head(&self.track.config, self.color, &table);
        let mut pieces = vec![Extent::Stored(head)];
        for packet in plan.packets.iter().map(sample) {
            match pieces.last_mut() {
                Some(Extent::File { offset, len, .. }) if *offset + *len == packet.offset => {
                    *len += u64::from(packet.size);
                }
                _ => pieces.push(Extent::File {
                    path: Arc::clone(&self.path),
                    offset: packet.offset,
                    len: u64::from(packet.size),
                }),
            }
        }
        let frames = plan.frames.end - plan.frames.start;
        PageExtent {
            frames: u32::try_from(frames).unwrap_or(u32::MAX),
            pieces,
        }
    }

    /// Reads consecutive packets, one after the other.
    fn read(&self, samples: Range<usize>) -> Result<Vec<u8>> {
        let samples = &self.track.samples[samples];
        let total: u64 = samples.iter().map(|sample| u64::from(sample.size)).sum();
        let mut out = Vec::with_capacity(usize::try_from(total).unwrap_or(0));
        let mut file = self.file.lock();
        let mut left = samples;
        while let Some(first) = left.first() {
            // Packets that follow each other in the file are read at once.
            let mut end = first.offset;
            let run = left.iter().take_while(|sample| {
                let follows = sample.offset == end;
                end = sample.offset + u64::from(sample.size);
                follows
            });
            let count = run.count();
            let bytes: u64 = left[..count].iter().map(|one| u64::from(one.size)).sum();
            file.seek(SeekFrom::Start(first.offset))
                .reading(&self.path)?;
            let got = (&mut *file).take(bytes).read_to_end(&mut out);
            if got.reading(&self.path)? as u64 != bytes {
                return Err(ImportError::corrupt(&self.path, "video", "is truncated"));
            }
            left = &left[count..];
        }
        Ok(out)
    }
}

impl Packets for PacketFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn name(&self) -> &str {
        "video"
    }

    fn coding(&self) -> VideoCoding {
        self.coding
    }

    fn frame(&self) -> &FrameType {
        &self.frame
    }

    fn pages(&self, frames: &Range<u64>) -> Result<Cow<'_, [PagePlan]>, String> {
        let pages = self.groups.pages(&self.track.samples, &self.frame, frames);
        pages.map(Cow::Owned)
    }

    fn page_bytes(&self, plan: &PagePlan) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for run in plan.runs() {
            bytes.append(&mut self.read(run)?);
        }
        let mut rest = bytes.as_slice();
        let mut packet = |planned: &PlannedPacket| {
            let size = self.track.samples[planned.sample].size as usize;
            let (bytes, after) = rest.split_at(size.min(rest.len()));
            rest = after;
            VideoPacket {
                bytes,
                frame: planned.frame,
                starts_group: planned.starts_group,
            }
        };
        let packets = plan.packets.iter().map(&mut packet).collect();
        let page = VideoPage {
            config: &self.track.config,
            color: self.color,
            packets,
        };
        Ok(page.to_bytes())
    }
}

/// What an error of [`probe_video`] means for the video.
pub(crate) fn not_carried(error: CodecError) -> NotCarried {
    match error {
        CodecError::Unavailable { what, .. } => NotCarried::NoDecoder(what),
        CodecError::Corrupt { what, .. } => {
            NotCarried::Because(format!("cannot be stored as it is: {what}"))
        }
        other => NotCarried::Because(format!("cannot be stored as it is: {other}")),
    }
}

fn coding_of(track: &Mp4Track) -> Result<VideoCoding, NotCarried> {
    Ok(match track.codec {
        Mp4Codec::Av1 => VideoCoding::Av1,
        Mp4Codec::H264 => VideoCoding::H264,
        Mp4Codec::Hevc => VideoCoding::Hevc,
        Mp4Codec::Vp9 => VideoCoding::Vp9,
        Mp4Codec::Mp4v { object_type: 0x20 } => VideoCoding::Mpeg4,
        Mp4Codec::Mp4v { object_type } => {
            let what = format!("is coded as MPEG-4 object type {object_type:#04x}");
            return Err(NotCarried::Because(what));
        }
        Mp4Codec::Other { fourcc } => {
            let what = format!("is coded as `{}`", fourcc.escape_ascii());
            return Err(NotCarried::Because(what));
        }
    })
}

/// The type of the frames: RGB of 8 bits, or gray of more, which is depth.
pub(crate) fn frame_of(
    [height, width]: [usize; 2],
    pixels: Option<Mp4Pixels>,
) -> Result<FrameType, NotCarried> {
    let frame = match pixels {
        Some(pixels) if pixels.bit_depth > 8 && pixels.chroma == Mp4Chroma::Gray => {
            FrameType::values(Dtype::U16, &[height, width])
        }
        Some(pixels) if pixels.bit_depth > 8 || pixels.chroma == Mp4Chroma::Yuv440 => {
            let what = format!(
                "has {}-bit color images; only 8-bit color and gray depth are stored as they are",
                pixels.bit_depth
            );
            return Err(NotCarried::Because(what));
        }
        _ => FrameType::values(Dtype::U8, &[height, width, 3]),
    };
    frame.map_err(|error| NotCarried::Because(error.to_string()))
}
