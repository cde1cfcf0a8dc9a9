//! Pages of video, against an NVDEC and a driver that do everything as late as they may; pixels against a naive twin.
//!
//! ```text
//! Film ──▶ Batch ──▶ Sender ──▶ fake_nvcuvid.c, the kernels as plain C ──▶ bytes of the slot == those of the naive twin
//! ```
//!
//! Each of the two waits in `video/state.rs` (before frames are unmapped, and before a surface that a stream reads is decoded to) was removed
//! alone, and tests failed each time.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

mod fake;

use std::sync::Arc;
use std::time::Duration;

use fake::Fake;
use fake::images::{Batch, Dice, Made, Still, form, placed, tables};
use fake::jpeg::FakeJpeg;
use fake::video::{FakeVideo, Film, frame_of};
use kino_cuda::{
    CudaError, Device, ImageLayout, ImageOptions, Lease, OnRefusal, SendError, Sender,
    StreamHandle, Taken, VideoCodec, VideoReport,
};
use kino_sync::Mutex;

const LONG: Duration = Duration::from_secs(60);
const SIZE: (usize, usize) = (16, 24);

type Numbered = Sender<usize, String>;

/// A fake driver and a fake NVDEC.
struct Rig {
    stream: StreamHandle,
    device: Arc<Device>,
    video: FakeVideo,
    fake: Fake,
    refused: Arc<Mutex<Vec<VideoCodec>>>,
}

impl Rig {
    fn new() -> Self {
        let fake = Fake::new();
        Self {
            stream: fake.stream(),
            device: fake.device(),
            video: FakeVideo::new(&fake),
            fake,
            refused: Arc::default(),
        }
    }

    fn options(&self) -> ImageOptions {
        let refused = Arc::clone(&self.refused);
        ImageOptions {
            video: Some(self.video.open()),
            on_refusal: OnRefusal(Arc::new(move |codec, _| refused.lock().push(codec))),
            ..ImageOptions::default()
        }
    }

    fn sender(&self, make: impl FnMut(usize) -> Option<Batch> + Send + 'static) -> Numbered {
        let source = Made { next: 0, make };
        Sender::start_with(&self.device, source, self.options()).unwrap()
    }

    /// A sender of these batches.
    fn send(&self, batches: impl IntoIterator<Item = Batch>) -> Numbered {
        let mut batches: Vec<_> = batches.into_iter().map(Some).collect();
        self.sender(move |number| batches.get_mut(number).and_then(Option::take))
    }

    fn take(&self, sender: &Numbered) -> Option<Lease> {
        match sender.take(self.stream, LONG).unwrap() {
            Taken::Batch(batch) => Some(batch.lease),
            Taken::End => None,
            Taken::Later => panic!("nothing came for a minute"),
        }
    }

    /// What a kernel that is launched now finds in a batch.
    fn read(&self, lease: &Lease, len: usize) -> Vec<u8> {
        self.fake.bytes(self.stream, lease.address(), len)
    }

    /// Sends films, a batch each, and checks that their frames come; the report.
    fn check(&self, batches: &[Vec<Arc<Film>>]) -> VideoReport {
        let sender = self.send(batches.iter().map(|films| whole(films)));
        for (number, films) in batches.iter().enumerate() {
            let lease = self.take(&sender).unwrap();
            let right = whole_bytes(films);
            assert!(self.read(&lease, right.len()) == right, "batch {number}");
        }
        assert!(self.take(&sender).is_none());
        report(&sender)
    }

    /// Checks that everything was given back.
    fn end(self) {
        drop(self.device);
        assert_eq!(self.video.count(b"fake_video_live\0"), 0);
        assert_eq!(self.video.count(b"fake_video_misuse\0"), 0);
        assert_eq!(self.fake.count("freed"), self.fake.count("allocated"));
        assert_eq!(self.fake.misuse(), [0, 0, 0]);
    }
}

fn report(sender: &Numbered) -> VideoReport {
    sender.report().images.unwrap().video.unwrap()
}

/// A batch of all frames of pages of one size.
fn whole(films: &[Arc<Film>]) -> Batch {
    let frames = films
        .iter()
        .flat_map(|film| (0..film.kept.len()).map(|kept| frame_of(film, kept)));
    let form = form(&mut Dice::new(0), films[0].kept_size(), ImageLayout::Hwc, 1);
    let mut batch = Batch::default();
    batch.add(&form, frames.collect());
    batch
}

/// The bytes of such a batch.
fn whole_bytes(films: &[Arc<Film>]) -> Vec<u8> {
    films
        .iter()
        .flat_map(|film| film.cpu.clone().unwrap())
        .collect()
}

/// Pages of so many frames.
fn films(seeds: std::ops::Range<u8>, frames: usize) -> Vec<Arc<Film>> {
    seeds
        .map(|seed| Arc::new(Film::plain(seed, SIZE, frames)))
        .collect()
}

/// A page with one packet that is something else; its pixels are the CPU's own.
fn odd(what: u8, at: usize, frames: usize) -> Arc<Film> {
    let mut film = Film::plain(200, SIZE, frames).with_other_pixels();
    film.coded[at].what = what;
    Arc::new(film)
}

#[test]
fn pixels_are_those_of_a_naive_twin() {
    let mut dice = Dice::new(11);
    for round in 0..6 {
        let rig = Rig::new();
        rig.video.set(b"fake_video_reuse\0", round % 2);
        let size = (2 * dice.size(4, 20), 2 * dice.size(4, 30));
        let resize = (round > 1).then(|| Arc::new(tables(&mut dice, size)));
        let mut batches = Vec::new();
        for _ in 0..4 {
            let films = (0..dice.size(1, 9)).map(|_| {
                let groups: Vec<usize> = (0..dice.size(1, 4)).map(|_| dice.size(1, 40)).collect();
                let all: usize = groups.iter().sum();
                let start = dice.size(0, all);
                let kept = start..dice.size(start + 1, all + 1);
                let mut film = Film::new(dice.roll(0, 256), size, &groups, kept, resize.clone());
                film.factors = [
                    8192,
                    0,
                    dice.roll(0, 18_000),
                    -2819,
                    -5850,
                    dice.roll(0, 18_000),
                ];
                film.cpu = Ok(film.pixels());
                Arc::new(film)
            });
            batches.push(films.collect());
        }
        let report = rig.check(&batches);
        let frames: usize = batches
            .iter()
            .flatten()
            .map(|film: &Arc<Film>| film.kept.len())
            .sum();
        assert_eq!(
            (report.decoded, report.refused, report.note),
            (frames as u64, 0, None)
        );
        assert_eq!(report.compared.unwrap().largest_difference, 0);
        drop(batches);
        rig.end();
    }
}

#[test]
fn a_page_is_decoded_once_for_all_batches_that_have_its_frames() {
    let rig = Rig::new();
    let all = films(0..6, 7);
    let batches = [all[0..4].to_vec(), all[2..6].to_vec(), all.clone()];
    let report = rig.check(&batches);
    assert_eq!((report.decoded, report.refused), (42, 0));
    // The first page once more for each engine, twice, twice; each page has an image that is not shown.
    let trials = 3 * 2 * 2;
    assert_eq!(rig.video.count(b"fake_video_decoded\0"), (6 + trials) * 8);
    assert_eq!((report.engines, report.decoders), (3, 3));
    assert_eq!(rig.video.count(b"fake_video_created\0"), 3);
    assert!(report.decoder_bytes > 3 * 576 * 16, "{report:?}");
}

#[test]
fn what_is_refused_is_decoded_by_the_cpu_and_nothing_else_is() {
    let rig = Rig::new();
    for (what, why) in [
        (b'X', "cuvidParseVideoData failed"),
        (b'M', "images are shown"),
        (b'T', "after a later one"),
        (b'N', "belongs to no packet"),
        (b'2', "has 2 pictures"),
        (b'D', "is damaged"),
        (b'U', "cuvidMapVideoFrame failed"),
    ] {
        for at in [0, 1, 20] {
            let mut all = films(0..9, 30);
            all[4] = odd(what, at, 30);
            let report = rig.check(&[films(20..21, 3), all, films(9..14, 5)]);
            assert_eq!(
                (report.decoded, report.refused),
                (3 + 240 + 25, 30),
                "{what} {at}"
            );
            let note = report.note.unwrap();
            assert!(note.contains(why), "{note}; not: {why}");
        }
    }
    assert!(rig.refused.lock().is_empty());
    rig.end();
}

#[test]
fn a_picture_that_takes_long_is_waited_for_also_if_it_is_not_kept() {
    let rig = Rig::new();
    let mut film = Film::new(3, SIZE, &[40], 37..40, None);
    film.coded.iter_mut().for_each(|one| one.what = b'S');
    // Damage of a picture that others are made of.
    let mut damaged = Film::new(4, SIZE, &[40], 39..40, None).with_other_pixels();
    damaged.coded[5].what = b'D';
    let report = rig.check(&[films(0..2, 4), vec![Arc::new(film), Arc::new(damaged)]]);
    assert_eq!((report.decoded, report.refused), (8 + 3, 1));
    rig.end();
}

#[test]
fn formats_that_are_not_decoded_here_are_refused_and_then_left_to_the_source() {
    for (what, why) in [
        (b'1', "more than 8 bits"),
        (b'4', "not 4:2:0"),
        (b'I', "interlaced"),
    ] {
        let rig = Rig::new();
        let batches: Vec<_> = (0..3)
            .map(|_| (0..4).map(|_| odd(what, 0, 3)).collect())
            .collect();
        let report = rig.check(&batches);
        assert_eq!((report.decoded, report.refused), (0, 36));
        assert!(report.note.unwrap().contains(why));
        assert!(rig.refused.lock().contains(&VideoCodec::H264));
        assert_eq!(rig.video.count(b"fake_video_created\0"), 0);
        drop(batches);
        rig.end();
    }
}

#[test]
fn a_codec_that_the_device_lacks_is_decoded_by_the_cpu() {
    let rig = Rig::new();
    rig.video.set(b"fake_video_without\0", 8);
    let hevc = |seed| {
        let mut film = Film::plain(seed, SIZE, 3).with_other_pixels();
        film.codec = VideoCodec::Hevc;
        Arc::new(film)
    };
    let mut all = films(0..4, 3);
    all.extend([hevc(4), hevc(5)]);
    let report = rig.check(&[all]);
    assert_eq!((report.decoded, report.refused), (12, 6));
    assert!(report.note.unwrap().contains("does not decode Hevc"));
    assert_eq!(*rig.refused.lock(), [VideoCodec::Hevc]);
    rig.end();
}

#[test]
fn sizes_that_cannot_be_are_decoded_by_the_cpu() {
    let rig = Rig::new();
    for size in [(15, 24), (16, 23), (6, 8), (4098, 8)] {
        let mut film = Film::plain(1, SIZE, 2);
        film.size = size;
        film.cpu = Ok(vec![7; 2 * size.0 * size.1 * 3]);
        let report = rig.check(&[vec![Arc::new(film)]]);
        assert_eq!((report.decoded, report.refused), (0, 2), "{size:?}");
    }
    rig.end();
}

#[test]
fn if_the_first_page_differs_from_the_cpus_all_of_its_kind_are_the_cpus() {
    let rig = Rig::new();
    let all: Vec<_> = (0..6)
        .map(|seed| {
            let mut film = Film::plain(seed, SIZE, 3);
            *film.cpu.as_mut().unwrap().last_mut().unwrap() ^= 1;
            Arc::new(film)
        })
        .collect();
    let report = rig.check(&[all[..4].to_vec(), all[4..].to_vec()]);
    assert_eq!((report.decoded, report.refused), (0, 18));
    assert_eq!(report.compared.unwrap().largest_difference, 1);
    assert!(report.note.unwrap().contains("not the CPU's"));
    assert_eq!(rig.refused.lock()[0], VideoCodec::H264);
    drop(all);
    rig.end();
}

#[test]
fn streams_whose_parameter_sets_change_get_other_decoders() {
    let rig = Rig::new();
    let more = |seed| {
        let mut film = Film::plain(seed, SIZE, 9);
        film.coded[0].what = b'B';
        Arc::new(film)
    };
    let mixed: Vec<_> = (0..8)
        .flat_map(|seed| [more(seed), Arc::new(Film::plain(seed + 50, SIZE, 9))])
        .collect();
    let report = rig.check(&[films(90..92, 2), mixed]);
    assert_eq!((report.decoded, report.refused), (4 + 144, 0), "{report:?}");
    rig.end();
}

#[test]
fn with_memory_for_few_decoders_it_takes_longer() {
    for most in [0, 1, 2] {
        let rig = Rig::new();
        rig.video.set(b"fake_video_limit\0", most);
        let report = rig.check(&[films(0..9, 4), films(9..20, 4)]);
        let decoded = if most == 0 { 0 } else { 80 };
        assert_eq!((report.decoded, report.refused), (decoded, 80 - decoded));
        assert_eq!(report.decoders as i64, most);
        rig.end();
    }
}

#[test]
fn without_a_status_pages_are_decoded_all_the_same() {
    let rig = Rig::new();
    rig.video.set(b"fake_video_without_status\0", 1);
    let report = rig.check(&[films(0..9, 4)]);
    assert_eq!((report.decoded, report.refused), (36, 0));
}

#[test]
fn a_page_that_nothing_decodes_is_an_error_with_its_text() {
    let rig = Rig::new();
    let mut film = Film::plain(1, SIZE, 2);
    film.coded[0].what = b'X';
    film.cpu = Err("page 3 of stream `wrist` is damaged".to_owned());
    match rig.send([whole_of(Arc::new(film))]).take(rig.stream, LONG) {
        Err(SendError::Cuda(error @ CudaError::Image { .. })) => {
            assert!(error.to_string().contains("page 3 of stream"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    rig.end();
}

/// A batch of two frames of a page whose pixels are not known.
fn whole_of(film: Arc<Film>) -> Batch {
    let mut batch = Batch::default();
    let form = form(&mut Dice::new(0), film.size, ImageLayout::Hwc, 1);
    batch.add(&form, vec![frame_of(&film, 0), frame_of(&film, 1)]);
    batch
}

#[test]
fn without_nvdec_the_cpu_decodes_and_jpeg_is_as_before() {
    let rig = Rig::new();
    let jpeg = FakeJpeg::new(&rig.fake);
    let still = Arc::new(Still::new(b'P', 9, SIZE, None));
    let film = Arc::new(Film::plain(1, SIZE, 2).with_other_pixels());
    let mut batch = whole(std::slice::from_ref(&film));
    let form = form(&mut Dice::new(0), SIZE, ImageLayout::Hwc, 1);
    let at = batch.add(&form, vec![placed(&still, 0, 0)]);
    let batch = Mutex::new(Some(batch));
    let options = ImageOptions {
        jpeg: Some(jpeg.open()),
        ..ImageOptions::default()
    };
    let make = move |_| batch.lock().take();
    let source = Made { next: 0, make };
    let sender: Numbered = Sender::start_with(&rig.device, source, options).unwrap();
    let lease = rig.take(&sender).unwrap();
    let found = rig.read(&lease, at + still.cpu.as_ref().unwrap().len());
    assert!(found.starts_with(&whole_bytes(&[film])));
    assert_eq!(found[at..], still.cpu.clone().unwrap());
    assert!(rig.take(&sender).is_none());
    let report = sender.report().images.unwrap();
    assert_eq!((report.decoded, report.refused, report.video), (1, 2, None));
}

#[test]
fn frames_that_are_gone_make_room() {
    let rig = Rig::new();
    let make = |number: usize| (number < 60).then(|| whole(&films(0..6, 20)));
    let sender = rig.sender(make);
    let right = whole_bytes(&films(0..6, 20));
    while let Some(lease) = rig.take(&sender) {
        assert!(rig.read(&lease, right.len()) == right);
    }
    let images = sender.report().images.unwrap();
    assert!(images.peak_bytes <= 8 << 20, "{images:?}");
    let video = images.video.unwrap();
    assert_eq!((video.decoded, video.decoders), (60 * 120, 3));
    drop(sender);
    rig.end();
}

#[test]
fn kinds_that_are_many_take_turns() {
    let rig = Rig::new();
    let sizes: Vec<_> = (4..24).map(|side| (2 * side, 16)).collect();
    for _ in 0..2 {
        for &size in &sizes {
            let film = |seed| Arc::new(Film::plain(seed, size, 3));
            let films: Vec<_> = (0..4).map(film).collect();
            let report = rig.check(&[films]);
            assert_eq!((report.decoded, report.refused), (12, 0));
        }
    }
    let batches = sizes
        .iter()
        .map(|&size| whole(&[Arc::new(Film::plain(1, size, 3))]));
    let sender = rig.send(batches);
    while rig.take(&sender).is_some() {}
    assert_eq!(report(&sender).decoders, 16);
    drop(sender);
    rig.end();
}

#[test]
fn closing_ends_the_thread_at_any_point() {
    for taken in 0..4 {
        let rig = Rig::new();
        let sender = rig.sender(|number| Some(whole(&films(0..(number % 7) as u8 + 1, 9))));
        let held: Vec<_> = (0..taken).map_while(|_| rig.take(&sender)).collect();
        sender.close();
        assert!(rig.take(&sender).is_none());
        drop((held, sender));
        rig.end();
    }
}

#[test]
fn decoders_that_die_in_a_forked_process_give_nothing_back() {
    let rig = Rig::new();
    let all = films(0..5, 6);
    let sender = rig.send([whole(&all), whole(&all)]);
    let lease = rig.take(&sender).unwrap();
    let other = rig.take(&sender).unwrap();
    let freed = rig.fake.count("freed");
    let dropped = (sender, lease, all.clone());
    assert!(fake::holds_in_fork(|| {
        drop((dropped, all));
        rig.fake.count("freed") == freed && rig.video.count(b"fake_video_misuse\0") == 0
    }));
    let right = whole_bytes(&films(0..5, 6));
    assert!(rig.read(&other, right.len()) == right);
}
