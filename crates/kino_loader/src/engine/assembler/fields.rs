//! What a batch holds: one array per key and per mask, with its type and shape.
//!
//! ```text
//! request      cam: steps −1, 0         actions: steps 0..50        actions_is_pad
//! arrays       uint8 [B, 2, H, W, 3]    float64 [B, 50, 7]          bool [B, 50]
//! ```
//!
//! Samples of whole episodes differ in length; their arrays are as long as the longest of the batch.

use std::sync::Arc;

use kino_codec::{Dtype, FrameType};
use kino_dataset::{Described, Kind, MaskShape, SampleFrames, Samples, Stack};

use super::buffers::Places;
use super::images::{ImageField, ImageForm, PlacedImage};
use crate::engine::LoaderOptions;
use crate::engine::image::{Convert, Crop, FLIPPED, KeyAugment, KeyFlip, KeyJpeg};
use crate::engine::store::WindowFit;
use crate::error::{LoaderError, Result, invalid};

/// The type of an array's numbers, as consumers know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrayType {
    /// One of the stored types.
    Stored(Dtype),
    /// Half of a single-precision number: 8 bits of exponent, 7 of fraction.
    Bf16,
}

impl ArrayType {
    /// Bytes per number.
    pub fn size(self) -> usize {
        match self {
            Self::Stored(dtype) => dtype.size(),
            Self::Bf16 => 2,
        }
    }

    /// The name; numpy's, but for `bfloat16`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stored(dtype) => dtype.name(),
            Self::Bf16 => "bfloat16",
        }
    }
}

/// One array of every batch.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) name: String,
    /// The place of its window in the request; of no meaning for what describes the sample.
    pub(crate) window: usize,
    pub(crate) content: Content,
}

/// What an array holds.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// Frames of numbers.
    Frames {
        dtype: ArrayType,
        /// Of one frame.
        shape: Vec<usize>,
        /// Bytes of one frame in the batch.
        bytes: usize,
        /// Bytes of the decoded frame that it is made of, or of its crop.
        taken: usize,
        stack: Stack,
        /// Random JPEG, and what follows it instead of decoding.
        jpeg: Option<Box<KeyJpeg>>,
        /// The random crop of a frame.
        cut: Option<Crop>,
        /// What else changes at random.
        augment: Option<Box<KeyAugment>>,
        convert: Convert,
    },
    /// Images that a device puts together; not in the buffer.
    Images(Box<ImageField>),
    /// Frames of text; not in the buffer.
    Texts { stack: Stack },
    /// The mask with this place in the request's list.
    Mask { mask: usize, shape: MaskShape },
    /// Whether the sample's images under a key are mirrored.
    Flipped(KeyFlip),
    /// What the request includes of each sample; text is not in the buffer.
    Described(Described),
}

/// The arrays of the batches of a request.
#[derive(Debug)]
pub(crate) struct Fields {
    pub(crate) fields: Vec<Field>,
    pub(crate) windows: usize,
    /// What becomes of the frames of each window when they are decoded.
    pub(crate) fits: Arc<[WindowFit]>,
    /// Per field: what becomes of images that a device puts together; `None` if it does not.
    pub(crate) forms: Arc<[Option<Arc<ImageForm>>]>,
}

/// An array of one batch: what it is, and its shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayInfo {
    /// The key.
    pub name: String,
    /// The type of its numbers; `None` for text.
    pub dtype: Option<ArrayType>,
    /// Its shape, samples first.
    pub shape: Vec<usize>,
}

impl Fields {
    /// The arrays of these windows; `seed` is that of the order.
    pub(crate) fn new(windows: &Samples, options: &LoaderOptions, seed: u64) -> Result<Self> {
        let request = windows.request();
        let (mut fields, mut fits, mut flipped) = (Vec::new(), Vec::new(), Vec::new());
        for idx in 0..request.windows.len() {
            let (field, fit) = window_field(windows, idx, options, seed)?;
            if let Content::Frames {
                augment: Some(augment),
                ..
            } = &field.content
            {
                let flip = augment.flip();
                flipped.extend(flip.map(|flip| flipped_field(&field.name, idx, flip)));
            }
            fits.push(fit);
            fields.push(field);
        }
        let LoaderOptions { images, normal, .. } = options;
        images.check_keys(normal, fields.iter().map(|field| field.name.as_str()))?;
        for (idx, mask) in windows.masks().iter().enumerate() {
            fields.push(Field {
                name: mask.name.clone(),
                window: mask.window,
                content: Content::Mask {
                    mask: idx,
                    shape: mask.shape,
                },
            });
        }
        for flipped in flipped {
            check_name(&fields, &flipped.name)?;
            fields.push(flipped);
        }
        let described = request.include.iter().flat_map(|include| include.fields());
        fields.extend(described.map(|&field| Field {
            name: field.name().to_owned(),
            window: 0,
            content: Content::Described(field),
        }));
        let forms: Vec<_> = fields.iter().map(Field::form).collect();
        options.check_decode(forms.iter().flatten().count())?;
        Ok(Self {
            fields,
            windows: request.windows.len(),
            fits: fits.into(),
            forms: forms.into(),
        })
    }

    /// How many moments each window has in a batch of these samples: as many as the longest.
    pub(crate) fn steps<'p>(&self, plans: impl Iterator<Item = &'p SampleFrames>) -> Vec<usize> {
        let mut steps = vec![0; self.windows];
        for plan in plans {
            for (steps, window) in steps.iter_mut().zip(&plan.windows) {
                *steps = window.frames.len().max(*steps);
            }
        }
        steps
    }

    /// Where the arrays of a batch lie.
    pub(crate) fn places(&self, samples: usize, steps: &[usize]) -> Result<Places> {
        let strides = self.fields.iter().map(|field| field.bytes(steps));
        Places::new(samples, strides).ok_or_else(|| too_large(samples))
    }

    /// Places for the images that a device puts together, per field; empty for other fields.
    pub(crate) fn no_images(
        &self,
        samples: usize,
        steps: &[usize],
    ) -> Vec<Vec<Option<PlacedImage>>> {
        let count = |field: &Field| match field.content {
            Content::Images(_) => samples * steps[field.window],
            _ => 0,
        };
        let none = |field| std::iter::repeat_with(|| None).take(count(field)).collect();
        self.fields.iter().map(none).collect()
    }

    /// What the arrays of a batch are.
    pub(crate) fn infos(&self, samples: usize, steps: &[usize]) -> Vec<ArrayInfo> {
        let info = |field: &Field| ArrayInfo {
            name: field.name.clone(),
            dtype: match &field.content {
                Content::Frames { dtype, .. } => Some(*dtype),
                Content::Images(images) => Some(images.dtype),
                Content::Texts { .. } => None,
                Content::Mask { .. } | Content::Flipped(_) => Some(ArrayType::Stored(Dtype::Bool)),
                Content::Described(field) => {
                    (!field.is_text()).then_some(ArrayType::Stored(Dtype::I64))
                }
            },
            shape: field.shape(samples, steps),
        };
        self.fields.iter().map(info).collect()
    }
}

/// The array of the frames of a window, and what becomes of them when they are decoded.
fn window_field(
    windows: &Samples,
    idx: usize,
    options: &LoaderOptions,
    seed: u64,
) -> Result<(Field, WindowFit)> {
    let window = &windows.request().windows[idx];
    let (key, stack) = (&window.key, window.stack);
    let field = |content| Field {
        name: key.clone(),
        window: idx,
        content,
    };
    let Some(FrameType::Values(ty)) = windows.frame_type(idx) else {
        return Ok((field(Content::Texts { stack }), WindowFit::default()));
    };
    let kind = windows.kind(idx).unwrap_or(Kind::Vector);
    let form = options.images.form(key, kind, ty)?;
    let normal = options.normal.iter().find(|(named, _)| named == key);
    let normal = normal.map(|(_, normal)| normal);
    let convert = options
        .images
        .convert_all(key, &form, normal, options.dtype)?;
    let fit = WindowFit {
        fit: form.fit,
        is_for_device: options.is_for_device(windows, idx, &form)?,
    };
    if fit.is_for_device {
        let images = ImageField::new(key, seed, stack, &form, &convert)?;
        return Ok((field(Content::Images(Box::new(images))), fit));
    }
    let jpeg = form.jpeg.as_ref();
    let jpeg = jpeg.map(|(jpeg, after)| KeyJpeg::new(key, seed, jpeg, *after));
    let augment = form.augment.as_ref();
    let augment = augment.map(|wanted| KeyAugment::new(key, seed, wanted));
    let frames = Content::Frames {
        dtype: convert.dtype(form.ty.dtype()),
        shape: convert.shape(form.ty.shape()),
        bytes: convert.bytes(&form.ty),
        taken: form.ty.frame_bytes(),
        stack,
        jpeg: jpeg.transpose()?.map(Box::new),
        cut: form.cut.map(|size| Crop::new(key, seed, size)),
        augment: augment.map(Box::new),
        convert,
    };
    Ok((field(frames), fit))
}

/// Refuses a mask whose name is taken by a stream.
fn check_name(fields: &[Field], name: &str) -> Result<()> {
    if fields.iter().all(|field| field.name != name) {
        return Ok(());
    }
    Err(invalid(format!(
        "`{name}` is both a key of the request and the mask of what random_flip mirrors; request the stream under another key"
    )))
}

/// The mask of the samples whose images under a key are flipped.
fn flipped_field(key: &str, window: usize, flip: &KeyFlip) -> Field {
    Field {
        name: format!("{key}{FLIPPED}"),
        window,
        content: Content::Flipped(flip.clone()),
    }
}

/// The error of a batch that there is no memory for.
pub(crate) fn too_large(samples: usize) -> LoaderError {
    invalid(format!(
        "a batch of {samples} samples does not fit into memory; use a smaller batch size"
    ))
}

impl Field {
    fn form(&self) -> Option<Arc<ImageForm>> {
        match &self.content {
            Content::Images(images) => Some(Arc::clone(&images.form)),
            _ => None,
        }
    }

    fn bytes(&self, steps: &[usize]) -> usize {
        let steps = steps[self.window];
        match &self.content {
            Content::Frames { bytes, .. } => bytes.saturating_mul(steps),
            Content::Images(_) | Content::Texts { .. } => 0,
            Content::Mask { .. } => steps,
            Content::Flipped(_) => 1,
            Content::Described(field) if field.is_text() => 0,
            Content::Described(_) => Dtype::I64.size(),
        }
    }

    fn shape(&self, samples: usize, steps: &[usize]) -> Vec<usize> {
        let mut all = vec![samples];
        let steps = steps[self.window];
        match &self.content {
            Content::Frames { shape, stack, .. } => {
                all.extend((*stack == Stack::Stacked).then_some(steps));
                all.extend(shape);
            }
            Content::Images(images) => {
                all.extend((images.stack == Stack::Stacked).then_some(steps));
                all.extend(&images.shape);
            }
            Content::Texts { stack } => all.extend((*stack == Stack::Stacked).then_some(steps)),
            Content::Mask { shape, .. } => {
                all.push(steps);
                all.extend((*shape == MaskShape::StepsByOne).then_some(1));
            }
            Content::Flipped(_) | Content::Described(_) => {}
        }
        all
    }
}
