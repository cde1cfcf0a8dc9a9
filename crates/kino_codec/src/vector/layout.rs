//! What the pages of a run share: how each column is stored.
//!
//! ```text
//! shared = major │ minor │ gates │ classes │ steps │ step … │ column 0 │ column 1 │ … │ class 0 │ class 1 │ …
//!          u8      u8      varint  varint    varint  f64
//! column = kind + 8 × predictor + 128 × two zeros │ …
//!          u8                     0 constant: the value            1 copy: varint earlier element
//!                                 other: varint class │ varint gate │ map │ start …
//! map    = 2 ordered, 5 narrow: nothing     3 times, 4 over: varint step     6 affine: varint step │ zigzag offset
//! start  = zigzag least │ u8 bits              one per start value that the predictor needs
//! class  = u8 width (0: 16 bits, 1: 32, 2: 64) │ pco chunk metadata       or 3: no page has a value of it
//! ```
//!
//! A gate is stored as its index plus one, zero for none. If there are gates, class 0 holds them and nothing else.

use crate::error::{Result, corrupt};

use super::NAME;
use super::bits::{put_varint, take_up_to, take_varint, unzigzag, zigzag};
use super::map::Map;
use super::predictor::Predictor;
use super::value::Value;

/// More would cost readers memory and gain nothing.
pub(super) const MAX_GATES: usize = 16;
/// Every class costs a reader some kilobytes.
pub(super) const MAX_CLASSES: usize = 255;

/// What pages share, except for the metadata of the classes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Layout<T> {
    pub(super) gates: usize,
    pub(super) classes: usize,
    pub(super) columns: Vec<Column<T>>,
}

/// How one element of the vector is stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Column<T> {
    /// The same in every frame.
    Constant(T),
    /// The same as an earlier stored element.
    Copy(usize),
    /// Integers in a class.
    Stored(Stored),
}

/// A column of integers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stored {
    pub(super) map: Map,
    pub(super) predictor: Predictor,
    pub(super) class: usize,
    /// The column changes only where this gate opens.
    pub(super) gate: Option<usize>,
    pub(super) starts: [Start; 2],
}

/// How the first integer of a page, or its first step, is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Start {
    /// The minimum over all pages.
    pub(super) least: i64,
    /// Bits above it.
    pub(super) bits: u32,
}

impl<T: Value> Layout<T> {
    /// Appends the layout.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let mut steps: Vec<u64> = Vec::new();
        let mut columns = Vec::new();
        for column in &self.columns {
            match column {
                Column::Constant(value) => {
                    columns.push(0);
                    let start = columns.len();
                    columns.resize(start + T::SIZE, 0);
                    value.write(&mut columns[start..]);
                }
                Column::Copy(element) => {
                    columns.push(1);
                    put_varint(*element as u64, &mut columns);
                }
                Column::Stored(stored) => stored.put(&mut steps, &mut columns),
            }
        }
        for integer in [self.gates, self.classes, steps.len()] {
            put_varint(integer as u64, out);
        }
        out.extend(steps.iter().flat_map(|step| step.to_le_bytes()));
        out.append(&mut columns);
    }

    /// Takes the layout of `elements` columns off the front of `bytes`.
    pub(super) fn take(elements: usize, bytes: &mut &[u8]) -> Result<Self> {
        let gates = take_up_to(MAX_GATES, bytes)?;
        let classes = take_up_to(MAX_CLASSES, bytes)?;
        let steps = take_up_to(elements, bytes)?;
        if gates > 0 && classes == 0 {
            return Err(corrupt(NAME, "gates without a class"));
        }
        let steps = take_bytes(8 * steps, bytes)?
            .chunks_exact(8)
            .map(f64::read)
            .collect::<Vec<_>>();
        let mut layout = Self {
            gates,
            classes,
            columns: Vec::with_capacity(elements),
        };
        for _ in 0..elements {
            let column = layout.take_column(&steps, bytes)?;
            layout.columns.push(column);
        }
        Ok(layout)
    }

    fn take_column(&self, steps: &[f64], bytes: &mut &[u8]) -> Result<Column<T>> {
        let kind = take_bytes(1, bytes)?[0];
        match kind {
            0 => return Ok(Column::Constant(T::read(take_bytes(T::SIZE, bytes)?))),
            1 => {
                let element = take_up_to(self.columns.len(), bytes)?;
                return match self.columns.get(element) {
                    Some(Column::Stored(_)) => Ok(Column::Copy(element)),
                    _ => Err(corrupt(
                        NAME,
                        format!("a column is an invalid copy of element {element}"),
                    )),
                };
            }
            _ => {}
        }
        let two_zeros = kind >> 7 == 1;
        let predictor = Predictor::new(kind >> 3 & 15)
            .ok_or_else(|| corrupt(NAME, "a column has an unknown predictor"))?;
        let class = take_up_to(MAX_CLASSES, bytes)?;
        let gate = take_up_to(self.gates, bytes)?.checked_sub(1);
        if class >= self.classes || (class == 0 && self.gates > 0) {
            return Err(corrupt(
                NAME,
                format!("a column has the invalid class {class}"),
            ));
        }
        let mut step = || -> Result<f64> {
            let step = take_varint(bytes)?;
            let step = usize::try_from(step).ok().and_then(|idx| steps.get(idx));
            // Any other step could produce a NaN, whose bits depend on the CPU.
            let is_step = |step: &f64| step.is_finite() && *step != 0.0;
            step.copied()
                .filter(is_step)
                .ok_or_else(|| corrupt(NAME, "a step is missing or invalid"))
        };
        let plain = match kind & 7 {
            2 => Map::Ordered,
            3 if T::IS_FLOAT => Map::Times(step()?),
            4 if T::IS_FLOAT => Map::Over(step()?),
            5 if T::IS_FLOAT && T::SIZE == 8 => Map::Narrow,
            6 if !T::IS_FLOAT => Map::Affine {
                step: take_varint(bytes)?.cast_signed(),
                offset: unzigzag(take_varint(bytes)?),
            },
            _ => return Err(corrupt(NAME, "a column has an unknown kind")),
        };
        let map = plain.with_zeros(two_zeros);
        if two_zeros && map == plain {
            return Err(corrupt(
                NAME,
                "a column that cannot have two zeros claims them",
            ));
        }
        let mut starts = [Start::default(); 2];
        for start in &mut starts[..predictor.starts(2)] {
            let least = unzigzag(take_varint(bytes)?);
            let bits = take_bytes(1, bytes)?[0].into();
            if bits > 64 {
                return Err(corrupt(NAME, format!("a start value has {bits} bits")));
            }
            *start = Start { least, bits };
        }
        Ok(Column::Stored(Stored {
            map,
            predictor,
            class,
            gate,
            starts,
        }))
    }
}

impl Stored {
    fn put(&self, steps: &mut Vec<u64>, out: &mut Vec<u8>) {
        let kind = match self.map {
            Map::Ordered => 2,
            Map::Times(_) => 3,
            Map::Over(_) => 4,
            Map::TimesTwoZeros(_) => 3 | 128,
            Map::OverTwoZeros(_) => 4 | 128,
            Map::Narrow => 5,
            Map::Affine { .. } => 6,
        };
        out.push(kind | self.predictor.integer() << 3);
        put_varint(self.class as u64, out);
        put_varint(self.gate.map_or(0, |gate| gate as u64 + 1), out);
        match self.map {
            Map::Ordered | Map::Narrow => {}
            Map::Times(step)
            | Map::Over(step)
            | Map::TimesTwoZeros(step)
            | Map::OverTwoZeros(step) => {
                let known = steps.iter().position(|known| *known == step.to_bits());
                let idx = known.unwrap_or_else(|| {
                    steps.push(step.to_bits());
                    steps.len() - 1
                });
                put_varint(idx as u64, out);
            }
            Map::Affine { step, offset } => {
                put_varint(step.cast_unsigned(), out);
                put_varint(zigzag(offset), out);
            }
        }
        for start in &self.starts[..self.predictor.starts(2)] {
            put_varint(zigzag(start.least), out);
            out.push(u8::try_from(start.bits).unwrap_or_default());
        }
    }
}

/// Takes `len` bytes off the front of `bytes`.
pub(super) fn take_bytes<'a>(len: usize, bytes: &mut &'a [u8]) -> Result<&'a [u8]> {
    let (taken, rest) = bytes
        .split_at_checked(len)
        .ok_or_else(|| corrupt(NAME, "its shared part is truncated"))?;
    *bytes = rest;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(map: Map, class: usize, predictor: u8) -> Column<f32> {
        let start = |least, bits| Start { least, bits };
        let starts = match predictor {
            0 => [Start::default(); 2],
            1 => [start(-7, 9), Start::default()],
            _ => [start(i64::MIN, 64), start(1, 0)],
        };
        Column::Stored(Stored {
            map,
            predictor: Predictor::new(predictor).unwrap(),
            class,
            gate: (class == 2).then_some(0),
            starts,
        })
    }

    fn layout() -> Layout<f32> {
        Layout {
            gates: 1,
            classes: 3,
            columns: vec![
                stored(Map::Times(0.25), 1, 1),
                Column::Constant(3.5),
                stored(Map::Over(1000.0), 2, 9),
                stored(Map::Times(0.25), 1, 0),
                Column::Copy(2),
                stored(Map::Ordered, 1, 4),
                stored(Map::OverTwoZeros(1000.0), 2, 13),
            ],
        }
    }

    #[test]
    fn a_layout_round_trips_and_a_truncated_one_is_refused() {
        let mut bytes = Vec::new();
        layout().put(&mut bytes);
        for cut in 0..bytes.len() {
            assert!(Layout::<f32>::take(7, &mut &bytes[..cut]).is_err(), "{cut}");
        }
        let mut rest = bytes.as_slice();
        assert_eq!(Layout::take(7, &mut rest).unwrap(), layout());
        assert!(rest.is_empty());
    }

    #[test]
    fn never_change_these_bytes() {
        let mut bytes = Vec::new();
        layout().put(&mut bytes);
        let steps = [0.25_f64.to_le_bytes(), 1000_f64.to_le_bytes()].concat();
        assert_eq!(bytes[..3], [1, 3, 2]);
        assert_eq!(bytes[3..19], steps);
        assert_eq!(bytes[19..25], [3 + 8, 1, 0, 0, 13, 9]);
        assert_eq!(bytes[25..30], [0, 0, 0, 0x60, 0x40]);
        assert_eq!(bytes[30..34], [4 + 72, 2, 1, 1]);
    }

    #[test]
    fn layouts_that_no_writer_produces_are_refused() {
        let refused = |columns: &[u8], what: &str| {
            let bytes = [&[1, 2, 0][..], columns].concat();
            assert!(
                Layout::<f32>::take(1, &mut bytes.as_slice()).is_err(),
                "{what}"
            );
        };
        refused(&[1, 0], "a copy of itself");
        refused(&[2, 0, 0], "a column among the gates");
        refused(&[2, 2, 0], "a class that does not exist");
        refused(&[2, 1, 2], "a gate that does not exist");
        refused(&[3, 1, 0, 0], "a step that does not exist");
        refused(&[5, 1, 0], "a float32 inside a float32");
        refused(&[6, 1, 0, 1, 0], "integers in a float");
        refused(&[7, 1, 0], "an unknown kind");
        refused(&[2 + 8 * 14, 1, 0, 0, 0, 0, 0], "an unknown predictor");
        refused(&[2 + 8, 1, 0, 0, 65], "a start of 65 bits");
        refused(&[2 + 128, 1, 0], "two zeros of bit patterns");
        refused(&[128, 0, 0, 0, 0], "two zeros of a constant");
        assert!(Layout::<f32>::take(1, &mut [1, 2, 0, 2, 1, 1].as_slice()).is_ok());
        assert!(Layout::<f32>::take(1, &mut [17, 2, 0, 2, 1, 1].as_slice()).is_err());
        assert!(Layout::<f32>::take(1, &mut [1, 0, 0, 0, 0, 0, 0, 0].as_slice()).is_err());
    }
}
