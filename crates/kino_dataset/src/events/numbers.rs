//! Packed values of any dtype as float64.

use kino_codec::{Dtype, ValueType};

/// The values of packed frames, in their order.
pub fn to_numbers(ty: &ValueType, packed: &[u8]) -> Vec<f64> {
    let values = packed.len() / ty.dtype().size().max(1);
    let read = |idx| number(ty.dtype(), packed, idx);
    (0..values).map(read).collect()
}

/// Element `element` of a packed frame.
#[expect(
    clippy::cast_precision_loss,
    reason = "for detecting events and for measuring, not for storage"
)]
pub(super) fn number(dtype: Dtype, frame: &[u8], element: usize) -> f64 {
    fn at<const N: usize>(frame: &[u8], element: usize) -> [u8; N] {
        frame.as_chunks().0.get(element).copied().unwrap_or([0; N])
    }
    match dtype {
        Dtype::Bool | Dtype::U8 => f64::from(u8::from_le_bytes(at(frame, element))),
        Dtype::I8 => f64::from(i8::from_le_bytes(at(frame, element))),
        Dtype::U16 => f64::from(u16::from_le_bytes(at(frame, element))),
        Dtype::I16 => f64::from(i16::from_le_bytes(at(frame, element))),
        Dtype::U32 => f64::from(u32::from_le_bytes(at(frame, element))),
        Dtype::I32 => f64::from(i32::from_le_bytes(at(frame, element))),
        Dtype::U64 => u64::from_le_bytes(at(frame, element)) as f64,
        Dtype::I64 => i64::from_le_bytes(at(frame, element)) as f64,
        Dtype::F16 => half::f16::from_le_bytes(at(frame, element)).to_f64(),
        Dtype::F32 => f64::from(f32::from_le_bytes(at(frame, element))),
        Dtype::F64 => f64::from_le_bytes(at(frame, element)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_size_and_sign_are_read() {
        let ty = |dtype, shape: &[usize]| ValueType::new(dtype, shape).unwrap();
        let halves = [0.5_f32, -2.0, 1e9].map(f32::to_le_bytes).concat();
        assert_eq!(to_numbers(&ty(Dtype::F32, &[3]), &halves), [0.5, -2.0, 1e9]);
        let signed = [-300_i16, 7].map(i16::to_le_bytes).concat();
        assert_eq!(to_numbers(&ty(Dtype::I16, &[1]), &signed), [-300.0, 7.0]);
        assert_eq!(to_numbers(&ty(Dtype::Bool, &[2]), &[1, 0]), [1.0, 0.0]);
        assert!(to_numbers(&ty(Dtype::F64, &[2]), &[]).is_empty());
    }
}
