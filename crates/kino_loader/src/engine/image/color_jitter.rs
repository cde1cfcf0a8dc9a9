//! Color jitter: brightness, contrast, saturation and hue of the images of a sample, as torchvision's `ColorJitter` changes them.
//!
//! ```text
//! operation "color_jitter/KEY" at index i:   changed if draw 0 is below p
//!                                            draws 1 to 4: factors of brightness, contrast, saturation, hue
//!                                            draw 5: which of the 24 orders they are applied in
//!
//! u8 ──/ 255──▶ float32 ──first op──▶ clamp to 0..1 ──second op──▶ … ──rounded once──▶ u8
//! ```
//!
//! torchvision rounds bytes down after every operation and computes floats without; this is its result for floats, rounded
//! once, so an image that four operations changed is not darker by three roundings. All frames of a window have the same factors;
//! the contrast of each is relative to its own mean, as in torchvision.
//!
//! The slow algorithm is one pixel after another. Here 64 pixels are sorted by channel and computed in loops that the compiler
//! vectorises. What comes before contrast is computed twice, once for the mean, which needs no memory for floats.

use serde::{Deserialize, Serialize};

use super::elements::to_f32;
use crate::error::{Result, invalid};
use crate::order::Operation;

/// Pixels that are computed at once.
const BLOCK: usize = 64;

/// How brightness, contrast, saturation and hue of images change at random.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ColorJitter {
    /// The least and the greatest factor of every value; 1 changes nothing.
    pub brightness: (f64, f64),
    /// Of the distance to the mean grey of the image.
    pub contrast: (f64, f64),
    /// Of the distance to the grey of the same pixel.
    pub saturation: (f64, f64),
    /// What is added to the hue, as a fraction of the color wheel, from −0.5 to 0.5; 0 changes nothing.
    pub hue: (f64, f64),
    /// The probability that the images of a sample are changed, 0 to 1.
    pub p: f64,
}

impl Default for ColorJitter {
    fn default() -> Self {
        Self {
            brightness: (1.0, 1.0),
            contrast: (1.0, 1.0),
            saturation: (1.0, 1.0),
            hue: (0.0, 0.0),
            p: 1.0,
        }
    }
}

impl ColorJitter {
    /// Refuses impossible values, and images of two or four channels.
    pub(crate) fn check(&self, key: &str, channels: usize) -> Result<()> {
        let refused = |what: String| Err(invalid(format!("color_jitter of `{key}`: {what}")));
        let factors = [
            ("brightness", self.brightness),
            ("contrast", self.contrast),
            ("saturation", self.saturation),
        ];
        for (name, (least, most)) in factors {
            if !(least >= 0.0 && least <= most && most.is_finite()) {
                return refused(format!(
                    "`{name}` is {least} to {most}; give the least and the greatest factor, such as 0.8 and 1.2"
                ));
            }
        }
        let (least, most) = self.hue;
        if !(least >= -0.5 && least <= most && most <= 0.5) {
            return refused(format!(
                "`hue` is {least} to {most}; give a range within -0.5 to 0.5"
            ));
        }
        if !(0.0..=1.0).contains(&self.p) {
            return refused(format!("`p` is {}; give a probability from 0 to 1", self.p));
        }
        if !matches!(channels, 1 | 3) {
            return refused(format!(
                "images of {channels} channels have no colours; to change other cameras only, give it by key"
            ));
        }
        Ok(())
    }
}

/// Color jitter of the images under a key.
#[derive(Debug, Clone)]
pub(crate) struct KeyJitter {
    operation: Operation,
    seed: u64,
    jitter: ColorJitter,
}

/// What is done to the images of one sample, in this order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SampleJitter([Change; 4]);

/// One change, with its factor.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    Brightness(f32),
    Contrast(f32),
    Saturation(f32),
    Hue(f32),
}

/// Some pixels by channel, from 0 to 1. Those beyond the end of an image are black.
struct Block {
    red: [f32; BLOCK],
    green: [f32; BLOCK],
    blue: [f32; BLOCK],
}

impl KeyJitter {
    /// Under the order's seed.
    pub(crate) fn new(key: &str, seed: u64, jitter: ColorJitter) -> Self {
        Self {
            operation: Operation::named(&format!("color_jitter/{key}")),
            seed,
            jitter,
        }
    }

    /// For the sample at an index of the order; `None` if its images do not change.
    pub(crate) fn at(&self, index: u64) -> Option<SampleJitter> {
        let mut draw = self.operation.at(self.seed, index);
        let ColorJitter {
            brightness,
            contrast,
            saturation,
            hue,
            p,
        } = self.jitter;
        if !draw.next_bool(p) {
            return None;
        }
        let mut next = |(least, most)| to_f32(draw.next_between(least, most));
        let mut changes = [
            Change::Brightness(next(brightness)),
            Change::Contrast(next(contrast)),
            Change::Saturation(next(saturation)),
            Change::Hue(next(hue)),
        ];
        // The orders count as the words of a dictionary do: the first change is that with number ⌊order / 6⌋, and so on.
        let mut order = usize::try_from(draw.next_below(24)).unwrap_or_default();
        for (place, rest) in [6, 2, 1].into_iter().enumerate() {
            if let Some(front) = changes.get_mut(place..=place + order / rest) {
                front.rotate_right(1);
            }
            order %= rest;
        }
        Some(SampleJitter(changes))
    }
}

impl SampleJitter {
    /// Changes an image of one or three channels.
    pub(crate) fn apply(&self, image: &mut [u8], channels: usize) {
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || match channels {
                1 => self.change::<1>(image.as_chunks_mut().0),
                _ => self.change::<3>(image.as_chunks_mut().0),
            },
        );
    }

    #[inline(always)]
    fn change<const CHANNELS: usize>(&self, image: &mut [[u8; CHANNELS]]) {
        let contrast = self
            .0
            .iter()
            .position(|change| matches!(change, Change::Contrast(factor) if *factor != 1.0));
        let mut mean = 0.0;
        if let Some(contrast) = contrast {
            // A sum for each lane, added up at the end: the same on every machine, whatever its vectors hold.
            let mut sums = [0_f64; BLOCK];
            for pixels in image.chunks(BLOCK) {
                let mut block = Block::load(pixels);
                block.change::<CHANNELS>(&self.0[..contrast], 0.0);
                for (lane, sum) in sums.iter_mut().enumerate() {
                    *sum += f64::from(block.gray::<CHANNELS>(lane));
                }
            }
            #[expect(
                clippy::cast_precision_loss,
                reason = "an image has far fewer than 2^53 pixels"
            )]
            let pixels = image.len() as f64;
            mean = to_f32(sums.iter().sum::<f64>() / pixels);
        }
        for pixels in image.chunks_mut(BLOCK) {
            let mut block = Block::load(pixels);
            block.change::<CHANNELS>(&self.0, mean);
            block.store(pixels);
        }
    }
}

impl Block {
    #[inline(always)]
    fn load<const CHANNELS: usize>(pixels: &[[u8; CHANNELS]]) -> Self {
        let mut block = Self {
            red: [0.0; BLOCK],
            green: [0.0; BLOCK],
            blue: [0.0; BLOCK],
        };
        for (lane, pixel) in pixels.iter().take(BLOCK).enumerate() {
            block.red[lane] = f32::from(pixel[0]) / 255.0;
            if CHANNELS == 3 {
                block.green[lane] = f32::from(pixel[1]) / 255.0;
                block.blue[lane] = f32::from(pixel[2]) / 255.0;
            }
        }
        block
    }

    #[inline(always)]
    fn store<const CHANNELS: usize>(&self, pixels: &mut [[u8; CHANNELS]]) {
        for (lane, pixel) in pixels.iter_mut().take(BLOCK).enumerate() {
            pixel[0] = to_byte(self.red[lane]);
            if CHANNELS == 3 {
                pixel[1] = to_byte(self.green[lane]);
                pixel[2] = to_byte(self.blue[lane]);
            }
        }
    }

    /// The grey of a pixel, with torchvision's weights.
    #[inline(always)]
    fn gray<const CHANNELS: usize>(&self, lane: usize) -> f32 {
        if CHANNELS == 1 {
            return self.red[lane];
        }
        0.2989 * self.red[lane] + 0.587 * self.green[lane] + 0.114 * self.blue[lane]
    }

    #[inline(always)]
    fn change<const CHANNELS: usize>(&mut self, changes: &[Change], mean: f32) {
        for change in changes {
            match *change {
                // What changes nothing is left out: hue is by far the most expensive.
                Change::Brightness(1.0) | Change::Contrast(1.0) | Change::Saturation(1.0) => {}
                Change::Hue(0.0) => {}
                Change::Brightness(factor) => {
                    for channel in [&mut self.red, &mut self.green, &mut self.blue] {
                        for value in channel {
                            *value = (factor * *value).clamp(0.0, 1.0);
                        }
                    }
                }
                Change::Contrast(factor) => {
                    let rest = (1.0 - factor) * mean;
                    for channel in [&mut self.red, &mut self.green, &mut self.blue] {
                        for value in channel {
                            *value = (factor * *value + rest).clamp(0.0, 1.0);
                        }
                    }
                }
                Change::Saturation(factor) if CHANNELS == 3 => self.saturate(factor),
                Change::Hue(turn) if CHANNELS == 3 => self.turn_hue(turn),
                Change::Saturation(_) | Change::Hue(_) => {}
            }
        }
    }

    #[inline(always)]
    fn saturate(&mut self, factor: f32) {
        for lane in 0..BLOCK {
            let rest = (1.0 - factor) * self.gray::<3>(lane);
            for channel in [&mut self.red, &mut self.green, &mut self.blue] {
                channel[lane] = (factor * channel[lane] + rest).clamp(0.0, 1.0);
            }
        }
    }

    /// To HSV, around the color wheel and back. Of HSV only the hue is needed: value and chroma stay.
    #[inline(always)]
    fn turn_hue(&mut self, turn: f32) {
        for lane in 0..BLOCK {
            let (red, green, blue) = (self.red[lane], self.green[lane], self.blue[lane]);
            let most = red.max(green).max(blue);
            let chroma = most - red.min(green).min(blue);
            let divisor = if chroma == 0.0 { 1.0 } else { chroma };
            let of_red = (green - blue) / divisor;
            let of_green = 2.0 + (blue - red) / divisor;
            let of_blue = 4.0 + (red - green) / divisor;
            let other = if most == green { of_green } else { of_blue };
            let hue = if most == red { of_red } else { other };
            let hue = hue + 6.0 * (turn + 1.0);
            let value = |from: f32| {
                let place = from + hue;
                let place = place - 6.0 * (place / 6.0).floor();
                most - chroma * place.min(4.0 - place).clamp(0.0, 1.0)
            };
            self.red[lane] = value(5.0);
            self.green[lane] = value(3.0);
            self.blue[lane] = value(1.0);
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is from 0 to 1, so this is from 0 to 255"
)]
#[inline(always)]
fn to_byte(value: f32) -> u8 {
    (value * 255.0 + 0.5) as u8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One change of one pixel in double precision, as torchvision's functional operations define it.
    fn naive(change: Change, pixel: [f64; 3], mean: f64) -> [f64; 3] {
        let blend = |factor: f32, other: f64| {
            let factor = f64::from(factor);
            pixel.map(|value| (factor * value + (1.0 - factor) * other).clamp(0.0, 1.0))
        };
        match change {
            Change::Brightness(factor) => blend(factor, 0.0),
            Change::Contrast(factor) => blend(factor, mean),
            Change::Saturation(factor) => blend(factor, gray(pixel)),
            Change::Hue(turn) => {
                let [hue, saturation, value] = to_hsv(pixel);
                from_hsv([(hue + f64::from(turn)).rem_euclid(1.0), saturation, value])
            }
        }
    }

    fn gray([red, green, blue]: [f64; 3]) -> f64 {
        0.2989 * red + 0.587 * green + 0.114 * blue
    }

    fn to_hsv([red, green, blue]: [f64; 3]) -> [f64; 3] {
        let (most, least) = (red.max(green).max(blue), red.min(green).min(blue));
        if most == least {
            return [0.0, 0.0, most];
        }
        let chroma = most - least;
        let hue = if most == red {
            (green - blue) / chroma
        } else if most == green {
            2.0 + (blue - red) / chroma
        } else {
            4.0 + (red - green) / chroma
        };
        [(hue / 6.0).rem_euclid(1.0), chroma / most, most]
    }

    fn from_hsv([hue, saturation, value]: [f64; 3]) -> [f64; 3] {
        let (sector, part) = ((hue * 6.0).floor(), (hue * 6.0).fract());
        let p = value * (1.0 - saturation);
        let q = value * (1.0 - saturation * part);
        let t = value * (1.0 - saturation * (1.0 - part));
        let sectors = [
            [value, t, p],
            [q, value, p],
            [p, value, t],
            [p, q, value],
            [t, p, value],
            [value, p, q],
        ];
        let mut rotated = sectors.into_iter().cycle();
        let mut left = sector;
        loop {
            let found = rotated.next().unwrap();
            if left < 0.5 {
                return found;
            }
            left -= 1.0;
        }
    }

    proptest! {
        #[test]
        fn every_order_of_changes_agrees_with_one_pixel_at_a_time(
            pixels in prop::collection::vec(any::<[u8; 3]>(), 1..150),
            factors in prop::array::uniform3(0.0..3.0_f32),
            turn in -0.5..0.5_f32,
            order in 0..24_usize,
        ) {
            let all = [
                Change::Brightness(factors[0]),
                Change::Contrast(factors[1]),
                Change::Saturation(factors[2]),
                Change::Hue(turn),
            ];
            let mut left = all.to_vec();
            let order = [order / 6, order % 6 / 2, order % 2, 0];
            let changes = order.map(|place| left.remove(place));
            let mut wanted: Vec<[f64; 3]> =
                pixels.iter().map(|pixel| pixel.map(|value| f64::from(value) / 255.0)).collect();
            for change in changes {
                let mean = wanted.iter().map(|&pixel| gray(pixel)).sum::<f64>() / wanted.len() as f64;
                wanted.iter_mut().for_each(|pixel| *pixel = naive(change, *pixel, mean));
            }
            let mut found = pixels.concat();
            SampleJitter(changes).apply(&mut found, 3);
            for (found, wanted) in found.iter().zip(wanted.concat()) {
                let distance = (f64::from(*found) - 255.0 * wanted).abs();
                prop_assert!(distance < 0.51, "{found} for {}", 255.0 * wanted);
            }
        }

        #[test]
        fn one_channel_has_brightness_and_contrast_alone(
            pixels in prop::collection::vec(any::<u8>(), 1..150),
            (brightness, contrast) in (0.0..2.0_f32, 0.0..2.0_f32),
        ) {
            let changes = [
                Change::Hue(0.4),
                Change::Brightness(brightness),
                Change::Saturation(0.0),
                Change::Contrast(contrast),
            ];
            let mut found = pixels.clone();
            SampleJitter(changes).apply(&mut found, 1);
            let bright = |value: &u8| (f64::from(*value) / 255.0 * f64::from(brightness)).min(1.0);
            let bright: Vec<f64> = pixels.iter().map(bright).collect();
            let mean = bright.iter().sum::<f64>() / bright.len() as f64;
            for (found, bright) in found.iter().zip(bright) {
                let wanted = naive(Change::Contrast(contrast), [bright; 3], mean)[0];
                prop_assert!((f64::from(*found) - 255.0 * wanted).abs() < 0.51);
            }
        }
    }

    #[test]
    fn factors_and_orders_are_spread_evenly_over_samples_and_keys_differ() {
        let jitter = ColorJitter {
            brightness: (0.5, 1.5),
            hue: (-0.1, 0.1),
            p: 0.5,
            ..ColorJitter::default()
        };
        let [front, wrist] = ["front", "wrist"].map(|key| KeyJitter::new(key, 7, jitter));
        let (mut first, mut dark, mut drawn) = ([0; 4], 0, 0);
        let mut orders = std::collections::BTreeMap::new();
        for index in 0..12_000 {
            let Some(SampleJitter(changes)) = front.at(index) else {
                continue;
            };
            assert_ne!(wrist.at(index), Some(SampleJitter(changes)));
            drawn += 1;
            let places = changes.map(|change| match change {
                Change::Brightness(factor) => {
                    assert!((0.5..1.5).contains(&factor));
                    dark += usize::from(factor < 1.0);
                    0
                }
                Change::Contrast(factor) => usize::from(factor == 1.0),
                Change::Saturation(factor) => 2 * usize::from(factor == 1.0),
                Change::Hue(turn) => {
                    assert!((-0.1..0.1).contains(&turn));
                    3
                }
            });
            first[places[0]] += 1;
            *orders.entry(places).or_insert(0) += 1;
        }
        assert!((5800..6200).contains(&drawn), "{drawn}");
        assert!((2800..3200).contains(&dark), "{dark}");
        assert!(
            first.iter().all(|count| (1350..1650).contains(count)),
            "{first:?}"
        );
        assert_eq!(orders.len(), 24);
        assert!(
            orders.values().all(|count| (180..320).contains(count)),
            "{orders:?}"
        );
    }
}
