//! Checks the page headers of a column before the Parquet crate trusts them.
//!
//! ```text
//! column of a row group   | header | dictionary page | header | data page | header | data page | …
//! header (compact Thrift) 1 type  2 uncompressed size  3 compressed size  4 crc
//!                         5 data page { 1 values  2 encoding  … }   7 dictionary { 1 values  2 encoding  … }
//! ```
//!
//! The crate allocates what a header states: up to 2 GiB for a page, 64 GiB for a dictionary. Here the stated sizes
//! are first checked against the rows of the table and the bytes of the file. The grammar is strict (known fields,
//! ascending, of the right type), so both parsers see the same header.

use parquet::file::metadata::ColumnChunkMetaData;

use super::schema::{Kind, PLACE};
use super::{MAX_PAGE_BYTES, MAX_SPLITS};
use crate::error::{Result, corrupt};

/// What a field may contain.
enum Shape {
    Int32,
    Int64,
    Bool,
    Bytes,
    Struct(&'static [(u64, Shape)]),
}

const HEADER: &[(u64, Shape)] = &[
    (1, Shape::Int32),
    (2, Shape::Int32),
    (3, Shape::Int32),
    (4, Shape::Int32),
    (5, Shape::Struct(DATA)),
    (7, Shape::Struct(DICTIONARY)),
];

const DATA: &[(u64, Shape)] = &[
    (1, Shape::Int32),
    (2, Shape::Int32),
    (3, Shape::Int32),
    (4, Shape::Int32),
    (5, Shape::Struct(STATISTICS)),
];

const DICTIONARY: &[(u64, Shape)] = &[(1, Shape::Int32), (2, Shape::Int32), (3, Shape::Bool)];

/// Other writers state the extremes of each page.
const STATISTICS: &[(u64, Shape)] = &[
    (1, Shape::Bytes),
    (2, Shape::Bytes),
    (3, Shape::Int64),
    (4, Shape::Int64),
    (5, Shape::Bytes),
    (6, Shape::Bytes),
    (7, Shape::Bool),
    (8, Shape::Bool),
];

const DATA_PAGE: i64 = 0;
const DICTIONARY_PAGE: i64 = 2;

// The encodings whose decoders do not allocate.
const PLAIN: i64 = 0;
const OLD_DICTIONARY: i64 = 2;
const RUNS: i64 = 3;
const DICTIONARY_RUNS: i64 = 8;

/// The values of a header: the fields of `HEADER`, then those of the page's own header.
#[derive(Default)]
struct Header {
    fields: [i64; 4],
    inner: [i64; 4],
    /// Which of `HEADER`'s structs it had.
    inner_id: u64,
}

/// Refuses a column of a row group whose headers state more than `rows` rows can need.
pub(super) fn check_pages(
    file: &[u8],
    chunk: &ColumnChunkMetaData,
    kind: Kind,
    rows: usize,
) -> Result<()> {
    let start = chunk.dictionary_page_offset();
    let start = usize::try_from(start.unwrap_or(chunk.data_page_offset())).ok();
    let len = usize::try_from(chunk.compressed_size()).ok();
    let bytes = start
        .zip(len)
        .and_then(|(start, len)| file.get(start..)?.get(..len));
    let bytes = bytes.ok_or_else(|| corrupt(PLACE, "a column extends beyond the file"))?;
    let values = count_values(bytes).ok_or_else(|| corrupt(PLACE, "a page header is invalid"))?;
    let rows = rows as u64;
    let fits = match kind {
        Kind::TextList => values <= rows.saturating_mul(MAX_SPLITS as u64),
        _ => values == rows,
    };
    if !fits {
        return Err(corrupt(
            PLACE,
            format!("a column has {values} values, more than its {rows} rows can have"),
        ));
    }
    Ok(())
}

/// The number of values in a column; `None` if a header is not acceptable.
fn count_values(column: &[u8]) -> Option<u64> {
    let mut input = Input(column);
    let mut total = 0u64;
    let mut has_dictionary = false;
    while !input.0.is_empty() {
        let header = input.header()?;
        let [page_type, uncompressed, compressed, _] = header.fields;
        let [values, encoding, ..] = header.inner;
        let values = u64::try_from(values).ok()?;
        let uncompressed = usize::try_from(uncompressed).ok()?;
        if uncompressed > MAX_PAGE_BYTES {
            return None;
        }
        match (page_type, header.inner_id, encoding) {
            // A value takes at least a byte.
            (DICTIONARY_PAGE, 7, _) if values <= uncompressed as u64 => has_dictionary = true,
            (DATA_PAGE, 5, PLAIN | RUNS) => total = total.checked_add(values)?,
            (DATA_PAGE, 5, OLD_DICTIONARY | DICTIONARY_RUNS) if has_dictionary => {
                total = total.checked_add(values)?;
            }
            _ => return None,
        }
        input.0 = input.0.get(usize::try_from(compressed).ok()?..)?;
    }
    Some(total)
}

/// The unread rest of a header; every method returns `None` on unexpected input.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn header(&mut self) -> Option<Header> {
        let mut header = Header::default();
        let mut last = 0;
        while let Some((id, shape)) = self.field(&mut last, HEADER)? {
            match shape {
                Shape::Struct(shapes) if header.inner_id == 0 => {
                    header.inner_id = id;
                    header.inner = self.fields(shapes)?;
                }
                Shape::Int32 => {
                    *header.fields.get_mut(usize::try_from(id).ok()? - 1)? = self.int()?
                }
                _ => return None,
            }
        }
        Some(header)
    }

    /// A struct; returns the values of its first fields.
    fn fields(&mut self, shapes: &'static [(u64, Shape)]) -> Option<[i64; 4]> {
        let mut numbers = [0; 4];
        let mut last = 0;
        while let Some((id, shape)) = self.field(&mut last, shapes)? {
            match shape {
                Shape::Int32 | Shape::Int64 => {
                    let number = self.int()?;
                    if let Some(place) = numbers.get_mut(usize::try_from(id).ok()? - 1) {
                        *place = number;
                    }
                }
                Shape::Bool => {}
                Shape::Bytes => {
                    let len = usize::try_from(self.varint()?).ok()?;
                    self.0 = self.0.get(len..)?;
                }
                Shape::Struct(shapes) => {
                    self.fields(shapes)?;
                }
            }
        }
        Some(numbers)
    }

    /// The id and shape of the next field, or the inner `None` at the end of the struct.
    fn field(
        &mut self,
        last: &mut u64,
        shapes: &'static [(u64, Shape)],
    ) -> Option<Option<(u64, &'static Shape)>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some(None);
        }
        // A step of 0 announces an explicit id, which could decrease; no writer needs that here.
        let step = u64::from(byte >> 4);
        *last += step;
        let (id, shape) = shapes.iter().find(|(id, _)| step > 0 && id == last)?;
        let wire = byte & 0xf;
        let right = match shape {
            Shape::Bool => wire == 1 || wire == 2,
            Shape::Int32 => wire == 5,
            Shape::Int64 => wire == 6,
            Shape::Bytes => wire == 8,
            Shape::Struct(_) => wire == 12,
        };
        right.then_some(Some((*id, shape)))
    }

    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    /// At most five bytes: nothing in a header needs more than 35 bits.
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// A zigzag integer.
    fn int(&mut self) -> Option<i64> {
        let value = self.varint()?;
        let half = i64::try_from(value >> 1).ok()?;
        Some(if value & 1 == 1 { !half } else { half })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 32-bit field right after the previous one.
    fn int(number: u32) -> Vec<u8> {
        let mut zigzag = u64::from(number) << 1;
        let mut bytes = vec![0x15];
        while zigzag >= 0x80 {
            bytes.push(u8::try_from(zigzag & 0x7f).unwrap() | 0x80);
            zigzag >>= 7;
        }
        bytes.push(u8::try_from(zigzag).unwrap());
        bytes
    }

    /// A page without bytes: its header, with a step to the inner struct, and the struct's values.
    fn page(page_type: u32, size: u32, step: u8, inner: [u32; 2]) -> Vec<u8> {
        let head = [int(page_type), int(size), int(0), vec![step << 4 | 12]];
        let inner = [int(inner[0]), int(inner[1]), vec![0, 0]];
        [head.concat(), inner.concat()].concat()
    }

    fn data(values: u32, encoding: u32) -> Vec<u8> {
        page(0, 100, 2, [values, encoding])
    }

    fn dictionary(size: u32, values: u32) -> Vec<u8> {
        page(2, size, 4, [values, 2])
    }

    #[test]
    fn values_of_data_pages_are_counted() {
        assert_eq!(count_values(&[]), Some(0));
        let column = [dictionary(50, 50), data(20, 8), data(1 << 20, 0)].concat();
        assert_eq!(count_values(&column), Some(20 + (1 << 20)));
    }

    #[test]
    fn headers_that_demand_memory_are_refused() {
        assert_eq!(count_values(&dictionary(50, 51)), None);
        assert_eq!(count_values(&dictionary(u32::MAX >> 1, 1)), None);
        assert_eq!(count_values(&page(0, u32::MAX >> 1, 2, [1, 0])), None);
    }

    #[test]
    fn unknown_pages_and_encodings_are_refused() {
        assert_eq!(
            count_values(&data(1, 8)),
            None,
            "a dictionary must come first"
        );
        assert_eq!(count_values(&data(1, 6)), None, "delta lengths");
        assert_eq!(
            count_values(&page(3, 100, 2, [1, 0])),
            None,
            "second version"
        );
        assert_eq!(
            count_values(&page(0, 100, 4, [1, 0])),
            None,
            "the wrong inner header"
        );
        let cut = data(1, 0);
        for len in 1..cut.len() {
            assert_eq!(count_values(&cut[..len]), None, "{len}");
        }
    }

    #[test]
    fn a_repeated_field_or_an_explicit_id_is_refused() {
        let mut twice = data(1, 0);
        twice.truncate(twice.len() - 1);
        twice.extend([0x05, 4, 0, 0]);
        assert_eq!(count_values(&twice), None);
    }
}
