//! What training frames of a stream went through before they were stored, as far as it can be repeated on one frame.
//!
//! ```text
//! recorded ──earlier codecs──▶ ──the plan's resize──▶ ──codec──▶ stored          manifest: generations, resized_from, codecs
//! ```
//!
//! A codec can be repeated on a live frame if its pages hold one frame each. What cannot be repeated is not imitated: the
//! frame passes unchanged, and a note says so.

use std::collections::BTreeMap;
use std::fmt;

use kino_codec::{Bound, Codec, FrameType, JpegEstimate, Scope, ValueType};
use kino_dataset::{Dataset, DatasetError, Kind, Size, StreamSummary, image_size};
use serde::{Deserialize, Serialize};

use crate::error::{Result, invalid};

/// Episodes that are looked at to find the codec of most frames, or the settings of stored JPEG files.
const MOST_EPISODES: usize = 32;

/// Stored JPEG files that are looked at.
const MOST_FILES: usize = 16;

/// How close a live frame comes to the training frame that it would have become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fidelity {
    /// Bit for bit.
    Exact,
    /// The encoder was another one; its settings are estimated from stored files.
    Estimated,
    /// In training, the result also depended on what a single frame does not have.
    Approximate,
    /// The loss cannot be repeated on a single frame: it passes without it.
    Unchanged,
}

/// How the frames of a stream were stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HowStored {
    /// The stream.
    pub stream: String,
    /// Its kind.
    pub kind: Kind,
    /// The dtype of its frames, by numpy's name.
    pub dtype: String,
    /// The shape of a stored frame.
    pub shape: Vec<usize>,
    /// The sizes from which frames were resized before they were stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resized_from: Vec<Size>,
    /// Lossy codecs that frames went through before they were resized.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<String>,
    /// The lossy codec they are stored with; `None` if it is lossless or cannot be repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codec: Option<String>,
    /// Whether stored frames have lost something.
    pub is_lossy: bool,
    /// How close live frames come.
    pub fidelity: Fidelity,
    /// What the user should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Fidelity {
    /// Its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Estimated => "estimated",
            Self::Approximate => "approximate",
            Self::Unchanged => "unchanged",
        }
    }
}

impl fmt::Display for Fidelity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exact => "exact",
            Self::Estimated => "an estimate",
            Self::Approximate => "approximate",
            Self::Unchanged => "the loss of the codec is not repeated",
        })
    }
}

impl HowStored {
    /// Reads it from the manifest, and from a few episodes where that does not decide.
    pub(super) fn of(dataset: &Dataset, name: &str) -> Result<Self> {
        let summary = find(dataset, name)?;
        let mut how = Self {
            stream: name.to_owned(),
            kind: summary.kind,
            dtype: summary.dtype.clone(),
            shape: summary.shape.clone(),
            resized_from: summary.resized_from.clone(),
            earlier: Vec::new(),
            codec: None,
            is_lossy: !summary.lossy_generations().is_empty(),
            fidelity: Fidelity::Exact,
            notes: Vec::new(),
        };
        let frame = FrameType::Values(how.value_type()?);
        how.add_earlier(summary, &frame);
        let codec = how.main_codec(dataset, summary)?;
        how.codec = how.repeatable(&codec, &frame);
        if let Some(found) = carries_jpeg(&codec) {
            how.codec = how.estimate(dataset, &found)?;
        }
        if how.resized_from.len() > 1 {
            let sizes: Vec<String> = how.resized_from.iter().map(Size::to_string).collect();
            how.is(Fidelity::Approximate, format!(
                "training frames were resized more than once, or from several sizes ({}); a live frame is resized once",
                sizes.join(", ")
            ));
        }
        if summary.protected_frames > 0 && how.codec.is_some() {
            how.notes.push(format!(
                "{} of {} training frames, those around events, are stored without loss; live frames never are",
                summary.protected_frames, summary.frames
            ));
        }
        Ok(how)
    }

    /// The type of a stored frame.
    pub fn value_type(&self) -> Result<ValueType> {
        let dtype = self.dtype.parse();
        let ty = dtype.and_then(|dtype| ValueType::new(dtype, &self.shape));
        ty.map_err(|source| at(&self.stream, source))
    }

    /// Height and width of a stored image; `None` for other frames.
    pub fn size(&self) -> Option<Size> {
        image_size(&self.value_type().ok()?).map(|(size, _)| size)
    }

    /// Lossy codecs before the one that frames are stored with.
    fn add_earlier(&mut self, summary: &StreamSummary, frame: &FrameType) {
        for one in &summary.generations {
            if let Some(codec) = self.repeatable(&one.codec, frame) {
                self.earlier.push(codec);
            } else if carries_jpeg(&one.codec).is_some() {
                self.is(Fidelity::Approximate, "the recording had JPEG files, which were decoded and are gone; if live frames are \
                    JPEG files too, decode them and nothing is missing".to_owned());
            }
        }
        if !self.earlier.is_empty() && !self.resized_from.is_empty() {
            self.is(
                Fidelity::Approximate,
                format!(
                    "the dataset does not say whether `{}` came before or after resizing; it is assumed that it came before",
                    self.earlier.join("`, `")
                ),
            );
        }
    }

    /// The codec of most frames.
    fn main_codec(&mut self, dataset: &Dataset, summary: &StreamSummary) -> Result<String> {
        if let [only] = summary.codecs.as_slice() {
            return Ok(only.clone());
        }
        let mut frames: BTreeMap<String, usize> = BTreeMap::new();
        for row in spread(dataset.len(), MOST_EPISODES) {
            let episode = dataset.episode(row)?;
            if episode.streams().all(|stream| stream.name != self.stream) {
                continue;
            }
            let stream = episode.stream(&self.stream)?;
            *frames.entry(stream.schema().codec.clone()).or_default() += stream.len();
        }
        let all: usize = frames.values().sum();
        let Some((codec, most)) = frames.iter().max_by_key(|(_, frames)| **frames) else {
            return Err(invalid(format!(
                "stream `{}` has no frames, so there is nothing that live frames could match",
                self.stream
            )));
        };
        let is_lossless = |codec: &String| {
            kino_codec::codec(codec).is_ok_and(|codec| codec.bound() == Bound::Lossless)
        };
        if !frames.keys().all(is_lossless) && frames.len() > 1 {
            self.is(
                Fidelity::Approximate,
                format!(
                    "training frames were stored with {} codecs; live frames get that of most, `{codec}` ({:.0} % of the frames)",
                    frames.len(),
                    100.0 * *most as f64 / all.max(1) as f64
                ),
            );
        }
        Ok(codec.clone())
    }

    /// The codec if it is lossy and can be repeated on a frame; otherwise a note if something is missing then.
    fn repeatable(&mut self, text: &str, frame: &FrameType) -> Option<String> {
        let codec = match kino_codec::codec(text) {
            Ok(codec) => codec,
            Err(error) => {
                self.is(
                    Fidelity::Unchanged,
                    format!("{error}; live frames pass without it"),
                );
                return None;
            }
        };
        match repeat(&*codec, frame) {
            Repeat::Exact => Some(text.to_owned()),
            Repeat::Approximate => {
                self.is(Fidelity::Approximate, format!(
                    "`{text}` stores {} frames together, each with the help of the others; a live frame is encoded alone, with \
                     the same settings",
                    codec.page_frames(frame)
                ));
                Some(text.to_owned())
            }
            Repeat::Unneeded => None,
            Repeat::Impossible(why) => {
                // Files are estimated from what is stored, by the caller.
                if carries_jpeg(text).is_none() {
                    self.is(Fidelity::Unchanged, format!("`{text}`: {why}"));
                }
                None
            }
        }
    }

    /// The settings of JPEG files that another encoder made.
    fn estimate(&mut self, dataset: &Dataset, codec: &str) -> Result<Option<String>> {
        let mut found: BTreeMap<(u8, &'static str), usize> = BTreeMap::new();
        let (mut files, mut same) = (0, 0);
        for row in spread(dataset.len(), MOST_FILES) {
            let episode = dataset.episode(row)?;
            if episode.streams().all(|stream| stream.name != self.stream) {
                continue;
            }
            let stream = episode.stream(&self.stream)?;
            if stream.is_empty() || stream.schema().codec != codec {
                continue;
            }
            // Another place in every episode.
            let frame = (stream.len() - 1) * (row % 7) / 7;
            let Some(file) = stream.read_bitstream(frame)? else {
                continue;
            };
            let seen = JpegEstimate::of(&file).map_err(|source| at(&self.stream, source))?;
            *found.entry((seen.quality, seen.subsampling)).or_default() += 1;
            files += 1;
            same += usize::from(seen.is_same);
        }
        let most = found.iter().max_by_key(|(_, files)| **files);
        let Some((&(quality, subsampling), _)) = most else {
            return Ok(None);
        };
        let estimate = format!("jpeg:q={quality},sub={subsampling}");
        let qualities: Vec<u8> = found.keys().map(|(quality, _)| *quality).collect();
        let range = match (qualities.first(), qualities.last()) {
            (Some(least), Some(most)) if least != most => {
                format!(", qualities from {least} to {most}")
            }
            _ => String::new(),
        };
        self.is(
            Fidelity::Estimated,
            format!(
                "training frames are JPEG files of another encoder; `{estimate}` is estimated from the tables of {files} of them{range} \
                 ({same} have the very tables of `jpeg`); if live frames are such JPEG files already, they need no parity"
            ),
        );
        Ok(Some(estimate))
    }

    /// Notes a reason why live frames are not exactly what training frames are.
    fn is(&mut self, fidelity: Fidelity, why: String) {
        self.fidelity = self.fidelity.max(fidelity);
        self.notes.push(why);
    }
}

/// Whether what a codec does to a frame can be repeated.
enum Repeat {
    Exact,
    Approximate,
    Unneeded,
    Impossible(String),
}

fn repeat(codec: &dyn Codec, frame: &FrameType) -> Repeat {
    match codec.bound() {
        Bound::Lossless => return Repeat::Unneeded,
        Bound::Abs(bound) if codec.scope() == Scope::Run => {
            return Repeat::Impossible(format!(
                "training values differ from measured ones by at most {}, but which value is stored depends on those around it; \
                 live values pass as they are",
                bound.max()
            ));
        }
        _ => {}
    }
    if let Some(files) = codec.carries() {
        return Repeat::Impossible(format!(
            "{files} of the recording, from an encoder that is not known here; its loss depends on the frames before, so live \
             frames pass without it"
        ));
    }
    if codec.page_frames(frame).get() == 1 {
        Repeat::Exact
    } else {
        Repeat::Approximate
    }
}

/// The codec, if it stores JPEG files of another encoder.
fn carries_jpeg(codec: &str) -> Option<String> {
    (codec == kino_codec::JPEG_FILES).then(|| codec.to_owned())
}

/// A stream of the dataset, whose frames are values.
fn find<'d>(dataset: &'d Dataset, name: &str) -> Result<&'d StreamSummary> {
    let streams = &dataset.manifest().streams;
    let Some(found) = streams.iter().find(|stream| stream.name == name) else {
        let names: Vec<&str> = streams.iter().map(|stream| stream.name.as_str()).collect();
        let what = format!("no stream `{name}`; there are {}", names.join(", "));
        return Err(DatasetError::NotFound { what }.into());
    };
    if found.kind == Kind::Text {
        return Err(invalid(format!(
            "stream `{name}` is text, which is stored as it is; leave it out"
        )));
    }
    Ok(found)
}

/// At most so many of the episodes, spread evenly.
pub(super) fn spread(episodes: usize, most: usize) -> impl Iterator<Item = usize> {
    let count = episodes.min(most);
    (0..count).map(move |number| number * episodes / count.max(1))
}

/// A codec's error about a stream.
pub(super) fn at(stream: &str, source: kino_codec::CodecError) -> crate::error::AdvisorError {
    let place = format!("stream `{stream}`");
    DatasetError::Codec { place, source }.into()
}
