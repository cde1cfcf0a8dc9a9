//! The fake NVDEC of a test's own, on top of its fake driver, and pages of video that it decodes.
//!
//! ```text
//! Film: groups of pictures ──▶ packets ──▶ fake_nvcuvid.c ──▶ NV12          picture(), to_rgb(): the same, the slow way
//! ```
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the numbers of a test are small"
)]

use std::ffi::c_long;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use kino_cuda::{
    Content, Image, ImageMemory, Nvcuvid, PlacedImage, ResizeTables, VideoCodec, VideoPacket,
    VideoPackets, VideoPage,
};
use libloading::Library;

use super::images::resized;
use super::{Fake, compile};

/// Factors of BT.601 in limited range.
pub(crate) const FACTORS: [i16; 6] = [9539, 128, 13_075, -3209, -6660, 16_525];

/// The fake NVDEC.
pub(crate) struct FakeVideo {
    path: PathBuf,
    library: Library,
}

impl FakeVideo {
    pub(crate) fn new(fake: &Fake) -> Self {
        let path = compile(fake.folder.path(), "fake_nvcuvid", Some(&fake.path));
        // SAFETY: the library that was just built; it has no initialisers.
        let library = unsafe { Library::new(&path) }.unwrap();
        Self { path, library }
    }

    pub(crate) fn open(&self) -> &'static Nvcuvid {
        Nvcuvid::open(std::slice::from_ref(&self.path)).unwrap()
    }

    /// One of its counters.
    pub(crate) fn count(&self, name: &[u8]) -> i64 {
        // SAFETY: each of these functions is `long name(void)`.
        unsafe {
            self.library
                .get::<unsafe extern "C" fn() -> c_long>(name)
                .unwrap()()
        }
    }

    /// One of its switches.
    pub(crate) fn set(&self, name: &[u8], value: i64) {
        // SAFETY: each of these functions is `void name(long)`.
        unsafe {
            self.library
                .get::<unsafe extern "C" fn(c_long)>(name)
                .unwrap()(value);
        }
    }
}

/// A page of a test.
#[derive(Debug)]
pub(crate) struct Film {
    pub(crate) codec: VideoCodec,
    pub(crate) size: (usize, usize),
    pub(crate) kept: Range<usize>,
    pub(crate) resize: Option<Arc<ResizeTables>>,
    pub(crate) factors: [i16; 6],
    /// All packets of the page: what, seed, starts a group, order, frame.
    pub(crate) coded: Vec<Coded>,
    /// What the CPU makes of it.
    pub(crate) cpu: Result<Vec<u8>, String>,
    places: Vec<OnceLock<ImageMemory>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Coded {
    pub(crate) what: u8,
    seed: u8,
    starts_group: bool,
    order: u8,
    pub(crate) frame: Option<usize>,
    /// Of its values.
    sum: usize,
}

impl Film {
    /// A page of groups of so many frames, of which some are kept. Images that are not shown are between them.
    pub(crate) fn new(
        seed: u8,
        size: (usize, usize),
        groups: &[usize],
        kept: Range<usize>,
        resize: Option<Arc<ResizeTables>>,
    ) -> Self {
        let mut coded = Vec::new();
        let mut first = 0;
        for &frames in groups {
            let mut sum = 0;
            let group = coded.len();
            for at in decode_order(frames) {
                let mut add = |order: usize, frame, coded: &mut Vec<Coded>| {
                    let starts_group = coded.len() == group;
                    let seed = seed.wrapping_add((coded.len() * 37) as u8);
                    sum = (if starts_group { 0 } else { 3 * sum } + usize::from(seed)) % 256;
                    coded.push(Coded {
                        what: b'P',
                        seed,
                        starts_group,
                        order: order as u8,
                        frame,
                        sum,
                    });
                };
                add(2 * at, Some(first + at), &mut coded);
                if at % 5 == 4 {
                    add(2 * at + 1, None, &mut coded);
                }
            }
            first += frames;
        }
        let mut film = Self {
            codec: VideoCodec::H264,
            size,
            places: kept.clone().map(|_| OnceLock::new()).collect(),
            kept,
            resize,
            factors: FACTORS,
            coded,
            cpu: Ok(Vec::new()),
        };
        film.cpu = Ok(film.pixels());
        film
    }

    /// A page of one group without a resize.
    pub(crate) fn plain(seed: u8, size: (usize, usize), frames: usize) -> Self {
        Self::new(seed, size, &[frames], 0..frames, None)
    }

    /// The kept frames, computed the slow way.
    pub(crate) fn pixels(&self) -> Vec<u8> {
        let of = |frame| self.coded.iter().find(|one| one.frame == Some(frame));
        let mut all = Vec::new();
        for frame in self.kept.clone() {
            let picture = picture(of(frame).unwrap().sum, self.size);
            let rgb = to_rgb(&picture, self.size, self.factors);
            match &self.resize {
                Some(tables) => all.extend(resized(tables, &rgb, self.size)),
                None => all.extend(rgb),
            }
        }
        all
    }

    pub(crate) fn kept_size(&self) -> (usize, usize) {
        self.resize.as_ref().map_or(self.size, |tables| tables.kept)
    }

    /// The pixels of one of the kept frames, as the CPU has them.
    pub(crate) fn frame(&self, kept: usize) -> Vec<u8> {
        let (height, width) = self.kept_size();
        let bytes = height * width * 3;
        self.cpu.as_ref().unwrap()[kept * bytes..][..bytes].to_vec()
    }

    /// Other pixels on the CPU: those that came from there are told from those that did not.
    pub(crate) fn with_other_pixels(mut self) -> Self {
        self.cpu
            .as_mut()
            .unwrap()
            .iter_mut()
            .for_each(|byte| *byte ^= 0x55);
        self
    }

    fn packet(&self, one: &Coded) -> Vec<u8> {
        let head = [
            b'K',
            b'V',
            one.what,
            one.seed,
            u8::from(one.starts_group),
            one.order,
        ];
        let sides = [self.size.0, self.size.1].map(|side| (side as u16).to_le_bytes());
        [&head[..], &sides.concat()].concat()
    }
}

/// The key frame, then three at a time, the last of them first.
fn decode_order(frames: usize) -> Vec<usize> {
    let mut order = vec![0];
    let mut at = 1;
    while at < frames {
        let last = (at + 2).min(frames - 1);
        order.push(last);
        order.extend(at..last);
        at = last + 1;
    }
    order
}

/// NV12 as the fake makes it.
fn picture(sum: usize, (height, width): (usize, usize)) -> Vec<u8> {
    (0..height * width * 3 / 2)
        .map(|idx| ((sum + 7 * idx) % 251) as u8)
        .collect()
}

/// What `spec/codecs/video.md` says, with division that rounds down.
fn to_rgb(nv12: &[u8], (height, width): (usize, usize), factors: [i16; 6]) -> Vec<u8> {
    let [luma, black, red_v, green_u, green_v, blue_u] = factors.map(i64::from);
    let times = |a: i64, b: i64| (a * b).div_euclid(65_536);
    let mut rgb = Vec::new();
    for y in 0..height {
        for x in 0..width {
            let at = height * width + y / 2 * width + x / 2 * 2;
            let value = times(8 * i64::from(nv12[y * width + x]) - black, luma);
            let [u, v] = [nv12[at], nv12[at + 1]].map(|chroma| 8 * i64::from(chroma) - 1024);
            let shifts = [
                times(v, red_v),
                times(u, green_u) + times(v, green_v),
                times(u, blue_u),
            ];
            rgb.extend(shifts.map(|shift| (value + shift).clamp(0, 255) as u8));
        }
    }
    rgb
}

impl VideoPage for Film {
    fn codec(&self) -> VideoCodec {
        self.codec
    }

    fn packets(&self) -> Result<VideoPackets, String> {
        let is_kept = |one: &Coded| one.frame.is_some_and(|frame| self.kept.contains(&frame));
        let first = self.coded.iter().position(is_kept).unwrap();
        let last = self.coded.iter().rposition(is_kept).unwrap();
        let group = self.coded[..=first]
            .iter()
            .rposition(|one| one.starts_group);
        let mut made = VideoPackets {
            bytes: Vec::new(),
            packets: Vec::new(),
            factors: self.factors,
        };
        for one in &self.coded[group.unwrap()..=last] {
            let start = made.bytes.len();
            made.bytes.extend(self.packet(one));
            made.packets.push(VideoPacket {
                range: start..made.bytes.len(),
                frame: one.frame,
                starts_group: one.starts_group,
            });
        }
        Ok(made)
    }

    fn stored(&self) -> (usize, usize) {
        self.size
    }

    fn resize(&self) -> Option<&Arc<ResizeTables>> {
        self.resize.as_ref()
    }

    fn frames(&self) -> Range<usize> {
        self.kept.clone()
    }

    fn decode(&self) -> Result<Vec<u8>, String> {
        self.cpu.clone()
    }

    fn place(&self, kept: usize) -> &OnceLock<ImageMemory> {
        &self.places[kept]
    }
}

/// A frame of a page.
#[derive(Debug)]
pub(crate) struct FilmFrame {
    pub(crate) film: Arc<Film>,
    pub(crate) kept: usize,
}

impl Image for FilmFrame {
    fn content(&self) -> Content<'_> {
        Content::Video(&*self.film)
    }

    fn stored(&self) -> (usize, usize) {
        self.film.size
    }

    fn resize(&self) -> Option<&Arc<ResizeTables>> {
        self.film.resize.as_ref()
    }

    fn decode(&self) -> Result<Vec<u8>, String> {
        Err("a frame of video is decoded with its page".to_owned())
    }

    fn place(&self) -> &OnceLock<ImageMemory> {
        self.film.place(self.kept)
    }
}

/// A frame of a page in an array.
pub(crate) fn frame_of(film: &Arc<Film>, kept: usize) -> Option<PlacedImage> {
    let film = Arc::clone(film);
    Some(PlacedImage {
        image: Arc::new(FilmFrame { film, kept }),
        top: 0,
        left: 0,
    })
}
