//! The element type of an HDF5 dataset, and the frame type it maps to.

use hdf5_pure::{Datatype, DatatypeByteOrder, EnumMember, FloatingPointLayout, StringPadding};
use kino_codec::Dtype;

/// The stored type of a dataset's elements.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Element {
    /// Numeric; an array type adds `shape` to every element.
    Number {
        dtype: Dtype,
        order: ByteOrder,
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

/// The byte order of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Little,
    Big,
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
            } => array(base_type, dimensions),
            scalar => match number(scalar) {
                Some((dtype, order)) => Self::Number {
                    dtype,
                    order,
                    shape: Vec::new(),
                },
                None => Self::Other("numbers in an uncommon format"),
            },
        }
    }

    /// Bytes of one stored element, or of the reference to it.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::Number { dtype, shape, .. } => shape
                .iter()
                .fold(dtype.size() as u64, |size, &dim| size.saturating_mul(dim)),
            Self::FixedText { width, .. } => *width,
            Self::Text | Self::Bytes | Self::Other(_) => 16,
        }
    }
}

fn array(base: &Datatype, dimensions: &[u32]) -> Element {
    match number(base) {
        Some((dtype, order)) => Element::Number {
            dtype,
            order,
            shape: dimensions.iter().copied().map(u64::from).collect(),
        },
        None => Element::Other("arrays of non-numeric elements"),
    }
}

fn number(datatype: &Datatype) -> Option<(Dtype, ByteOrder)> {
    match datatype {
        Datatype::FixedPoint {
            size,
            byte_order,
            layout,
        } => {
            let dtype = integer(*size, layout.signed)?;
            if layout.bit_offset != 0 || usize::from(layout.bit_precision) != dtype.size() * 8 {
                return None;
            }
            Some((dtype, order(*byte_order)?))
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
            Some((dtype, order(*byte_order)?))
        }
        Datatype::Enumeration {
            base_type, members, ..
        } => {
            let (dtype, order) = number(base_type)?;
            let dtype = if dtype.size() == 1 && is_bool(members) {
                Dtype::Bool
            } else {
                dtype
            };
            Some((dtype, order))
        }
        _ => None,
    }
}

fn integer(size: u32, signed: bool) -> Option<Dtype> {
    Some(match (size, signed) {
        (1, false) => Dtype::U8,
        (2, false) => Dtype::U16,
        (4, false) => Dtype::U32,
        (8, false) => Dtype::U64,
        (1, true) => Dtype::I8,
        (2, true) => Dtype::I16,
        (4, true) => Dtype::I32,
        (8, true) => Dtype::I64,
        _ => return None,
    })
}

fn order(order: DatatypeByteOrder) -> Option<ByteOrder> {
    match order {
        DatatypeByteOrder::LittleEndian => Some(ByteOrder::Little),
        DatatypeByteOrder::BigEndian => Some(ByteOrder::Big),
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
