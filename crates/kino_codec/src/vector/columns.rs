//! The destination of decoded frames, column by column.

use crate::frames::FramesMut;

use super::layout::Stored;
use super::map::Map;
use super::quat::normalised;
use super::value::Value;

/// The destination, column by column.
pub(super) struct Columns<'a, 'd> {
    dest: &'a mut FramesMut<'d>,
    frames: usize,
}

impl<'a, 'd> Columns<'a, 'd> {
    pub(super) fn new(dest: &'a mut FramesMut<'d>, frames: usize) -> Self {
        Self { dest, frames }
    }

    /// The offset of an element in a frame.
    fn offset<T: Value>(&self, element: usize) -> usize {
        let row_elements = (self.dest.row_bytes() / T::SIZE).max(1);
        element / row_elements * self.dest.row_stride() + element % row_elements * T::SIZE
    }

    /// Writes values one after the other.
    pub(super) fn putter<T: Value>(&mut self, element: usize) -> impl FnMut(T) {
        let offset = self.offset::<T>(element);
        let mut frames = self.dest.frames_mut(0..self.frames);
        move |value| {
            if let Some(frame) = frames.next() {
                value.write(&mut frame[offset..]);
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
        let offset = self.offset::<T>(element);
        for frame in self.dest.frames_mut(0..self.frames) {
            value.write(&mut frame[offset..]);
        }
    }

    pub(super) fn copy<T: Value>(&mut self, from: usize, to: usize) {
        let (from, to) = (self.offset::<T>(from), self.offset::<T>(to));
        for frame in self.dest.frames_mut(0..self.frames) {
            T::read(&frame[from..]).write(&mut frame[to..]);
        }
    }

    pub(super) fn normalise<T: Value>(&mut self, first: usize) {
        let offsets = [0, 1, 2, 3].map(|idx| self.offset::<T>(first + idx));
        for frame in self.dest.frames_mut(0..self.frames) {
            let quat = offsets.map(|offset| T::read(&frame[offset..]));
            for (value, offset) in normalised(quat).into_iter().flatten().zip(offsets) {
                value.write(&mut frame[offset..]);
            }
        }
    }

    pub(super) fn correct<T: Value>(&mut self, element: usize, place: usize, correction: i64) {
        let offset = self.offset::<T>(element);
        let bytes = &mut self.dest.frame_mut(place)[offset..];
        let ordered = T::read(bytes).ordered().wrapping_add(correction);
        T::from_ordered(ordered).write(bytes);
    }
}
