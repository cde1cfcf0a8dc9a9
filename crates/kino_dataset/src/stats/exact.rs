//! Unfinished statistics as JSON, to the last bit: what one machine has counted is added up on another.
//!
//! ```text
//! {"dtype": "float32", "frame_bytes": 28, "frames": 250, "channels": [
//!     {"moments": [count, nonfinite, mean, m2, min, max], "capacity": 16384, "levels": [[1, 29, "a1b2…"], …]}, …]}
//! {"dtype": "uint8", …, "counts": [[[value, count], …], …]}            8-bit values, and 16-bit images
//! ```
//!
//! Floats are written as the integer of their bits, because JSON has no infinity. A level is `[second, shift, keys]`: its
//! sorted keys as differences, without the `shift` zero bits that all of them end in (float32 values have 29), in LEB128
//! and hexadecimal: about 6 digits per value.

use kino_codec::Dtype;
use serde::{Deserialize, Serialize};

use super::accumulate::{Channel, Moments, StatsPart, Values};
use super::histogram::Histogram;
use super::histogram16::Histogram16;
use super::quantiles::{EXACT, EXACT_AT_LEAST, Level, Summary};

/// More channels than any stream has are damage.
const MAX_CHANNELS: usize = super::MAX_CHANNELS;

/// The JSON of a [`StatsPart`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExactStats {
    dtype: String,
    frame_bytes: usize,
    frames: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    channels: Vec<ExactChannel>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    counts: Vec<Vec<(u16, u64)>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct ExactChannel {
    moments: [u64; 6],
    capacity: usize,
    levels: Vec<(bool, u32, String)>,
}

impl StatsPart {
    /// Everything that it has counted.
    pub(crate) fn to_exact(&self) -> ExactStats {
        let (mut channels, mut counts) = (Vec::new(), Vec::new());
        match &self.values {
            Values::Bytes(histogram) => counts = histogram.to_counts(),
            Values::Pairs(histogram) => counts = histogram.to_counts(),
            Values::Wide(all) => channels = all.iter().map(Channel::to_exact).collect(),
        }
        ExactStats {
            dtype: self.dtype.name().to_owned(),
            frame_bytes: self.frame_bytes,
            frames: self.frames,
            channels,
            counts,
        }
    }

    /// The same from JSON; `None` if it is not what [`to_exact`](Self::to_exact) writes.
    pub(crate) fn from_exact(exact: &ExactStats) -> Option<Self> {
        let dtype: Dtype = exact.dtype.parse().ok()?;
        let channels = exact.channels.len().max(exact.counts.len());
        if channels == 0 || channels > MAX_CHANNELS {
            return None;
        }
        let values = match (exact.counts.is_empty(), dtype.size()) {
            (true, 2..) => {
                let channels = exact.channels.iter().map(Channel::from_exact);
                Values::Wide(channels.collect::<Option<_>>()?)
            }
            (false, 1) => Values::Bytes(Histogram::from_counts(dtype, &exact.counts)?),
            (false, 2) => Values::Pairs(Histogram16::from_counts(dtype, &exact.counts)),
            _ => return None,
        };
        Some(Self {
            dtype,
            frame_bytes: exact.frame_bytes,
            frames: exact.frames,
            values,
            scratch: Vec::new(),
        })
    }
}

impl Channel {
    fn to_exact(&self) -> ExactChannel {
        let levels = self.summary.levels.iter();
        ExactChannel {
            moments: self.moments.to_bits(),
            capacity: self.summary.capacity,
            levels: levels.map(level_to_text).collect(),
        }
    }

    fn from_exact(exact: &ExactChannel) -> Option<Self> {
        let levels = exact.levels.iter().map(level_from_text);
        let levels: Vec<Level> = levels.collect::<Option<_>>()?;
        // Level 0 always exists.
        let capacity = EXACT_AT_LEAST..=EXACT;
        if levels.is_empty() || levels.len() > 64 || !capacity.contains(&exact.capacity) {
            return None;
        }
        Some(Self {
            moments: Moments::from_bits(exact.moments),
            summary: Summary {
                levels,
                capacity: exact.capacity,
            },
        })
    }
}

fn level_to_text(level: &Level) -> (bool, u32, String) {
    // The order of the keys of a level says nothing: it is sorted before it is used.
    let mut keys = level.keys.clone();
    keys.sort_unstable();
    let shift = keys.iter().fold(0, |all, key| all | key).trailing_zeros();
    let shift = shift.min(63);
    let (mut text, mut before) = (String::new(), 0);
    for key in keys {
        let mut left = (key >> shift) - before;
        before = key >> shift;
        while left > 0x7f {
            push_hex(&mut text, left & 0x7f | 0x80);
            left >>= 7;
        }
        push_hex(&mut text, left);
    }
    (level.second, shift, text)
}

fn push_hex(text: &mut String, byte: u64) {
    let digit = |nibble: u64| char::from_digit(u32::try_from(nibble).unwrap_or(0), 16);
    text.extend(digit(byte >> 4));
    text.extend(digit(byte & 0xf));
}

fn level_from_text((second, shift, text): &(bool, u32, String)) -> Option<Level> {
    if *shift > 63 || !text.len().is_multiple_of(2) {
        return None;
    }
    let (mut keys, mut before, mut number, mut bits) = (Vec::new(), 0_u64, 0_u64, 0_u32);
    for pair in text.as_bytes().chunks_exact(2) {
        let digit = |byte: u8| char::from(byte).to_digit(16).map(u64::from);
        let byte = digit(pair[0])? << 4 | digit(pair[1])?;
        if bits > 63 {
            return None;
        }
        number |= (byte & 0x7f) << bits;
        bits += 7;
        if byte & 0x80 == 0 {
            before = before.checked_add(number)?;
            let key = before.checked_shl(*shift)?;
            // A bit that is shifted out would make it another key.
            keys.push(Some(key).filter(|key| key >> shift == before)?);
            (number, bits) = (0, 0);
        }
    }
    (bits == 0).then_some(Level {
        keys,
        second: *second,
    })
}

#[cfg(test)]
mod tests {
    use kino_codec::{FrameType, ValueType};
    use proptest::prelude::*;

    use super::*;

    fn ty(dtype: Dtype, shape: &[usize]) -> ValueType {
        let ty = FrameType::values(dtype, shape).unwrap();
        ty.as_values().unwrap().clone()
    }

    fn through_json(part: &StatsPart) -> StatsPart {
        let text = serde_json::to_string(&part.to_exact()).unwrap();
        StatsPart::from_exact(&serde_json::from_str(&text).unwrap()).unwrap()
    }

    /// Statistics of blocks, each of which went through JSON or did not.
    fn sum(ty: &ValueType, channels: usize, blocks: &[Vec<u8>], is_sent: bool) -> String {
        let mut all: Option<StatsPart> = None;
        for block in blocks {
            let mut part = StatsPart::new(ty, channels);
            part.add(block);
            let part = if is_sent { through_json(&part) } else { part };
            all = Some(match all {
                None => part,
                Some(mut known) => {
                    known.merge(part);
                    if is_sent { through_json(&known) } else { known }
                }
            });
        }
        serde_json::to_string(&all.unwrap().finish()).unwrap()
    }

    proptest! {
        #[test]
        fn sums_of_sent_parts_are_equal_to_the_last_bit(values: Vec<Vec<f32>>) {
            let ty = ty(Dtype::F32, &[1]);
            let bytes = |block: &Vec<f32>| block.iter().flat_map(|one| one.to_le_bytes()).collect();
            let blocks: Vec<Vec<u8>> = values.iter().map(bytes).collect();
            prop_assume!(!blocks.is_empty());
            prop_assert_eq!(sum(&ty, 1, &blocks, true), sum(&ty, 1, &blocks, false));
        }
    }

    #[test]
    fn long_streams_and_histograms_survive_being_sent() {
        let noise = |len: u32| (0..len).map(|at| at.wrapping_mul(2_654_435_761));
        let floats: Vec<u8> = noise(90_000)
            .flat_map(|bits| (f64::from(bits) - 1e9).to_le_bytes())
            .collect();
        let blocks: Vec<Vec<u8>> = floats.chunks(8 * 30_000).map(<[u8]>::to_vec).collect();
        let vector = ty(Dtype::F64, &[2]);
        assert_eq!(
            sum(&vector, 2, &blocks, true),
            sum(&vector, 2, &blocks, false)
        );
        let bytes: Vec<u8> = noise(3 * 64 * 64 * 4)
            .map(|bits| bits.to_le_bytes()[3])
            .collect();
        let blocks: Vec<Vec<u8>> = bytes.chunks(3 * 64 * 64).map(<[u8]>::to_vec).collect();
        let image = ty(Dtype::U8, &[64, 64, 3]);
        assert_eq!(
            sum(&image, 3, &blocks, true),
            sum(&image, 3, &blocks, false)
        );
        let blocks: Vec<Vec<u8>> = bytes.chunks(2 * 64 * 64).map(<[u8]>::to_vec).collect();
        let depth = ty(Dtype::U16, &[64, 64]);
        assert_eq!(
            sum(&depth, 1, &blocks, true),
            sum(&depth, 1, &blocks, false)
        );
    }

    #[test]
    fn damaged_texts_are_refused() {
        let vector = ty(Dtype::F32, &[1]);
        let mut part = StatsPart::new(&vector, 1);
        part.add(&1.5_f32.to_le_bytes());
        let good = serde_json::to_string(&part.to_exact()).unwrap();
        assert!(StatsPart::from_exact(&serde_json::from_str(&good).unwrap()).is_some());
        for (from, to) in [
            ("\"float32\"", "\"floats\""),
            ("\"float32\"", "\"uint8\""),
            ("\"levels\":[[false,", "\"levels\":[[false,6"),
        ] {
            assert!(good.contains(from), "{good}");
            let damaged: ExactStats = serde_json::from_str(&good.replace(from, to)).unwrap();
            assert!(StatsPart::from_exact(&damaged).is_none(), "{from} → {to}");
        }
        for text in ["8", "zz", "80", "ffffffffffffffffffffff00"] {
            assert!(
                level_from_text(&(false, 0, text.to_owned())).is_none(),
                "{text}"
            );
        }
    }
}
