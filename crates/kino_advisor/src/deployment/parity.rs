//! The transform of live frames, and its file.
//!
//! ```text
//! live frame ──earlier codecs──▶ ──the plan's resize──▶ ──codec──▶ ──the loader's size, crop, layout, dtype──▶ array
//!              repeated as in training, by the very same code                   kino_loader: Delivery
//! ```
//!
//! A frame may have the size that was recorded, or the one that was stored: the first is resized as the plan did.
//!
//! The file is JSON, with everything that the transform needs, so a robot needs no dataset. It is read from wherever a
//! checkpoint lies, so it is untrusted: sizes in it are checked as those of a dataset are.

use std::fmt;

use kino_codec::{RoundTrip, ValueType};
use kino_dataset::{Dataset, Filter, Fit, Resize, ResizeScratch, Size};
use kino_loader::{Delivery, FrameOptions, LoaderOptions};
use serde::{Deserialize, Serialize};

use super::how_stored::{Fidelity, HowStored, at};
use super::reference::Reference;
use crate::error::{AdvisorError, Result, invalid};

/// The version of the file.
const FORMAT: u32 = 1;

/// What the file says it is.
const WHAT: &str = "parity";

/// How live frames are made like the training frames of a dataset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parity {
    kinograph: String,
    format: u32,
    tool: String,
    /// The dataset's folder name, version and id.
    pub dataset: (String, u64, String),
    /// Each key of a batch.
    pub keys: Vec<StreamParity>,
    /// What training frames look like; `None` if they were not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Reference>,
}

/// How live frames of one key are made like training frames.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamParity {
    /// The key in a batch, usually the name of the stream.
    pub key: String,
    /// What frames went through until they were stored.
    pub stored: HowStored,
    /// What the loader makes of them.
    pub loaded: FrameOptions,
}

/// The transform of live frames of one key and size, with its working memory.
#[derive(Debug)]
pub struct LiveFrame {
    earlier: Vec<RoundTrip>,
    resize: Option<Resize>,
    codec: Option<RoundTrip>,
    delivery: Delivery,
    live_bytes: usize,
    resizing: ResizeScratch,
    /// The frames as they are now, and room for what the next step makes of them.
    now: Vec<u8>,
    spare: Vec<u8>,
}

impl Parity {
    /// The parity of keys and their streams, as a loader with these options would deliver them.
    pub fn of(
        dataset: &Dataset,
        keys: &[(String, String)],
        options: &LoaderOptions,
    ) -> Result<Self> {
        options.check_keys(keys.iter().map(|(key, _)| key.as_str()))?;
        let stream = |(key, stream): &(String, String)| {
            Ok(StreamParity {
                key: key.clone(),
                stored: HowStored::of(dataset, stream)?,
                loaded: options.of_key(key),
            })
        };
        let name = dataset.path().file_name().unwrap_or_default();
        Ok(Self {
            kinograph: WHAT.to_owned(),
            format: FORMAT,
            tool: concat!("kinograph ", env!("CARGO_PKG_VERSION")).to_owned(),
            dataset: (
                name.to_string_lossy().into_owned(),
                dataset.manifest().version,
                dataset.id().to_owned(),
            ),
            keys: keys.iter().map(stream).collect::<Result<_>>()?,
            reference: None,
        })
    }

    /// Reads the file's text.
    pub fn from_json(text: &str) -> Result<Self> {
        /// What every version of the file has.
        #[derive(Deserialize)]
        struct Head {
            kinograph: String,
            format: u32,
        }
        let damaged = |what, source| AdvisorError::DamagedParity { what, source };
        let broken = "the parity file is damaged";
        let head: Head = serde_json::from_str(text).map_err(|error| {
            damaged("not a parity file, or a truncated one", Some(error.into()))
        })?;
        if head.kinograph != WHAT {
            return Err(damaged("not a parity file", None));
        }
        if head.format > FORMAT {
            return Err(AdvisorError::NewerParity {
                found: head.format,
                supported: FORMAT,
            });
        }
        let parity: Self =
            serde_json::from_str(text).map_err(|error| damaged(broken, Some(error.into())))?;
        for one in &parity.keys {
            let ty = one.stored.value_type();
            ty.map_err(|error| damaged(broken, Some(error.into())))?;
        }
        Ok(parity)
    }

    /// Refuses what could not be repeated here, such as a codec whose library is missing: earlier than the first frame.
    pub fn check(&self) -> Result<()> {
        self.keys
            .iter()
            .try_for_each(|one| one.live(&one.stored.shape).map(|_| ()))
    }

    /// The text of the file.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string_pretty(self).map_err(|error| invalid(error.to_string()))
    }

    /// What is known of a key.
    pub fn key(&self, key: &str) -> Result<&StreamParity> {
        let found = self.keys.iter().find(|one| one.key == key);
        found.ok_or_else(|| {
            let keys: Vec<&str> = self.keys.iter().map(|one| one.key.as_str()).collect();
            let what = format!(
                "no key `{key}` in this parity; there are {}",
                keys.join(", ")
            );
            kino_dataset::DatasetError::NotFound { what }.into()
        })
    }
}

impl StreamParity {
    /// The transform of frames of a shape; an error if no training frame had it.
    pub fn live(&self, shape: &[usize]) -> Result<LiveFrame> {
        let stored = self.stored.value_type()?;
        let live = ValueType::new(stored.dtype(), shape)
            .map_err(|source| at(&self.stored.stream, source))?;
        let resize = self.resize(&live, &stored)?;
        let trip = |codec: &String, ty: &ValueType| {
            kino_codec::codec(codec)
                .and_then(|codec| RoundTrip::new(codec, ty.clone()))
                .map(RoundTrip::for_values)
                .map_err(|source| at(&self.stored.stream, source))
        };
        let earlier = self.stored.earlier.iter();
        let codec = self.stored.codec.as_ref();
        Ok(LiveFrame {
            earlier: earlier.map(|one| trip(one, &live)).collect::<Result<_>>()?,
            resize,
            codec: codec.map(|one| trip(one, &stored)).transpose()?,
            delivery: self.loaded.delivery(&self.key, self.stored.kind, &stored)?,
            live_bytes: live.frame_bytes(),
            resizing: ResizeScratch::default(),
            now: Vec::new(),
            spare: Vec::new(),
        })
    }

    /// How live frames become as large as stored ones; `None` if they are.
    pub(super) fn resize(&self, live: &ValueType, stored: &ValueType) -> Result<Option<Resize>> {
        if live.shape() == stored.shape() {
            return Ok(None);
        }
        let filter = Filter::of(self.stored.kind, stored);
        let sizes = filter.pixels(live).zip(filter.pixels(stored));
        let is_known = sizes.is_some_and(|(live, stored)| {
            live.channels == stored.channels && self.stored.resized_from.contains(&live.size)
        });
        if let (true, Some((_, stored))) = (is_known, sizes) {
            let fit = Fit {
                size: Some(stored.size),
                filter,
                ..Fit::default()
            };
            return fit.reduce(live).map_err(|what| self.refuse(&what));
        }
        let recorded = self
            .stored
            .resized_from
            .iter()
            .map(|size| format!("{size} before the plan resized them"));
        let mut known = vec![format!("{:?}", stored.shape())];
        known.extend(recorded);
        Err(self.refuse(&format!(
            "a live frame has shape {:?}, but training frames have {}; {}",
            live.shape(),
            known.join(", or "),
            self.hint(live.shape(), stored.shape())
        )))
    }

    /// What a wrong shape may come from.
    fn hint(&self, live: &[usize], stored: &[usize]) -> &'static str {
        let is_known = |height, width| {
            let recorded = &self.stored.resized_from;
            stored.starts_with(&[height, width]) || recorded.contains(&Size { height, width })
        };
        match (live, stored) {
            (&[channels, h, w], &[_, _, c]) if channels == c && is_known(h, w) => {
                "transpose it to height, width, channels: `frame.transpose(1, 2, 0)`"
            }
            (&[h, w], &[_, _, 1]) if is_known(h, w) => {
                "add the axis of the channel: `frame[..., None]`"
            }
            (&[h, w, 4], &[_, _, 3]) if is_known(h, w) => {
                "drop the alpha channel: `frame[..., :3]`"
            }
            _ => {
                "pass frames as they were recorded; if the recorder cropped or resized them, do the same first"
            }
        }
    }

    fn refuse(&self, what: &str) -> AdvisorError {
        invalid(format!("`{}`: {what}", self.key))
    }
}

impl LiveFrame {
    /// The dtype of what comes out: numpy's name, or `bfloat16`.
    pub fn dtype(&self) -> &'static str {
        self.delivery.dtype()
    }

    /// The shape of what comes out of one frame.
    pub fn shape(&self) -> Vec<usize> {
        self.delivery.shape()
    }

    /// Passes packed frames through, each on its own.
    pub fn apply(&mut self, frames: &[u8]) -> Result<Vec<u8>> {
        self.until_stored(frames)?;
        let now = &mut self.now;
        let frame_bytes = match &self.resize {
            Some(resize) => resize.frame_bytes(),
            None => self.live_bytes,
        };
        let Some(codec) = &mut self.codec else {
            return Ok(self.delivery.deliver(now)?);
        };
        if !self.delivery.is_reduced() {
            pass(codec, now, frame_bytes, &mut self.spare)?;
            return Ok(self.delivery.deliver(now)?);
        }
        let mut out = Vec::new();
        for frame in now.chunks_exact(frame_bytes.max(1)) {
            out.extend(encode_and_deliver(codec, frame, &mut self.delivery)?);
        }
        Ok(out)
    }

    /// Makes `now` the frames as they would be given to the codec that stores them.
    fn until_stored(&mut self, frames: &[u8]) -> Result<()> {
        self.now.clear();
        self.now.extend_from_slice(frames);
        for codec in &mut self.earlier {
            pass(codec, &mut self.now, self.live_bytes, &mut self.spare)?;
        }
        if let Some(resize) = &self.resize {
            self.now = resize
                .to_resized(&mut self.now, &mut self.resizing)
                .map_err(invalid)?;
        }
        Ok(())
    }
}

/// Encodes a frame, and delivers it as the loader does, which may decode it at a fraction of its size.
fn encode_and_deliver(
    codec: &mut RoundTrip,
    frame: &[u8],
    delivery: &mut Delivery,
) -> Result<Vec<u8>> {
    let failed = |error| invalid(format!("a live frame cannot be encoded: {error}"));
    let (decoder, pages) = codec.encode(frame).map_err(failed)?;
    if let [page] = pages {
        let done = delivery.deliver_encoded(&*decoder, page.page());
        if let Some(done) = done.map_err(failed)? {
            return Ok(done);
        }
    }
    let mut whole = vec![0; frame.len()];
    codec.apply(frame, &mut whole).map_err(failed)?;
    Ok(delivery.deliver(&mut whole)?)
}

/// Passes frames through a codec one by one: in training each had other neighbours.
fn pass(
    codec: &mut RoundTrip,
    frames: &mut Vec<u8>,
    frame_bytes: usize,
    spare: &mut Vec<u8>,
) -> Result<()> {
    spare.resize(frames.len(), 0);
    let bytes = frame_bytes.max(1);
    for (frame, place) in frames
        .chunks_exact(bytes)
        .zip(spare.chunks_exact_mut(bytes))
    {
        codec
            .apply(frame, place)
            .map_err(|error| invalid(format!("a live frame cannot be encoded: {error}")))?;
    }
    std::mem::swap(frames, spare);
    Ok(())
}

impl fmt::Display for StreamParity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stored = &self.stored;
        write!(f, "{}: {}{:?}", self.key, stored.dtype, stored.shape)?;
        if let Some(recorded) = stored.resized_from.first() {
            write!(f, " (recorded at {recorded})")?;
        }
        for codec in &stored.earlier {
            write!(f, " → {codec}")?;
        }
        if let (false, Some(size)) = (stored.resized_from.is_empty(), stored.size()) {
            write!(f, " → resize {size}")?;
        }
        match &stored.codec {
            Some(codec) => write!(f, " → {codec}")?,
            None if stored.fidelity == Fidelity::Unchanged => f.write_str(" → unchanged")?,
            None => f.write_str(" → lossless, nothing to repeat")?,
        }
        if let Some(size) = self.loaded.size {
            write!(f, " → load at {size}")?;
            if !self.loaded.resize.is_exact() {
                f.write_str(", fast")?;
            }
        }
        if let Some(crop) = self.loaded.crop {
            write!(f, " → centre crop {crop}")?;
        }
        if let Ok(live) = self.live(&stored.shape) {
            write!(f, " → {}{:?}", live.dtype(), live.shape())?;
        }
        write!(f, "; {}", stored.fidelity)
    }
}

impl fmt::Display for Parity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, version, _) = &self.dataset;
        write!(f, "Parity with {name}, version {version}")?;
        for key in &self.keys {
            write!(f, "\n  {key}")?;
            for note in &key.stored.notes {
                write!(f, "\n    {note}")?;
            }
        }
        Ok(())
    }
}
