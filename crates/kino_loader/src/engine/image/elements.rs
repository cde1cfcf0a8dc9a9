//! Values that are not images on their way into a batch: shifted and scaled, or rounded, to float32.
//!
//! They are few, so they are computed one by one, in f64, and rounded once.

use half::f16;
use kino_codec::Dtype;

use super::convert::Rows;

/// Values that are not images, shifted and scaled one by one.
#[derive(Debug, Clone)]
pub(crate) struct Elements {
    dtype: Dtype,
    offset: Vec<f64>,
    scale: Vec<f64>,
}

impl Elements {
    /// Offset and scale are per element of a frame.
    pub(crate) fn new(dtype: Dtype, offset: Vec<f64>, scale: Vec<f64>) -> Self {
        Self {
            dtype,
            offset,
            scale,
        }
    }

    pub(crate) fn put(&self, rows: Rows<'_>, place: &mut [u8]) {
        let columns = rows.len / self.dtype.size();
        let places = place.chunks_exact_mut((columns * 4).max(1));
        for (y, (row, place)) in rows.iter().zip(places).enumerate() {
            self.put_row(row, y * columns, place);
        }
    }

    /// Puts the elements from number `first` on.
    fn put_row(&self, frame: &[u8], first: usize, place: &mut [u8]) {
        let place = (first, place);
        match self.dtype {
            Dtype::Bool | Dtype::U8 => self.put_as(frame, place, |[byte]| f64::from(byte)),
            Dtype::I8 => self.put_as(frame, place, |one| f64::from(i8::from_le_bytes(one))),
            Dtype::U16 => self.put_as(frame, place, |one| f64::from(u16::from_le_bytes(one))),
            Dtype::I16 => self.put_as(frame, place, |one| f64::from(i16::from_le_bytes(one))),
            Dtype::U32 => self.put_as(frame, place, |one| f64::from(u32::from_le_bytes(one))),
            Dtype::I32 => self.put_as(frame, place, |one| f64::from(i32::from_le_bytes(one))),
            Dtype::U64 => self.put_as(frame, place, |one| to_f64(u64::from_le_bytes(one).into())),
            Dtype::I64 => self.put_as(frame, place, |one| to_f64(i64::from_le_bytes(one).into())),
            Dtype::F16 => self.put_as(frame, place, |one| f16::from_le_bytes(one).to_f64()),
            Dtype::F32 => self.put_as(frame, place, |one| f64::from(f32::from_le_bytes(one))),
            Dtype::F64 => self.put_as(frame, place, f64::from_le_bytes),
        }
    }

    fn put_as<const N: usize>(
        &self,
        frame: &[u8],
        (first, place): (usize, &mut [u8]),
        read: impl Fn([u8; N]) -> f64,
    ) {
        let numbers = self.offset.iter().zip(&self.scale).skip(first);
        let values = frame.as_chunks::<N>().0.iter().zip(numbers);
        for (place, (&value, (offset, scale))) in
            place.as_chunks_mut::<4>().0.iter_mut().zip(values)
        {
            *place = to_f32((read(value) - offset) / scale).to_le_bytes();
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "64-bit numbers beyond 2^53 are rounded to the nearest"
)]
fn to_f64(value: i128) -> f64 {
    value as f64
}

#[expect(clippy::cast_possible_truncation, reason = "this is the one rounding")]
pub(crate) fn to_f32(value: f64) -> f32 {
    value as f32
}

/// Rounds floats to float32, to the nearest.
pub(crate) fn to_float32(dtype: Dtype, values: &[u8], place: &mut [u8]) {
    let places = place.as_chunks_mut::<4>().0.iter_mut();
    match dtype {
        Dtype::F64 => {
            for (place, value) in places.zip(values.as_chunks::<8>().0) {
                *place = to_f32(f64::from_le_bytes(*value)).to_le_bytes();
            }
        }
        Dtype::F16 => {
            for (place, value) in places.zip(values.as_chunks::<2>().0) {
                *place = f16::from_le_bytes(*value).to_f32().to_le_bytes();
            }
        }
        _ => debug_assert!(false, "only float64 and float16 become float32"),
    }
}
