//! The number types that the library takes, as little-endian bytes.

use ::pco::data_types::Number;

/// One number of a vector.
pub(super) trait Element: Number + Default + Send + Sync {
    /// Bytes per number.
    const SIZE: usize;

    /// The number in the first [`SIZE`](Self::SIZE) bytes.
    fn read(bytes: &[u8]) -> Self;

    /// Puts the number into the first [`SIZE`](Self::SIZE) bytes.
    fn write(self, bytes: &mut [u8]);
}

macro_rules! impl_element {
    ($($number:ty),*) => {$(
        impl Element for $number {
            const SIZE: usize = size_of::<Self>();

            #[inline]
            fn read(bytes: &[u8]) -> Self {
                let mut raw = [0; Self::SIZE];
                raw.copy_from_slice(&bytes[..Self::SIZE]);
                Self::from_le_bytes(raw)
            }

            #[inline]
            fn write(self, bytes: &mut [u8]) {
                bytes[..Self::SIZE].copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

impl_element!(u8, u16, u32, u64, i8, i16, i32, i64, half::f16, f32, f64);
