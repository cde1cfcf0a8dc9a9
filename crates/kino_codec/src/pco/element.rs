//! The value types that the library accepts, as little-endian bytes.

use ::pco::data_types::Number;

/// One value of a vector.
pub(super) trait Element: Number + Default + Send + Sync {
    /// Bytes per value.
    const SIZE: usize;

    /// The value in the first [`SIZE`](Self::SIZE) bytes.
    fn read(bytes: &[u8]) -> Self;

    /// Bits of the library's unsigned integer for it.
    const LATENT_BITS: u32;

    /// The library's unsigned integer for it, in the same order as the values.
    fn latent(self) -> u64;

    /// Writes the value into the first [`SIZE`](Self::SIZE) bytes.
    fn write(self, bytes: &mut [u8]);
}

/// A value's bits as an unsigned integer.
macro_rules! bits {
    ($number:expr, $type:ty) => {{
        let mut raw = [0; 8];
        raw[..size_of::<$type>()].copy_from_slice(&$number.to_le_bytes());
        u64::from_le_bytes(raw)
    }};
}

macro_rules! impl_element {
    ($to_latent:expr; $($number:ty),*) => {$(
        impl Element for $number {
            const SIZE: usize = size_of::<Self>();
            const LATENT_BITS: u32 = 8 << size_of::<Self>().trailing_zeros();

            #[inline]
            fn read(bytes: &[u8]) -> Self {
                let mut raw = [0; Self::SIZE];
                raw.copy_from_slice(&bytes[..Self::SIZE]);
                Self::from_le_bytes(raw)
            }

            #[inline]
            fn latent(self) -> u64 {
                let sign: u64 = 1 << (Self::LATENT_BITS - 1);
                $to_latent(bits!(self, $number), sign)
            }

            #[inline]
            fn write(self, bytes: &mut [u8]) {
                bytes[..Self::SIZE].copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

impl_element!(|bits, _: u64| bits; u8, u16, u32, u64);
impl_element!(|bits, sign: u64| bits ^ sign; i8, i16, i32, i64);
// The bits below the sign of a negative value are inverted.
impl_element!(
    |bits: u64, sign: u64| match bits & sign {
        0 => bits | sign,
        _ => !bits & (sign | (sign - 1)),
    };
    half::f16, f32, f64
);
