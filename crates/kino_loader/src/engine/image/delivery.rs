//! One frame as a batch would hold it, outside any batch: for a policy that runs on a robot.
//!
//! ```text
//! decoded frame ──resize──▶ ──centre crop──▶ ──layout, dtype, normalisation──▶ the bytes of an array
//! ```
//!
//! It uses what the loader uses (`kino_dataset/src/resize.rs`, `convert.rs`), so the bytes are the same. An encoded frame can be
//! given instead of a decoded one, because JPEG may be decoded at a fraction of its size (`resize/reduced.rs` there). Only what is drawn at
//! random differs: a random crop becomes a crop of the centre, where a policy is evaluated, and the rest is left out.

use kino_codec::{CodecError, Decoder, Dtype, Page, ValueType};
use kino_dataset::{FitScratch, Kind, Resize, ResizeMode, Size};
use serde::{Deserialize, Serialize};

use super::convert::Convert;
use super::{Form, ImageDtype, ImageOptions, Layout, Normal, PerKey};
use crate::engine::options::{LoaderOptions, VectorDtype};
use crate::error::{Result, invalid};

/// What a loader's options come to for the frames under one key.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrameOptions {
    /// Height and width to resize to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Whether JPEG is decoded at a fraction of its size before it is resized.
    #[serde(default, skip_serializing_if = "ResizeMode::is_exact")]
    pub resize: ResizeMode,
    /// Height and width to crop to, around the centre.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crop: Option<Size>,
    /// Channels last or first.
    #[serde(default)]
    pub layout: Layout,
    /// The dtype of images.
    #[serde(default)]
    pub dtype: ImageDtype,
    /// What frames are normalised with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normal: Option<Normal>,
    /// What float64 and float16 frames become.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vector_dtype: Option<VectorDtype>,
}

/// Turns decoded frames of one type into what a batch holds.
#[derive(Debug)]
pub struct Delivery {
    resize: Option<Resize>,
    convert: Convert,
    /// The type after resizing and cropping.
    ty: ValueType,
    scratch: FitScratch,
}

impl LoaderOptions {
    /// What these options come to for the frames under a key.
    pub fn of_key(&self, key: &str) -> FrameOptions {
        let normal = self.normal.iter().find(|(known, _)| known == key);
        FrameOptions {
            size: self.images.size.of(key),
            resize: self.images.resize,
            crop: self.images.crop.of(key),
            layout: self.images.layout,
            dtype: self.images.dtype,
            normal: normal.map(|(_, normal)| normal.clone()),
            vector_dtype: self.dtype,
        }
    }

    /// Refuses options for keys that are not requested.
    pub fn check_keys<'k>(&self, keys: impl Iterator<Item = &'k str> + Clone) -> Result<()> {
        self.images.check_keys(&self.normal, keys)
    }
}

impl FrameOptions {
    /// How frames of a type under a key are delivered.
    pub fn delivery(&self, key: &str, kind: Kind, ty: &ValueType) -> Result<Delivery> {
        let all = |size: Option<Size>| size.map_or(PerKey::None, PerKey::All);
        let images = ImageOptions {
            size: all(self.size),
            resize: self.resize,
            crop: all(self.crop),
            layout: self.layout,
            dtype: self.dtype,
            ..ImageOptions::default()
        };
        let form = images.form(key, kind, ty)?;
        let convert = images.convert_all(key, &form, self.normal.as_ref(), self.vector_dtype)?;
        let resize = form.fit.reduce(ty);
        let resize = resize.map_err(|what| invalid(format!("`{key}`: {what}")))?;
        Ok(Delivery {
            resize,
            convert,
            ty: form.ty,
            scratch: FitScratch::default(),
        })
    }
}

impl ImageOptions {
    /// How frames of a form are put under a key, floats that are not images included.
    pub(crate) fn convert_all(
        &self,
        key: &str,
        form: &Form,
        normal: Option<&Normal>,
        dtype: Option<VectorDtype>,
    ) -> Result<Convert> {
        let is_other_float = matches!(form.ty.dtype(), Dtype::F64 | Dtype::F16);
        if is_other_float && dtype == Some(VectorDtype::F32) && normal.is_none() {
            return Ok(Convert::ToFloat32(form.ty.dtype()));
        }
        self.convert(key, form, normal)
    }
}

impl Delivery {
    /// The dtype of the array: numpy's name, or `bfloat16`.
    pub fn dtype(&self) -> &'static str {
        self.convert.dtype(self.ty.dtype()).name()
    }

    /// The shape of the array of one frame.
    pub fn shape(&self) -> Vec<usize> {
        self.convert.shape(self.ty.shape())
    }

    /// Bytes of the array of one frame.
    pub fn bytes(&self) -> usize {
        self.convert.bytes(&self.ty)
    }

    /// Delivers packed frames. They are only read.
    pub fn deliver(&mut self, frames: &mut [u8]) -> Result<Vec<u8>> {
        let resized;
        let taken = match &self.resize {
            None => &*frames,
            Some(resize) => {
                resized = resize
                    .to_resized(frames, &mut self.scratch.resize)
                    .map_err(invalid)?;
                &resized
            }
        };
        Ok(self.converted(taken))
    }

    /// Whether some encoded frames are decoded at a fraction of their size: then give them to
    /// [`deliver_encoded`](Self::deliver_encoded), not decoded ones.
    pub fn is_reduced(&self) -> bool {
        self.resize.is_some_and(|resize| resize.reduced().is_some())
    }

    /// Delivers the only frame of a page; `None` if it has to be decoded whole.
    pub fn deliver_encoded(
        &mut self,
        decoder: &dyn Decoder,
        page: Page<'_>,
    ) -> Result<Option<Vec<u8>>, CodecError> {
        let Some(resize) = &self.resize else {
            return Ok(None);
        };
        let mut taken = vec![0; resize.frame_bytes()];
        let is_done = resize.decode_reduced(decoder, page, &mut taken, &mut self.scratch)?;
        Ok(is_done.then(|| self.converted(&taken)))
    }

    /// Resized frames as a batch holds them.
    fn converted(&self, frames: &[u8]) -> Vec<u8> {
        let frame_bytes = self.ty.frame_bytes().max(1);
        let mut out = vec![0; frames.len() / frame_bytes * self.bytes()];
        let places = out.chunks_exact_mut(self.bytes().max(1));
        for (frame, place) in frames.chunks_exact(frame_bytes).zip(places) {
            self.convert.put(frame, None, place);
        }
        out
    }
}
