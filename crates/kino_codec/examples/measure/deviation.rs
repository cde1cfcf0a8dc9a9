//! How far decoded values are from the original.

use kino_codec::Dtype;

/// The errors of many values in two numbers.
pub(crate) struct Deviation {
    pub(crate) max: f64,
    pub(crate) psnr_db: f64,
}

/// The largest error and the PSNR of decoded values.
pub(crate) fn deviation(dtype: Dtype, original: &[u8], decoded: &[u8]) -> Deviation {
    let (mut max, mut sum, mut count) = (0.0_f64, 0.0, 0.0);
    for error in errors(dtype, original, decoded) {
        max = max.max(error);
        sum += error * error;
        count += 1.0;
    }
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in original
        .chunks_exact(dtype.size())
        .map(|value| number(dtype, value))
    {
        if value.is_finite() {
            (least, most) = (least.min(value), most.max(value));
        }
    }
    let peak = if dtype == Dtype::U8 {
        255.0
    } else {
        most - least
    };
    let psnr_db = 10.0 * (peak * peak / (sum / count)).log10();
    Deviation { max, psnr_db }
}

/// The distance of every value from its original: none for the same bits, infinite for a changed NaN or infinity.
pub(crate) fn errors<'a>(
    dtype: Dtype,
    original: &'a [u8],
    decoded: &'a [u8],
) -> impl Iterator<Item = f64> + 'a {
    let pairs = original
        .chunks_exact(dtype.size())
        .zip(decoded.chunks_exact(dtype.size()));
    pairs.map(move |(a, b)| {
        if a == b {
            return 0.0;
        }
        let error = (number(dtype, a) - number(dtype, b)).abs();
        if error.is_finite() {
            error
        } else {
            f64::INFINITY
        }
    })
}

/// A value as a number; whole ones beyond 2⁵³ are rounded.
fn number(dtype: Dtype, value: &[u8]) -> f64 {
    let mut eight = [0; 8];
    eight[..value.len()].copy_from_slice(value);
    let bits = u64::from_le_bytes(eight);
    let unused = 64 - 8 * value.len();
    match dtype.name() {
        "float64" => f64::from_bits(bits),
        "float32" => f64::from(f32::from_le_bytes([value[0], value[1], value[2], value[3]])),
        "float16" => f64::from(half::f16::from_le_bytes([value[0], value[1]])),
        name if name.starts_with("int") => ((bits << unused).cast_signed() >> unused) as f64,
        _ => bits as f64,
    }
}
