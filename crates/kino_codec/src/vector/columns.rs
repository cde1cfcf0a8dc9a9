//! The destination of decoded frames, column by column.

use super::layout::Stored;
use super::map::Map;
use super::quat::normalised;
use super::value::Value;

/// The destination, column by column.
pub(super) struct Columns<'a> {
    dest: &'a mut [u8],
    frame_bytes: usize,
}

impl<'a> Columns<'a> {
    /// A packed destination of whole frames.
    pub(super) fn new(dest: &'a mut [u8], frame_bytes: usize) -> Self {
        Self { dest, frame_bytes }
    }

    fn frames(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.dest.chunks_exact_mut(self.frame_bytes.max(1))
    }

    /// Writes values one after the other.
    pub(super) fn putter<T: Value>(&mut self, element: usize) -> impl FnMut(T) {
        let mut frames = self.frames();
        move |value| {
            if let Some(frame) = frames.next() {
                value.write(&mut frame[element * T::SIZE..]);
            }
        }
    }

    /// Restores the integers of a column and writes the values of those from `start` on.
    pub(super) fn put_restored<T: Value>(
        &mut self,
        element: usize,
        stored: &Stored,
        integers: &[i64],
        start: usize,
    ) {
        let (map, mut put) = (stored.map, self.putter::<T>(element));
        let mut before = start;
        let mut from_start = |value: T| match before {
            0 => put(value),
            _ => before -= 1,
        };
        // One loop for each of the common maps.
        match map {
            Map::Ordered => stored
                .predictor
                .each(integers, |k| from_start(T::from_ordered(k))),
            Map::Times(step) => stored
                .predictor
                .each(integers, |k| from_start(T::from_f64(k as f64 * step))),
            _ => stored
                .predictor
                .each(integers, |k| from_start(map.value(k))),
        }
    }

    pub(super) fn fill<T: Value>(&mut self, element: usize, value: T) {
        for frame in self.frames() {
            value.write(&mut frame[element * T::SIZE..]);
        }
    }

    pub(super) fn copy<T: Value>(&mut self, from: usize, to: usize) {
        for frame in self.frames() {
            T::read(&frame[from * T::SIZE..]).write(&mut frame[to * T::SIZE..]);
        }
    }

    pub(super) fn normalise<T: Value>(&mut self, first: usize) {
        let offsets = [0, 1, 2, 3].map(|idx| (first + idx) * T::SIZE);
        for frame in self.frames() {
            let quat = offsets.map(|offset| T::read(&frame[offset..]));
            for (value, offset) in normalised(quat).into_iter().flatten().zip(offsets) {
                value.write(&mut frame[offset..]);
            }
        }
    }

    pub(super) fn correct<T: Value>(&mut self, element: usize, place: usize, correction: i64) {
        let bytes = &mut self.dest[place * self.frame_bytes + element * T::SIZE..];
        let ordered = T::read(bytes).ordered().wrapping_add(correction);
        T::from_ordered(ordered).write(bytes);
    }
}
