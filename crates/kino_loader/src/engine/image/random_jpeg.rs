//! Random JPEG: the images of some samples are compressed as JPEG and decoded again, at a random quality.
//!
//! ```text
//! stored image ──decode──▶ the cache ──JPEG──▶ resize ──▶ crop ──▶ the batch
//! stored image ──decode──▶ resize ──▶ the cache ──JPEG──▶ crop ──▶ the batch          `before_resize` is false
//!
//! operation "jpeg/KEY" at index i:   compressed if draw 0 is below p
//!                                    quality = draw 1 from the lowest to the highest
//! ```
//!
//! A policy trained on images without loss does worse if the robot's camera delivers JPEG, even at a high quality; one that
//! saw both does not. A camera compresses its whole image before anything resizes it, so the default is the same here.
//! That has a price: the cache holds whole images, and every sample resizes its own, also those that are not compressed.
//!
//! As with crops, the draws depend on the seed, the sample's index and the key alone, so ranks, threads and restarts change
//! nothing (`spec/order.md`). All frames of a window have one quality, as those of one camera do; two keys draw on their own.

use std::sync::Arc;

use kino_codec::{Codec, Dtype, FrameType, RoundTrip, ValueType, codec};
use kino_dataset::{DatasetError, Fit, ResizeScratch};
use serde::{Deserialize, Serialize};

use crate::error::{Result, invalid};
use crate::order::Operation;

/// Which images are compressed as JPEG and decoded again when they are put into a batch, and how.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomJpeg {
    /// The lowest and the highest quality, 1 to 100. Every quality in between is equally likely.
    pub quality: (u8, u8),
    /// The probability that the images of a sample are compressed, 0 to 1.
    #[serde(default = "default_p")]
    pub p: f64,
    /// How chroma is subsampled.
    #[serde(default)]
    pub subsampling: Subsampling,
    /// Whether images are compressed at the stored size, as by a camera, or after they are resized. Always before crops.
    #[serde(default = "default_before_resize")]
    pub before_resize: bool,
}

/// How chroma is subsampled relative to luma.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Subsampling {
    /// Chroma at half the width and height, as cameras do.
    #[default]
    #[serde(rename = "420")]
    S420,
    /// Chroma at half the width.
    #[serde(rename = "422")]
    S422,
    /// Chroma at full size.
    #[serde(rename = "444")]
    S444,
}

fn default_p() -> f64 {
    0.5
}

fn default_before_resize() -> bool {
    true
}

impl RandomJpeg {
    /// Qualities from the lowest to the highest, and the defaults of everything else.
    pub fn of_quality(lowest: u8, highest: u8) -> Self {
        Self {
            quality: (lowest, highest),
            p: default_p(),
            subsampling: Subsampling::default(),
            before_resize: default_before_resize(),
        }
    }

    /// Refuses impossible values, and images that JPEG cannot hold.
    pub(crate) fn check(&self, key: &str, ty: &ValueType) -> Result<()> {
        let (lowest, highest) = self.quality;
        if lowest < 1 || highest > 100 || lowest > highest {
            return Err(invalid(format!(
                "random_jpeg of `{key}`: `quality` is {lowest} to {highest}; give the lowest and the highest, from 1 to 100"
            )));
        }
        if !(0.0..=1.0).contains(&self.p) {
            return Err(invalid(format!(
                "random_jpeg of `{key}`: `p` is {}; give a probability from 0 to 1",
                self.p
            )));
        }
        let suits = self.codec(lowest)?.check(&FrameType::Values(ty.clone()));
        suits.map_err(|error| {
            invalid(format!(
                "random_jpeg of `{key}`: {error}; to compress other cameras only, give it by key"
            ))
        })
    }

    fn codec(&self, quality: u8) -> Result<Arc<dyn Codec>> {
        let sub = match self.subsampling {
            Subsampling::S420 => "420",
            Subsampling::S422 => "422",
            Subsampling::S444 => "444",
        };
        codec(&format!("jpeg:q={quality},sub={sub}")).map_err(|error| invalid(error.to_string()))
    }
}

/// Random JPEG of the images under a key.
#[derive(Debug, Clone)]
pub(crate) struct KeyJpeg {
    operation: Operation,
    seed: u64,
    p: f64,
    /// One per quality, the lowest first.
    codecs: Arc<[Arc<dyn Codec>]>,
    after: Fit,
}

/// What becomes of the images of one sample: compressed or not, then resized and cropped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampleJpeg<'k> {
    codec: Option<&'k Arc<dyn Codec>>,
    after: Fit,
}

/// What a thread keeps for the next image.
#[derive(Debug, Default)]
pub(crate) struct JpegScratch {
    trip: Option<RoundTrip>,
    resize: ResizeScratch,
    /// An image in the size in which it was in the cache.
    whole: Vec<u8>,
    fitted: Vec<u8>,
    fitted_shape: Vec<usize>,
}

impl KeyJpeg {
    /// Under the order's seed; `after` is how images are made to fit afterwards.
    pub(crate) fn new(key: &str, seed: u64, jpeg: &RandomJpeg, after: Fit) -> Result<Self> {
        let (lowest, highest) = jpeg.quality;
        let codecs = (lowest..=highest).map(|quality| jpeg.codec(quality));
        Ok(Self {
            operation: Operation::named(&format!("jpeg/{key}")),
            seed,
            p: jpeg.p,
            codecs: codecs.collect::<Result<_>>()?,
            after,
        })
    }

    /// For the sample at an index of the order.
    pub(crate) fn at(&self, index: u64) -> SampleJpeg<'_> {
        let mut draw = self.operation.at(self.seed, index);
        let is_compressed = draw.next_bool(self.p);
        let quality = usize::try_from(draw.next_below(self.codecs.len() as u64)).ok();
        SampleJpeg {
            codec: quality
                .filter(|_| is_compressed)
                .and_then(|quality| self.codecs.get(quality)),
            after: self.after,
        }
    }
}

impl SampleJpeg<'_> {
    /// An image of this shape as it comes into the batch, but for random crop, layout and dtype; and its shape.
    pub(crate) fn apply<'f>(
        &self,
        image: &'f [u8],
        shape: &'f [usize],
        scratch: &'f mut JpegScratch,
    ) -> Result<(&'f [u8], &'f [usize]), DatasetError> {
        let refused = |what: String| DatasetError::Invalid { what };
        let ty = ValueType::new(Dtype::U8, shape).map_err(|error| refused(error.to_string()))?;
        let reduce = self.after.reduce(&ty).map_err(refused)?;
        let whole = &mut scratch.whole;
        match self.codec {
            Some(codec) => {
                whole.resize(image.len(), 0);
                let done = round_trip(&mut scratch.trip, codec, ty, (image, &mut whole[..]));
                done.map_err(|error| refused(format!("an image was not compressed: {error}")))?;
            }
            None if reduce.is_none() => return Ok((image, shape)),
            // The resizer borrows what it reads as mutable.
            None => {
                whole.clear();
                whole.extend_from_slice(image);
            }
        }
        let Some(reduce) = reduce else {
            return Ok((&whole[..], shape));
        };
        scratch.fitted.resize(reduce.frame_bytes(), 0);
        let done = reduce.put_all(whole, &mut scratch.fitted, &mut scratch.resize);
        done.map_err(refused)?;
        scratch.fitted_shape = reduce.shape();
        Ok((&scratch.fitted[..], &scratch.fitted_shape[..]))
    }
}

fn round_trip(
    trip: &mut Option<RoundTrip>,
    codec: &Arc<dyn Codec>,
    ty: ValueType,
    (image, out): (&[u8], &mut [u8]),
) -> kino_codec::Result<usize> {
    let codec = Arc::clone(codec);
    let trip = match trip {
        Some(trip) => {
            trip.change(codec, ty)?;
            trip
        }
        empty => empty.insert(RoundTrip::new(codec, ty)?.for_values()),
    };
    trip.apply(image, out)
}

#[cfg(test)]
mod tests {
    use kino_dataset::{Filter, ResizeMode, Size};

    use super::*;

    fn image(height: usize, width: usize) -> (ValueType, Vec<u8>) {
        let ty = ValueType::new(Dtype::U8, &[height, width, 3]).unwrap();
        let pixels = (0..ty.elements()).map(|idx| u8::try_from(idx * idx / 70 % 256).unwrap());
        let pixels = pixels.collect();
        (ty, pixels)
    }

    fn fit(size: Option<(usize, usize)>, centre: Option<(usize, usize)>) -> Fit {
        Fit {
            mode: ResizeMode::Exact,
            size: size.map(Size::from),
            centre: centre.map(Size::from),
            filter: Filter::Bilinear,
        }
    }

    #[test]
    fn samples_are_compressed_with_probability_p_at_every_quality_and_by_key() {
        let jpeg = RandomJpeg {
            p: 0.25,
            ..RandomJpeg::of_quality(40, 49)
        };
        let [front, wrist] =
            ["front", "wrist"].map(|key| KeyJpeg::new(key, 7, &jpeg, Fit::default()).unwrap());
        let spec = |sample: SampleJpeg<'_>| sample.codec.map(|codec| codec.spec().to_string());
        let (mut seen, mut both) = (std::collections::BTreeMap::new(), 0);
        for index in 0..20_000 {
            let found = [spec(front.at(index)), spec(wrist.at(index))];
            both += usize::from(found.iter().all(Option::is_some));
            let [found, _] = found;
            *seen.entry(found).or_insert(0) += 1;
        }
        let plain = seen.remove(&None).unwrap();
        assert!((14_750..15_250).contains(&plain), "{plain}");
        assert!((1_120..1_380).contains(&both), "{both}");
        assert!(
            seen.values().all(|count| (410..590).contains(count)),
            "{seen:?}"
        );
        let specs: Vec<_> = seen.into_keys().flatten().collect();
        assert_eq!(
            specs,
            (40..50)
                .map(|q| format!("jpeg:q={q},sub=420"))
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn an_image_is_compressed_and_then_made_to_fit_whatever_came_before() {
        let after = fit(Some((12, 10)), Some((8, 6)));
        let mut scratch = JpegScratch::default();
        for p in [1.0, 0.0, 1.0] {
            for (height, width) in [(30, 20), (16, 24)] {
                let (ty, pixels) = image(height, width);
                let jpeg = RandomJpeg {
                    p,
                    ..RandomJpeg::of_quality(20, 20)
                };
                for after in [after, Fit::default()] {
                    let mut expected = pixels.clone();
                    if p > 0.0 {
                        let mut trip = RoundTrip::new(jpeg.codec(20).unwrap(), ty.clone()).unwrap();
                        trip.apply(&pixels, &mut expected).unwrap();
                        assert_ne!(expected, pixels);
                    }
                    let mut expected_shape = ty.shape().to_vec();
                    if let Some(reduce) = after.reduce(&ty).unwrap() {
                        let mut resize = ResizeScratch::default();
                        expected = reduce.to_resized(&mut expected, &mut resize).unwrap();
                        expected_shape = vec![8, 6, 3];
                    }
                    let key = KeyJpeg::new("front", 7, &jpeg, after).unwrap();
                    let found = key.at(3).apply(&pixels, ty.shape(), &mut scratch).unwrap();
                    assert_eq!(found, (&expected[..], &expected_shape[..]));
                }
            }
        }
    }

    #[test]
    fn an_image_that_stays_as_it_is_is_not_copied() {
        let (ty, pixels) = image(6, 4);
        let jpeg = RandomJpeg {
            p: 0.0,
            ..RandomJpeg::of_quality(20, 20)
        };
        let key = KeyJpeg::new("front", 7, &jpeg, Fit::default()).unwrap();
        let mut scratch = JpegScratch::default();
        let (found, _) = key.at(3).apply(&pixels, ty.shape(), &mut scratch).unwrap();
        assert!(std::ptr::eq(found, &*pixels));
    }

    #[test]
    fn impossible_values_are_refused_with_the_reason() {
        let (rgb, _) = image(6, 4);
        let refused = |jpeg: RandomJpeg, ty: &ValueType, says: &str| {
            let error = jpeg.check("cam", ty).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("`cam`"), "{error}");
        };
        for (lowest, highest) in [(0, 50), (50, 101), (60, 50)] {
            let jpeg = RandomJpeg::of_quality(lowest, highest);
            refused(jpeg, &rgb, "from 1 to 100");
        }
        for p in [-0.1, 1.1, f64::NAN] {
            let jpeg = RandomJpeg {
                p,
                ..RandomJpeg::of_quality(20, 20)
            };
            refused(jpeg, &rgb, "probability from 0 to 1");
        }
        let rgba = ValueType::new(Dtype::U8, &[6, 4, 4]).unwrap();
        refused(RandomJpeg::of_quality(20, 20), &rgba, "no fourth channel");
        RandomJpeg::of_quality(1, 100).check("cam", &rgb).unwrap();
    }

    #[test]
    fn options_have_the_documented_defaults_and_names() {
        let read = |json: &str| serde_json::from_str::<RandomJpeg>(json);
        assert_eq!(
            read(r#"{"quality": [30, 95]}"#).unwrap(),
            RandomJpeg::of_quality(30, 95)
        );
        let all = r#"{"quality":[7,7],"p":1.0,"subsampling":"444","before_resize":false}"#;
        let jpeg = RandomJpeg {
            quality: (7, 7),
            p: 1.0,
            subsampling: Subsampling::S444,
            before_resize: false,
        };
        assert_eq!(read(all).unwrap(), jpeg);
        assert_eq!(serde_json::to_string(&jpeg).unwrap(), all);
        assert!(read(r#"{"quality": [30, 95], "share": 1}"#).is_err());
    }
}
