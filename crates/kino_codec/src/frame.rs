//! What one frame of a stream is: a small array of values, or a text.
//!
//! ```text
//! joint vector   f32[7]            camera   u8[480,640,3]  (height, width, channel)
//! reward         f64[]             depth    u16[480,640]   language   text
//! ```
//!
//! Values are little-endian, row-major and packed: a frame is `dtype.size() × product(shape)` bytes.

use std::fmt;
use std::str::FromStr;

use crate::error::{CodecError, Result};

/// The largest frame (256 MiB): a larger size in a file means damage.
pub const MAX_FRAME_BYTES: usize = 1 << 28;

/// The most dimensions of a frame.
const MAX_RANK: usize = 8;

/// The dtype of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned 8-bit.
    U8,
    /// Unsigned 16-bit.
    U16,
    /// Unsigned 32-bit.
    U32,
    /// Unsigned 64-bit.
    U64,
    /// Signed 8-bit.
    I8,
    /// Signed 16-bit.
    I16,
    /// Signed 32-bit.
    I32,
    /// Signed 64-bit.
    I64,
    /// IEEE 754 half precision.
    F16,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
}

impl Dtype {
    /// Every dtype, in the order of the specification.
    pub const ALL: [Self; 12] = [
        Self::Bool,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F16,
        Self::F32,
        Self::F64,
    ];

    /// Bytes per value.
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// The name in schemas, identical to numpy's.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::U8 => "uint8",
            Self::U16 => "uint16",
            Self::U32 => "uint32",
            Self::U64 => "uint64",
            Self::I8 => "int8",
            Self::I16 => "int16",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::F16 => "float16",
            Self::F32 => "float32",
            Self::F64 => "float64",
        }
    }

    /// Whether this is a floating-point dtype.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::F32 | Self::F64)
    }
}

impl FromStr for Dtype {
    type Err = CodecError;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|dtype| dtype.name() == name)
            .ok_or_else(|| CodecError::FrameType {
                what: format!("unknown dtype `{name}`"),
            })
    }
}

/// The type of a frame that is an array of values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ValueType {
    dtype: Dtype,
    shape: Vec<usize>,
    elements: usize,
}

impl ValueType {
    /// A frame of `shape`; rejects more than 8 dimensions or [`MAX_FRAME_BYTES`].
    pub fn new(dtype: Dtype, shape: &[usize]) -> Result<Self> {
        if shape.len() > MAX_RANK {
            return Err(CodecError::FrameType {
                what: format!(
                    "it has {} dimensions, at most {MAX_RANK} are allowed",
                    shape.len()
                ),
            });
        }
        // An empty dimension must not hide an absurd one beside it, so zero counts as one here.
        let bytes = shape
            .iter()
            .try_fold(dtype.size(), |size, &dim| size.checked_mul(dim.max(1)))
            .filter(|&size| size <= MAX_FRAME_BYTES);
        if bytes.is_none() {
            return Err(CodecError::FrameType {
                what: format!(
                    "shape {shape:?} of {} exceeds {MAX_FRAME_BYTES} bytes per frame",
                    dtype.name()
                ),
            });
        }
        Ok(Self {
            dtype,
            shape: shape.to_vec(),
            elements: shape.iter().product(),
        })
    }

    /// The dtype of the values.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The shape of one frame, without the time axis.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Values per frame.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Bytes per frame.
    pub fn frame_bytes(&self) -> usize {
        self.elements * self.dtype.size()
    }

    /// Rows per frame: the height of an image, 1 for fewer than two dimensions.
    pub fn rows(&self) -> usize {
        if self.shape.len() >= 2 {
            self.shape[0]
        } else {
            1
        }
    }

    /// Bytes per row.
    pub fn row_bytes(&self) -> usize {
        self.frame_bytes().checked_div(self.rows()).unwrap_or(0)
    }

    /// `(height, width, channels)` if this is an 8-bit image with 1, 3 or 4 channels per pixel.
    pub fn as_image(&self) -> Option<(usize, usize, usize)> {
        match (self.dtype, self.shape.as_slice()) {
            (Dtype::U8, &[h, w]) if h > 0 && w > 0 => Some((h, w, 1)),
            (Dtype::U8, &[h, w, c @ (1 | 3 | 4)]) if h > 0 && w > 0 => Some((h, w, c)),
            _ => None,
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype.name(), self.shape)
    }
}

/// The type of one frame of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FrameType {
    /// An array of values, with the same shape in every frame.
    Values(ValueType),
    /// UTF-8 text of any length.
    Text,
}

impl FrameType {
    /// A frame of values; see [`ValueType::new`].
    pub fn values(dtype: Dtype, shape: &[usize]) -> Result<Self> {
        ValueType::new(dtype, shape).map(Self::Values)
    }

    /// The value type, or `None` for text.
    pub fn as_values(&self) -> Option<&ValueType> {
        match self {
            Self::Values(ty) => Some(ty),
            Self::Text => None,
        }
    }
}

impl fmt::Display for FrameType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Values(ty) => ty.fmt(f),
            Self::Text => f.write_str("text"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dtype_names_round_trip() {
        for dtype in Dtype::ALL {
            assert_eq!(dtype.name().parse::<Dtype>(), Ok(dtype));
        }
        assert!("float128".parse::<Dtype>().is_err());
    }

    #[test]
    fn huge_shapes_are_refused_even_beside_an_empty_dimension() {
        assert!(ValueType::new(Dtype::U8, &[usize::MAX, 2]).is_err());
        assert!(ValueType::new(Dtype::U8, &[0, usize::MAX]).is_err());
        assert!(ValueType::new(Dtype::U8, &[1; MAX_RANK + 1]).is_err());
        assert_eq!(ValueType::new(Dtype::F32, &[0]).unwrap().frame_bytes(), 0);
    }

    #[test]
    fn rows_are_the_first_of_two_or_more_dimensions() {
        let image = ValueType::new(Dtype::U8, &[4, 5, 3]).unwrap();
        assert_eq!((image.rows(), image.row_bytes()), (4, 15));
        let vector = ValueType::new(Dtype::F64, &[7]).unwrap();
        assert_eq!((vector.rows(), vector.row_bytes()), (1, 56));
        let empty = ValueType::new(Dtype::F64, &[0, 7]).unwrap();
        assert_eq!((empty.rows(), empty.row_bytes()), (0, 0));
    }
}
