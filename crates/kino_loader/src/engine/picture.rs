//! From a decoded frame to its place in the batch: as it is, or turned into what a network takes.
//!
//! ```text
//! decoded  RGBRGB…  ──layout──▶ Hwc RGBRGB…  or  Chw RRR…GGG…BBB…
//! uint8    0 … 255  ──number──▶ uint8, or (v / 255 − mean) / std as float32, float16, bfloat16
//! ```
//!
//! Both happen in the one pass that copies the frame. There are only 256 values of a byte, so a float is looked up and not
//! computed: the table is made in f64 and rounded once, and the copy costs the same whatever the formula was.

use half::{bf16, f16};
use kino_codec::{Dtype, Layout, PicturesMut, ValueType, View};

use super::fields::ArrayType;
use crate::error::{Result, invalid};

/// How the pictures of a batch are wanted; streams that are no pictures of bytes are left as they are.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pictures {
    /// In which order colours lie.
    pub layout: Layout,
    /// Which numbers.
    pub number: PictureNumber,
    /// Mean and standard deviation per colour, by key, that floats are normalised with after division by 255.
    pub normal: Vec<(String, Normal)>,
}

/// The numbers of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PictureNumber {
    /// 0 to 255, as stored.
    #[default]
    U8,
    /// 0.0 to 1.0 before normalisation.
    F32,
    /// The same, in half precision.
    F16,
    /// The same, in bfloat16.
    Bf16,
}

/// What a picture is normalised with.
#[derive(Debug, Clone, PartialEq)]
pub struct Normal {
    /// Subtracted, per colour; of values from 0 to 1.
    pub mean: Vec<f64>,
    /// Divided by, per colour.
    pub std: Vec<f64>,
}

/// How the frames of one field are put into the batch.
#[derive(Debug, Clone)]
pub(crate) enum Convert {
    /// As they are.
    Copy,
    /// Another order of colours: all pixels as one row of a picture, which is the fastest to sort.
    Chw { row: View },
    /// Floats, by a table of 256 numbers per colour.
    Table {
        layout: Layout,
        pixels: usize,
        colours: usize,
        number: ArrayType,
        table: Table,
    },
}

/// 256 numbers per colour.
#[derive(Debug, Clone)]
pub(crate) enum Table {
    Two(Vec<[[u8; 2]; 256]>),
    Four(Vec<[[u8; 4]; 256]>),
}

impl Pictures {
    /// How frames of a type are put under a key.
    pub(crate) fn convert(&self, key: &str, ty: &ValueType) -> Result<Convert> {
        let normal = self.normal.iter().find(|(name, _)| name == key);
        let normal = normal.map(|(_, normal)| normal);
        let (&[height, width, colours], Dtype::U8) = (ty.shape(), ty.dtype()) else {
            return match normal {
                Some(_) => Err(invalid(format!(
                    "`{key}` is {ty}, not a picture of bytes; leave it out of the pictures to normalise"
                ))),
                None => Ok(Convert::Copy),
            };
        };
        let pixels = height * width;
        let number = match self.number {
            PictureNumber::U8 if normal.is_some() => {
                return Err(invalid(format!(
                    "`{key}` is to be normalised, which bytes cannot be; ask for float32, float16 or bfloat16"
                )));
            }
            PictureNumber::U8 if self.layout == Layout::Hwc => return Ok(Convert::Copy),
            PictureNumber::U8 => return Ok(one_row(pixels, colours)),
            PictureNumber::F32 => ArrayType::Stored(Dtype::F32),
            PictureNumber::F16 => ArrayType::Stored(Dtype::F16),
            PictureNumber::Bf16 => ArrayType::Bf16,
        };
        Ok(Convert::Table {
            layout: self.layout,
            pixels,
            colours,
            number,
            table: Table::new(key, number, colours, normal)?,
        })
    }

    /// Refuses to normalise what is not there.
    pub(crate) fn check_keys<'k>(&self, keys: impl Iterator<Item = &'k str> + Clone) -> Result<()> {
        for (key, _) in &self.normal {
            if !keys.clone().any(|known| known == key) {
                let keys: Vec<_> = keys.collect();
                return Err(invalid(format!(
                    "no key `{key}` to normalise; there are {}",
                    keys.join(", ")
                )));
            }
        }
        Ok(())
    }
}

impl Table {
    fn new(key: &str, number: ArrayType, colours: usize, normal: Option<&Normal>) -> Result<Self> {
        let mut columns = Vec::with_capacity(colours);
        for colour in 0..colours {
            let (mean, std) = match normal {
                None => (0.0, 1.0),
                Some(Normal { mean, std }) => match (mean.get(colour), std.get(colour)) {
                    (Some(&mean), Some(&std)) if mean.is_finite() && std > 0.0 => (mean, std),
                    _ => {
                        return Err(invalid(format!(
                            "`{key}` has {colours} colours; give each a finite mean and a standard deviation above 0"
                        )));
                    }
                },
            };
            columns.push((0..=255_u8).map(move |value| (f64::from(value) / 255.0 - mean) / std));
        }
        Ok(match number {
            ArrayType::Bf16 => Self::Two(
                columns
                    .into_iter()
                    .map(|column| fill(column, |v| bf16::from_f64(v).to_le_bytes()))
                    .collect(),
            ),
            ArrayType::Stored(Dtype::F16) => Self::Two(
                columns
                    .into_iter()
                    .map(|column| fill(column, |v| f16::from_f64(v).to_le_bytes()))
                    .collect(),
            ),
            ArrayType::Stored(_) => Self::Four(
                columns
                    .into_iter()
                    .map(|column| fill(column, to_f32))
                    .collect(),
            ),
        })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "this is the one rounding")]
fn to_f32(value: f64) -> [u8; 4] {
    (value as f32).to_le_bytes()
}

fn fill<const N: usize>(
    values: impl Iterator<Item = f64>,
    write: impl Fn(f64) -> [u8; N],
) -> [[u8; N]; 256] {
    let mut column = [[0; N]; 256];
    for (out, value) in column.iter_mut().zip(values) {
        *out = write(value);
    }
    column
}

impl Convert {
    /// The type of the numbers that come out.
    pub(crate) fn number(&self, stored: Dtype) -> ArrayType {
        match self {
            Self::Copy | Self::Chw { .. } => ArrayType::Stored(stored),
            Self::Table { number, .. } => *number,
        }
    }

    /// The shape of a frame that comes out.
    pub(crate) fn shape(&self, stored: &[usize]) -> Vec<usize> {
        match (self, stored) {
            (
                Self::Chw { .. }
                | Self::Table {
                    layout: Layout::Chw,
                    ..
                },
                &[height, width, colours],
            ) => vec![colours, height, width],
            _ => stored.to_vec(),
        }
    }

    /// The bytes of a frame that comes out.
    pub(crate) fn bytes(&self, ty: &ValueType) -> usize {
        ty.elements() * self.number(ty.dtype()).size()
    }

    /// Puts one frame into its place, which has exactly the bytes that it needs.
    pub(crate) fn put(&self, frame: &[u8], place: &mut [u8]) {
        match self {
            Self::Copy => place.copy_from_slice(frame),
            Self::Chw { row } => {
                let picture = PicturesMut::packed(row, 1, place);
                debug_assert!(picture.is_ok(), "the place of one frame");
                if let Ok(mut picture) = picture {
                    picture.put_row(0, 0, frame);
                }
            }
            Self::Table {
                layout,
                pixels,
                colours,
                table,
                ..
            } => match (table, layout) {
                (Table::Two(table), Layout::Chw) => {
                    to_planes(frame, (*pixels, *colours), place, look_up(table))
                }
                (Table::Four(table), Layout::Chw) => {
                    to_planes(frame, (*pixels, *colours), place, look_up(table))
                }
                (Table::Two(table), Layout::Hwc) => {
                    to_pixels(frame, *colours, place, look_up(table))
                }
                (Table::Four(table), Layout::Hwc) => {
                    to_pixels(frame, *colours, place, look_up(table))
                }
            },
        }
    }
}

/// Sorts the colours of pictures of so many pixels; without any pixels there is nothing to sort.
fn one_row(pixels: usize, colours: usize) -> Convert {
    let row = ValueType::new(Dtype::U8, &[1, pixels, colours]).and_then(|ty| View::new(&ty));
    match row {
        Ok(row) => Convert::Chw {
            row: row.laid_out(Layout::Chw),
        },
        Err(_) => Convert::Copy,
    }
}

fn look_up<const N: usize>(table: &[[[u8; N]; 256]]) -> impl Fn(usize, u8) -> [u8; N] {
    |colour, value| table[colour][usize::from(value)]
}

/// Colour after colour.
fn to_planes<const N: usize>(
    frame: &[u8],
    (pixels, colours): (usize, usize),
    place: &mut [u8],
    number: impl Fn(usize, u8) -> [u8; N],
) {
    for (colour, plane) in place.chunks_exact_mut((pixels * N).max(1)).enumerate() {
        let out = plane.as_chunks_mut::<N>().0;
        for (out, pixel) in out.iter_mut().zip(frame.chunks_exact(colours)) {
            *out = number(colour, pixel[colour]);
        }
    }
}

/// Pixel after pixel.
fn to_pixels<const N: usize>(
    frame: &[u8],
    colours: usize,
    place: &mut [u8],
    number: impl Fn(usize, u8) -> [u8; N],
) {
    let out = place.as_chunks_mut::<N>().0;
    for (pixel, out) in frame
        .chunks_exact(colours)
        .zip(out.chunks_exact_mut(colours))
    {
        for (colour, (out, &value)) in out.iter_mut().zip(pixel).enumerate() {
            *out = number(colour, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One number at a time, as the formula says.
    fn naive(frame: &[u8], (pixels, colours): (usize, usize), pictures: &Pictures) -> Vec<u8> {
        let normal = pictures.normal.first().map(|(_, normal)| normal);
        let mut out = Vec::new();
        for place in 0..pixels * colours {
            let (pixel, colour) = match pictures.layout {
                Layout::Hwc => (place / colours, place % colours),
                Layout::Chw => (place % pixels, place / pixels),
            };
            let value = frame[pixel * colours + colour];
            let (mean, std) = normal.map_or((0.0, 1.0), |n| (n.mean[colour], n.std[colour]));
            let float = (f64::from(value) / 255.0 - mean) / std;
            match pictures.number {
                PictureNumber::U8 => out.push(value),
                PictureNumber::F32 => out.extend(to_f32(float)),
                PictureNumber::F16 => out.extend(f16::from_f64(float).to_le_bytes()),
                PictureNumber::Bf16 => out.extend(bf16::from_f64(float).to_le_bytes()),
            }
        }
        out
    }

    proptest! {
        #[test]
        fn every_layout_and_number_agrees_with_the_formula(
            (height, width, colours) in (1..6_usize, 1..6_usize, 1..5_usize),
            seed: u64,
            chw: bool,
            number in 0..4_usize,
            normal: bool,
        ) {
            use PictureNumber::{Bf16, F16, F32, U8};
            let number = [U8, F32, F16, Bf16][number];
            let column = |scale: f64| (0..colours).map(|colour| scale * (1.0 + colour as f64)).collect();
            let normal = (normal && number != U8).then(|| ("cam".to_owned(), Normal { mean: column(0.1), std: column(0.3) }));
            let pictures = Pictures {
                layout: if chw { Layout::Chw } else { Layout::Hwc },
                number,
                normal: normal.into_iter().collect(),
            };
            let ty = ValueType::new(Dtype::U8, &[height, width, colours]).unwrap();
            let convert = pictures.convert("cam", &ty).unwrap();
            let frame: Vec<u8> = (0..ty.elements() as u64)
                .map(|idx| seed.wrapping_mul(idx * 2 + 1).to_le_bytes()[4])
                .collect();
            let mut place = vec![0xa5; convert.bytes(&ty)];
            convert.put(&frame, &mut place);
            prop_assert_eq!(place, naive(&frame, (height * width, colours), &pictures));
            let shape = if chw { vec![colours, height, width] } else { vec![height, width, colours] };
            prop_assert_eq!(convert.shape(ty.shape()), shape);
        }
    }

    #[test]
    fn what_is_no_picture_of_bytes_stays_as_it_is() {
        let pictures = Pictures {
            layout: Layout::Chw,
            number: PictureNumber::F16,
            normal: Vec::new(),
        };
        for (dtype, shape) in [
            (Dtype::F32, vec![2, 2, 3]),
            (Dtype::U8, vec![12]),
            (Dtype::U16, vec![2, 2, 1]),
        ] {
            let ty = ValueType::new(dtype, &shape).unwrap();
            let convert = pictures.convert("depth", &ty).unwrap();
            assert!(matches!(convert, Convert::Copy), "{ty}");
            assert_eq!(
                (convert.shape(&shape), convert.bytes(&ty)),
                (shape, ty.frame_bytes())
            );
        }
    }

    #[test]
    fn what_cannot_be_normalised_is_refused_with_the_reason() {
        let ty = ValueType::new(Dtype::U8, &[2, 2, 3]).unwrap();
        let vector = ValueType::new(Dtype::F32, &[7]).unwrap();
        let refused = |number, ty: &ValueType, (mean, std): (Vec<f64>, Vec<f64>), says: &str| {
            let normal = vec![("cam".to_owned(), Normal { mean, std })];
            let pictures = Pictures {
                layout: Layout::Hwc,
                number,
                normal,
            };
            let error = pictures.convert("cam", ty).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        };
        let right = || (vec![0.5; 3], vec![1.0; 3]);
        refused(PictureNumber::U8, &ty, right(), "ask for float32");
        refused(PictureNumber::F32, &vector, right(), "not a picture");
        for wrong in [
            (vec![0.5], vec![1.0]),
            (vec![0.5; 3], vec![0.0; 3]),
            (vec![f64::NAN; 3], vec![1.0; 3]),
            (vec![0.5; 3], vec![f64::NAN; 3]),
        ] {
            refused(PictureNumber::F32, &ty, wrong, "3 colours");
        }
    }
}
