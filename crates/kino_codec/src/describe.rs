//! What a codec says about itself, so that nothing else has to know it by name.
//!
//! Plans ask which codec is the default of a kind of stream, which to try beside it and which can keep a bound,
//! `kinograph bench codecs` which settings are worth trying, exporters whether pages are files of another format.

use std::sync::Arc;

use crate::bound::Bound;
use crate::codec::Codec;
use crate::error::Result;
use crate::frame::FrameType;
use crate::kind::Kind;
use crate::spec::CodecSpec;

/// What a codec is for, what it guarantees and what it costs.
#[derive(Debug, Clone, Copy)]
pub struct Description {
    /// The name in a codec string.
    pub name: &'static str,
    /// What it is for, in one line.
    pub summary: &'static str,
    /// The kinds of stream that it is made for.
    pub kinds: &'static [Kind],
    /// Whether streams of these kinds get it unless a plan says otherwise. Of several such codecs, the first in the
    /// registry that can store the frames.
    pub is_default: bool,
    /// Whether it is tried beside the default on the first frames of a stream of these kinds, and stored if it suits
    /// them better. Such a codec is lossless without parameters, and its pages are independent.
    pub is_alternative: bool,
    /// What it can guarantee about decoded values; without parameters, the first.
    pub guarantees: &'static [Guarantee],
    /// Whether frames are predicted from earlier ones of their page, so that a random frame may cost several decodes.
    pub is_grouped: bool,
    /// How fast it encodes.
    pub encode: Speed,
    /// How fast it decodes consecutive frames.
    pub decode: Speed,
    /// Its parameters, in the order of the canonical string.
    pub parameters: &'static [Parameter],
    /// The settings worth trying on frames of a type, the usual one first.
    pub settings: fn(&FrameType) -> Vec<String>,
    /// The setting for a quality from 1 to 100, if it has one.
    pub quality: Option<fn(u8) -> String>,
    /// The files that its pages are, if another program can read them.
    pub files: Option<Files>,
    /// Creates the codec from its parsed string.
    pub(crate) make: fn(&CodecSpec) -> Result<Arc<dyn Codec>>,
}

impl Description {
    /// Whether it is made for streams of this kind.
    pub fn suits(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }

    /// Whether one of its parameters sets such a bound.
    pub fn takes(&self, bound: &Bound) -> bool {
        Guarantee::of(bound).is_some_and(|wanted| self.guarantees.contains(&wanted))
    }
}

/// A kind of [`Bound`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarantee {
    /// Every bit comes back.
    Lossless,
    /// A largest error, parameter `abs`.
    Abs,
    /// A lowest peak signal-to-noise ratio, parameter `psnr`.
    Psnr,
    /// None; the error is measured and recorded.
    Measured,
}

impl Guarantee {
    /// The guarantee that a bound with a parameter asks for.
    fn of(bound: &Bound) -> Option<Self> {
        match bound {
            Bound::Abs(_) => Some(Self::Abs),
            Bound::Psnr(_) => Some(Self::Psnr),
            Bound::Lossless | Bound::Unbounded => None,
        }
    }

    /// The word in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lossless => "lossless",
            Self::Abs => "abs",
            Self::Psnr => "psnr",
            Self::Measured => "measured",
        }
    }
}

/// A class of speed, in MB/s of decoded values on one core of a server: the middle of many streams
/// (docs/measurements/codecs/streams.md). The fastest is the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Speed {
    /// From 1000 MB/s.
    Fast,
    /// From 100 MB/s.
    Medium,
    /// Below 100 MB/s.
    Slow,
}

impl Speed {
    /// The word in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Medium => "medium",
            Self::Slow => "slow",
        }
    }
}

/// A parameter of a codec.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// The key in a codec string.
    pub key: &'static str,
    /// What it sets, and to what.
    pub help: &'static str,
}

/// Pages that are files of another format.
#[derive(Debug, Clone, Copy)]
pub struct Files {
    /// The name of the format.
    pub format: &'static str,
    /// The setting that takes such files and stores them unchanged.
    pub carry: &'static str,
}

/// Bytes of one value of a frame.
pub(crate) fn value_bytes(frame: &FrameType) -> usize {
    frame.as_values().map_or(1, |ty| ty.dtype().size())
}

/// Whether the values of a frame are floating-point.
pub(crate) fn is_float(frame: &FrameType) -> bool {
    frame.as_values().is_some_and(|ty| ty.dtype().is_float())
}
