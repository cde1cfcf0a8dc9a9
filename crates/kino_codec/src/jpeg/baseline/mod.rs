//! Ordinary JPEG files to pixels, in about two thirds of libjpeg-turbo's time: the same pixels, to the bit.
//!
//! ```text
//! file ──▶ tables, and the scan without its stuffed zeros        file.rs
//!      ──▶ coefficients of two MCUs                              entropy.rs
//!      ──▶ planes of Y, Cb and Cr, two blocks at a time          idct.rs
//!      ──▶ rows of RGB, as soon as their chroma is there         pixels.rs
//! ```
//!
//! Ordinary are baseline files of three channels, 4:4:4, 4:2:2 or 4:2:0, in one scan without restarts: what cameras and our own
//! encoder write. Anything else, and anything that is wrong with a file, is left to libjpeg-turbo: [`Baseline::decode`] then says
//! so, and its answer or its error is what the caller gets. So this decoder never has to explain itself, and accepts nothing that
//! libjpeg-turbo would not.
//!
//! 4:2:0 at half of its size is decoded here too: luma by `jidctred`'s transform to 4 × 4 pixels, while chroma comes out at
//! that size by itself.
//!
//! libjpeg-turbo spends half of its time on the symbols of the scan, of which each waits for the one before; `entropy.rs` makes
//! that wait short. Small images also pay for its tables and pools of memory, a tenth of the time for 84 × 84. The
//! transform is libjpeg-turbo's `jidctint`, in its AVX2 arithmetic: in sums of 16 bits, which wrap, and packs, which
//! saturate. Upsampling and conversion of colors are those of `jdsample` and `jdcolor`, whole numbers as well.
//!
//! AVX2 is needed, and asked for at run time; other CPUs use libjpeg-turbo alone.

mod entropy;
mod file;
mod idct;
mod pixels;
#[cfg(test)]
mod tests;

use super::ffi::Image;
use crate::reduction::Reduction;
use entropy::{Bits, Half, Tables};
use file::File;
use idct::{PAIR, Quantisation};
use pixels::Planes;
use pulp::x86::V3;

/// Working memory that is kept from file to file.
#[derive(Debug, Default)]
pub(super) struct Baseline {
    tables: Tables,
    /// The entropy-coded bytes of the scan.
    scan: Vec<u8>,
    planes: Planes,
}

/// How many pairs of blocks two MCUs have at most: of 4:2:0, four of Y and one each of Cb and Cr.
const PAIRS: usize = 6;

/// How many luma blocks an MCU has; it has one each of Cb and Cr.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sampling {
    /// Of luma blocks in a row, and rows of them.
    horizontal: usize,
    vertical: usize,
}

impl Baseline {
    /// Decodes a file into packed pixels; `false` if libjpeg-turbo is to do it. The pixels are arbitrary then.
    pub(super) fn decode(
        &mut self,
        file: &[u8],
        image: Image,
        reduction: Option<Reduction>,
        pixels: &mut [u8],
    ) -> bool {
        let Some(simd) = V3::try_new() else {
            return false;
        };
        simd.vectorize(Decode {
            simd,
            baseline: self,
            file,
            image,
            reduction,
            pixels,
        })
    }

    #[inline(always)]
    fn decode_with(
        &mut self,
        simd: V3,
        (file, image): (&[u8], Image),
        reduction: Option<Reduction>,
        pixels: &mut [u8],
    ) -> Option<()> {
        let file = File::parse(file, image)?;
        let sampling = file.sampling;
        let is_half = is_half(reduction, sampling)?;
        self.tables.set(&file)?;
        file.copy_scan(&mut self.scan)?;
        let full = Sampling {
            horizontal: 1,
            vertical: 1,
        };
        let planes = if is_half { full } else { sampling };
        self.planes.set(image.reduced(reduction), planes);
        let mut decoding = Decoding {
            simd,
            sampling,
            is_half,
            tables: &self.tables,
            quantisation: file.quantisation.map(Quantisation::new),
            bits: Bits::new(&self.scan),
            blocks: [[0; PAIR]; PAIRS],
            last: [0; 3],
            largest: 0,
        };
        let columns = image.width.div_ceil(8 * sampling.horizontal);
        for row in 0..image.height.div_ceil(8 * sampling.vertical) {
            for pair in 0..columns.div_ceil(2) {
                let mcus = (columns - 2 * pair).min(2);
                decoding.two_mcus(&mut self.planes, (row, pair), mcus)?;
            }
            self.planes.convert(simd, row, pixels)?;
        }
        self.planes.convert_rest(simd, pixels)?;
        (decoding.bits.is_at_end() && decoding.largest <= idct::MOST).then_some(())
    }
}

/// Whether an image is decoded at half of its size; `None` if it is at another fraction, or the chroma would not come out at that size by
/// itself.
fn is_half(reduction: Option<Reduction>, sampling: Sampling) -> Option<bool> {
    match reduction.map(Reduction::divisor) {
        None => Some(false),
        Some(2) if sampling.vertical == 2 => Some(true),
        Some(_) => None,
    }
}

/// A call of [`Baseline::decode_with`]. Not a closure: that would be compiled for any CPU, and each instruction would be a call.
struct Decode<'d> {
    simd: V3,
    baseline: &'d mut Baseline,
    file: &'d [u8],
    image: Image,
    reduction: Option<Reduction>,
    pixels: &'d mut [u8],
}

impl pulp::NullaryFnOnce for Decode<'_> {
    type Output = bool;

    #[inline(always)]
    fn call(self) -> bool {
        let done = self.baseline.decode_with(
            self.simd,
            (self.file, self.image),
            self.reduction,
            self.pixels,
        );
        done.is_some()
    }
}

/// A scan on its way into planes.
struct Decoding<'d> {
    simd: V3,
    sampling: Sampling,
    /// Whether blocks of luma become 4 × 4 pixels; those of chroma, which is half as large, are 8 × 8 as ever.
    is_half: bool,
    tables: &'d Tables,
    quantisation: [Quantisation; 3],
    bits: Bits<'d>,
    /// The coefficients of two MCUs, in pairs of neighbours of one component.
    blocks: [[i16; PAIR]; PAIRS],
    /// The last DC coefficient of each component.
    last: [i32; 3],
    /// An upper bound of the coefficients in the first row of a block.
    largest: u16,
}

impl Decoding<'_> {
    /// Decodes two neighbouring MCUs, or the last one of an odd row.
    #[inline(always)]
    fn two_mcus(
        &mut self,
        planes: &mut Planes,
        (row, pair): (usize, usize),
        mcus: usize,
    ) -> Option<()> {
        let Sampling {
            horizontal,
            vertical,
        } = self.sampling;
        let luma_pairs = horizontal * vertical;
        for block in self.blocks.iter_mut().take(luma_pairs + 2) {
            block[..128].fill(0);
        }
        // Whether a pair has nothing but its two averages.
        let mut is_flat = [true; PAIRS];
        for mcu in 0..mcus {
            for place in 0..luma_pairs {
                // Two luma blocks side by side are of one MCU, or of both if an MCU has one.
                let (at, half) = match horizontal {
                    1 => (place, mcu),
                    _ => (mcu * vertical + place / 2, place % 2),
                };
                is_flat[at] &= self.block(0, at, half)?;
            }
            for component in 1..3 {
                let at = luma_pairs + component - 1;
                is_flat[at] &= self.block(component, at, mcu)?;
            }
        }
        for (place, &is_flat) in is_flat.iter().enumerate().take(luma_pairs) {
            let (x, y) = match horizontal {
                1 => (0, place),
                _ => (place / vertical, place % vertical),
            };
            // Luma of two MCUs is `16 * horizontal` wide.
            let side = if self.is_half { 4 } else { 8 };
            let x = (pair * horizontal + x) * 2 * side;
            let y = (row * vertical + y) * side;
            self.transform(0, (place, is_flat), planes, (x, y))?;
        }
        for component in 1..3 {
            let at = luma_pairs + component - 1;
            let place = (pair * 16, row * 8);
            self.transform(component, (at, is_flat[at]), planes, place)?;
        }
        Some(())
    }

    /// Reads the coefficients of one block of a pair; whether all but the first are zero.
    #[inline(always)]
    fn block(&mut self, component: usize, pair: usize, half: usize) -> Option<bool> {
        let last = &mut self.last[component];
        let pair = &mut self.blocks[pair];
        self.tables
            .block(component, &mut self.bits, last, Half { pair, half })
    }

    /// Puts the pixels of a pair into its plane.
    #[inline(always)]
    fn transform(
        &mut self,
        component: usize,
        (pair, is_flat): (usize, bool),
        planes: &mut Planes,
        (x, y): (usize, usize),
    ) -> Option<()> {
        let rows = planes.rows_from(component, x, y)?;
        let (quantisation, pair) = (&self.quantisation[component], &self.blocks[pair]);
        let is_half = self.is_half && component == 0;
        let largest = if is_flat {
            idct::flat(quantisation, pair, rows, is_half)
        } else if is_half {
            idct::transform_half(self.simd, quantisation, pair, rows)
        } else {
            idct::transform(self.simd, quantisation, pair, rows)
        };
        self.largest = self.largest.max(largest?);
        Some(())
    }
}
