//! Images of batches, against an nvJPEG and a driver that do everything too early or too late; pixels against a naive twin.
//!
//! ```text
//! Still ──▶ Batch ──▶ Sender ──▶ fake nvJPEG, the kernels as plain C ──▶ bytes of the slot == wanted()
//! ```
//!
//! Each of the two waits around nvJPEG (`self.read.synchronize()` in `images/place.rs`, `self.done.synchronize()` in `jpeg.rs`)
//! was removed alone: `a_file_that_nvjpeg_refuses_is_decoded_by_the_cpu` failed each time, and others.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test fails by panicking"
)]

mod fake;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fake::Fake;
use fake::images::{Batch, Dice, Made, Still, form, placed, tables, wanted};
use fake::jpeg::FakeJpeg;
use kino_cuda::{
    CudaError, Device, Engine, ImageArray, ImageForm, ImageLayout, ImageOptions, ImageReport,
    Lease, Numbers, PlacedImage, ResizeTables, SendError, Sender, StreamHandle, Taken, Taps,
};
use kino_sync::Mutex;

const LONG: Duration = Duration::from_secs(60);

type Numbered = Sender<usize, String>;

/// A fake driver and a fake nvJPEG.
struct Rig {
    stream: StreamHandle,
    device: Arc<Device>,
    jpeg: FakeJpeg,
    fake: Fake,
}

impl Rig {
    fn new() -> Self {
        let fake = Fake::new();
        Self {
            stream: fake.stream(),
            device: fake.device(),
            jpeg: FakeJpeg::new(&fake),
            fake,
        }
    }

    fn options(&self) -> ImageOptions {
        ImageOptions {
            jpeg: Some(self.jpeg.open()),
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

    /// What is wrong with a batch.
    fn error(&self, batch: Batch) -> CudaError {
        match self.send([batch]).take(self.stream, LONG) {
            Err(SendError::Cuda(error)) => error,
            other => panic!("{other:?}"),
        }
    }

    /// What a kernel that is launched now finds in a batch.
    fn read(&self, lease: &Lease, offset: usize, len: usize) -> Vec<u8> {
        self.fake
            .bytes(self.stream, lease.address() + offset as u64, len)
    }

    /// Checks that everything was given back.
    fn end(self) {
        drop(self.device);
        assert_eq!(self.jpeg.count(b"fake_jpeg_live\0"), 0);
        assert_eq!(self.jpeg.count(b"fake_jpeg_misuse\0"), 0);
        assert_eq!(self.fake.count("freed"), self.fake.count("allocated"));
        assert_eq!(self.fake.count("modules"), 0);
        assert_eq!(self.fake.misuse(), [0, 0, 0]);
    }
}

fn report(sender: &Numbered) -> ImageReport {
    sender.report().images.unwrap()
}

/// uint8, HWC.
fn bytes_form(size: (usize, usize)) -> Arc<ImageForm> {
    form(&mut Dice::new(0), size, ImageLayout::Hwc, 1)
}

/// A batch of whole images of one size.
fn whole(stills: &[Arc<Still>]) -> Batch {
    let mut batch = Batch::default();
    batch.add(
        &bytes_form(stills[0].kept()),
        stills.iter().map(|still| placed(still, 0, 0)).collect(),
    );
    batch
}

/// The bytes of such a batch.
fn whole_bytes(stills: &[Arc<Still>]) -> Vec<u8> {
    stills
        .iter()
        .flat_map(|still| still.cpu.clone().unwrap())
        .collect()
}

fn stills(seeds: std::ops::Range<u8>, size: (usize, usize)) -> Vec<Arc<Still>> {
    seeds
        .map(|seed| Arc::new(Still::new(b'P', seed, size, None)))
        .collect()
}

#[test]
fn pixels_are_those_of_a_naive_twin() {
    let rig = Rig::new();
    let dice = &mut Dice::new(7);
    let mut batches = Vec::new();
    let mut right = Vec::new();
    for _ in 0..12 {
        // Cameras of several sizes, each with tables of its own or as it is.
        let mut all: Vec<Arc<Still>> = Vec::new();
        for _ in 0..dice.size(1, 4) {
            // Often as the one before: then they are decoded together.
            let stored = match all.last() {
                Some(before) if dice.size(0, 2) == 0 => before.stored,
                _ => (dice.size(1, 24), dice.size(1, 24)),
            };
            let resize = (dice.size(0, 4) > 0).then(|| Arc::new(tables(dice, stored)));
            for _ in 0..dice.size(1, 40) {
                let what = [b'P', b'P', b'P', b'U', b'E'][dice.size(0, 5)];
                let seed = dice.roll(0, 251);
                all.push(Arc::new(Still::new(what, seed, stored, resize.clone())));
            }
        }
        let mut batch = Batch {
            bytes: vec![dice.roll(0, 256); dice.size(0, 700)],
            images: Vec::new(),
            device_bytes: 0,
        };
        let mut parts = vec![(0, batch.bytes.clone())];
        for bytes in [1, 2, 4] {
            for layout in [ImageLayout::Hwc, ImageLayout::Chw] {
                let least =
                    |side: fn(&Still) -> usize| all.iter().map(|still| side(still)).min().unwrap();
                let (height, width) =
                    (least(|still| still.kept().0), least(|still| still.kept().1));
                let size = (dice.size(1, height + 1), dice.size(1, width + 1));
                let form = form(dice, size, layout, bytes);
                let mut crops = Vec::new();
                for _ in 0..dice.size(0, 300) {
                    let still = &all[dice.size(0, all.len())];
                    let top = dice.size(0, still.kept().0 - size.0 + 1);
                    let left = dice.size(0, still.kept().1 - size.1 + 1);
                    crops.push((dice.size(0, 8) > 0).then_some((still, top, left)));
                }
                let images = crops
                    .iter()
                    .map(|crop| crop.and_then(|(still, top, left)| placed(still, top, left)));
                let offset = batch.add(&form, images.collect());
                let crops: Vec<_> = crops
                    .iter()
                    .map(|crop| crop.map(|(still, top, left)| (&**still, top, left)))
                    .collect();
                parts.push((offset, wanted(&form, &crops)));
            }
        }
        batches.push(batch);
        right.push(parts);
    }
    let sender = rig.send(batches);
    for parts in &right {
        let lease = rig.take(&sender).unwrap();
        for (offset, right) in parts {
            assert!(
                rig.read(&lease, *offset, right.len()) == *right,
                "array at {offset}"
            );
        }
    }
    assert!(rig.take(&sender).is_none());
    let report = report(&sender);
    assert!(
        report.decoded > 50 && report.refused > 10 && report.uploaded > 10,
        "{report:?}"
    );
    assert_eq!(rig.fake.misuse(), [0, 0, 0]);
    drop(sender);
    rig.end();
}

#[test]
fn an_image_of_several_samples_and_batches_is_decoded_once() {
    let rig = Rig::new();
    let all = stills(0..5, (7, 9));
    let turns = [
        &all[0..4],
        &all[1..5],
        &[0, 0, 4, 0].map(|idx| Arc::clone(&all[idx])),
    ];
    let sender = rig.send(turns.map(whole));
    for turn in turns {
        let lease = rig.take(&sender).unwrap();
        let right = whole_bytes(turn);
        assert_eq!(rig.read(&lease, 0, right.len()), right);
    }
    assert!(rig.take(&sender).is_none());
    let report = report(&sender);
    assert_eq!((report.decoded, report.refused, report.uploaded), (5, 0, 0));
    // Four of them once more, to compare.
    assert_eq!(rig.jpeg.count(b"fake_jpeg_decoded\0"), 9);
}

#[test]
fn images_that_are_gone_make_room() {
    let rig = Rig::new();
    let size = (200, 300);
    // Nothing but the batch has its images.
    let make = move |number: usize| {
        let seed = number as u8 * 2;
        (number < 100).then(|| whole(&stills(seed..seed + 2, size)))
    };
    let sender = rig.sender(make);
    let mut before = None;
    for number in 0..100 {
        let lease = rig.take(&sender).unwrap();
        let right = whole_bytes(&stills(number * 2..number * 2 + 2, size));
        assert!(rig.read(&lease, 0, right.len()) == right, "batch {number}");
        drop(before.replace(lease));
    }
    assert!(rig.take(&sender).is_none());
    let report = report(&sender);
    assert_eq!(report.decoded, 200);
    assert!(
        report.bytes == report.peak_bytes && report.bytes <= 8 << 20,
        "{report:?}"
    );
    drop((before, sender));
    rig.end();
}

#[test]
fn images_that_are_kept_stay_as_they_are() {
    let rig = Rig::new();
    let kept = stills(0..40, (60, 50));
    let again = kept.clone();
    let make = move |number: usize| match number {
        0 | 30 => Some(whole(&again)),
        1..30 => Some(whole(&stills(number as u8..number as u8 + 9, (60, 50)))),
        _ => None,
    };
    let sender = rig.sender(make);
    let right = whole_bytes(&kept);
    for number in 0..31 {
        let lease = rig.take(&sender).unwrap();
        if matches!(number, 0 | 30) {
            assert!(rig.read(&lease, 0, right.len()) == right, "batch {number}");
        }
    }
    // They outlive the sender, and go back behind it.
    drop(sender);
    drop(kept);
    rig.end();
}

#[test]
fn a_file_that_nvjpeg_refuses_is_decoded_by_the_cpu() {
    let rig = Rig::new();
    let mut all = stills(0..30, (5, 8));
    for broken in [3, 4, 29] {
        all[broken] = Arc::new(Still::new(b'E', 200, (5, 8), None));
    }
    // A file of another size than it is said to have.
    let mut liar = Still::new(b'P', 77, (5, 8), None);
    liar.content = fake::jpeg::file(b'P', 77, (500, 800));
    all[11] = Arc::new(liar);
    let sender = rig.send([whole(&all)]);
    let lease = rig.take(&sender).unwrap();
    let right = whole_bytes(&all);
    assert_eq!(rig.read(&lease, 0, right.len()), right);
    assert!(rig.take(&sender).is_none());
    let report = report(&sender);
    assert_eq!((report.decoded, report.refused), (26, 4));
}

#[test]
fn files_of_a_kind_that_an_engine_does_not_know_are_not_given_to_it_for_ever() {
    for (what, decoded, engine) in [(b'Q', 180, Engine::Default), (b'E', 0, Engine::Default)] {
        let rig = Rig::new();
        let all = move |number: u8| {
            let still = |seed| Arc::new(Still::new(what, seed, (3, 4), None));
            (0..20)
                .map(|seed| still(number * 20 + seed))
                .collect::<Vec<_>>()
        };
        let sender = rig.sender(move |number| (number < 10).then(|| whole(&all(number as u8))));
        for number in 0..10 {
            let lease = rig.take(&sender).unwrap();
            let right = whole_bytes(&all(number));
            assert_eq!(rig.read(&lease, 0, right.len()), right);
        }
        assert!(rig.take(&sender).is_none());
        let report = report(&sender);
        assert_eq!((report.decoded, report.refused), (decoded, 200 - decoded));
        assert_eq!(report.engine, Some(engine));
        // Each engine tries a batch in halves once.
        let tried = rig.jpeg.count(b"fake_jpeg_initialized\0");
        assert!(tried < 80, "{tried}");
        drop(sender);
        rig.end();
    }
}

#[test]
fn a_file_that_nothing_decodes_is_an_error_with_its_text() {
    let rig = Rig::new();
    let mut broken = Still::new(b'E', 1, (5, 8), None);
    broken.cpu = Err("frame 3 of stream `wrist` is damaged".to_owned());
    let error = rig.error(whole(&[Arc::new(broken)]));
    assert!(matches!(error, CudaError::Image { .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .contains("frame 3 of stream `wrist` is damaged"),
        "{error}"
    );
    rig.end();
}

#[test]
fn the_first_images_are_compared() {
    let rig = Rig::new();
    let mut all = stills(0..20, (6, 6));
    // As another decoder rounds.
    let mut other = Still::new(b'P', 2, (6, 6), None);
    other.cpu.as_mut().unwrap()[17] += 3;
    all[2] = Arc::new(other);
    let sender = rig.send([whole(&all), whole(&stills(0..9, (6, 6)))]);
    while rig.take(&sender).is_some() {}
    let compared = report(&sender).compared.unwrap();
    assert_eq!((compared.images, compared.largest_difference), (8, 3));
    assert!(compared.cpu_s > 0.0 && compared.gpu_s > 0.0, "{compared:?}");
    assert_eq!(report(&sender).engine, Some(Engine::Hardware));
    assert_eq!(report(&sender).version.as_deref(), Some("13.1.2"));
}

#[test]
fn the_error_of_a_full_device_names_the_option() {
    let rig = Rig::new();
    rig.fake.set(b"fake_limit\0", 3_000_000);
    let kept = stills(0..200, (100, 100));
    let again = kept.clone();
    let sender = rig.sender(move |number| Some(whole(&again[number * 4..number * 4 + 4])));
    let error = loop {
        match sender.take(rig.stream, LONG) {
            Ok(Taken::Batch(batch)) => drop(batch.lease),
            Err(error) => break error,
            other => panic!("{other:?}"),
        }
    };
    let SendError::Cuda(error @ CudaError::ImageMemory { bytes, held }) = error else {
        panic!("{error:?}");
    };
    assert!(
        (30_000..31_000).contains(&bytes) && held > 1_000_000,
        "{error:?}"
    );
    assert!(error.to_string().contains("memory="), "{error}");
}

#[test]
fn memory_of_images_that_are_gone_is_given_to_images_of_another_size_and_to_batches() {
    let rig = Rig::new();
    rig.fake.set(b"fake_limit\0", 6_000_000);
    let sizes = [(100, 200), (300, 300), (50, 60), (640, 480), (300, 300)];
    let sender =
        rig.sender(move |number| sizes.get(number).map(|&size| whole(&stills(0..1, size))));
    for size in sizes {
        let lease = rig.take(&sender).unwrap();
        let right = whole_bytes(&stills(0..1, size));
        assert!(rig.read(&lease, 0, right.len()) == right, "{size:?}");
    }
}

/// A batch of one array at a byte.
fn array(form: ImageForm, images: Vec<Option<PlacedImage>>, offset: usize) -> Batch {
    let form = Arc::new(form);
    Batch {
        bytes: vec![1; 300],
        images: vec![ImageArray {
            offset,
            images,
            form,
        }],
        device_bytes: 2048,
    }
}

fn chw(size: (usize, usize), numbers: Numbers) -> ImageForm {
    ImageForm {
        size,
        layout: ImageLayout::Chw,
        numbers,
    }
}

#[test]
fn arrays_that_cannot_be_are_errors() {
    let rig = Rig::new();
    let at = |top, left| vec![placed(&stills(1..2, (10, 20))[0], top, left)];
    let small = || chw((2, 3), Numbers::Bytes);
    let table = |bytes, len| {
        chw(
            (2, 3),
            Numbers::Table {
                bytes,
                table: vec![0; len],
            },
        )
    };
    let huge = |side| chw((side, side), Numbers::Bytes);
    let mut short = Still::new(b'U', 1, (10, 20), None);
    short.content.pop();
    for (batch, says) in [
        (array(small(), at(0, 0), 0), "behind the first 300"),
        (array(small(), at(0, 0), 513), "multiple of 256"),
        (array(small(), at(0, 0), 2048), "batch of 2048 bytes"),
        (array(small(), at(0, 0), usize::MAX - 255), "is not inside"),
        (array(huge(usize::MAX), at(0, 0), 512), "is not inside"),
        (array(huge(1 << 16), vec![], 512), "is not inside"),
        (array(small(), at(9, 0), 512), "outside of 10 × 20"),
        (array(small(), at(0, 18), 512), "outside of 10 × 20"),
        (array(small(), at(usize::MAX, 0), 512), "outside of 10 × 20"),
        (
            array(table(4, 3071), at(0, 0), 512),
            "a table of 3071 bytes",
        ),
        (array(table(3, 2304), at(0, 0), 512), "numbers of 3 bytes"),
        (
            array(table(usize::MAX, 0), at(0, 0), 512),
            "a table of 0 bytes",
        ),
        (
            array(small(), vec![placed(&Arc::new(short), 0, 0)], 512),
            "599 bytes are not 10 × 20 pixels",
        ),
    ] {
        let error = rig.error(batch);
        assert!(matches!(error, CudaError::Image { .. }), "{error:?}");
        assert!(error.to_string().contains(says), "{error}; not: {says}");
    }
    rig.end();
}

#[test]
fn tables_of_a_resize_that_read_or_write_outside_are_errors() {
    let rig = Rig::new();
    let kept = |height, width| ResizeTables {
        horizontal: None,
        vertical: None,
        kept: (height, width),
        top: 0,
        left: 0,
    };
    let taps = |precision, taps, starts: &[u32], coefficients: &[i16]| {
        let (starts, coefficients) = (starts.to_vec(), coefficients.to_vec());
        let horizontal = Some(Taps {
            precision,
            taps,
            starts,
            coefficients,
        });
        ResizeTables {
            horizontal,
            ..kept(10, 1)
        }
    };
    for (tables, says) in [
        (kept(11, 20), "11 pixels from 0 on, of 10"),
        (
            ResizeTables {
                left: 2,
                ..kept(10, 19)
            },
            "19 pixels from 2 on, of 20",
        ),
        (kept(0, 20), "0 × 20 pixels"),
        (kept(usize::MAX, 20), "pixels are too many"),
        (taps(2, 2, &[20], &[2, 2]), "pixel 20 of 20"),
        (taps(2, 2, &[0, 1], &[2, 2]), "2 starts"),
        (taps(2, 2, &[0], &[2, 2, 2]), "3 coefficients"),
        (taps(2, 0, &[0], &[]), "of 0 taps"),
        (taps(0, 2, &[0], &[2, 2]), "too large"),
        (taps(31, 2, &[0], &[2, 2]), "too large"),
        (taps(32, 2, &[0], &[2, 2]), "too large"),
        (taps(8, 400, &[0], &[i16::MAX; 400]), "too large"),
    ] {
        let mut still = Still::new(b'P', 1, (10, 20), None);
        still.resize = Some(Arc::new(tables));
        let images = vec![placed(&Arc::new(still), 0, 0)];
        let error = rig.error(array(chw((1, 1), Numbers::Bytes), images, 512));
        assert!(matches!(error, CudaError::Image { .. }), "{error:?}");
        assert!(error.to_string().contains(says), "{error}; not: {says}");
    }
    rig.end();
}

/// Page-locked pixels: the driver reads them when the stream comes to the copy.
fn pinned(rig: &Rig, seed: u8, size: (usize, usize)) -> Arc<Still> {
    let mut still = Still::new(b'U', seed, size, None);
    still.pinned = Some(rig.device.pin(&mut still.content).unwrap());
    Arc::new(still)
}

#[test]
fn pixels_are_kept_until_they_are_copied_also_after_an_error() {
    let rig = Rig::new();
    let mut broken = Still::new(b'E', 1, (5, 8), None);
    broken.cpu = Err("frame 3 is damaged".to_owned());
    let all = [
        pinned(&rig, 1, (5, 8)),
        pinned(&rig, 2, (5, 8)),
        Arc::new(broken),
    ];
    let batch = whole(&all);
    drop(all);
    let error = rig.error(batch);
    assert!(error.to_string().contains("frame 3 is damaged"), "{error}");
    rig.end();
}

#[test]
fn pixels_are_kept_until_they_are_copied_also_if_the_sender_is_closed() {
    let rig = Rig::new();
    // There is memory for one batch, and for images.
    rig.fake.set(b"fake_limit\0", 150_000);
    let made = Arc::new(AtomicUsize::new(0));
    let mut batches: Vec<Option<Batch>> = (0..2)
        .map(|number| {
            let mut batch = whole(&[pinned(&rig, number, (10, 10))]);
            batch.device_bytes = 100_000;
            Some(batch)
        })
        .collect();
    let count = Arc::clone(&made);
    let sender = rig.sender(move |number| {
        count.fetch_add(1, Ordering::SeqCst);
        batches.get_mut(number).and_then(Option::take)
    });
    let lease = rig.take(&sender).unwrap();
    while made.load(Ordering::SeqCst) < 2 || rig.fake.count("copies") < 3 {
        std::thread::yield_now();
    }
    // The second batch waits for memory that is not given back.
    sender.close();
    drop((lease, sender));
    rig.end();
}

#[test]
fn images_need_a_sender_that_takes_them() {
    let rig = Rig::new();
    let batch = Mutex::new(Some(whole(&stills(0..2, (4, 4)))));
    let source = Made {
        next: 0,
        make: move |_| batch.lock().take(),
    };
    let sender: Numbered = Sender::start(&rig.device, source).unwrap();
    match sender.take(rig.stream, LONG) {
        Err(SendError::Cuda(error @ CudaError::Image { .. })) => {
            assert!(
                error.to_string().contains("nothing to decode them with"),
                "{error}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_image_of_another_sender_is_an_error() {
    let rig = Rig::new();
    let all = stills(0..2, (4, 4));
    let first = rig.send([whole(&all)]);
    assert!(rig.take(&first).is_some());
    let text = rig.error(whole(&all)).to_string();
    assert!(text.contains("another loader"), "{text}");
}

#[test]
fn images_that_die_in_a_forked_process_give_nothing_back() {
    let rig = Rig::new();
    let all = stills(0..9, (40, 50));
    let sender = rig.send([whole(&all), whole(&all)]);
    let lease = rig.take(&sender).unwrap();
    let other = rig.take(&sender).unwrap();
    assert!(rig.take(&sender).is_none());
    let dropped = (sender, lease, all.clone());
    let freed = rig.fake.count("freed");
    assert!(fake::holds_in_fork(|| {
        all.iter()
            .for_each(|still| assert!(still.place.get().is_some()));
        drop((dropped, all));
        rig.fake.count("freed") == freed && rig.jpeg.count(b"fake_jpeg_live\0") == 0
    }));
    let right = whole_bytes(&stills(0..9, (40, 50)));
    assert_eq!(rig.read(&other, 0, right.len()), right);
}

#[test]
fn closing_ends_the_thread_at_any_point() {
    for taken in 0..5 {
        let rig = Rig::new();
        let sender =
            rig.sender(|number| Some(whole(&stills(0..(number % 90) as u8 + 1, (30, 40)))));
        let held: Vec<_> = (0..taken).map_while(|_| rig.take(&sender)).collect();
        sender.close();
        assert!(rig.take(&sender).is_none());
        drop((held, sender));
        rig.end();
    }
}
