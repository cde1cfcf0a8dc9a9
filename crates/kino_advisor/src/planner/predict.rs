//! What a plan would do: a pure function of what was measured.
//!
//! ```text
//! CPU per batch   W = W₀ + decoded frames × (time of this codec − time of the measured one) + bytes read × CPU per byte
//!                 the time of a codec includes resizing, unless frames are stored in the size that is loaded
//! batch           T = max(storage, (W − scheduling and reading) ÷ threads, (W + step) ÷ cores)
//! stored pages    where storage is the slower: memory goes from decoded frames to stored pages, as the loader does it
//! compute ratio   step ÷ max(step, T), less a margin for jitter (doctor/model.rs)
//! ```
//!
//! W₀ was measured by running the loader on the sample, with and without decoding. A training loop keeps one core of
//! its rank busy for as long as a step takes: it shares the cores with decoding. Storage and cores are shared by all
//! ranks of the host. A dataset that fits into the page cache is read from storage once.

use serde::{Deserialize, Serialize};

use super::loader::{LoaderCost, to_size};
use super::streams::{CodecOption, StreamOptions};
use super::{Measurements, Question};
use crate::doctor::compute_ratio;
use kino_loader::{TierRoom, TierTimes};

/// Reading threads also wait for each other, and for the next batch: the share of the time in which they read.
const READING: f64 = 0.9;

/// Times of a loaded machine vary: what the loader took ÷ the codecs' own time is not taken for more than this.
const MOST_EXTRA: f64 = 2.0;

/// Batches that a loader prepares ahead, for the margin of jitter.
const AHEAD: usize = 4;

/// What a plan would do.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Prediction {
    /// Stored bytes of the whole recording.
    pub bytes: f64,
    /// The fraction of the time in which the training loop does not wait, after the first epoch.
    pub compute_ratio: f64,
    /// The same in the first epoch, when everything is read and decoded.
    pub first_compute_ratio: f64,
    /// Samples per second of all ranks.
    pub samples_per_s: f64,
    /// Seconds of an epoch, after the first.
    pub epoch_s: f64,
    /// Seconds that a batch takes if the loop asks for it at once.
    pub batch_s: f64,
    /// Seconds of storage per batch.
    pub fetch_s: f64,
    /// CPU seconds of decoding per batch.
    pub decode_s: f64,
    /// All other CPU seconds per batch.
    pub other_s: f64,
    /// CPU seconds of decoding per batch, by kind of stream.
    pub decode_by_kind: Vec<(String, f64)>,
    /// Cores that loading keeps busy at the full speed of the model, of all ranks.
    pub cores: f64,
    /// Bytes per second that the storage must deliver at the full speed of the model, for all ranks.
    pub read_bytes_per_s: f64,
    /// Core seconds to encode the whole recording, divided by the cores of this host.
    pub pack_s: f64,
    /// Whether the stored bytes fit into the page cache.
    pub is_page_cached: bool,
}

/// Two stages that are about equally slow wait for each other now and then: a maximum without a corner.
fn smooth_max(a: f64, b: f64) -> f64 {
    let (low, high) = (a.min(b), a.max(b));
    if high <= 0.0 {
        return 0.0;
    }
    high * (1.0 + (low / high).powi(8)).powf(0.125)
}

/// Everything that a prediction depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Predictor<'m> {
    /// What the plan with every stream's first codec is called.
    pub(super) now: &'static str,
    pub(super) measured: &'m Measurements,
    /// The loader that is predicted: as it was measured, or with other memory or another shuffle.
    pub(super) loader: &'m LoaderCost,
    pub(super) question: &'m Question,
}

/// Work of one batch.
#[derive(Debug, Clone, Copy)]
struct Work {
    decode_s: f64,
    other_s: f64,
    fetch_s: f64,
    bytes: f64,
}

impl Predictor<'_> {
    /// What the plan would do that gives each stream the codec of this number among its options.
    pub(super) fn predict(&self, codecs: &[usize]) -> Prediction {
        let streams = self.measured.streams.iter().zip(codecs);
        let pairs = streams.filter_map(|(stream, &idx)| Some((stream, stream.options.get(idx)?)));
        self.predict_pairs(&pairs.collect::<Vec<_>>())
    }

    /// What it would do to store each stream like this.
    pub(super) fn predict_pairs(&self, pairs: &[(&StreamOptions, &CodecOption)]) -> Prediction {
        let bytes: f64 = pairs
            .iter()
            .map(|(stream, codec)| stream.bytes(codec))
            .sum();
        let is_page_cached = bytes <= self.page_cache();
        let steady = self.work(pairs, self.loader.decodes, is_page_cached);
        let steady = self.with_stored_pages(pairs, steady);
        let first = self.work(pairs, self.loader.decodes.max(1.0), false);
        let step_s = self.question.step_s;
        let ratio = |work: &Work| {
            let batch_s = self.batch_s(work);
            compute_ratio(step_s, batch_s, self.loader.variation, AHEAD)
        };
        let (compute_ratio, ranks) = (ratio(&steady), self.question.ranks as f64);
        let per_s = ranks * self.loader.batch * compute_ratio / step_s;
        let encode = pairs.iter().map(|(stream, codec)| {
            // Every page is decoded again, and compared.
            let each = if codec.encode_ns > 0.0 {
                codec.encode_ns + codec.decode_ns
            } else {
                0.0
            };
            let resize = codec.resize.map_or(0.0, |_| stream.resize_ns);
            stream.frames * (each + resize) / 1e9
        });
        Prediction {
            bytes,
            compute_ratio,
            first_compute_ratio: ratio(&first),
            samples_per_s: per_s,
            epoch_s: self.loader.samples / per_s.max(f64::MIN_POSITIVE),
            batch_s: self.batch_s(&steady),
            fetch_s: steady.fetch_s,
            decode_s: steady.decode_s,
            other_s: steady.other_s,
            decode_by_kind: self.by_kind(pairs),
            cores: ranks * (steady.decode_s + steady.other_s) / step_s,
            read_bytes_per_s: ranks * steady.bytes / step_s,
            pack_s: encode.sum::<f64>() / self.question.cores as f64,
            is_page_cached,
        }
    }

    /// Bytes of the page cache beside the loaders' own memory.
    pub(super) fn page_cache(&self) -> f64 {
        let taken = self.loader.memory_bytes as f64 * self.question.ranks as f64;
        (self.measured.storage.page_cache_bytes as f64 - taken).max(0.0)
    }

    fn work(
        &self,
        pairs: &[(&StreamOptions, &CodecOption)],
        decodes: f64,
        is_page_cached: bool,
    ) -> Work {
        let now: Vec<_> = pairs
            .iter()
            .filter_map(|(stream, _)| Some((*stream, stream.options.first()?)))
            .collect();
        let (loader, run) = (self.loader, &self.measured.loader);
        let decode_s = self.in_the_loader(
            self.decode_s(pairs, loader, decodes),
            self.decode_s(&now, run, run.measured_decodes),
        );
        let bytes = self.read_bytes(pairs, decodes);
        let read_s = (bytes - loader.bytes) * self.measured.storage.cpu_s_per_byte;
        let other_s = (loader.rest_cpu_s + read_s).max(loader.rest_cpu_s / 4.0);
        Work {
            decode_s,
            other_s,
            fetch_s: if is_page_cached {
                0.0
            } else {
                self.fetch_s(bytes)
            },
            bytes: if is_page_cached { 0.0 } else { bytes },
        }
    }

    /// CPU seconds of decoding and resizing in the loader, if they take `alone_s` by themselves and those that were measured
    /// took `measured_s`: the machine was busier with one than with the other.
    fn in_the_loader(&self, alone_s: f64, measured_s: f64) -> f64 {
        let run = &self.measured.loader;
        if measured_s <= 0.0 {
            return alone_s;
        }
        let taken_s = run.cpu_s - run.rest_cpu_s;
        alone_s * (taken_s / measured_s).clamp(1.0 / MOST_EXTRA, MOST_EXTRA)
    }

    /// The work with memory for stored pages, where the loader would use it so.
    fn with_stored_pages(&self, pairs: &[(&StreamOptions, &CodecOption)], work: Work) -> Work {
        let loader = self.loader;
        let loaded = pairs.iter().filter(|(stream, _)| stream.window > 0.0);
        let stored: f64 = loaded.map(|(stream, codec)| stream.bytes(codec)).sum();
        let batch_s = self.batch_s(&work);
        let times = TierTimes {
            read_s: work.fetch_s,
            decode_s: self.on_threads(&work),
            wait: 1.0 - compute_ratio(self.question.step_s, batch_s, loader.variation, AHEAD),
            ratio: loader.decoded_bytes / stored.max(1.0),
        };
        let room = TierRoom {
            all: to_size(loader.decoded_bytes).bytes(),
            held: loader.memory_bytes,
            movable: to_size(loader.movable_bytes).bytes(),
        };
        let (read, decode) = times.shares(room, times.best(room));
        Work {
            decode_s: work.decode_s * decode,
            other_s: work.other_s,
            fetch_s: work.fetch_s * read,
            bytes: work.bytes * read,
        }
    }

    /// CPU seconds of the codecs per batch.
    fn decode_s(
        &self,
        pairs: &[(&StreamOptions, &CodecOption)],
        loader: &LoaderCost,
        decodes: f64,
    ) -> f64 {
        let pairs = pairs.iter();
        pairs
            .map(|(stream, codec)| frames_s(stream, codec, loader, decodes))
            .sum()
    }

    fn read_bytes(&self, pairs: &[(&StreamOptions, &CodecOption)], decodes: f64) -> f64 {
        let loaded = pairs.iter().filter(|(stream, _)| stream.window > 0.0);
        let each = loaded.map(|(stream, codec)| {
            let frames = if self.loader.is_random {
                stream.window * (1.0 - self.loader.kept)
            } else {
                frames_per_sample(stream, self.loader) * decodes
            };
            frames * codec.bytes
        });
        self.loader.batch * each.sum::<f64>()
    }

    /// Seconds of storage per batch, which all ranks share.
    fn fetch_s(&self, bytes: f64) -> f64 {
        let (storage, loader) = (&self.measured.storage, self.loader);
        let ranks = self.question.ranks as f64;
        let transfer = storage.bytes_per_s.map_or(0.0, |rate| ranks * bytes / rate);
        // Fewer bytes are fewer reads, down to one per stream and episode; that floor is part of what was measured.
        let share = (bytes / loader.bytes.max(1.0)).clamp(0.0, 64.0);
        let reads = loader.reads * if loader.is_random { 1.0 } else { share };
        // Each reader waits for the latency and the transfer of its own read.
        let waiting = (reads * storage.latency_s + transfer / ranks) / storage.readers as f64;
        transfer.max(waiting / READING)
    }

    /// Seconds per batch, as derived at the top.
    fn batch_s(&self, work: &Work) -> f64 {
        let cores = self.question.cores as f64 / self.question.ranks as f64;
        let cpu_s = work.decode_s + work.other_s;
        // The loop computes for a step and shares the cores meanwhile.
        let shared = (cpu_s + self.question.step_s) / cores.max(1e-9);
        let shared = if shared > self.question.step_s {
            shared
        } else {
            0.0
        };
        smooth_max(work.fetch_s, self.on_threads(work).max(shared))
    }

    /// Seconds of decoding and collating per batch, on all threads.
    fn on_threads(&self, work: &Work) -> f64 {
        let loader = self.loader;
        let cpu_s = work.decode_s + work.other_s;
        (cpu_s - loader.aside_cpu_s).max(0.0) / loader.threads.max(1) as f64
    }

    fn by_kind(&self, pairs: &[(&StreamOptions, &CodecOption)]) -> Vec<(String, f64)> {
        let mut kinds: Vec<(String, f64)> = Vec::new();
        for (stream, codec) in pairs.iter().filter(|(stream, _)| stream.window > 0.0) {
            let seconds = frames_s(stream, codec, self.loader, self.loader.decodes);
            match kinds.iter_mut().find(|(kind, _)| *kind == stream.kind) {
                Some((_, sum)) => *sum += seconds,
                None => kinds.push((stream.kind.clone(), seconds)),
            }
        }
        kinds
    }
}

/// CPU seconds of one stream's codec per batch.
fn frames_s(stream: &StreamOptions, codec: &CodecOption, loader: &LoaderCost, decodes: f64) -> f64 {
    if stream.window == 0.0 {
        return 0.0;
    }
    let decode_ns = stream.load_ns(codec);
    let ns = if loader.is_random {
        let missed = 1.0 - loader.kept;
        let random_ns = stream.load_random_ns(codec);
        missed * (random_ns + (stream.window - 1.0).max(0.0) * decode_ns)
    } else {
        frames_per_sample(stream, loader) * decodes * decode_ns
    };
    loader.batch * ns / 1e9
}

/// Frames per sample if each is decoded once per epoch.
fn frames_per_sample(stream: &StreamOptions, loader: &LoaderCost) -> f64 {
    stream.loaded_frames / loader.samples.max(1.0)
}
