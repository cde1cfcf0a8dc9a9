//! A batch's memory: written by many threads at once, then read by one, then reused.
//!
//! ```text
//! field 0   | sample 0 | sample 1 | … | sample B−1 |          one array [B, …] per field
//! field 1   | sample 0 | sample 1 | … |                       each starts at a multiple of 256 bytes
//! ```
//!
//! A *place* is one sample's slice of one field. Places do not overlap, so threads fill a batch in parallel and without
//! an extra copy. Each place has its own lock, which is rarely contended. The finished batch owns its memory: keeping a
//! batch keeps its buffer. When it is dropped, the buffer returns to the [`Shelf`], because touching fresh memory costs
//! more than the copy into it. If batches go to a device, each buffer is page-locked once ([`PinMemory`]), when it is
//! used for the first time: all fields of a batch are one range, so a batch is one copy.

#![allow(
    unsafe_code,
    reason = "threads write disjoint slices of one buffer; each unsafe block carries its proof"
)]

use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use kino_sync::{Mutex, MutexGuard};

/// Fields start at a multiple of this, the alignment that SIMD instructions, DLPack and kernels on a GPU prefer.
const ALIGN: usize = 256;

/// Memory is allocated in OS pages, so that it can be pinned for copies to a device.
#[repr(align(4096))]
#[derive(Clone, Copy)]
struct OsPage(
    #[expect(
        dead_code,
        reason = "bytes are accessed through a pointer to the first"
    )]
    [u8; 4096],
);

/// Where the samples' slices of one field are in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FieldPlace {
    /// Offset of the first sample, in bytes.
    offset: usize,
    /// Bytes per sample.
    stride: usize,
}

/// Layout of the buffer of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Places {
    fields: Vec<FieldPlace>,
    samples: usize,
    bytes: usize,
}

impl Places {
    /// A layout for `samples` samples; `strides` are the bytes per sample of each field. `None` if the size overflows.
    pub(crate) fn new(samples: usize, strides: impl IntoIterator<Item = usize>) -> Option<Self> {
        let mut bytes = 0_usize;
        let mut fields = Vec::new();
        for stride in strides {
            fields.push(FieldPlace {
                offset: bytes,
                stride,
            });
            let end = bytes.checked_add(stride.checked_mul(samples)?)?;
            bytes = end.checked_next_multiple_of(ALIGN)?;
        }
        Some(Self {
            fields,
            samples,
            bytes,
        })
    }

    /// Total size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Page-locks the memory of batches, so that a device copies from it without the CPU's help.
pub trait PinMemory: Debug + Send + Sync {
    /// Page-locks memory until what is returned is dropped, which happens before the memory is freed; `None` if that is
    /// not possible, which makes copies slower and nothing else.
    fn pin(&self, memory: &mut [u8]) -> Option<Pin>;
}

/// Memory that is page-locked until this is dropped.
pub type Pin = Box<dyn Any + Send + Sync>;

/// Unused buffers, kept for reuse.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    free: Mutex<Vec<Memory>>,
    /// Set if batches go to a device.
    pinning: OnceLock<Arc<dyn PinMemory>>,
    /// Bytes of all live buffers that were allocated here, in use or not.
    bytes: AtomicUsize,
}

/// How many unused buffers a shelf keeps.
const KEPT: usize = 8;

impl Shelf {
    /// Page-locks buffers from now on.
    pub(crate) fn pin_with(&self, pinning: Arc<dyn PinMemory>) {
        // The first one stays.
        let _set = self.pinning.set(pinning);
    }

    /// A buffer of `pages` OS pages, or of a few more; `None` if the allocation fails.
    fn take(&self, pages: usize) -> Option<Memory> {
        let found = self.find(pages);
        let mut memory = match found {
            Some(memory) => memory,
            None => {
                let mut fresh = Vec::new();
                fresh.try_reserve_exact(pages).ok()?;
                fresh.resize(pages, OsPage([0; 4096]));
                let memory = Memory {
                    pin: None,
                    pages: fresh,
                };
                self.bytes.fetch_add(memory.bytes(), Ordering::Relaxed);
                memory
            }
        };
        if let (None, Some(pinning)) = (&memory.pin, self.pinning.get()) {
            memory.pin = pinning.pin(memory.as_bytes());
        }
        Some(memory)
    }

    /// An unused buffer of this size. One that is up to an eighth larger will do: batches of whole episodes differ in
    /// size, and to page-lock a new buffer costs more than to fill it.
    fn find(&self, pages: usize) -> Option<Memory> {
        let mut free = self.free.lock();
        let sizes = free.iter().map(|memory| memory.pages.len()).enumerate();
        let fits = sizes.filter(|&(_, size)| size >= pages && size - pages <= pages / 8);
        let (found, _) = fits.min_by_key(|&(_, size)| size)?;
        Some(free.swap_remove(found))
    }

    /// Bytes of all buffers, in use or kept for reuse.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed) as u64
    }

    fn put_back(&self, memory: Memory) {
        // Never blocks: after `fork`, the lock may be held forever by a thread that does not exist in this process.
        // The memory then goes back to the system.
        let Some(mut free) = self.free.try_lock() else {
            self.bytes.fetch_sub(memory.bytes(), Ordering::Relaxed);
            return;
        };
        // The oldest buffer makes room for the newest: batches of whole episodes differ in size.
        let dropped = (free.len() >= KEPT).then(|| free.remove(0));
        free.push(memory);
        drop(free);
        if let Some(dropped) = dropped {
            self.bytes.fetch_sub(dropped.bytes(), Ordering::Relaxed);
        }
    }
}

struct Memory {
    /// Before `pages`, so that it is dropped first.
    pin: Option<Pin>,
    /// A `Vec`, not a `Box`: moving a box would invalidate pointers into it.
    pages: Vec<OsPage>,
}

impl Memory {
    fn bytes(&self) -> usize {
        self.pages.len() * size_of::<OsPage>()
    }

    fn as_bytes(&mut self) -> &mut [u8] {
        let (start, len) = (self.pages.as_mut_ptr().cast(), self.bytes());
        // SAFETY: pages are plain bytes without padding, all initialised, borrowed for as long as the result.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }
}

impl Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({} pages)", self.pages.len())
    }
}

/// A batch that is being filled.
#[derive(Debug)]
pub(crate) struct Filling {
    memory: Option<Memory>,
    /// The first byte of `memory`.
    start: StartPtr,
    places: Places,
    /// One lock per place, held by the thread that writes it: those of the first field first.
    writing: Vec<Mutex<()>>,
    shelf: Arc<Shelf>,
}

/// Pointer to the start of a buffer owned by the same struct.
#[derive(Debug, Clone, Copy)]
struct StartPtr(*mut u8);

// SAFETY: the pointer is to memory that `Filling` owns, and is only used under the rules of `Filling::place`.
unsafe impl Send for StartPtr {}
// SAFETY: as above; the pointer itself is never changed.
unsafe impl Sync for StartPtr {}

impl Filling {
    /// A batch to fill; `None` if its memory cannot be allocated.
    pub(crate) fn new(places: Places, shelf: &Arc<Shelf>) -> Option<Self> {
        let mut memory = shelf.take(places.bytes.div_ceil(4096).max(1))?;
        let start = StartPtr(memory.pages.as_mut_ptr().cast());
        Some(Self {
            memory: Some(memory),
            start,
            writing: (0..places.samples * places.fields.len())
                .map(|_| Mutex::new(()))
                .collect(),
            places,
            shelf: Arc::clone(shelf),
        })
    }

    /// Calls `write` with the place of a sample in a field; `None` if there is no such place.
    ///
    /// The place still holds the bytes of the buffer's previous use.
    pub(crate) fn place<R>(
        &self,
        field: usize,
        sample: usize,
        write: impl FnOnce(&mut [u8]) -> R,
    ) -> Option<R> {
        let alone = self.lock_of(field, sample)?.lock();
        self.write(field, sample, &alone, write)
    }

    /// As [`place`](Self::place); `None` also if another thread is writing there.
    pub(crate) fn try_place<R>(
        &self,
        field: usize,
        sample: usize,
        write: impl FnOnce(&mut [u8]) -> R,
    ) -> Option<R> {
        let alone = self.lock_of(field, sample)?.try_lock()?;
        self.write(field, sample, &alone, write)
    }

    /// The lock of a place; `None` if there is no such place.
    fn lock_of(&self, field: usize, sample: usize) -> Option<&Mutex<()>> {
        if sample >= self.places.samples {
            return None;
        }
        self.writing.get(field * self.places.samples + sample)
    }

    /// Calls `write` with the place whose lock is held.
    fn write<R>(
        &self,
        field: usize,
        sample: usize,
        _alone: &MutexGuard<'_, ()>,
        write: impl FnOnce(&mut [u8]) -> R,
    ) -> Option<R> {
        let FieldPlace { offset, stride } = *self.places.fields.get(field)?;
        // SAFETY: the range is inside the memory: the field exists, the caller holds `lock_of` this field and sample, which
        // exists only for one of `samples`, `Places::new` summed the strides of all
        // samples of all fields to at most `bytes`, and `new` took at least that many. It does not overlap the place of
        // another sample or field, because fields follow each other and samples are `stride` apart; and no other thread
        // writes this place while its lock is held. No thread reads the memory: `finish` takes `self` by value, so no
        // call of `place` is running then. Every byte is initialised: pages start as zeros and are only overwritten.
        let place = unsafe {
            std::slice::from_raw_parts_mut(self.start.0.add(offset + sample * stride), stride)
        };
        Some(write(place))
    }

    /// The finished batch. Places that were not written hold bytes of the buffer's previous use.
    pub(crate) fn finish(mut self) -> Filled {
        Filled {
            start: self.start,
            memory: self.memory.take(),
            places: self.places.clone(),
            shelf: Arc::clone(&self.shelf),
        }
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.shelf.put_back(memory);
        }
    }
}

/// A finished batch: arrays whose memory does not move until it is dropped.
#[derive(Debug)]
pub(crate) struct Filled {
    memory: Option<Memory>,
    /// The first byte of `memory`.
    start: StartPtr,
    places: Places,
    shelf: Arc<Shelf>,
}

impl Filled {
    /// The array of a field: all samples, concatenated.
    pub(crate) fn field(&self, field: usize) -> &[u8] {
        let (start, len) = self.field_parts(field);
        // SAFETY: pages are plain bytes without padding, all initialised, and live as long as `self`. Nothing writes to
        // them any more, except through `field_parts`, whose callers must not call this meanwhile. The range is inside
        // the memory by `Places::new`.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// All fields, with the gaps between them, as one range.
    pub(crate) fn arena(&self) -> &[u8] {
        // SAFETY: as for `field`; `Filling::new` took at least `places.bytes`.
        unsafe { std::slice::from_raw_parts(self.start.0, self.places.bytes) }
    }

    /// Where a field's array is in the arena.
    pub(crate) fn range(&self, field: usize) -> Range<usize> {
        match self.places.fields.get(field) {
            Some(place) => place.offset..place.offset + place.stride * self.places.samples,
            None => 0..0,
        }
    }

    /// Pointer and length in bytes of a field's array.
    pub(crate) fn field_parts(&self, field: usize) -> (*mut u8, usize) {
        let range = self.range(field);
        (self.start.0.wrapping_add(range.start), range.len())
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.shelf.put_back(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_fill_places_that_do_not_overlap() {
        let shelf = Arc::new(Shelf::default());
        let filling = Filling::new(Places::new(16, [3, 70, 0]).unwrap(), &shelf).unwrap();
        std::thread::scope(|scope| {
            for sample in 0..16_u8 {
                let filling = &filling;
                scope.spawn(move || {
                    for (field, len) in [3, 70, 0].into_iter().enumerate() {
                        let done = filling.place(field, usize::from(sample), |place| {
                            assert_eq!(place.len(), len);
                            place.fill(sample + 1);
                        });
                        assert_eq!(done, Some(()));
                    }
                });
            }
        });
        let filled = filling.finish();
        for (field, len) in [3, 70, 0].into_iter().enumerate() {
            let expected: Vec<u8> = (1..=16).flat_map(|value| vec![value; len]).collect();
            assert_eq!(filled.field(field), expected);
            assert!(len == 0 || filled.field(field).as_ptr().addr().is_multiple_of(ALIGN));
        }
        assert!(filled.field(3).is_empty());
    }

    #[test]
    fn fields_of_a_sample_are_written_at_once_and_a_place_that_is_written_is_left_alone() {
        let shelf = Arc::new(Shelf::default());
        let filling = Filling::new(Places::new(2, [4, 3]).unwrap(), &shelf).unwrap();
        filling.place(0, 1, |first| {
            first.fill(1);
            assert_eq!(filling.try_place(0, 1, |_| ()), None);
            assert_eq!(filling.try_place(1, 1, |place| place.fill(2)), Some(()));
            assert_eq!(filling.try_place(0, 0, |place| place.fill(3)), Some(()));
            first[0] = 4;
        });
        assert_eq!(filling.try_place(0, 1, |place| place[3] = 5), Some(()));
        assert_eq!(filling.try_place(1, 0, |place| place.fill(6)), Some(()));
        assert_eq!(filling.try_place(0, 2, |_| ()), None);
        assert_eq!(filling.try_place(2, 0, |_| ()), None);
        let filled = filling.finish();
        assert_eq!(filled.field(0), [3, 3, 3, 3, 4, 1, 1, 5]);
        assert_eq!(filled.field(1), [6, 6, 6, 2, 2, 2]);
    }

    #[test]
    fn a_place_that_does_not_exist_is_not_written() {
        let shelf = Arc::new(Shelf::default());
        let filling = Filling::new(Places::new(2, [4]).unwrap(), &shelf).unwrap();
        let len = |field, sample| filling.place(field, sample, |place| place.len());
        assert_eq!(
            [len(0, 1), len(0, 1), len(0, 2), len(1, 0)],
            [Some(4), Some(4), None, None]
        );
    }

    #[test]
    fn memory_is_reused_and_impossible_sizes_are_refused() {
        let shelf = Arc::new(Shelf::default());
        let places = Places::new(4, [5000]).unwrap();
        let first = Filling::new(places.clone(), &shelf).unwrap().finish();
        let address = first.field(0).as_ptr();
        drop(first);
        let second = Filling::new(places, &shelf).unwrap().finish();
        assert_eq!(second.field(0).as_ptr(), address);
        assert_eq!(shelf.bytes(), 5 * 4096, "counted once");
        assert_eq!(Places::new(2, [usize::MAX]), None);
        assert_eq!(Places::new(1, [usize::MAX - 100, 200]), None);
        let huge = Places::new(1, [usize::MAX / 2]).unwrap();
        assert!(Filling::new(huge, &shelf).is_none());
    }

    /// Counts pins, and checks that each ends before its memory does.
    #[derive(Debug, Default)]
    struct Counting {
        pinned: Arc<Mutex<Vec<usize>>>,
        made: AtomicUsize,
    }

    struct Counted(Arc<Mutex<Vec<usize>>>, usize);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.lock().retain(|start| *start != self.1);
        }
    }

    impl PinMemory for Counting {
        fn pin(&self, memory: &mut [u8]) -> Option<Pin> {
            let start = memory.as_ptr().addr();
            assert!(start.is_multiple_of(4096) && memory.len().is_multiple_of(4096));
            self.made.fetch_add(1, Ordering::Relaxed);
            self.pinned.lock().push(start);
            Some(Box::new(Counted(Arc::clone(&self.pinned), start)))
        }
    }

    #[test]
    fn a_buffer_is_page_locked_once_also_one_from_before_and_until_it_is_freed() {
        let shelf = Arc::new(Shelf::default());
        let places = Places::new(3, [5000]).unwrap();
        drop(Filling::new(places.clone(), &shelf).unwrap());
        let counting = Arc::new(Counting::default());
        shelf.pin_with(Arc::clone(&counting) as Arc<dyn PinMemory>);
        for _ in 0..3 {
            let filled = Filling::new(places.clone(), &shelf).unwrap().finish();
            let start = filled.arena().as_ptr().addr();
            assert_eq!(*counting.pinned.lock(), [start]);
        }
        assert_eq!(counting.made.load(Ordering::Relaxed), 1);
        let other = Filling::new(places, &shelf).unwrap();
        let third = Filling::new(Places::new(1, [9000]).unwrap(), &shelf).unwrap();
        assert_eq!(counting.pinned.lock().len(), 2);
        drop((shelf, third));
        assert_eq!(
            counting.pinned.lock().len(),
            2,
            "the first is in use: its shelf lives"
        );
        drop(other);
        assert!(counting.pinned.lock().is_empty());
    }

    #[test]
    fn a_buffer_that_is_a_little_larger_is_reused_and_the_arena_is_as_long_as_the_batch() {
        let shelf = Arc::new(Shelf::default());
        let places = |bytes| Places::new(1, [bytes, 10]).unwrap();
        drop(Filling::new(places(80 * 4096), &shelf).unwrap());
        let filled = Filling::new(places(75 * 4096), &shelf).unwrap().finish();
        assert_eq!(shelf.bytes(), 81 * 4096);
        assert_eq!(filled.arena().len(), 75 * 4096 + ALIGN);
        assert_eq!(filled.range(1), 75 * 4096..75 * 4096 + 10);
        assert_eq!(filled.range(2), 0..0);
        let smaller = Filling::new(places(40 * 4096), &shelf).unwrap();
        drop(filled);
        drop(smaller);
        drop(Filling::new(places(60 * 4096), &shelf).unwrap());
        assert_eq!(
            shelf.bytes(),
            (81 + 41 + 61) * 4096,
            "too large is not taken"
        );
    }

    #[test]
    fn returning_memory_never_blocks_on_a_lock_that_a_fork_left_behind() {
        let shelf = Arc::new(Shelf::default());
        let filled = Filling::new(Places::new(1, [10]).unwrap(), &shelf).unwrap();
        let held = shelf.free.lock();
        drop(filled);
        assert!(held.is_empty());
        assert_eq!(shelf.bytes(), 0, "it went back to the system");
    }
}
