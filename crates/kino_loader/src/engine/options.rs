//! How a loader works: what a user may choose that changes neither which samples come nor their order.
//!
//! Options are declared once. These fields are the keywords of `kinograph.torch.Loader` and the keys of the JSON that
//! Python hands over; what they mean is said in [`crate::OPTIONS`], from which the command line and the documentation
//! are made. Options that change the order are [`Settings`](crate::Settings).

use kino_codec::{FrameType, VideoCoding, VideoStream};
use kino_dataset::{ByteSize, Kind, ResizeMode, Samples, image_size};
use serde::{Deserialize, Serialize};

use super::image::{Form, ImageOptions, Normal};
use super::store::{Decode, GpuNeeds, WindowFit};
use super::threads::{CpuShare, Trial, default_threads};
use crate::error::{LoaderError, Result, invalid};
use crate::order::{Cursor, Order, Uneven};

/// The memory budget if nothing is known about the dataset.
const DEFAULT_MEMORY: ByteSize = ByteSize::new(1 << 30);

/// How a loader works; nothing here changes which samples come, or in which order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoaderOptions {
    /// This rank, counted from 0.
    pub rank: u32,
    /// How many ranks train together.
    pub world_size: u32,
    /// Whether ranks may have slices of different lengths.
    pub uneven: Uneven,
    /// The memory budget of decoded frames; exceeded only if a single batch needs more.
    ///
    /// On top of it come about a tenth (stored bytes waiting to be decoded, and page memory kept for reuse), one page
    /// of full-size frames per thread where images are resized, and the batches: those prefetched, those that the
    /// user keeps, and up to 8 buffers kept for reuse.
    pub memory: Option<ByteSize>,
    /// The most threads that decode and collate, 1 to 1024; fewer run where fewer have work.
    pub threads: Option<usize>,
    /// The share of the machine's CPU time that all threads together may use.
    pub cpu: Option<CpuShare>,
    /// The most batches in preparation or ready, 1 to 1024. If `None`, it follows from how unevenly batches are made:
    /// at least two, and at most a quarter of `memory` or 64 MiB on top of it.
    pub prefetch: Option<usize>,
    /// How images are delivered.
    pub images: ImageOptions,
    /// What keys are normalised with: images must be floats, everything else becomes float32.
    #[serde(rename = "scales")]
    pub normal: Vec<(String, Normal)>,
    /// What float64 and float16 streams become in a batch; as stored if `None`. Integers stay integers.
    pub dtype: Option<VectorDtype>,
    /// What decodes JPEG images of batches that go to a CUDA device, which then also puts them together.
    pub decode: Decode,
    /// What happens to a sample that cannot be read.
    pub on_error: OnError,
    /// Where this run starts and how it is measured.
    #[serde(skip_serializing)]
    pub run: Run,
}

/// What differs from one start of a loader to the next. None of it is an option.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Run {
    /// The first global index; a multiple of the batch.
    pub first_index: u64,
    /// Where batches of whole episodes start, which have no global index to start at.
    pub cursor: Cursor,
    /// How many batches to make; endless if `None`.
    pub batches: Option<u64>,
    /// The most threads that read, 1 to 1024. Two begin, and more follow where storage is slow; at least 128 if it is remote.
    pub readers: usize,
    /// Whether every thread's tasks are recorded from the beginning; [`Watch`](super::Watch) starts it later.
    pub is_traced: bool,
    /// How a run that is only measured differs; not at all for training.
    #[serde(skip)]
    pub trial: Trial,
    /// Whether stored pages are never kept in memory, however slow storage is; to measure what they bring.
    #[serde(skip)]
    pub is_without_stored_tier: bool,
}

/// The dtype of floats that are not images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum VectorDtype {
    /// Single precision, rounded to nearest.
    #[serde(rename = "float32")]
    F32,
}

/// What happens to a sample that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// Its batch is an error that says where the damage is.
    #[default]
    Raise,
    /// Another sample of the same group takes its place, the same one on every rank and in every run. It is counted.
    Skip,
}

impl LoaderOptions {
    /// Whether a device puts the images of a window together: RGB that is stored as JPEG or as video that devices decode, and
    /// changes in no way that only the CPU knows.
    pub(crate) fn is_for_device(
        &self,
        windows: &Samples,
        window: usize,
        form: &Form,
    ) -> Result<bool> {
        let window = &windows.request().windows[window];
        let is_rgb = image_size(&form.ty).is_some_and(|(_, channels)| channels == 3);
        let needs = needs_of(windows, &window.stream);
        if self.decode == Decode::Cpu || !is_rgb || needs == GpuNeeds::default() {
            return Ok(false);
        }
        let is_fast = form.fit.size.is_some() && form.fit.mode == ResizeMode::Fast;
        let changed = match (&form.jpeg, &form.augment) {
            (Some(_), _) => "random_jpeg",
            (None, Some(_)) => "random_resized_crop, random_flip or color_jitter",
            (None, None) if is_fast => "resize=\"fast\"",
            (None, None) => return Ok(true),
        };
        if self.decode == Decode::Auto {
            return Ok(false);
        }
        Err(invalid(format!(
            "`{}` has {changed}, which only the CPU can do: use decode=\"cpu\", or remove it (and augment on the GPU)",
            window.key
        )))
    }

    /// Refuses a device that would have nothing to decode, given how many arrays it puts together.
    pub(crate) fn check_decode(&self, arrays: usize) -> Result<()> {
        if self.decode != Decode::Gpu || arrays > 0 {
            return Ok(());
        }
        Err(invalid(
            "decode=\"gpu\" decodes RGB images that are stored as JPEG, and H.264 and HEVC, and no requested stream is: use \
             decode=\"cpu\", or store images as JPEG with `kinograph repack`",
        ))
    }

    /// What there is for a device to decode, given which windows it puts together.
    pub(crate) fn gpu_needs(&self, windows: &[Vec<Samples>], fits: &[WindowFit]) -> GpuNeeds {
        let mut all = GpuNeeds::default();
        for samples in windows.iter().flatten() {
            let asked = samples.request().windows.iter().zip(fits);
            for (window, _) in asked.filter(|(_, fit)| fit.is_for_device) {
                let needs = needs_of(samples, &window.stream);
                all.jpeg |= needs.jpeg;
                all.video |= needs.video;
            }
        }
        all
    }
}

/// What a device may decode of a stream, in some of its episodes.
fn needs_of(windows: &Samples, stream: &str) -> GpuNeeds {
    let mut all = windows.dataset().manifest().streams.iter();
    let Some(found) = all.find(|one| one.name == stream) else {
        return GpuNeeds::default();
    };
    let is_jpeg = |codec: &String| codec.split(':').next() == Some("jpeg");
    let is_video = |codec: &String| VideoCoding::of_codec(codec).is_some_and(VideoStream::has);
    GpuNeeds {
        jpeg: found.codecs.iter().any(is_jpeg),
        video: found.codecs.iter().any(is_video),
    }
}

impl Default for Run {
    fn default() -> Self {
        Self {
            first_index: 0,
            cursor: Cursor::default(),
            batches: None,
            readers: 8,
            is_traced: false,
            trial: Trial::default(),
            is_without_stored_tier: false,
        }
    }
}

impl Default for LoaderOptions {
    fn default() -> Self {
        Self {
            rank: 0,
            world_size: 1,
            uneven: Uneven::Refuse,
            memory: None,
            threads: None,
            cpu: None,
            prefetch: None,
            images: ImageOptions::default(),
            normal: Vec::new(),
            dtype: None,
            decode: Decode::Cpu,
            on_error: OnError::Raise,
            run: Run::default(),
        }
    }
}

/// Read threads for remote storage, where a read takes as long as a round trip, however small it is; how many of them read at once
/// is measured (`threads/read_width.rs`).
const REMOTE_READERS: usize = 128;

impl LoaderOptions {
    /// The same with more read threads if a dataset is remote: they wait for the network and need no core.
    pub(super) fn for_storage(mut self, windows: &[Vec<Samples>]) -> Self {
        let mut samples = windows.iter().flatten();
        if samples.any(|samples| samples.dataset().is_remote()) {
            self.run.readers = self.run.readers.max(REMOTE_READERS);
        }
        self
    }

    /// The memory budget in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.unwrap_or(DEFAULT_MEMORY).bytes()
    }

    /// Threads that decode and collate: those asked for, else as many as the CPU share can use, else all cores but one.
    pub fn decode_threads(&self) -> usize {
        let chosen = || self.cpu.map_or_else(default_threads, CpuShare::threads);
        self.threads.unwrap_or_else(chosen)
    }
}

/// More threads or batches than this are a typing error.
pub(crate) const MAX_COUNT: usize = 1024;

/// Refuses values that cannot be intended.
pub(crate) fn check_options(options: &LoaderOptions) -> Result<()> {
    let counts = [
        ("threads", options.decode_threads()),
        ("readers", options.run.readers),
        ("prefetch", options.prefetch.unwrap_or(1)),
    ];
    for (name, count) in counts {
        if !(1..=MAX_COUNT).contains(&count) {
            return Err(invalid(format!(
                "`{name}` is {count}; it must be from 1 to {MAX_COUNT}"
            )));
        }
    }
    match options.cpu {
        Some(CpuShare::Cores(cores)) if !(cores > 0.0 && cores.is_finite()) => Err(invalid(
            format!("`cpu` is {cores} cores; it must be a number above 0"),
        )),
        Some(CpuShare::Fraction(fraction)) if !(fraction > 0.0 && fraction <= 1.0) => {
            Err(invalid(format!(
                "`cpu` is {}% of the machine; it must be above 0% and at most 100%",
                fraction * 100.0
            )))
        }
        _ => Ok(()),
    }
}

/// Refuses windows that do not belong to the order's sources, or whose samples cannot be stacked into one batch.
///
/// Recordings of different image sizes fit into one batch if their images are resized or cropped to one size.
pub(crate) fn check_windows(
    order: &Order,
    windows: &[Vec<Samples>],
    images: &ImageOptions,
) -> Result<()> {
    let sources = order.sources();
    if sources.len() != windows.len() {
        return Err(invalid(format!(
            "the order has {}, but windows were given for {}; give windows for each source",
            count(sources.len(), "source"),
            windows.len()
        )));
    }
    for (idx, (source, given)) in sources.iter().zip(windows).enumerate() {
        let wanted = source.variants.len().max(1);
        if given.len() != wanted {
            return Err(invalid(format!(
                "source {idx} has {}, but windows were given for {}; give windows for each variant",
                count(wanted, "variant"),
                given.len()
            )));
        }
        if let Some(other) = given.iter().find(|given| *given.counts() != *source.counts) {
            return Err(invalid(format!(
                "source {idx} of the order was built from other windows than those of {}; build the order from these",
                other.dataset().path().display()
            )));
        }
    }
    let mut all = windows.iter().flatten();
    match all.next() {
        Some(first) => all.try_for_each(|other| check_alike(first, other, images)),
        None => Err(no_windows()),
    }
}

/// The error for a loader without windows.
pub(crate) fn no_windows() -> LoaderError {
    invalid(
        "a loader needs windows of at least one dataset; pass the windows that the order was built from",
    )
}

/// Checks that samples of both can be stacked into one batch.
fn check_alike(first: &Samples, other: &Samples, images: &ImageOptions) -> Result<()> {
    let (ours, theirs) = (describe(first, images)?, describe(other, images)?);
    let longest = ours.len().max(theirs.len());
    for idx in 0..longest {
        let (ours, theirs) = (ours.get(idx), theirs.get(idx));
        if ours != theirs {
            let text = |array: Option<&String>| array.map_or("nothing".to_owned(), Clone::clone);
            return Err(invalid(format!(
                "samples of one batch must be alike: {} in {}, {} in {}; request the same windows of both, and bring images of \
                 different sizes to one with `images`",
                text(ours),
                first.dataset().path().display(),
                text(theirs),
                other.dataset().path().display()
            )));
        }
    }
    Ok(())
}

/// What a sample holds, array by array.
fn describe(windows: &Samples, images: &ImageOptions) -> Result<Vec<String>> {
    let asked = windows.request().windows.iter().enumerate();
    let arrays = asked.map(|(idx, window)| {
        let ty = match windows.frame_type(idx) {
            Some(FrameType::Values(ty)) => {
                let kind = windows.kind(idx).unwrap_or(Kind::Vector);
                images.form(&window.key, kind, ty)?.ty.to_string()
            }
            _ => "text".to_owned(),
        };
        let steps = window
            .len()
            .map_or("all steps".to_owned(), |len| count(len, "step"));
        Ok(format!(
            "`{}` of {ty}, {steps}, {:?}",
            window.key, window.stack
        ))
    });
    let masks = windows.masks().iter().map(|mask| {
        Ok(format!(
            "mask `{}` of window {}, {:?}, {:?}",
            mask.name, mask.window, mask.polarity, mask.shape
        ))
    });
    let include = windows.request().include.iter();
    let described = include.flat_map(|include| include.fields());
    let described = described.map(|field| Ok(format!("`{}` of each sample", field.name())));
    arrays.chain(masks).chain(described).collect()
}

fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}
