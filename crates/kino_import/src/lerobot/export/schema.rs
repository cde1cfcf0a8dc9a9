//! The schema of parquet files: columns as pyarrow lays them out.
//!
//! ```text
//! number   optional float x
//! array    optional group x (List) { repeated group list { optional float element } }, once more per dimension
//! text     optional binary x (String)
//! texts    an array of text
//! image  optional group x { optional binary bytes; optional binary path (String) }
//! ```

use std::sync::Arc;

use half::f16;
use kino_codec::Dtype;
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::errors::ParquetError;
use parquet::schema::types::{Type, TypePtr};

use super::table::Content;

/// The field of a column.
pub(super) fn field(name: &str, content: &Content) -> Result<TypePtr, ParquetError> {
    match content {
        Content::Numbers(dtype, shape) => {
            let mut inner = number(if shape.is_empty() { name } else { "element" }, *dtype)?;
            for level in 0..shape.len() {
                let is_outer = level + 1 == shape.len();
                inner = list(if is_outer { name } else { "element" }, inner)?;
            }
            Ok(inner)
        }
        Content::Text => text(name),
        Content::Texts => list(name, text("element")?),
        Content::Image => {
            let bytes = Type::primitive_type_builder("bytes", Physical::BYTE_ARRAY);
            let fields = vec![Arc::new(bytes.build()?), text("path")?];
            let group = Type::group_type_builder(name).with_repetition(Repetition::OPTIONAL);
            Ok(Arc::new(group.with_fields(fields).build()?))
        }
    }
}

fn list(name: &str, element: TypePtr) -> Result<TypePtr, ParquetError> {
    let repeated = Type::group_type_builder("list")
        .with_repetition(Repetition::REPEATED)
        .with_fields(vec![element])
        .build()?;
    let group = Type::group_type_builder(name)
        .with_repetition(Repetition::OPTIONAL)
        .with_converted_type(ConvertedType::LIST)
        .with_logical_type(Some(LogicalType::List))
        .with_fields(vec![Arc::new(repeated)]);
    Ok(Arc::new(group.build()?))
}

fn text(name: &str) -> Result<TypePtr, ParquetError> {
    let text = Type::primitive_type_builder(name, Physical::BYTE_ARRAY)
        .with_repetition(Repetition::OPTIONAL)
        .with_converted_type(ConvertedType::UTF8)
        .with_logical_type(Some(LogicalType::String));
    Ok(Arc::new(text.build()?))
}

fn number(name: &str, dtype: Dtype) -> Result<TypePtr, ParquetError> {
    let (physical, converted) = match dtype {
        Dtype::Bool => (Physical::BOOLEAN, ConvertedType::NONE),
        Dtype::F16 => (Physical::FIXED_LEN_BYTE_ARRAY, ConvertedType::NONE),
        Dtype::F32 => (Physical::FLOAT, ConvertedType::NONE),
        Dtype::F64 => (Physical::DOUBLE, ConvertedType::NONE),
        Dtype::I8 => (Physical::INT32, ConvertedType::INT_8),
        Dtype::I16 => (Physical::INT32, ConvertedType::INT_16),
        Dtype::I32 => (Physical::INT32, ConvertedType::NONE),
        Dtype::I64 => (Physical::INT64, ConvertedType::NONE),
        Dtype::U8 => (Physical::INT32, ConvertedType::UINT_8),
        Dtype::U16 => (Physical::INT32, ConvertedType::UINT_16),
        Dtype::U32 => (Physical::INT32, ConvertedType::UINT_32),
        Dtype::U64 => (Physical::INT64, ConvertedType::UINT_64),
    };
    let mut builder = Type::primitive_type_builder(name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_converted_type(converted);
    if dtype == Dtype::F16 {
        builder = builder
            .with_length(i32::try_from(size_of::<f16>()).unwrap_or(2))
            .with_logical_type(Some(LogicalType::Float16));
    }
    Ok(Arc::new(builder.build()?))
}
