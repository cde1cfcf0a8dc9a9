//! Writing: one call per episode, encoded without the GIL.
//!
//! An episode comes as a dict of what is known of it and a list of streams, each with the bytes of its
//! array (nothing is copied) or its byte strings. A stream is handed on in pieces, between which Ctrl-C
//! is looked for: an interrupted episode leaves no trace.

use std::collections::BTreeMap;
use std::path::PathBuf;

use kino_codec::{Dtype, FrameType, decode_jpeg_files};
use kino_dataset::{
    Arrival, DatasetWriter, EpisodeInfo, EpisodeWriter, JsonMap, Kind, Label, Plan, Protected,
    Start, StreamInfo, Times, WriterOptions, parse_time, variant_stream,
};
use kino_sync::Mutex;
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::errors::{invalid, to_py};

/// Python looks at signals after this many bytes of frames.
const BYTES_BETWEEN_SIGNALS: usize = 32 << 20;

/// How to write: what `kinograph.Writer` was given.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    mode: String,
    plan_toml: Option<String>,
    plan_json: Option<String>,
    quality: Option<u8>,
    shard_bytes: u64,
    memory_bytes: usize,
    threads: usize,
    attributes: String,
    settings: BTreeMap<String, String>,
    created: Option<String>,
}

/// What is known of an episode beside its streams.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct EpisodeArgs {
    id: Option<String>,
    splits: Vec<String>,
    task: Option<String>,
    success: Option<bool>,
    licence: Option<String>,
    consent: Option<String>,
    source: Option<String>,
    attributes: String,
    labels: BTreeMap<String, LabelArg>,
    /// Names, starts and ends, in seconds from the first frame.
    protect: Vec<(String, f64, f64)>,
}

/// A value in a user column.
#[derive(FromPyObject)]
enum LabelArg {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
}

/// A stream: its type, its times, and either the bytes of an array or byte strings.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct StreamArgs<'py> {
    name: String,
    kind: String,
    dtype: String,
    shape: Vec<usize>,
    frames: u64,
    rate_hz: Option<f64>,
    timestamps_ns: Option<PyReadonlyArray1<'py, i64>>,
    values: Option<PyReadonlyArray1<'py, u8>>,
    files: Option<Vec<PyBackedBytes>>,
}

/// A stream as the writer takes it.
struct StreamJob<'a> {
    info: StreamInfo,
    data: Data<'a>,
}

/// The frames of a stream.
enum Data<'a> {
    Values(&'a [u8]),
    Files(&'a [PyBackedBytes]),
}

/// Writes one new version of a dataset.
#[pyclass(frozen, module = "kinograph._core")]
pub(crate) struct Writer {
    /// `None` once it has committed or was abandoned. Only locked without the GIL, which another thread that holds the
    /// lock may be waiting for.
    inner: Mutex<Option<DatasetWriter>>,
}

#[pymethods]
impl Writer {
    /// Starts to write into a folder.
    #[new]
    fn new(py: Python<'_>, path: PathBuf, options: Options) -> PyResult<Self> {
        let (start, options) = options.into_writer()?;
        let writer = py
            .detach(|| DatasetWriter::open(&path, start, options))
            .map_err(to_py)?;
        Ok(Self {
            inner: Mutex::new(Some(writer)),
        })
    }

    /// The ids of the episodes that an interrupted writer had finished.
    fn resumed(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        py.detach(|| match &*self.inner.lock() {
            Some(writer) => Ok(writer.resumed().iter().cloned().collect()),
            None => Err(closed()),
        })
    }

    /// How many finished episodes of interrupted writers were left where they are.
    fn interrupted(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| match &*self.inner.lock() {
            Some(writer) => Ok(writer.interrupted()),
            None => Err(closed()),
        })
    }

    /// Writes one episode; if it fails, the episode leaves no trace.
    fn add_episode(
        &self,
        py: Python<'_>,
        episode: EpisodeArgs,
        streams: Vec<StreamArgs<'_>>,
    ) -> PyResult<()> {
        // Streams with a rate start with the earliest of those that have times of their own.
        let first = |stream: &StreamArgs<'_>| {
            stream
                .timestamps_ns
                .as_ref()?
                .as_slice()
                .ok()?
                .first()
                .copied()
        };
        let start_ns = streams.iter().filter_map(first).min().unwrap_or(0);
        let info = episode.into_info(start_ns)?;
        let jobs: Vec<StreamJob<'_>> = streams
            .iter()
            .map(|stream| stream.to_job(start_ns))
            .collect::<PyResult<_>>()?;
        py.detach(|| {
            let mut guard = self.inner.lock();
            let writer = guard.as_mut().ok_or_else(closed)?;
            for job in jobs.iter().filter(|job| job.info.arrival == Arrival::Jpeg) {
                writer.add_file_generations(&job.info);
            }
            let mut episode = writer.episode(info).map_err(to_py)?;
            for job in &jobs {
                job.push_to(&mut episode)?;
                job.push_variants_to(&mut episode)?;
            }
            episode.finish().map_err(to_py)
        })
    }

    /// Makes the episodes visible; gives the version's number, its id, and the number of new episodes.
    fn commit(&self, py: Python<'_>, message: &str) -> PyResult<(u64, String, u64)> {
        py.detach(|| {
            let writer = self.inner.lock().take().ok_or_else(closed)?;
            let committed = writer.commit(message).map_err(to_py)?;
            Ok((committed.version, committed.id, committed.episodes))
        })
    }

    /// Ends without a commit.
    fn abandon(&self, py: Python<'_>) {
        py.detach(|| drop(self.inner.lock().take()));
    }

    /// Forgets everything without touching it: in a forked process the threads are not here and the
    /// files are the parent's.
    fn disown(&self) {
        // Held at the fork by a thread that is not here: then the child leaves it as it is.
        if let Some(mut writer) = self.inner.try_lock() {
            std::mem::forget(writer.take());
        }
    }
}

fn closed() -> PyErr {
    invalid(
        "the writer is closed: it has committed or was abandoned; make another with mode=\"append\"",
    )
}

impl Options {
    pub(crate) fn into_writer(self) -> PyResult<(Start, WriterOptions)> {
        let start = match self.mode.as_str() {
            "new" => Start::New,
            "append" => Start::Append,
            "resume" => Start::Resume,
            "overwrite" => Start::Overwrite,
            mode => {
                return Err(invalid(format!(
                    "mode {mode:?} is not \"new\", \"append\", \"resume\" or \"overwrite\""
                )));
            }
        };
        let mut plan = match (&self.plan_toml, &self.plan_json) {
            (Some(text), _) => Plan::from_toml(text).map_err(to_py)?,
            (None, Some(text)) => plan_from_json(text)?,
            (None, None) => Plan::lossless(),
        };
        plan.quality = self.quality.or(plan.quality);
        let options = WriterOptions {
            plan,
            shard_bytes: self.shard_bytes,
            memory_bytes: self.memory_bytes,
            threads: self.threads,
            attributes: json_map(&self.attributes)?,
            settings: self.settings,
            link_root: None,
            created: self
                .created
                .as_deref()
                .map(parse_time)
                .transpose()
                .map_err(to_py)?,
        };
        Ok((start, options))
    }
}

impl EpisodeArgs {
    fn into_info(self, start_ns: i64) -> PyResult<EpisodeInfo> {
        let protect = |(event, start_s, end_s): (String, f64, f64)| Protected {
            event,
            start_ns: start_ns.saturating_add(nanoseconds(start_s)),
            end_ns: start_ns.saturating_add(nanoseconds(end_s)),
        };
        Ok(EpisodeInfo {
            protected: self.protect.into_iter().map(protect).collect(),
            id: self.id.unwrap_or_default(),
            splits: self.splits,
            task: self.task,
            success: self.success,
            licence: self.licence,
            consent: self.consent,
            source: self.source,
            attributes: json_map(&self.attributes)?,
            labels: self
                .labels
                .into_iter()
                .map(|(name, label)| (name, label.into_label()))
                .collect(),
            ..EpisodeInfo::default()
        })
    }
}

impl LabelArg {
    fn into_label(self) -> Label {
        match self {
            Self::Bool(value) => Label::Bool(value),
            Self::Int(value) => Label::Int(value),
            Self::Float(value) => Label::Float(value),
            Self::Text(value) => Label::Text(value),
        }
    }
}

impl StreamArgs<'_> {
    fn to_job(&self, start_ns: i64) -> PyResult<StreamJob<'_>> {
        let name = &self.name;
        let wrong = |error: kino_codec::CodecError| invalid(format!("stream `{name}`: {error}"));
        let scattered = |_| invalid(format!("stream `{name}`: an array is not contiguous"));
        let frame = match self.dtype.as_str() {
            "text" => FrameType::Text,
            dtype => {
                let dtype: Dtype = dtype.parse().map_err(wrong)?;
                FrameType::values(dtype, &self.shape).map_err(wrong)?
            }
        };
        let times = match (&self.timestamps_ns, self.rate_hz) {
            (Some(times), _) => Times::Explicit(times.as_slice().map_err(scattered)?.to_vec()),
            (None, Some(rate_hz)) => Times::Rate { rate_hz, start_ns },
            (None, None) => {
                return Err(invalid(format!(
                    "stream `{name}` has neither a rate nor timestamps"
                )));
            }
        };
        let (data, arrival) = match (&self.values, &self.files) {
            (Some(values), _) => (
                Data::Values(values.as_slice().map_err(scattered)?),
                Arrival::Values,
            ),
            (None, files) => {
                let arrival = if frame == FrameType::Text {
                    Arrival::Values
                } else {
                    Arrival::Jpeg
                };
                (Data::Files(files.as_deref().unwrap_or_default()), arrival)
            }
        };
        let kind = kind(&self.kind)?;
        let info = StreamInfo {
            name: name.clone(),
            kind,
            frame,
            frames: self.frames,
            times,
            arrival,
            shared: None,
        };
        Ok(StreamJob { info, data })
    }
}

impl StreamJob<'_> {
    fn push_to(&self, episode: &mut EpisodeWriter<'_>) -> PyResult<()> {
        episode.stream(&self.info).map_err(to_py)?;
        self.push_frames(episode)
    }

    /// Pushes the frames again for each variant that the plan has of the stream: they are in memory.
    fn push_variants_to(&self, episode: &mut EpisodeWriter<'_>) -> PyResult<()> {
        for variant in episode.variants(&self.info) {
            let info = StreamInfo {
                name: variant_stream(&self.info.name, &variant),
                arrival: Arrival::Values,
                ..self.info.clone()
            };
            episode.variant(&info, &self.info.name).map_err(to_py)?;
            match self.data {
                Data::Files(files) if self.info.arrival == Arrival::Jpeg => {
                    self.push_pixels(episode, files)?;
                }
                _ => self.push_frames(episode)?,
            }
        }
        Ok(())
    }

    /// Pushes JPEG files as values, one by one.
    fn push_pixels(
        &self,
        episode: &mut EpisodeWriter<'_>,
        files: &[PyBackedBytes],
    ) -> PyResult<()> {
        for file in files {
            let values = decode_jpeg_files(&self.info.frame, &[file])
                .map_err(|error| invalid(format!("stream `{}`: {error}", self.info.name)))?;
            episode.push(&values).map_err(to_py)?;
            Python::attach(|py| py.check_signals())?;
        }
        Ok(())
    }

    fn push_frames(&self, episode: &mut EpisodeWriter<'_>) -> PyResult<()> {
        let frame_bytes = self
            .info
            .frame
            .as_values()
            .map_or(1 << 10, |ty| ty.frame_bytes());
        if frame_bytes == 0 {
            return Ok(());
        }
        let step = (BYTES_BETWEEN_SIGNALS / frame_bytes).max(1);
        match self.data {
            Data::Values(bytes) => {
                for piece in bytes.chunks(step * frame_bytes) {
                    episode.push(piece).map_err(to_py)?;
                    Python::attach(|py| py.check_signals())?;
                }
            }
            Data::Files(files) => {
                for piece in files.chunks(step) {
                    let piece: Vec<&[u8]> = piece.iter().map(|file| &**file).collect();
                    episode.push_bytes(&piece).map_err(to_py)?;
                    Python::attach(|py| py.check_signals())?;
                }
            }
        }
        Ok(())
    }
}

fn kind(name: &str) -> PyResult<Kind> {
    let kinds = [Kind::Vector, Kind::Image, Kind::Depth, Kind::Text];
    let found = kinds.into_iter().find(|kind| kind.name() == name);
    found.ok_or_else(|| {
        invalid(format!(
            "kind {name:?} is not \"vector\", \"image\", \"depth\" or \"text\""
        ))
    })
}

/// Whole nanoseconds; beyond what they can count, the first or the last.
#[expect(clippy::cast_possible_truncation, reason = "the nearest that there is")]
fn nanoseconds(seconds: f64) -> i64 {
    (seconds * 1e9).round() as i64
}

fn plan_from_json(text: &str) -> PyResult<Plan> {
    let plan: Plan = serde_json::from_str(text)
        .map_err(|error| invalid(format!("the plan is not valid: {error}")))?;
    plan.check().map_err(to_py)?;
    Ok(plan)
}

fn json_map(text: &str) -> PyResult<JsonMap> {
    serde_json::from_str(text)
        .map_err(|error| invalid(format!("the attributes are no JSON object: {error}")))
}
