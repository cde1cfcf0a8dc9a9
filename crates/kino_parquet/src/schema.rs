//! The type of a column, in both directions.
//!
//! ```text
//! Numbers   float x                                            lists: group x (List) { repeated group list { float
//! Text      binary x (String)                                                        element } }, once per dimension
//! Texts     a list of text
//! Image     group x { binary bytes; binary path (String) }     reading: also a plain binary
//! ```
//!
//! A nullable column is optional at every level, as pyarrow writes it; any other is required at every level.

use std::sync::Arc;

use kino_codec::Dtype;
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::errors::Result;
use parquet::schema::types::{Type, TypePtr};

use crate::error::wrong;

/// Limit on nested lists: the dimensions of a frame.
const MAX_DEPTH: usize = 8;

/// A column to write, or one that a file must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its content.
    pub form: Form,
    /// Whether it may be null.
    pub presence: Presence,
}

/// Whether a column may be null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Never null.
    Always,
    /// May be null.
    Nullable,
}

/// The content of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Numeric values in `depth` nested lists.
    Numbers {
        /// The type of the values.
        dtype: Dtype,
        /// The number of lists around a value.
        depth: usize,
    },
    /// A text.
    Text,
    /// A list of texts.
    Texts,
    /// An image file.
    Image,
    /// Anything else that JSON can represent.
    Json,
    /// Something that cannot be a frame.
    Other(&'static str),
}

impl Form {
    /// One number per row.
    pub const fn scalar(dtype: Dtype) -> Self {
        Self::Numbers { dtype, depth: 0 }
    }

    /// The number of lists around a value of a column that is written.
    pub(crate) fn depth(self) -> usize {
        match self {
            Self::Numbers { depth, .. } => depth,
            Self::Texts => 1,
            _ => 0,
        }
    }

    /// The content of a field of a file's schema.
    pub(crate) fn of(field: &Type) -> Self {
        let (mut inner, mut depth) = (field, 0);
        while let Some(element) = element(inner) {
            (inner, depth) = (element, depth + 1);
        }
        if depth > MAX_DEPTH {
            return Self::Other("lists nested too deeply for a frame");
        }
        if !inner.is_primitive() {
            return match inner.get_fields() {
                [bytes, path] if depth == 0 && is_image(bytes, path) => Self::Image,
                _ => Self::Json,
            };
        }
        match (number(inner), depth) {
            (Some(dtype), _) => Self::Numbers { dtype, depth },
            (None, 0) if is_text(inner) => Self::Text,
            (None, 0) if inner.get_physical_type() == Physical::BYTE_ARRAY => Self::Image,
            (None, 0) => Self::Other("values of a type that cannot be a frame"),
            (None, 1) if is_text(inner) => Self::Texts,
            (None, _) => Self::Json,
        }
    }
}

impl Field {
    /// Its type in a schema.
    pub(crate) fn to_parquet(&self) -> Result<TypePtr> {
        let repetition = match self.presence {
            Presence::Always => Repetition::REQUIRED,
            Presence::Nullable => Repetition::OPTIONAL,
        };
        let (name, depth) = (self.name.as_str(), self.form.depth());
        let inner = if depth == 0 { name } else { "element" };
        let mut ty = match self.form {
            Form::Numbers { dtype, .. } => number_type(inner, dtype, repetition),
            Form::Text | Form::Texts => text_type(inner, repetition),
            Form::Image => image_type(inner, repetition),
            Form::Json | Form::Other(_) => Err(wrong("a column of this type cannot be written")),
        }?;
        for level in 1..=depth {
            ty = list_type(
                if level == depth { name } else { "element" },
                ty,
                repetition,
            )?;
        }
        Ok(ty)
    }
}

/// How many leaves a field has.
pub(crate) fn leaves(ty: &Type) -> usize {
    if ty.is_primitive() {
        return 1;
    }
    ty.get_fields().iter().map(|field| leaves(field)).sum()
}

/// The three levels that the Parquet specification requires.
fn list_type(name: &str, element: TypePtr, repetition: Repetition) -> Result<TypePtr> {
    let repeated = Type::group_type_builder("list")
        .with_repetition(Repetition::REPEATED)
        .with_fields(vec![element])
        .build()?;
    let group = Type::group_type_builder(name)
        .with_repetition(repetition)
        .with_logical_type(Some(LogicalType::List))
        .with_fields(vec![Arc::new(repeated)]);
    group.build().map(Arc::new)
}

fn text_type(name: &str, repetition: Repetition) -> Result<TypePtr> {
    let text = Type::primitive_type_builder(name, Physical::BYTE_ARRAY)
        .with_repetition(repetition)
        .with_logical_type(Some(LogicalType::String));
    text.build().map(Arc::new)
}

fn image_type(name: &str, repetition: Repetition) -> Result<TypePtr> {
    let bytes = Type::primitive_type_builder("bytes", Physical::BYTE_ARRAY)
        .with_repetition(repetition)
        .build()?;
    let fields = vec![Arc::new(bytes), text_type("path", repetition)?];
    let group = Type::group_type_builder(name).with_repetition(repetition);
    group.with_fields(fields).build().map(Arc::new)
}

/// Numbers: physical type and annotation of each dtype.
const NUMBERS: [(Dtype, Physical, ConvertedType); 11] = [
    (Dtype::Bool, Physical::BOOLEAN, ConvertedType::NONE),
    (Dtype::F32, Physical::FLOAT, ConvertedType::NONE),
    (Dtype::F64, Physical::DOUBLE, ConvertedType::NONE),
    (Dtype::I8, Physical::INT32, ConvertedType::INT_8),
    (Dtype::I16, Physical::INT32, ConvertedType::INT_16),
    (Dtype::U8, Physical::INT32, ConvertedType::UINT_8),
    (Dtype::U16, Physical::INT32, ConvertedType::UINT_16),
    (Dtype::U32, Physical::INT32, ConvertedType::UINT_32),
    (Dtype::U64, Physical::INT64, ConvertedType::UINT_64),
    (Dtype::I32, Physical::INT32, ConvertedType::NONE),
    (Dtype::I64, Physical::INT64, ConvertedType::NONE),
];

fn number_type(name: &str, dtype: Dtype, repetition: Repetition) -> Result<TypePtr> {
    let known = NUMBERS.iter().find(|(known, ..)| *known == dtype);
    let builder = match known {
        Some((_, physical, converted)) => {
            Type::primitive_type_builder(name, *physical).with_converted_type(*converted)
        }
        // The only one whose type is not a number.
        None => Type::primitive_type_builder(name, Physical::FIXED_LEN_BYTE_ARRAY)
            .with_length(2)
            .with_logical_type(Some(LogicalType::Float16)),
    };
    builder.with_repetition(repetition).build().map(Arc::new)
}

/// The dtype, `None` if it is not numeric.
fn number(ty: &Type) -> Option<Dtype> {
    let (physical, info) = (ty.get_physical_type(), ty.get_basic_info());
    let converted = info.converted_type();
    if converted == ConvertedType::DECIMAL {
        return None;
    }
    if let Some(LogicalType::Float16) = info.logical_type_ref() {
        return Some(Dtype::F16);
    }
    let of_physical = || NUMBERS.iter().filter(|(_, known, _)| *known == physical);
    let exact = of_physical().find(|(.., known)| *known == converted);
    // An unknown annotation, such as a date, is a plain number.
    let plain = || of_physical().find(|(.., known)| *known == ConvertedType::NONE);
    exact.or_else(plain).map(|(dtype, ..)| *dtype)
}

/// The element of a list: `optional group x (List) { repeated group list { optional y element } }`.
fn element(ty: &Type) -> Option<&Type> {
    if ty.is_primitive() || ty.get_basic_info().converted_type() != ConvertedType::LIST {
        return None;
    }
    match ty.get_fields() {
        [repeated] if !repeated.is_primitive() => match repeated.get_fields() {
            [element] => Some(element),
            _ => None,
        },
        _ => None,
    }
}

fn is_text(ty: &Type) -> bool {
    let converted = ty.get_basic_info().converted_type();
    ty.get_physical_type() == Physical::BYTE_ARRAY
        && matches!(
            converted,
            ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON
        )
}

fn is_image(bytes: &Type, path: &Type) -> bool {
    let is_binary = |ty: &Type| ty.is_primitive() && ty.get_physical_type() == Physical::BYTE_ARRAY;
    (bytes.name(), path.name()) == ("bytes", "path") && is_binary(bytes) && is_binary(path)
}
