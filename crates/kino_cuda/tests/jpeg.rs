//! The JPEG decoder against an nvJPEG that starts too early and ends too late, as the engine in hardware does.
//!
//! ```text
//! file: height, width, seed ──▶ JpegSlots::decode ──▶ a kernel of the test reads the slot: byte k is (seed + k) mod 251
//! ```
//!
//! nvJPEG is `fake_nvjpeg.c` on top of the driver `fake_cuda.c`, both compiled by the C compiler, anew for each test.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fake;

use std::path::PathBuf;
use std::sync::Arc;

use fake::jpeg::{FakeJpeg, file, pixels_of};
use fake::{Fake, sum_of};
use kino_cuda::{
    CudaError, Device, Engine, JpegDecoder, JpegSlots, Lease, Nvjpeg, Result, StreamHandle,
};

const SIZE: (usize, usize) = (6, 5);

/// A fake driver, a fake nvJPEG on it, and a decoder.
struct Rig {
    slots: JpegSlots,
    decoder: JpegDecoder,
    device: Arc<Device>,
    stream: StreamHandle,
    /// Files that nothing may read any more.
    gone: Vec<Vec<Vec<u8>>>,
    jpeg: FakeJpeg,
    fake: Fake,
}

impl Rig {
    fn new() -> Self {
        let fake = Fake::new();
        let jpeg = FakeJpeg::new(&fake);
        let device = fake.device();
        Self {
            slots: JpegSlots::new(&device),
            decoder: JpegDecoder::open(&device, jpeg.open()).unwrap(),
            device,
            stream: fake.stream(),
            gone: Vec::new(),
            jpeg,
            fake,
        }
    }

    fn decode(&mut self, files: &[Vec<u8>], size: (usize, usize)) -> Result<Lease> {
        let mut files = files.to_vec();
        let borrowed: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
        let lease = self
            .slots
            .decode(&mut self.decoder, &borrowed, size, self.stream);
        // Who still reads them finds another image.
        files.iter_mut().for_each(|file| file[3] ^= 0x55);
        self.gone.push(files);
        lease
    }

    /// What a kernel that is launched now and runs now finds in a slot.
    fn read_now(&self, lease: &Lease, bytes: usize) -> u64 {
        let mut sum = 0;
        self.fake
            .read(self.stream, lease.address(), bytes, &mut sum);
        self.fake.run(self.stream);
        sum
    }

    /// Drops everything, and checks that all of it was given back.
    fn end(self) {
        let Self {
            slots,
            decoder,
            device,
            jpeg,
            fake,
            ..
        } = self;
        drop((slots, decoder, device));
        assert_eq!(jpeg.count(b"fake_jpeg_live\0"), 0);
        assert_eq!(jpeg.count(b"fake_jpeg_misuse\0"), 0);
        assert_eq!(fake.count("freed"), fake.count("allocated"));
        assert_eq!(fake.misuse(), [0, 0, 0]);
    }
}

/// Files of frames of a size.
fn files(seeds: &[u8], (height, width): (usize, usize)) -> Vec<Vec<u8>> {
    let size = (height.try_into().unwrap(), width.try_into().unwrap());
    seeds.iter().map(|&seed| file(b'P', seed, size)).collect()
}

/// The pixels of those frames.
fn pixels(seeds: &[u8], size: (usize, usize)) -> Vec<u8> {
    seeds
        .iter()
        .flat_map(|&seed| pixels_of(seed, size))
        .collect()
}

#[test]
fn each_frame_is_in_its_place_once_the_batch_is_handed_over() {
    let mut rig = Rig::new();
    let mut held = Vec::new();
    // Other numbers of frames and other sizes, with batches before them still held.
    for (seeds, size) in [
        (&[1_u8, 2, 3, 4] as &[u8], SIZE),
        (&[9, 8, 7, 6], SIZE),
        (&[40], SIZE),
        (&[5; 30], (480, 6)),
        (&[250, 0], (1, 1)),
        (&[], SIZE),
    ] {
        let wanted = pixels(seeds, size);
        let lease = rig.decode(&files(seeds, size), size).unwrap();
        assert_eq!(rig.read_now(&lease, wanted.len()), sum_of(&wanted));
        held.push((lease, wanted));
    }
    for (lease, wanted) in &held {
        assert_eq!(rig.read_now(lease, wanted.len()), sum_of(wanted));
    }
    // The second batch has as many frames as the first one, the last has none.
    assert_eq!(rig.jpeg.count(b"fake_jpeg_initialized\0"), 4);
    drop(held);
    rig.end();
}

#[test]
fn a_slot_is_not_decoded_into_while_a_kernel_reads_it() {
    let mut rig = Rig::new();
    let mut sums = [0; 40];
    let mut wanted = Vec::new();
    for (seed, sum) in (0..).zip(&mut sums) {
        let seeds = [seed, seed + 100];
        let lease = rig.decode(&files(&seeds, SIZE), SIZE).unwrap();
        let right = pixels(&seeds, SIZE);
        // Queued: it runs when something waits for it.
        rig.fake.read(rig.stream, lease.address(), right.len(), sum);
        wanted.push(sum_of(&right));
    }
    rig.fake.synchronize();
    assert_eq!(sums.as_slice(), wanted);
    assert_eq!(rig.fake.count("allocated"), 1, "one slot was reused");
    rig.end();
}

#[test]
fn an_error_of_the_library_is_named_and_the_next_batch_is_decoded() {
    let mut rig = Rig::new();
    let seeds = [3, 4, 5];
    let mut broken = files(&seeds, SIZE);
    broken[2] = file(b'E', 5, (6, 5));
    let error = rig.decode(&broken, SIZE).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("nvjpegDecodeBatched"), "{text}");
    assert!(text.contains("NVJPEG_STATUS_EXECUTION_FAILED"), "{text}");
    assert!(text.contains("decode on the CPU"), "{text}");
    // The two frames before it were started: their files and places were waited for.
    assert_eq!(rig.jpeg.count(b"fake_jpeg_pending\0"), 0);
    let lease = rig.decode(&files(&seeds, SIZE), SIZE).unwrap();
    let wanted = pixels(&seeds, SIZE);
    assert_eq!(rig.read_now(&lease, wanted.len()), sum_of(&wanted));
    drop(lease);
    assert_eq!(rig.fake.count("allocated"), 1, "the slot was free again");
    rig.end();
}

#[test]
fn a_file_that_is_not_a_jpeg_of_the_size_is_an_error_before_anything_is_decoded() {
    let mut rig = Rig::new();
    let good = file(b'P', 1, (6, 5));
    for (bad, says) in [
        (file(b'P', 1, (5, 6)), "frame 1 is 5×6, not 6×5"),
        (file(b'P', 1, (-6, -5)), "frame 1 is 0×0, not 6×5"),
        (
            file(b'P', 1, (i32::MAX, i32::MAX)),
            "frame 1 is 2147483647×2147483647",
        ),
        (good[..9].to_vec(), "NVJPEG_STATUS_BAD_JPEG"),
        (
            b"\xff\xd8\xff\xe0 and more".to_vec(),
            "NVJPEG_STATUS_BAD_JPEG",
        ),
    ] {
        let error = rig.decode(&[good.clone(), bad], SIZE).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(rig.jpeg.count(b"fake_jpeg_initialized\0"), 0);
    let lease = rig.decode(&[good], SIZE).unwrap();
    let wanted = pixels(&[1], SIZE);
    assert_eq!(rig.read_now(&lease, wanted.len()), sum_of(&wanted));
    drop(lease);
    rig.end();
}

#[test]
fn sizes_that_cannot_be_are_errors() {
    let mut rig = Rig::new();
    let files = files(&[1, 2, 3, 4], SIZE);
    let half = usize::MAX / 2;
    for size in [
        (usize::MAX, usize::MAX),
        (usize::MAX, 1),
        (1, usize::MAX),
        (1, usize::MAX / 3),
        (half, 1),
        // The bytes of a row, of a frame, of all frames: small, but not zero, if the product wraps around.
        (1, usize::MAX / 3 + 1),
        (usize::MAX / 3 + 1, 1),
        (1, (1 << 62) / 3 + 1),
        (0, usize::MAX),
        (0, 5),
        (6, 0),
    ] {
        let error = rig.decode(&files, size).unwrap_err();
        let says = format!("4 frames of {}×{} cannot be in memory", size.0, size.1);
        assert!(error.to_string().contains(&says), "{error}");
    }
    rig.fake.set(b"fake_limit\0", 1000);
    let error = rig.decode(&files, (1 << 15, 1 << 15)).unwrap_err();
    let bytes = 12 << 30;
    assert!(
        matches!(error, CudaError::OutOfMemory { bytes: found, .. } if found == bytes),
        "{error:?}"
    );
    rig.end();
}

#[test]
fn slots_of_another_size_make_room() {
    let mut rig = Rig::new();
    rig.fake.set(b"fake_limit\0", 4000);
    for (height, width) in [(20, 50), (5, 10), (1, 1), (25, 50), (20, 50)] {
        let size = (height, width);
        let lease = rig.decode(&files(&[7], size), size).unwrap();
        let wanted = pixels(&[7], size);
        assert_eq!(rig.read_now(&lease, wanted.len()), sum_of(&wanted));
    }
    rig.end();
}

#[test]
fn without_an_engine_in_hardware_kernels_decode() {
    let fake = Fake::new();
    let jpeg = FakeJpeg::new(&fake);
    let (device, library) = (fake.device(), jpeg.open());
    let engine = |decoder: Result<JpegDecoder>| decoder.map(|decoder| decoder.engine());
    assert_eq!(
        engine(JpegDecoder::open(&device, library)),
        Ok(Engine::Hardware)
    );
    jpeg.take_hardware_away();
    assert_eq!(
        engine(JpegDecoder::open(&device, library)),
        Ok(Engine::Default)
    );
    let error = engine(JpegDecoder::with_engine(&device, library, Engine::Hardware)).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("nvjpegCreateEx") && text.contains("NVJPEG_STATUS_ARCH_MISMATCH"),
        "{text}"
    );
    assert_eq!(library.version(), "13.1.2");
    assert_eq!(jpeg.count(b"fake_jpeg_live\0"), 0);
}

#[test]
fn a_missing_library_is_an_error_that_says_what_to_install() {
    let fake = Fake::new();
    // The driver can be loaded, and is not nvJPEG.
    let paths = [
        PathBuf::from("/nonexistent/libnvjpeg.so.13"),
        fake.path.clone(),
    ];
    let text = Nvjpeg::open(&paths).unwrap_err().to_string();
    for says in [
        "/nonexistent/libnvjpeg.so.13",
        "libfake_cuda.so",
        "pip install nvidia-nvjpeg",
        "KINOGRAPH_NVJPEG_LIBRARY",
    ] {
        assert!(text.contains(says), "{text}");
    }
}
