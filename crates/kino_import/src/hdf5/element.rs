//! The element type of an HDF5 dataset, and the frame type it maps to.

use hdf5_pure::{Datatype, DatatypeByteOrder, EnumMember, FloatingPointLayout, StringPadding};
use kino_codec::Dtype;

use crate::npy;
use crate::specs::product;

/// The stored type of a dataset's elements.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Element {
    /// Numeric; an array type adds `shape` to every element.
    Number {
        dtype: Dtype,
        is_big: bool,
        shape: Vec<u64>,
    },
    /// Fixed-length strings, padded.
    FixedText { width: u64, space_padded: bool },
    /// Variable-length strings.
    Text,
    /// Variable-length bytes: most likely an image file.
    Bytes,
    /// Something that cannot be a frame.
    Other(&'static str),
}

pub(crate) const IEEE754_BINARY16: FloatingPointLayout = FloatingPointLayout {
    bit_offset: 0,
    bit_precision: 16,
    exponent_location: 10,
    exponent_size: 5,
    mantissa_location: 0,
    mantissa_size: 10,
    exponent_bias: 15,
};

impl Element {
    pub(crate) fn of(datatype: &Datatype) -> Self {
        match datatype {
            Datatype::String { size, padding, .. } => Self::FixedText {
                width: u64::from(*size),
                space_padded: *padding == StringPadding::SpacePad,
            },
            Datatype::VariableLength {
                is_string: true, ..
            } => Self::Text,
            Datatype::VariableLength { base_type, .. } => match number(base_type) {
                Some((Dtype::U8 | Dtype::I8, _)) => Self::Bytes,
                _ => Self::Other("variable-length arrays"),
            },
            Datatype::Compound { .. } => Self::Other("compound values"),
            Datatype::Reference { .. } => Self::Other("references"),
            Datatype::Opaque { .. } => Self::Other("opaque bytes"),
            Datatype::Time { .. } | Datatype::BitField { .. } => Self::Other("bit fields"),
            Datatype::Array {
                base_type,
                dimensions,
            } => Self::numeric(base_type, dimensions)
                .unwrap_or(Self::Other("arrays of non-numeric elements")),
            scalar => {
                Self::numeric(scalar, &[]).unwrap_or(Self::Other("numbers in an uncommon format"))
            }
        }
    }

    fn numeric(base: &Datatype, dimensions: &[u32]) -> Option<Self> {
        let (dtype, is_big) = number(base)?;
        Some(Self::Number {
            dtype,
            is_big,
            shape: dimensions.iter().copied().map(u64::from).collect(),
        })
    }

    /// Bytes of one stored element, or of the reference to it.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::Number { dtype, shape, .. } => product(dtype.size() as u64, shape),
            Self::FixedText { width, .. } => *width,
            Self::Text | Self::Bytes | Self::Other(_) => 16,
        }
    }
}

/// The dtype of a number, and whether it is big-endian.
fn number(datatype: &Datatype) -> Option<(Dtype, bool)> {
    let (dtype, order) = match datatype {
        Datatype::FixedPoint {
            size,
            byte_order,
            layout,
        } => {
            let letter = if layout.signed { "i" } else { "u" };
            let dtype = npy::dtype_of(letter, usize::try_from(*size).ok()?)?;
            if layout.bit_offset != 0 || usize::from(layout.bit_precision) != dtype.size() * 8 {
                return None;
            }
            (dtype, byte_order)
        }
        Datatype::FloatingPoint {
            size,
            byte_order,
            layout,
        } => {
            let dtype = match (size, *layout) {
                (2, IEEE754_BINARY16) => Dtype::F16,
                (4, FloatingPointLayout::IEEE754_BINARY32) => Dtype::F32,
                (8, FloatingPointLayout::IEEE754_BINARY64) => Dtype::F64,
                _ => return None,
            };
            (dtype, byte_order)
        }
        Datatype::Enumeration {
            base_type, members, ..
        } => {
            let (dtype, is_big) = number(base_type)?;
            let is_bool = dtype.size() == 1 && is_bool(members);
            return Some((if is_bool { Dtype::Bool } else { dtype }, is_big));
        }
        _ => return None,
    };
    match order {
        DatatypeByteOrder::LittleEndian => Some((dtype, false)),
        DatatypeByteOrder::BigEndian => Some((dtype, true)),
        DatatypeByteOrder::Vax => None,
    }
}

/// Whether these are the members of h5py's bool enum.
pub(crate) fn is_bool(members: &[EnumMember]) -> bool {
    let is =
        |member: &EnumMember, name: &str, value: u8| member.name == name && member.value == [value];
    matches!(members, [a, b] if is(a, "FALSE", 0) && is(b, "TRUE", 1)
        || is(a, "TRUE", 1) && is(b, "FALSE", 0))
}
