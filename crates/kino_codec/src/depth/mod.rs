//! `depth`: depth images, lossless or within a bound: levels, choices among neighbours, then zstd.
//!
//! ```text
//! page   = kind │ stream │ stream │ …
//!          u8     stream = length │ zstd frame, content size stated          length is a varint; 0 = empty, no frame
//!
//! kind     1, 2, 4   planes of residuals of the keys, predictor left, up or median
//!          17, 18, 20  a stream of levels, then planes of residuals of the ranks
//!          24, 25    a stream of levels, then the choices of the ranks, with full or little detail
//!          26        a stream of levels, then the steps of the ranks
//! ```
//!
//! Each frame uses the kind that makes it smallest, or one that is slightly larger but faster to decode. Holes (0) and
//! values that are not finite come back bit for bit whatever the bound, and no other value becomes one.

mod classes;
mod decode;
mod encode;
mod lefts;
mod levels;
mod residuals;
mod steps;
mod streams;

use crate::bound::{AbsBound, Bound};
use crate::describe::{Description, Guarantee, Parameter, Speed, is_float};
use crate::error::{CodecError, Result};
use crate::frame::FrameType;
use crate::frames::Frames;
use crate::kind::Kind as StreamKind;
use crate::pages::{PageCodec, Pages};
use crate::predict::Predictor;
use crate::scratch::Scratch;
use crate::spec::CodecSpec;
use crate::zstd_frame::{Effort, LEVELS};

use classes::Detail;
use decode::DepthDecoder;
use levels::Keys;
use residuals::{PREDICTORS, Width};

const NAME: &str = "depth";

const DEFAULT_LEVEL: i32 = 3;

/// How the values of a page are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Residuals of the keys themselves.
    Values(Predictor),
    /// Residuals of ranks.
    Ranks(Predictor),
    /// Choices of ranks.
    Choices(Detail),
    /// Steps of ranks.
    Steps,
}

impl Kind {
    /// Added to the id of a kind with levels.
    const LEVELS: u8 = 16;
    const CHOICES: u8 = 8;

    fn id(self) -> u8 {
        match self {
            Self::Values(predictor) => predictor.id(),
            Self::Ranks(predictor) => predictor.id() + Self::LEVELS,
            Self::Choices(Detail::Full) => Self::CHOICES + Self::LEVELS,
            Self::Choices(Detail::Little) => Self::CHOICES + Self::LEVELS + 1,
            Self::Steps => Self::CHOICES + Self::LEVELS + 2,
        }
    }

    fn from_id(id: u8) -> Option<Self> {
        let predictors = PREDICTORS.into_iter();
        let values = predictors.clone().map(Self::Values);
        let ranks = predictors.map(Self::Ranks);
        let mut all = values
            .chain(ranks)
            .chain([Detail::Full, Detail::Little].map(Self::Choices))
            .chain([Self::Steps]);
        all.find(|kind| kind.id() == id)
    }
}

/// Height and width of an image.
#[derive(Debug, Clone, Copy)]
struct Sides {
    height: usize,
    width: usize,
}

/// The size of a depth image.
#[derive(Debug, Clone, Copy)]
struct Size {
    height: usize,
    width: usize,
    numbers: Keys,
}

impl Size {
    fn new(frame: &FrameType) -> Result<Self> {
        let found = frame.as_values().and_then(|ty| {
            let numbers = Keys::new(ty.dtype())?;
            let (height, width) = match *ty.shape() {
                [height, width] | [height, width, 1] => (height, width),
                _ => return None,
            };
            (height > 0 && width > 0).then_some(Self {
                height,
                width,
                numbers,
            })
        });
        found.ok_or_else(|| CodecError::Unsuited {
            codec: NAME,
            frame: frame.to_string(),
            what: "it stores images (height, width) of uint16 or floating-point values; use `zstd`"
                .to_owned(),
        })
    }

    fn sides(self) -> Sides {
        Sides {
            height: self.height,
            width: self.width,
        }
    }

    fn pixels(self) -> usize {
        self.height * self.width
    }

    fn bytes(self) -> usize {
        self.pixels() * self.numbers.size()
    }
}

/// Bytes per rank for this many levels.
fn rank_width(levels: usize) -> Width {
    let bytes = if levels > 256 { 2 } else { 1 };
    Width { bytes }
}

pub(crate) const DESCRIPTION: Description = Description {
    name: NAME,
    summary: "depth images, 16-bit or floating-point",
    kinds: &[StreamKind::Depth],
    is_default: true,
    is_alternative: false,
    guarantees: &[Guarantee::Lossless, Guarantee::Abs],
    is_grouped: false,
    encode: Speed::Slow,
    decode: Speed::Medium,
    parameters: &[
        Parameter {
            key: "level",
            help: "of zstd: 1 (fast) to 19 (small)",
        },
        Parameter {
            key: "abs",
            help: "largest error of a depth, in its unit; holes and non-finite values are exact",
        },
    ],
    settings: |frame| {
        let millimetre = if is_float(frame) { "0.001" } else { "1" };
        vec![NAME.to_owned(), format!("{NAME}:abs={millimetre}")]
    },
    quality: None,
    files: None,
    make: Pages::<Depth>::make,
};

/// The `depth` codec.
#[derive(Debug)]
pub(crate) struct Depth {
    level: i32,
    bound: Option<AbsBound>,
}

impl PageCodec for Depth {
    const NAME: &'static str = NAME;
    type Decoder = DepthDecoder;

    fn parse(spec: &CodecSpec) -> Result<Self> {
        let level = spec.integer("level", LEVELS, DEFAULT_LEVEL)?;
        let every_pixel = |abs: &str| {
            let bound = AbsBound::parse(abs).filter(|bound| bound.len().is_none());
            bound.ok_or_else(|| {
                spec.error("`abs` must be one tolerance for every pixel, such as 1 or 1e-3")
            })
        };
        Ok(Self {
            level,
            bound: spec.get("abs").map(every_pixel).transpose()?,
        })
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        let abs = self.bound.as_ref().map(|bound| ("abs", bound.to_string()));
        let level = ("level", self.level.to_string());
        [level].into_iter().chain(abs).collect()
    }

    fn bound(&self) -> Bound {
        self.bound.clone().map_or(Bound::Lossless, Bound::Abs)
    }

    fn decoder(&self, frame: &FrameType) -> Result<DepthDecoder> {
        let size = Size::new(frame)?;
        Ok(DepthDecoder { size })
    }

    fn encode_page(&self, frames: &Frames<'_>, scratch: &mut Scratch) -> Result<Vec<u8>> {
        let encoder = encode::Encoder {
            effort: Effort::level(self.level),
            size: Size::new(frames.frame())?,
            zstd: &mut scratch.zstd,
            best: None,
        };
        let eps = match &self.bound {
            Some(bound) if !frames.is_protected(0) => bound.max(),
            _ => 0.0,
        };
        encoder.encode(frames.as_values(NAME)?.1, eps)
    }
}

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "test values are small"
)]
mod tests;
