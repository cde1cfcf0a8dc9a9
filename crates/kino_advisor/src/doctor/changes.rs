//! What to change, the most promising first, each with the compute ratio predicted for it.
//!
//! The predictions are those of `model.rs`, from measurements on this machine. Changes that would not help are
//! dropped.

use kino_codec::{VideoCoding, VideoStream};
use kino_dataset::{Cost, variant_stream};
use kino_loader::{MAX_PREFETCH, group_bytes};

use super::evidence::{Differences, Evidence, StreamCosts, VariantCost};
use super::model::{compute_ratio, replay};
use super::remedy::{Change, Remedy, nothing};
use super::text::loss;
use super::verdict::{Cause, Verdict};
use crate::memory_advice::{LEAST_GROUP, MEMORY_SHARE, at_most, megabytes};

/// A change must bring at least this many times the steps per second to be listed.
const WORTH: f64 = 1.01;

/// A float32 image has four times the bytes of a uint8 one, and so has an image of twice the width and height.
const QUARTER: f64 = 4.0;

/// The changes that would help, the best first; among equals, the least work first.
pub(super) fn changes(evidence: &Evidence, verdict: &Verdict) -> Vec<Change> {
    let mut advice = Advice {
        evidence,
        changes: Vec::new(),
    };
    match (&evidence.without, verdict.cause) {
        (None, _) | (_, Cause::Nothing | Cause::SlowStep) => {}
        (Some(without), cause) => advice.collect(without, cause),
    }
    let mut found = ranked(advice.changes);
    if found.is_empty() {
        found.push(nothing(evidence, verdict));
    }
    found
}

/// The changes that are worth it, the best first.
pub(super) fn ranked(mut found: Vec<Change>) -> Vec<Change> {
    found.retain(|change| change.gain >= WORTH);
    // Rounded, so that near-equals keep the order in which they were found: the least work first.
    let rank = |change: &Change| (!change.is_available, (-1e2 * change.compute_ratio).round());
    found.sort_by(|a, b| {
        let (a, b) = (rank(a), rank(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    found
}

struct Advice<'e> {
    evidence: &'e Evidence,
    changes: Vec<Change>,
}

impl Advice<'_> {
    fn collect(&mut self, without: &Differences, cause: Cause) {
        match cause {
            Cause::Nothing
            | Cause::SlowStep
            | Cause::Workers
            | Cause::Transfer
            | Cause::WorkerStart
            | Cause::Loader => {}
            Cause::Jitter => self.jitter(without),
            Cause::CpuShare => {
                let batch_s = without.without_cpu_limit.as_ref().map(|run| run.batch_s);
                self.add(
                    Remedy::CpuShare,
                    "remove the `cpu` limit, or raise it".to_owned(),
                    batch_s.unwrap_or(self.evidence.whole.batch_s),
                );
            }
            Cause::HandOver => self.add_ratio(
                Remedy::FewerHandOvers,
                "use larger batches, request fewer streams, or copy batches to the GPU ahead of time with `device=`"
                    .to_owned(),
                self.evidence.whole.batch_s,
                self.evidence.target,
            ),
            Cause::Memory => {
                self.pool(without);
                self.keep_group(without);
                self.keep_all(without);
                self.threads(without);
            }
            Cause::Storage => {
                self.keep_all(without);
                self.add(
                    Remedy::Staging,
                    "copy the dataset to a faster local disk (upper bound: predicted for storage as fast as memory)".to_owned(),
                    without.without_fetch.batch_s,
                );
                let batch_s = self.evidence.whole.batch_s;
                self.variant(stored_bytes, |factor| {
                    (batch_s * factor).max(without.without_fetch.batch_s)
                });
                self.smaller_codec(without);
            }
            Cause::Decode => {
                self.threads(without);
                self.keep_all(without);
                let (whole, rest) = (self.evidence.whole.batch_s, without.without_decode.batch_s);
                self.variant(
                    |cost| cost.decode_ns,
                    |factor| rest + (whole - rest).max(0.0) * factor,
                );
                self.faster_codec(without);
                self.gpu(without);
            }
            Cause::Collate => {
                self.threads(without);
                self.smaller_batches(without);
            }
        }
    }

    fn add(&mut self, remedy: Remedy, how: String, batch_s: f64) {
        let whole = &self.evidence.whole;
        let ahead = self.evidence.fed.prefetch;
        let batch_s = batch_s * self.in_the_loop();
        let ratio = compute_ratio(self.evidence.step_s, batch_s, whole.variation(), ahead);
        self.add_ratio(remedy, how, batch_s, ratio);
    }

    /// What a batch took in the loop ÷ what it took beside a busy core: a loop that waits leaves its core to the
    /// loader.
    fn in_the_loop(&self) -> f64 {
        let (step_s, whole) = (self.evidence.step_s, self.evidence.whole.batch_s);
        if whole <= step_s {
            return 1.0;
        }
        (step_s / self.evidence.fed.compute_ratio.max(1e-6) / whole).min(1.0)
    }

    fn add_ratio(&mut self, remedy: Remedy, how: String, batch_s: f64, ratio: f64) {
        let now = self.evidence.fed.compute_ratio.max(1e-6);
        self.changes.push(Change {
            is_available: remedy != Remedy::GpuDecode || self.gpu_engine().is_some(),
            remedy,
            how,
            batch_s,
            compute_ratio: ratio,
            gain: ratio / now,
        });
    }

    /// One thread per core, minus one; threads cannot go below the time of reading and planning.
    fn threads(&mut self, without: &Differences) {
        let setting = &self.evidence.setting;
        let most = setting.cores.saturating_sub(1).max(1);
        if most <= setting.threads {
            return;
        }
        let whole = self.evidence.whole.batch_s;
        let divided = whole * setting.threads as f64 / most as f64;
        let batch_s = divided
            .max(without.only_fetch.batch_s)
            .max(self.evidence.whole.schedule_s);
        let how = format!(
            "`threads={most}` instead of {} ({} cores, one kept free for the training loop)",
            setting.threads, setting.cores
        );
        self.add(Remedy::Threads(most), how, batch_s);
    }

    /// A budget for all decoded frames, if the machine has the memory: after the first epoch nothing is read or
    /// decoded.
    fn keep_all(&mut self, without: &Differences) {
        let setting = &self.evidence.setting;
        let fits = setting.decoded_bytes <= setting.machine_bytes / MEMORY_SHARE;
        if !fits || setting.decoded_bytes <= setting.memory_bytes {
            return;
        }
        let collate = self.evidence.whole.collate_s / setting.threads.max(1) as f64;
        let batch_s = collate.max(self.evidence.whole.schedule_s);
        let how = format!(
            "`memory=\"{}\"`: all decoded frames stay cached after the first epoch",
            megabytes(setting.decoded_bytes)
        );
        let bytes = setting.decoded_bytes;
        self.add(
            Remedy::Memory(bytes),
            how,
            batch_s.min(without.without_decode.batch_s),
        );
    }

    /// Shuffles in groups of episodes, each decoded once.
    fn pool(&mut self, without: &Differences) {
        let setting = &self.evidence.setting;
        let instead_of = match (setting.shuffles_everything, setting.group_is_too_large) {
            (true, _) => "a global shuffle",
            (false, true) => "larger groups",
            (false, false) => return,
        };
        let bytes = group_bytes(setting.memory_bytes);
        if bytes < setting.decoded_bytes / setting.episodes.max(1) as u64 * LEAST_GROUP {
            return;
        }
        let how = format!(
            "`shuffle=kinograph.Shuffle(memory=\"{}\")` instead of {instead_of}: each group of episodes is decoded once per epoch",
            at_most(bytes)
        );
        let batch_s = self.decoded_once(without);
        self.add(Remedy::Pool(bytes), how, batch_s);
    }

    /// Memory for the groups as they are, if the machine has it.
    fn keep_group(&mut self, without: &Differences) {
        let setting = &self.evidence.setting;
        let needed = setting.shuffle.map_or(0, |shuffle| shuffle.memory_needed);
        if !setting.group_is_too_large || needed > setting.machine_bytes / MEMORY_SHARE {
            return;
        }
        let how = format!(
            "`memory=\"{}\"`: each group of episodes is decoded once per epoch",
            megabytes(needed)
        );
        let batch_s = self.decoded_once(without);
        self.add(Remedy::Memory(needed), how, batch_s);
    }

    /// Seconds of a batch if each frame were decoded once per epoch.
    fn decoded_once(&self, without: &Differences) -> f64 {
        let whole = self.evidence.whole.batch_s;
        let excess = self.evidence.whole.decode_excess.max(1.0);
        let rest = without
            .without_decode
            .batch_s
            .min(without.without_fetch.batch_s);
        rest + (whole - rest) / excess
    }

    fn jitter(&mut self, without: &Differences) {
        let (whole, fed) = (&self.evidence.whole, &self.evidence.fed);
        let step_s = self.evidence.step_s;
        if let (Some(given), Some(run)) = (self.evidence.setting.prefetch, &without.chosen_prefetch)
        {
            let ratio = replay(&run.each_s, step_s, MAX_PREFETCH.min(4 * given.max(4)));
            self.add_ratio(
                Remedy::Prefetch(None),
                format!("remove `prefetch={given}`: the loader then adapts the depth to what it measures"),
                run.batch_s,
                ratio,
            );
            return;
        }
        let now = replay(&whole.each_s, step_s, fed.prefetch);
        let deeper = (0..6)
            .map(|doubled| (fed.prefetch.max(1) << doubled).min(MAX_PREFETCH))
            .find(|&ahead| replay(&whole.each_s, step_s, ahead) >= self.evidence.target);
        let ahead = deeper.unwrap_or(MAX_PREFETCH);
        let ratio = replay(&whole.each_s, step_s, ahead);
        if ahead > fed.prefetch && ratio > now {
            self.add_ratio(
                Remedy::Prefetch(Some(ahead)),
                format!("`prefetch={ahead}` instead of {}", fed.prefetch),
                whole.batch_s,
                ratio,
            );
        }
        self.threads(without);
        self.add(
            Remedy::Staging,
            "copy the dataset to a faster local disk, if slow reads cause the late batches"
                .to_owned(),
            without.without_fetch.batch_s,
        );
    }

    fn smaller_batches(&mut self, without: &Differences) {
        let (whole, rest) = (self.evidence.whole.batch_s, without.without_collate.batch_s);
        let batch_s = rest + (whole - rest).max(0.0) / QUARTER;
        if self.evidence.setting.images_are_floats {
            self.add(
                Remedy::Bytes,
                "request images as `uint8`, and scale and normalize them on the GPU".to_owned(),
                batch_s,
            );
        }
        if self.evidence.setting.has_random_jpeg {
            // Compressing takes many times as long as copying, so half of the images take half of the time.
            self.add(
                Remedy::RandomJpeg,
                "compress half as many images at random (`p` of `random_jpeg`), or resized ones (`before_resize=False`)"
                    .to_owned(),
                f64::midpoint(whole, rest),
            );
            // Images that are compressed before they are resized cost the same in any size.
            return;
        }
        self.add(
            Remedy::SmallerImages,
            "resize images to half the width and height, if the policy can do with it".to_owned(),
            batch_s,
        );
    }

    /// A codec that decodes faster, for the stream where it helps most.
    fn faster_codec(&mut self, without: &Differences) {
        let (whole, rest) = (self.evidence.whole.batch_s, without.without_decode.batch_s);
        let Some((stream, cost, factor)) = self.other_codec(|cost| cost.decode_ns) else {
            return;
        };
        let batch_s = rest + (whole - rest).max(0.0) * factor;
        self.codec(stream, cost, batch_s);
    }

    /// A codec that compresses better, for the stream where it helps most.
    fn smaller_codec(&mut self, without: &Differences) {
        let whole = self.evidence.whole.batch_s;
        let Some((stream, cost, factor)) = self.other_codec(stored_bytes) else {
            return;
        };
        let batch_s = (whole * factor).max(without.without_fetch.batch_s);
        self.codec(stream, cost, batch_s);
    }

    fn codec(&mut self, stream: String, cost: Cost, batch_s: f64) {
        let how = format!(
            "pack `{stream}` with `{}`, which is {} ({:.0} µs to decode a frame, {:.1}× smaller than raw; by `kinograph bench codecs`)",
            cost.codec,
            loss(&cost.codec),
            cost.decode_ns / 1e3,
            cost.ratio
        );
        let codec = cost.codec;
        self.add(Remedy::Codec { stream, codec }, how, batch_s);
    }

    /// The stream and codec that reduce the total price of all streams most, with the factor.
    fn other_codec(&self, price: impl Fn(&Cost) -> f64) -> Option<(String, Cost, f64)> {
        let found = self.evidence.streams.iter().flat_map(|stream| {
            let others = stream.known.iter();
            let others = others.filter(|cost| cost.codec != stream.codec);
            others.map(move |cost| (stream, cost))
        });
        let factor = |&(stream, cost): &(&StreamCosts, &Cost)| self.factor(stream, cost, &price);
        let best = found
            .filter(|(stream, _)| stream.now.is_some())
            .min_by(|a, b| factor(a).total_cmp(&factor(b)))?;
        let factor = factor(&best);
        (factor < 1.0).then(|| (best.0.name.clone(), best.1.clone(), factor))
    }

    /// The variant that the dataset has and that reduces the total price of all streams most; `batch_s` says what a batch
    /// takes at a fraction of the price.
    fn variant(&mut self, price: impl Fn(&Cost) -> f64, batch_s: impl Fn(f64) -> f64) {
        let read = self.evidence.streams.iter();
        let found = read
            .filter(|stream| stream.now.is_some())
            .flat_map(|stream| {
                let factor = |one: &VariantCost| self.factor(stream, &one.cost, &price);
                let factors = stream.variants.iter().map(move |one| (one, factor(one)));
                factors.map(move |(one, factor)| (stream, one, factor))
            });
        let best = found.min_by(|a, b| a.2.total_cmp(&b.2));
        let Some((stream, one, factor)) = best.filter(|best| best.2 < 1.0) else {
            return;
        };
        let (stream, variant) = (stream.name.clone(), one.variant.clone());
        let how = format!(
            "read `{}` (`variants={{\"{stream}\": \"{variant}\"}}`), which the dataset has: `{}` is {}",
            variant_stream(&stream, &variant),
            one.cost.codec,
            loss(&one.cost.codec),
        );
        self.add(Remedy::Variant { stream, variant }, how, batch_s(factor));
    }

    /// The price of all streams if one cost this ÷ their price now.
    fn factor(&self, stream: &StreamCosts, cost: &Cost, price: impl Fn(&Cost) -> f64) -> f64 {
        let now = |stream: &StreamCosts| stream.now.as_ref().map_or(0.0, &price);
        let all: f64 = self.evidence.streams.iter().map(now).sum();
        (all - now(stream) + price(cost)) / all.max(f64::MIN_POSITIVE)
    }

    /// What of a GPU decodes most of what the loader reads, if something does.
    fn gpu_engine(&self) -> Option<&'static str> {
        let now = self.evidence.streams.iter().flat_map(|stream| &stream.now);
        let engine = |cost: &Cost| match VideoCoding::of_codec(&cost.codec) {
            Some(coding) if VideoStream::has(coding) => {
                Some("NVDEC decodes, with the GPU's engines for video")
            }
            _ if cost.codec.starts_with("jpeg") => {
                Some("nvJPEG decodes, on a GPU with a JPEG engine (A100, H100 and later)")
            }
            _ => None,
        };
        let decoded = now.filter_map(|cost| Some((cost.decode_ns, engine(cost)?)));
        let most = decoded.max_by(|a, b| a.0.total_cmp(&b.0));
        most.map(|(_, engine)| engine)
    }

    /// Nothing is decoded by the CPU any more.
    fn gpu(&mut self, without: &Differences) {
        let how = match self.gpu_engine() {
            Some(engine) => {
                format!("`decode=\"gpu\"` in kinograph.torch.Loader(device=\"cuda\"): {engine}")
            }
            None => "store images as JPEG (`kinograph repack`), and decode them on the GPU (`decode=\"gpu\"`)".to_owned(),
        };
        let batch_s = without.without_decode.batch_s;
        self.add(Remedy::GpuDecode, how, batch_s);
    }
}

/// Stored bytes of a frame.
fn stored_bytes(cost: &Cost) -> f64 {
    cost.frame_bytes / cost.ratio.max(1e-9)
}
