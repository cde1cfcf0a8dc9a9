//! `vector`: numeric vectors, lossless or bounded; every element of the vector is a separate column.
//!
//! ```text
//!   values ──map──▶ integers ──gate──▶ those that change ──predictor──▶ residuals ──class──▶ pco
//!   −0.7793222       −65029                                              −3, 1, 0 …
//! ```
//!
//! Robots measure in encoder counts, print decimals and repeat what did not change: a column is turned
//! into integers by the map that makes them smallest (map.rs, grid.rs), a bounded column by a grid as
//! coarse as its bound allows. Columns that change together and rarely share a gate (gates.rs). The residuals
//! (predictor.rs) of similar columns are compressed together (class.rs, group.rs), so
//! that a page of 256 frames, and a run of a few hundred, have little overhead. Values that a
//! column does not reproduce exactly (or well enough) are corrected one by one. The byte layout is in layout.rs
//! and page.rs.

mod bits;
mod class;
mod column_layout;
mod columns;
mod cost;
mod decode;
mod encode;
mod fit;
mod frozen;
mod gates;
mod grid;
mod group;
mod layout;
mod map;
mod page;
mod predictor;
mod quat;
mod value;

use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::bound::{AbsBound, Bound};
use crate::codec::{Codec, Decoder, Encoded, RunEncoder, Scope, check_page_bytes};
use crate::describe::{Description, Guarantee, Parameter, Speed, is_float};
use crate::error::{CodecError, Result, buffer};
use crate::frame::{Dtype, FrameType, ValueType};
use crate::frames::Frames;
use crate::kind::Kind;
use crate::pco_file::MAX_RUN_FRAMES;
use crate::raw::values_only;
use crate::scratch::Scratch;
use crate::spec::CodecSpec;
use crate::with_dtype::with_dtype;

use decode::VectorDecoder;
use encode::Run;

const NAME: &str = "vector";

/// The library's own default: higher levels gain less than one percent on joint data.
const DEFAULT_LEVEL: i32 = 8;

/// One batch of the library: what it decodes at a time.
const PAGE_FRAMES: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// A reader keeps one column of a page in memory.
const MAX_PAGE_FRAMES: usize = 1 << 16;

/// The most elements: an image is not a vector.
const MAX_ELEMENTS: usize = 2048;

pub(crate) const DESCRIPTION: Description = Description {
    name: NAME,
    summary: "numeric vectors: joints, actions, forces",
    kinds: &[Kind::Vector],
    is_default: true,
    is_alternative: false,
    guarantees: &[Guarantee::Lossless, Guarantee::Abs],
    is_grouped: false,
    encode: Speed::Slow,
    decode: Speed::Fast,
    parameters: &[
        Parameter {
            key: "level",
            help: "0 (fast) to 12 (small)",
        },
        Parameter {
            key: "abs",
            help: "largest error of a value: 1e-4, or 1e-4x7/0x3 for seven bounded and three exact elements",
        },
        Parameter {
            key: "quat",
            help: "first elements of unit quaternions, which stay unit quaternions within `abs`",
        },
    ],
    settings: |frame| {
        let bounds = ["1e-5", "1e-4", "1e-3"].iter();
        let bounded = bounds.map(|eps| format!("{NAME}:abs={eps}"));
        let bounded = bounded.filter(|_| is_float(frame));
        [NAME.to_owned()].into_iter().chain(bounded).collect()
    },
    quality: None,
    files: None,
    make: |spec| Ok(Arc::new(Vector::new(spec)?)),
};

/// The `vector` codec.
#[derive(Debug)]
pub(crate) struct Vector {
    spec: CodecSpec,
    level: usize,
    abs: Option<AbsBound>,
    quats: Vec<usize>,
}

impl Vector {
    pub(crate) fn new(spec: &CodecSpec) -> Result<Self> {
        let level = spec.integer("level", 0..=12, DEFAULT_LEVEL)?;
        let mut params = vec![("level", level.to_string())];
        let abs = match spec.get("abs") {
            None => None,
            Some(text) => Some(AbsBound::parse(text).ok_or_else(|| {
                spec.error("`abs` must be a tolerance such as `1e-4`, or `1e-4x7/0x3` for seven bounded and three exact elements")
            })?),
        };
        let quats = match spec.get("quat") {
            None => Vec::new(),
            Some(text) => parse_quats(text).ok_or_else(|| {
                spec.error("`quat` must be the first elements of quaternions, in order and at least four apart, such as `3` or `3/10`")
            })?,
        };
        if abs.is_none() && !quats.is_empty() {
            return Err(spec.error("`quat` is for bounded streams: set `abs` too"));
        }
        if let Some(abs) = &abs {
            params.push(("abs", abs.to_string()));
        }
        if !quats.is_empty() {
            let texts: Vec<String> = quats.iter().map(usize::to_string).collect();
            params.push(("quat", texts.join("/")));
        }
        Ok(Self {
            spec: CodecSpec::new(NAME, &params),
            level: usize::try_from(level).unwrap_or_default(),
            abs,
            quats,
        })
    }

    /// Rejects a bound or quaternions that do not fit this many elements.
    fn check_elements(&self, ty: &ValueType) -> std::result::Result<(), String> {
        let elements = ty.elements();
        if elements > MAX_ELEMENTS {
            let better = match ty.dtype().size() {
                _ if ty.as_image().is_some() => "`predict`".to_owned(),
                size => format!("`zstd:shuffle={size}`"),
            };
            return Err(format!(
                "it stores vectors of up to {MAX_ELEMENTS} elements; use {better}"
            ));
        }
        let bounded = self.abs.as_ref().and_then(AbsBound::len);
        if let Some(len) = bounded.filter(|len| *len != elements) {
            return Err(format!(
                "`abs` has {len} tolerances for {elements} elements"
            ));
        }
        let Some(last) = self.quats.last() else {
            return Ok(());
        };
        if !ty.dtype().is_float() || last + 4 > elements {
            return Err(format!(
                "element {last} cannot start a quaternion: fewer than four elements follow"
            ));
        }
        Ok(())
    }
}

impl Vector {
    /// At least one frame, to encode or to learn from.
    fn run<'a>(&'a self, frames: &Frames<'a>, page_frames: NonZeroUsize) -> Result<Run<'a>> {
        self.check(frames.frame())?;
        let (ty, bytes) = frames.as_values(NAME)?;
        let page_frames = page_frames.get().min(frames.len());
        if frames.len() > MAX_RUN_FRAMES {
            return Err(buffer(format!(
                "a run has {} frames, but `vector` takes at most {MAX_RUN_FRAMES} at once; learn from a sample of it",
                frames.len()
            )));
        }
        check_page(page_frames, ty.frame_bytes())?;
        Ok(Run {
            ty,
            bytes,
            frames: frames.len(),
            page_frames,
            level: self.level,
            // A bool cannot be approximated.
            abs: self.abs.as_ref().filter(|_| ty.dtype() != Dtype::Bool),
            quats: &self.quats,
            protected: frames.protected(),
        })
    }
}

/// Rejects pages that a reader would reject.
fn check_page(page_frames: usize, frame_bytes: usize) -> Result<()> {
    if page_frames > MAX_PAGE_FRAMES {
        return Err(buffer(format!(
            "a page has {page_frames} frames, but `vector` takes at most {MAX_PAGE_FRAMES}; use smaller pages"
        )));
    }
    check_page_bytes(page_frames, frame_bytes)
}

/// Parses `3/10`; an empty value means the start.
fn parse_quats(text: &str) -> Option<Vec<usize>> {
    if text.is_empty() {
        return Some(vec![0]);
    }
    let mut quats: Vec<usize> = Vec::new();
    for part in text.split('/') {
        let digits = part.bytes().all(|byte| byte.is_ascii_digit());
        let first = part
            .parse()
            .ok()
            .filter(|first| digits && *first < MAX_ELEMENTS)?;
        if quats.last().is_some_and(|last| first < last + 4) {
            return None;
        }
        quats.push(first);
    }
    Some(quats)
}

impl Codec for Vector {
    fn spec(&self) -> &CodecSpec {
        &self.spec
    }

    fn scope(&self) -> Scope {
        Scope::Run
    }

    fn bound(&self) -> Bound {
        self.abs.clone().map_or(Bound::Lossless, Bound::Abs)
    }

    fn page_frames(&self, _frame: &FrameType) -> NonZeroUsize {
        PAGE_FRAMES
    }

    fn check(&self, frame: &FrameType) -> Result<()> {
        let ty = values_only(NAME, frame)?;
        self.check_elements(ty)
            .map_err(|what| CodecError::Unsuited {
                codec: NAME,
                frame: frame.to_string(),
                what,
            })
    }

    fn encode(
        &self,
        frames: &Frames<'_>,
        page_frames: NonZeroUsize,
        out: &mut Encoded,
        _scratch: &mut Scratch,
    ) -> Result<()> {
        if frames.is_empty() {
            return self.check(frames.frame());
        }
        let run = self.run(frames, page_frames)?;
        with_dtype!(run.ty.dtype(), T => run.encode::<T>(out))
    }

    fn learn(
        &self,
        sample: &Frames<'_>,
        piece_frames: NonZeroUsize,
        run_frames: usize,
    ) -> Result<Box<dyn RunEncoder>> {
        if sample.is_empty() {
            return Err(buffer("a sample without frames cannot be learned from"));
        }
        let run = self.run(sample, piece_frames)?;
        Ok(with_dtype!(run.ty.dtype(), T => Box::new(run.learn::<T>(run_frames)?)))
    }

    fn decoder(&self, frame: &FrameType, shared: &[u8]) -> Result<Box<dyn Decoder>> {
        self.check(frame)?;
        let ty = values_only(NAME, frame)?;
        Ok(with_dtype!(ty.dtype(), T => {
            Box::new(VectorDecoder::<T>::new(ty, &self.quats, shared)?)
        }))
    }
}

#[cfg(test)]
mod tests;
