//! Values of a leaf, and the levels that nest them.
//!
//! ```text
//! def  3 3 3 3  3 3 3 3      a value of a list of lists: def says that it is there,
//! rep  0 2 1 2  0 2 1 2      rep where it starts anew: 0 a row, 1 an inner list
//!      └ [2,2] ┘ └ [2,2] ┘
//! ```

use kino_codec::Dtype;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{ByteArray, DataType, FixedLenByteArray, Int96};
use parquet::errors::Result;

use crate::error::wrong;

/// Rows of a leaf.
#[derive(Debug)]
pub struct Rows {
    /// The values that are there.
    pub values: Values,
    /// Where they are, and where nothing is.
    pub levels: Levels,
}

/// Values of one physical type.
#[derive(Debug)]
#[expect(missing_docs, reason = "named like the physical types of Parquet")]
pub enum Values {
    Bool(Vec<bool>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Int96(Vec<Int96>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    ByteArray(Vec<ByteArray>),
    FixedLenByteArray(Vec<FixedLenByteArray>),
}

/// Definition and repetition levels.
#[derive(Debug, Default)]
pub struct Levels {
    /// [`Levels::full`] for a value, less for a null or an empty list; empty if nothing can be null.
    pub defs: Vec<i16>,
    /// 0 where a row begins, `n` where a list of depth `n` continues; empty if nothing is in a list.
    pub reps: Vec<i16>,
    /// The definition level of a value.
    pub full: i16,
}

/// Runs `$body` for every physical type.
macro_rules! for_each_type {
    ($body:ident) => {
        $body! {
            Bool bool BoolColumnReader BoolColumnWriter,
            Int32 i32 Int32ColumnReader Int32ColumnWriter,
            Int64 i64 Int64ColumnReader Int64ColumnWriter,
            Int96 Int96 Int96ColumnReader Int96ColumnWriter,
            Float f32 FloatColumnReader FloatColumnWriter,
            Double f64 DoubleColumnReader DoubleColumnWriter,
            ByteArray ByteArray ByteArrayColumnReader ByteArrayColumnWriter,
            FixedLenByteArray FixedLenByteArray FixedLenByteArrayColumnReader FixedLenByteArrayColumnWriter
        }
    };
}

macro_rules! implement {
    ($($variant:ident $ty:ident $reader:ident $writer:ident),*) => {
        $(impl From<Vec<$ty>> for Values {
            fn from(values: Vec<$ty>) -> Self {
                Self::$variant(values)
            }
        })*

        impl Rows {
            /// Reads exactly `rows` rows.
            pub(crate) fn read(reader: &mut ColumnReader, rows: usize, full: i16) -> Result<Self> {
                let (values, mut levels) = match reader {
                    $(ColumnReader::$reader(reader) => take(reader, rows)?,)*
                };
                levels.full = full;
                Ok(Self { values, levels })
            }

            pub(crate) fn write(&self, writer: &mut ColumnWriter<'_>) -> Result<()> {
                let Levels { defs, reps, .. } = &self.levels;
                let reps = (!reps.is_empty()).then_some(reps.as_slice());
                let defs = (!defs.is_empty()).then_some(defs.as_slice());
                match (writer, &self.values) {
                    $((ColumnWriter::$writer(writer), Values::$variant(values)) => {
                        writer.write_batch(values, defs, reps)?
                    })*
                    _ => return Err(wrong("a value does not match its column")),
                };
                Ok(())
            }
        }

        impl Values {
            fn len(&self) -> usize {
                match self {
                    $(Self::$variant(values) => values.len(),)*
                }
            }
        }

        /// Skips exactly `rows` rows.
        pub(crate) fn skip(reader: &mut ColumnReader, rows: usize) -> Result<()> {
            let skipped = match reader {
                $(ColumnReader::$reader(reader) => reader.skip_records(rows)?,)*
            };
            if skipped != rows {
                return Err(wrong("ends before its last row"));
            }
            Ok(())
        }
    };
}

for_each_type!(implement);

fn take<T: DataType>(reader: &mut ColumnReaderImpl<T>, rows: usize) -> Result<(Values, Levels)>
where
    Values: From<Vec<T::T>>,
{
    let (mut values, mut levels, mut left) = (Vec::new(), Levels::default(), rows);
    while left > 0 {
        let (defs, reps) = (Some(&mut levels.defs), Some(&mut levels.reps));
        let (read, ..) = reader.read_records(left, defs, reps, &mut values)?;
        if read == 0 || read > left {
            return Err(wrong("ends before its last row"));
        }
        left -= read;
    }
    Ok((values.into(), levels))
}

impl Rows {
    /// Refuses nulls and rows of a different shape.
    pub(crate) fn check_shape(&self, rows: usize, shape: &[usize]) -> Result<()> {
        let Levels { defs, reps, full } = &self.levels;
        if defs.iter().any(|def| def != full) {
            return Err(wrong("has a null"));
        }
        let per_row = shape.iter().product::<usize>();
        if rows.checked_mul(per_row) != Some(self.values.len()) {
            return Err(wrong("has rows of several lengths"));
        }
        let row = repetition(shape);
        if reps.chunks(per_row.max(1)).any(|found| found != row) {
            return Err(wrong("has rows of several shapes"));
        }
        Ok(())
    }
}

impl Levels {
    /// Of `rows` rows of one shape, in a column whose values have the level `full`.
    pub(crate) fn of_shape(shape: &[usize], rows: usize, full: i16) -> Self {
        let row = repetition(shape);
        Self {
            defs: if full > 0 {
                vec![full; row.len() * rows]
            } else {
                Vec::new()
            },
            reps: if shape.is_empty() {
                Vec::new()
            } else {
                row.repeat(rows)
            },
            full,
        }
    }

    /// A value for each row of a column without lists, `None` where it is null.
    pub fn flat<T>(&self, values: Vec<T>) -> impl Iterator<Item = Option<T>> {
        let rows = if self.defs.is_empty() {
            values.len()
        } else {
            self.defs.len()
        };
        let mut values = values.into_iter();
        (0..rows).map(move |row| {
            let is_there = self.defs.get(row).is_none_or(|def| *def == self.full);
            is_there.then(|| values.next()).flatten()
        })
    }
}

/// The repetition levels of a row of this shape.
///
/// A row of `[2, 3]` is `0 2 2 1 2 2`: 0 begins a row, 1 a list inside it, 2 is in the list of the one before.
fn repetition(shape: &[usize]) -> Vec<i16> {
    let depth = i16::try_from(shape.len()).unwrap_or(i16::MAX);
    let begins = |element: usize| {
        let (mut len, mut level) = (1, depth);
        for dim in shape.iter().rev() {
            len *= dim;
            if !element.is_multiple_of(len) {
                break;
            }
            level -= 1;
        }
        level
    };
    (0..shape.iter().product()).map(begins).collect()
}

impl Values {
    /// Appends numbers, packed and little-endian.
    pub(crate) fn pack(&self, dtype: Dtype, out: &mut Vec<u8>) -> Result<()> {
        let end = out.len() + self.len() * dtype.size();
        match self {
            Self::Bool(values) => out.extend(values.iter().map(|value| u8::from(*value))),
            Self::Float(values) => out.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            Self::Double(values) => out.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            Self::Int64(values) => out.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            // A narrow integer is stored in the low bits of 32.
            Self::Int32(values) => {
                let size = dtype.size().min(4);
                let bytes = values
                    .iter()
                    .flat_map(|value| value.to_le_bytes().into_iter().take(size));
                out.extend(bytes);
            }
            Self::FixedLenByteArray(values) if dtype == Dtype::F16 => {
                values
                    .iter()
                    .for_each(|value| out.extend_from_slice(value.data()));
            }
            _ => return Err(wrong("is not numeric")),
        }
        if out.len() != end {
            return Err(wrong("has values whose size does not match their type"));
        }
        Ok(())
    }

    /// Numbers that are packed and little-endian, as the physical type of their dtype.
    pub(crate) fn unpack(packed: &[u8], dtype: Dtype) -> Self {
        fn each<const SIZE: usize, T>(packed: &[u8], to: impl Fn([u8; SIZE]) -> T) -> Values
        where
            Values: From<Vec<T>>,
        {
            let (chunks, _) = packed.as_chunks::<SIZE>();
            chunks
                .iter()
                .map(|&bytes| to(bytes))
                .collect::<Vec<T>>()
                .into()
        }
        match dtype {
            Dtype::Bool => each(packed, |[byte]| byte != 0),
            Dtype::F16 => each(packed, |two: [u8; 2]| FixedLenByteArray::from(two.to_vec())),
            Dtype::F32 => each(packed, f32::from_le_bytes),
            Dtype::F64 => each(packed, f64::from_le_bytes),
            Dtype::I8 => each(packed, |byte| i32::from(i8::from_le_bytes(byte))),
            Dtype::U8 => each(packed, |[byte]| i32::from(byte)),
            Dtype::I16 => each(packed, |two| i32::from(i16::from_le_bytes(two))),
            Dtype::U16 => each(packed, |two| i32::from(u16::from_le_bytes(two))),
            // An unsigned integer is stored in the bits of a signed one.
            Dtype::I32 | Dtype::U32 => each(packed, i32::from_le_bytes),
            Dtype::I64 | Dtype::U64 => each(packed, i64::from_le_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slow twin: walks nested lists; `begins` is the level of the first value, `depth` the number of enclosing
    /// lists.
    fn walk(shape: &[usize], begins: i16, depth: i16, out: &mut Vec<i16>) {
        let Some((&dim, inner)) = shape.split_first() else {
            return out.push(begins);
        };
        for idx in 0..dim {
            let begins = if idx == 0 { begins } else { depth + 1 };
            walk(inner, begins, depth + 1, out);
        }
    }

    #[test]
    fn levels_match_a_walk_through_the_lists() {
        for shape in [
            &[][..],
            &[1],
            &[6],
            &[2, 3],
            &[3, 1, 2],
            &[1, 1],
            &[2, 2, 2, 2],
        ] {
            let mut row = Vec::new();
            walk(shape, 0, 0, &mut row);
            assert_eq!(repetition(shape), row, "{shape:?}");
        }
        let plain = Levels::of_shape(&[], 2, 1);
        assert_eq!((plain.defs, plain.reps), (vec![1, 1], vec![]));
        let lists = Levels::of_shape(&[2], 2, 3);
        assert_eq!((lists.defs, lists.reps), (vec![3; 4], vec![0, 1, 0, 1]));
    }

    #[test]
    fn numbers_are_packed_and_unpacked() {
        for dtype in Dtype::ALL {
            let mut packed: Vec<u8> = (0..16).map(|byte| byte * 16 + 9).collect();
            if dtype == Dtype::Bool {
                packed = vec![0, 1, 1, 0];
            }
            let mut again = Vec::new();
            Values::unpack(&packed, dtype)
                .pack(dtype, &mut again)
                .unwrap();
            assert_eq!(again, packed, "{dtype:?}");
        }
    }
}
