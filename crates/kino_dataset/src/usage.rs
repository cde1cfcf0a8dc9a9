//! What each stream costs: counted while packing, shown by `info`, kept in the manifest.

use std::time::Duration;

use kino_codec::FrameType;
use kino_format::{Kind, StreamSchema};
use serde::{Deserialize, Serialize};

use crate::compare::psnr_db;
use crate::error::{Result, format_at};
use crate::manifest::StreamSummary;
use crate::plan::Trial;
use crate::resize::Size;

/// The cost of every stream, in order of first appearance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Usage {
    streams: Vec<StreamUsage>,
}

/// What one stream costs, and the error of its codec.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamUsage {
    /// Name, kind, frame type and codec.
    #[serde(flatten)]
    pub schema: StreamSchema,
    /// Episodes that have it.
    pub episodes: u64,
    /// Total frames.
    pub frames: u64,
    /// Bytes before encoding.
    pub raw_bytes: u64,
    /// Bytes of its pages.
    pub bytes: u64,
    /// Largest difference between a decoded and an original value.
    pub max_abs_error: f64,
    /// Sum of the squared errors of the values in its own pages.
    pub sum_squared_error: f64,
    /// The number of values in its own pages.
    pub stored_values: u64,
    /// Frames that are bit-exact although the codec is lossy.
    #[serde(default)]
    pub protected_frames: u64,
    /// Bytes of its pages that are linked instead of stored.
    #[serde(default)]
    pub linked_bytes: u64,
    /// The libraries outside Kinograph that encoded it, with their versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub encoders: Vec<String>,
    /// The sizes of its frames before they were resized.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resized_from: Vec<Size>,
    /// Time spent encoding, over all threads.
    pub encode_time: Duration,
    /// Time spent decoding for verification, over all threads.
    pub decode_time: Duration,
    /// The codecs that were tried on its first frames, if the plan left the choice to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
}

impl StreamUsage {
    fn new(schema: &StreamSchema) -> Self {
        Self {
            schema: schema.clone(),
            episodes: 0,
            frames: 0,
            raw_bytes: 0,
            bytes: 0,
            max_abs_error: 0.0,
            sum_squared_error: 0.0,
            stored_values: 0,
            protected_frames: 0,
            linked_bytes: 0,
            encoders: Vec::new(),
            resized_from: Vec::new(),
            encode_time: Duration::ZERO,
            decode_time: Duration::ZERO,
            trial: None,
        }
    }

    /// Bytes before encoding of its own pages; other frames are shared with another stream.
    pub fn coded_bytes(&self) -> u64 {
        let width = self.schema.dtype.parse().map_or(1, kino_codec::Dtype::size);
        if self.schema.dtype == "text" {
            self.raw_bytes
        } else {
            self.stored_values.saturating_mul(width as u64)
        }
    }

    /// The peak signal-to-noise ratio of 8-bit images; `None` if it is lossless or not an 8-bit image.
    pub fn psnr_db(&self) -> Option<f64> {
        let is_image = self.schema.kind == Kind::Image && self.schema.dtype == "uint8";
        psnr_db(self.sum_squared_error, self.stored_values).filter(|_| is_image)
    }

    /// Adds the libraries that are not known yet.
    pub(crate) fn add_encoders(&mut self, encoders: impl IntoIterator<Item = String>) {
        add_new(&mut self.encoders, encoders);
    }

    /// Adds the sizes that are not known yet.
    pub(crate) fn add_resized_from(&mut self, sizes: impl IntoIterator<Item = Size>) {
        add_new(&mut self.resized_from, sizes);
    }

    fn merge(&mut self, other: &Self) {
        self.episodes = self.episodes.saturating_add(other.episodes);
        self.frames = self.frames.saturating_add(other.frames);
        self.raw_bytes = self.raw_bytes.saturating_add(other.raw_bytes);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.max_abs_error = self.max_abs_error.max(other.max_abs_error);
        self.sum_squared_error = add_errors(self.sum_squared_error, other.sum_squared_error);
        self.stored_values = self.stored_values.saturating_add(other.stored_values);
        self.protected_frames = self.protected_frames.saturating_add(other.protected_frames);
        self.linked_bytes = self.linked_bytes.saturating_add(other.linked_bytes);
        self.add_encoders(other.encoders.iter().cloned());
        self.add_resized_from(other.resized_from.iter().copied());
        self.encode_time += other.encode_time;
        self.decode_time += other.decode_time;
        self.trial = self.trial.take().or_else(|| other.trial.clone());
    }
}

impl Usage {
    /// Counts something for a stream.
    pub(crate) fn add(&mut self, schema: &StreamSchema, count: impl FnOnce(&mut StreamUsage)) {
        let position = self
            .streams
            .iter()
            .position(|known| known.schema == *schema)
            .unwrap_or_else(|| {
                self.streams.push(StreamUsage::new(schema));
                self.streams.len() - 1
            });
        count(&mut self.streams[position]);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        for stream in other.streams {
            self.add(&stream.schema.clone(), |known| known.merge(&stream));
        }
    }

    /// Every stream, to be changed.
    pub(crate) fn streams_mut(&mut self) -> &mut [StreamUsage] {
        &mut self.streams
    }

    /// Every stream.
    pub(crate) fn streams(&self) -> &[StreamUsage] {
        &self.streams
    }

    /// The codec of every stream that has frames, by name.
    pub(crate) fn codecs(&self) -> impl Iterator<Item = (String, String)> {
        let streams = self.streams.iter().filter(|stream| stream.frames > 0);
        let schemas = streams.map(|stream| &stream.schema);
        schemas.map(|schema| (schema.name.clone(), schema.codec.clone()))
    }

    /// Every variant, with the stream that it is one of.
    pub(crate) fn variants(&self) -> impl Iterator<Item = (String, String)> {
        let schemas = self.streams.iter().map(|stream| &stream.schema);
        schemas.filter_map(|schema| Some((schema.name.clone(), schema.variant_of.clone()?)))
    }

    /// The type of every stream, by name.
    pub(crate) fn types(&self) -> Result<Vec<(String, (Kind, FrameType))>> {
        let ty = |stream: &StreamUsage| {
            let frame = stream.schema.frame_type().map_err(format_at("receipt"))?;
            Ok((stream.schema.name.clone(), (stream.schema.kind, frame)))
        };
        self.streams.iter().map(ty).collect()
    }

    pub(crate) fn into_streams(self) -> Vec<StreamUsage> {
        self.streams
    }

    /// Adds the usage of these streams to those of a manifest.
    pub(crate) fn add_to(
        &self,
        summaries: &mut Vec<StreamSummary>,
        is_counted: impl Fn(&str) -> bool,
    ) {
        let counted = |stream: &&StreamUsage| is_counted(&stream.schema.name);
        for stream in self.streams.iter().filter(counted) {
            let known = summaries
                .iter()
                .position(|known| known.name == stream.schema.name);
            let position = known.unwrap_or_else(|| {
                summaries.push(StreamSummary::new(&stream.schema));
                summaries.len() - 1
            });
            summaries[position].add(stream);
        }
    }
}

impl StreamSummary {
    /// Adds the libraries that are not known yet.
    pub(crate) fn add_encoders(&mut self, encoders: impl IntoIterator<Item = String>) {
        add_new(&mut self.encoders, encoders);
    }

    /// Puts the sizes that frames had earlier before those that are known.
    pub(crate) fn add_earlier_sizes(&mut self, earlier: &[Size]) {
        let later = std::mem::replace(&mut self.resized_from, earlier.to_vec());
        add_new(&mut self.resized_from, later);
    }

    /// The peak signal-to-noise ratio of 8-bit images; `None` if it is lossless or not an 8-bit image.
    pub fn psnr_db(&self) -> Option<f64> {
        let is_image = self.kind == Kind::Image && self.dtype == "uint8";
        psnr_db(self.sum_squared_error, self.stored_values).filter(|_| is_image)
    }

    /// A variant of `base` that no episode has yet.
    pub(crate) fn variant_to_be(base: &Self, name: String) -> Self {
        Self::new(&StreamSchema {
            name,
            kind: base.kind,
            dtype: base.dtype.clone(),
            shape: base.shape.clone(),
            codec: String::new(),
            variant_of: Some(base.name.clone()),
        })
    }

    fn new(schema: &StreamSchema) -> Self {
        Self {
            name: schema.name.clone(),
            kind: schema.kind,
            dtype: schema.dtype.clone(),
            shape: schema.shape.clone(),
            codecs: Vec::new(),
            episodes: 0,
            frames: 0,
            raw_bytes: 0,
            bytes: 0,
            max_abs_error: 0.0,
            sum_squared_error: 0.0,
            stored_values: 0,
            protected_frames: 0,
            linked_bytes: 0,
            encoders: Vec::new(),
            resized_from: Vec::new(),
            generations: Vec::new(),
            signal: None,
            variant_of: schema.variant_of.clone(),
        }
    }

    fn add(&mut self, usage: &StreamUsage) {
        add_new(&mut self.codecs, [usage.schema.codec.clone()]);
        self.add_encoders(usage.encoders.iter().cloned());
        add_new(&mut self.resized_from, usage.resized_from.iter().copied());
        self.episodes = self.episodes.saturating_add(usage.episodes);
        self.frames = self.frames.saturating_add(usage.frames);
        self.raw_bytes = self.raw_bytes.saturating_add(usage.raw_bytes);
        self.bytes = self.bytes.saturating_add(usage.bytes);
        self.max_abs_error = self.max_abs_error.max(usage.max_abs_error);
        self.sum_squared_error = add_errors(self.sum_squared_error, usage.sum_squared_error);
        self.stored_values = self.stored_values.saturating_add(usage.stored_values);
        self.protected_frames = self.protected_frames.saturating_add(usage.protected_frames);
        self.linked_bytes = self.linked_bytes.saturating_add(usage.linked_bytes);
    }
}

fn add_new<T: PartialEq>(known: &mut Vec<T>, more: impl IntoIterator<Item = T>) {
    for one in more {
        if !known.contains(&one) {
            known.push(one);
        }
    }
}

/// The sum of two sums of squares; JSON has no infinity, so it saturates at the largest finite value.
fn add_errors(a: f64, b: f64) -> f64 {
    (a + b).min(f64::MAX)
}
