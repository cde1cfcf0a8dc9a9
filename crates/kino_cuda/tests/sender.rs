//! The sender against a driver that does everything as late as it may: what is used too early has wrong bytes.
//!
//! ```text
//! Numbers: batch k is k, k+1, k+2, … (mod 251) ──▶ Sender ──▶ a stream of the test's own, which reads it late
//! ```
//!
//! The driver is `fake_cuda.c`, compiled by the C compiler. Each test has a copy of its own, with its own counters.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod fake;

use std::sync::Arc;
use std::time::Duration;

use fake::{Fake, sum_of};

use kino_cuda::{
    CudaError, Device, Fetched, HostBatch, Pinned, SendError, Sender, Source, StreamHandle, Taken,
};
use kino_sync::Mutex;

const LONG: Duration = Duration::from_secs(60);

/// The bytes of a batch.
fn bytes_of(number: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|idx| ((number + idx) % 251) as u8)
        .collect()
}

/// Memory that is page-locked, if it could be.
type Buffer = (Vec<u8>, Option<Pinned>);

/// Memory that goes back to its shelf, and is poisoned there: who still reads it gets other bytes.
struct Arena {
    memory: Option<Buffer>,
    shelf: Arc<Mutex<Vec<Buffer>>>,
}

impl HostBatch for Arena {
    fn bytes(&self) -> &[u8] {
        &self.memory.as_ref().unwrap().0
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let (mut bytes, pinned) = self.memory.take().unwrap();
        bytes.fill(0xEE);
        self.shelf.lock().push((bytes, pinned));
    }
}

/// Batches of numbers, of the lengths that are given again and again.
struct Numbers {
    device: Arc<Device>,
    shelf: Arc<Mutex<Vec<Buffer>>>,
    lengths: Vec<usize>,
    next: u64,
    end: u64,
    fails_at: Option<u64>,
}

impl Numbers {
    fn new(device: &Arc<Device>, end: u64, lengths: &[usize]) -> Self {
        Self {
            device: Arc::clone(device),
            shelf: Arc::default(),
            lengths: lengths.to_vec(),
            next: 0,
            end,
            fails_at: None,
        }
    }
}

impl Source for Numbers {
    type Meta = (u64, usize);
    type Batch = Arena;
    type Error = String;

    fn next(&mut self, _: Duration) -> Result<Fetched<(u64, usize), Arena>, String> {
        let number = self.next;
        self.next += 1;
        if self.fails_at == Some(number) {
            return Err("page 3 is damaged".to_owned());
        }
        if number >= self.end {
            return Ok(Fetched::End);
        }
        let turn = usize::try_from(number).unwrap() % self.lengths.len();
        let len = self.lengths[turn];
        let found = {
            let mut shelf = self.shelf.lock();
            let at = shelf.iter().position(|(bytes, _)| bytes.len() == len);
            at.map(|at| shelf.remove(at))
        };
        let (mut bytes, pinned) = found.unwrap_or_else(|| {
            let mut bytes = vec![0; len];
            let pinned = self.device.pin(&mut bytes).ok();
            (bytes, pinned)
        });
        bytes.copy_from_slice(&bytes_of(number, len));
        Ok(Fetched::Batch(
            (number, len),
            Arena {
                memory: Some((bytes, pinned)),
                shelf: Arc::clone(&self.shelf),
            },
        ))
    }
}

type Numbered = Sender<(u64, usize), String>;

fn take(sender: &Numbered, stream: StreamHandle) -> Option<((u64, usize), kino_cuda::Lease)> {
    match sender.take(stream, LONG).unwrap() {
        Taken::Batch(batch) => Some((batch.meta, batch.lease)),
        Taken::End => None,
        Taken::Later => panic!("nothing came for a minute"),
    }
}

#[test]
fn kernels_wait_for_their_batch_and_copies_for_the_kernels() {
    for lengths in [&[5000_usize] as &[usize], &[5000, 9000, 4096, 300_000]] {
        let fake = Fake::new();
        let device = fake.device();
        let sender = Sender::start(&device, Numbers::new(&device, 200, lengths)).unwrap();
        let stream = fake.stream();
        let mut found = vec![0_u64; 200];
        let mut wanted = Vec::new();
        // As in a training loop, a batch is dropped once the next one is there.
        let mut before = None;
        for sum in &mut found {
            let ((number, len), lease) = take(&sender, stream).unwrap();
            assert_eq!(number, wanted.len() as u64);
            fake.read(stream, lease.address(), len, sum);
            wanted.push(sum_of(&bytes_of(number, len)));
            drop(before.replace(lease));
        }
        assert!(take(&sender, stream).is_none());
        assert!(take(&sender, stream).is_none(), "the end stays");
        fake.synchronize();
        assert!(found == wanted);
        let report = sender.report();
        assert_eq!((report.batches, fake.count("copies")), (200, 200));
        assert!(report.slots <= 4 * lengths.len() + 4, "{report:?}");
        assert_eq!(fake.count("pageable"), 0);
        assert_eq!(fake.misuse(), [0, 0, 0]);
    }
}

#[test]
fn a_batch_that_is_taken_before_its_copy_is_done_is_waited_for_by_the_stream() {
    let fake = Fake::new();
    let device = fake.device();
    fake.set(b"fake_hold\0", 1);
    let sender = Sender::start(&device, Numbers::new(&device, 1, &[800])).unwrap();
    let stream = fake.stream();
    let ((_, len), lease) = take(&sender, stream).unwrap();
    let mut sum = 0;
    fake.read(stream, lease.address(), len, &mut sum);
    fake.run(stream);
    fake.set(b"fake_hold\0", 0);
    assert_eq!(sum, sum_of(&bytes_of(0, len)));
}

#[test]
fn a_wait_for_the_gpu_is_told_from_a_wait_for_batches() {
    let fake = Fake::new();
    let device = fake.device();
    // One slot is never enough: the second batch needs that of the first, which a kernel still reads.
    fake.set(b"fake_limit\0", 700);
    let sender = Sender::start(&device, Numbers::new(&device, 3, &[700])).unwrap();
    let stream = fake.stream();
    let ((_, len), lease) = take(&sender, stream).unwrap();
    assert!(sender.report().behind_s == 0.0);
    let mut sum = 0;
    fake.read(stream, lease.address(), len, &mut sum);
    while sender.report().batches == 0 {
        std::thread::yield_now();
    }
    fake.set(b"fake_hold\0", 1);
    drop(lease);
    // Ready at once for the stream, but its copy waits for the kernel.
    let second = take(&sender, stream).unwrap();
    while sender.report().behind_s == 0.0 {
        std::thread::yield_now();
    }
    fake.set(b"fake_hold\0", 0);
    fake.run(stream);
    assert_eq!((sum, second.0.0), (sum_of(&bytes_of(0, len)), 1));
}

#[test]
fn slots_of_another_size_make_room() {
    let fake = Fake::new();
    let device = fake.device();
    fake.set(b"fake_limit\0", 45_000);
    let lengths = [[10_000; 5], [40_000; 5]].concat();
    let sender = Sender::start(&device, Numbers::new(&device, 60, &lengths)).unwrap();
    let stream = fake.stream();
    for number in 0..60 {
        assert_eq!(take(&sender, stream).unwrap().0.0, number);
    }
    assert!(fake.count("freed") > 0);
}

#[test]
fn batches_that_are_held_stay_as_they_are_also_after_the_end() {
    let fake = Fake::new();
    let device = fake.device();
    let sender = Sender::start(&device, Numbers::new(&device, 60, &[7000])).unwrap();
    let stream = fake.stream();
    let held: Vec<_> = std::iter::from_fn(|| take(&sender, stream)).collect();
    assert_eq!(held.len(), 60);
    assert_eq!(sender.report().slots, 60);
    sender.close();
    drop(sender);
    let mut sums = vec![0; 60];
    for (((_, len), lease), sum) in held.iter().zip(&mut sums) {
        fake.read(stream, lease.address(), *len, sum);
    }
    // Freed while the kernels that read them are still queued.
    drop(held);
    fake.synchronize();
    let wanted: Vec<_> = (0..60)
        .map(|number| sum_of(&bytes_of(number, 7000)))
        .collect();
    assert!(sums == wanted);
    drop(device);
    assert_eq!(fake.count("freed"), fake.count("allocated"));
    assert_eq!(fake.misuse(), [0, 0, 0]);
}

#[test]
fn slots_of_batches_that_were_held_are_given_back() {
    let fake = Fake::new();
    let device = fake.device();
    let sender = Sender::start(&device, Numbers::new(&device, 400, &[7000])).unwrap();
    let stream = fake.stream();
    let held: Vec<_> = (0..50).map_while(|_| take(&sender, stream)).collect();
    assert_eq!(held.len(), 50);
    drop(held);
    for _ in 0..100 {
        take(&sender, stream).unwrap();
        fake.synchronize();
    }
    assert!(sender.report().slots <= 10, "{:?}", sender.report());
    assert_eq!(
        fake.count("allocated") - fake.count("freed"),
        sender.report().slots as i64
    );
}

#[test]
fn an_error_comes_behind_the_batches_before_it() {
    let fake = Fake::new();
    let device = fake.device();
    let mut source = Numbers::new(&device, 10, &[64]);
    source.fails_at = Some(3);
    let sender = Sender::start(&device, source).unwrap();
    let stream = fake.stream();
    for number in 0..3 {
        assert_eq!(take(&sender, stream).unwrap().0.0, number);
    }
    match sender.take(stream, LONG) {
        Err(SendError::Source(what)) => assert!(what.contains("page 3")),
        other => panic!("{other:?}"),
    }
    assert!(take(&sender, stream).is_none());
}

#[test]
fn without_memory_on_the_device_the_error_says_so_once_nothing_else_helps() {
    let fake = Fake::new();
    let device = fake.device();
    fake.set(b"fake_limit\0", 5 * 10_000);
    let sender = Sender::start(&device, Numbers::new(&device, 100, &[10_000])).unwrap();
    let stream = fake.stream();
    // Not an error as long as batches come back.
    let mut before = None;
    for number in 0..30 {
        let (meta, lease) = take(&sender, stream).unwrap();
        assert_eq!(meta.0, number);
        drop(before.replace(lease));
    }
    let mut held = Vec::new();
    let error = loop {
        match sender.take(stream, LONG) {
            Ok(Taken::Batch(batch)) => held.push(batch.lease),
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    // Five slots are on the device, one of them still held as `before`.
    assert_eq!(held.len(), 4);
    match error {
        SendError::Cuda(CudaError::OutOfMemory { bytes, live, held }) => {
            assert_eq!((bytes, live, held), (10_000, 5, 5));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn memory_that_cannot_be_page_locked_is_copied_all_the_same() {
    let fake = Fake::new();
    let device = fake.device();
    fake.set(b"fake_register_limit\0", 0);
    let sender = Sender::start(&device, Numbers::new(&device, 20, &[3000])).unwrap();
    let stream = fake.stream();
    let mut sums = [0; 20];
    for sum in &mut sums {
        let ((_, len), lease) = take(&sender, stream).unwrap();
        fake.read(stream, lease.address(), len, sum);
    }
    fake.synchronize();
    assert_eq!(
        sums,
        std::array::from_fn(|number| sum_of(&bytes_of(number as u64, 3000)))
    );
    assert_eq!(fake.count("pageable"), 20);
}

#[test]
fn closing_ends_the_thread_at_any_point() {
    for taken in 0..6 {
        let fake = Fake::new();
        let device = fake.device();
        let sender = Sender::start(&device, Numbers::new(&device, u64::MAX, &[512])).unwrap();
        let stream = fake.stream();
        let held: Vec<_> = (0..taken).map_while(|_| take(&sender, stream)).collect();
        sender.close();
        sender.close();
        assert!(take(&sender, stream).is_none());
        drop((held, sender, device));
        assert_eq!(fake.count("freed"), fake.count("allocated"));
        assert_eq!(fake.count("registered"), fake.count("unregistered"));
        assert_eq!(fake.misuse(), [0, 0, 0]);
    }
}

#[test]
fn a_copy_on_the_device_keeps_the_order_of_the_stream() {
    let fake = Fake::new();
    let device = fake.device();
    let sender = Sender::start(&device, Numbers::new(&device, 50, &[2000])).unwrap();
    let stream = fake.stream();
    let fixed = device.alloc(2000).unwrap().unwrap();
    let mut sums = vec![0; 50];
    for sum in &mut sums {
        let (_, lease) = take(&sender, stream).unwrap();
        lease.copy_to(&device, &fixed).unwrap();
        drop(lease);
        fake.read(stream, fixed.address(), 2000, sum);
    }
    fake.synchronize();
    let wanted: Vec<_> = (0..50)
        .map(|number| sum_of(&bytes_of(number, 2000)))
        .collect();
    assert!(sums == wanted);
}

#[test]
fn what_is_no_driver_is_an_error_that_says_what_to_do() {
    let error = Device::open_with("/nonexistent/libcuda.so.1", 0).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("/nonexistent/libcuda.so.1") && text.contains("KINOGRAPH_CUDA_LIBRARY"),
        "{text}"
    );
    let fake = Fake::new();
    let text = Device::open_with(&fake.path, 7).unwrap_err().to_string();
    assert!(
        text.contains("cuDeviceGet") && text.contains("CUDA_VISIBLE_DEVICES"),
        "{text}"
    );
}
