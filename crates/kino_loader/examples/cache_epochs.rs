//! Epochs with little memory: how often frames are decoded after the first epoch, by the loader and by rules of eviction
//! that are simulated on the same order.
//!
//! ```text
//! cargo run --release -p kino_loader --example cache_epochs [> bench/results/cache.csv]
//! ```
//!
//! 200 episodes of 40 to 54 frames of one camera are trained on for six epochs, with memory for a fraction f of the decoded
//! frames; the last four epochs count. `age`, `fixed` and `exact` are simulated frame by frame and load on demand: the frame
//! that was used longest ago goes; what came first stays; the frame that is needed last goes. `episodes` is `exact` for
//! whole episodes; `ahead` also decodes the next group while one is used, as the loader does. Both are left out where
//! a group does not fit. Groups are of whole episodes, so five of a fifth are what a quarter gives.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an example prints, and stops at the first error"
)]

mod cameras;

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::ops::Range;

use kino_dataset::{ByteSize, Dataset, Request, SampleFrames, Samples, Selection};
use kino_loader::{
    GroupSize, LastBatch, Loader, LoaderOptions, Order, Run, SampleRef, Settings, Shuffle, Source,
    Unit,
};

use cameras::write_cameras;

const EPISODES: u64 = 200;
const SIDE: usize = 48;
/// The loader's least lead, in samples.
const LEAST_LEAD: usize = 8 * 16;
const EPOCHS: u64 = 6;
const COUNTED: u64 = 4;
const FRACTIONS: [f64; 5] = [0.1, 0.2, 0.3, 0.5, 0.8];

fn main() {
    let (_folder, dataset) = write_cameras(EPISODES, SIDE, |_, at, byte| byte / 97 + at * 5);
    println!("shuffle,frames_per_sample,memory,rule,decodes_per_frame");
    let shuffles = [
        ("groups of 5 %", groups(0.05)),
        ("groups of 10 %", groups(0.1)),
        ("groups of 25 %", groups(0.25)),
        ("global", Shuffle::Global),
        ("none", Shuffle::Sequential),
    ];
    for (name, shuffle) in shuffles {
        for frames in [1, 2, 10] {
            let run = Training::new(&dataset, shuffle, frames);
            for fraction in FRACTIONS {
                let row = |rule: &str, decodes: f64| {
                    println!("{name},{frames},{fraction},{rule},{decodes:.3}");
                };
                row("loader", run.measure(fraction));
                let (uses, room) = (run.uses(), (run.frames as f64 * fraction) as usize);
                for (rule, simulate) in RULES {
                    let missed = simulate(&uses, room);
                    let counted = counted(uses.len());
                    let missed = missed.into_iter().filter(|at| counted.contains(at)).count();
                    row(rule, missed as f64 / (COUNTED * run.frames) as f64);
                }
                for (rule, lead) in run.leads(shuffle, room) {
                    row(rule, run.by_episode(lead, room));
                }
            }
        }
    }
}

fn groups(part: f64) -> Shuffle {
    Shuffle::Groups {
        size: GroupSize::Fraction(part),
        unit: Unit::Episodes,
    }
}

/// A request and its order.
struct Training {
    windows: Samples,
    order: Order,
    /// Different frames.
    frames: u64,
}

impl Training {
    fn new(dataset: &Dataset, shuffle: Shuffle, frames: i64) -> Self {
        let steps: Vec<i64> = (1 - frames..=0).collect();
        let request = format!(
            r#"{{"anchor": {{"stream": "front"}}, "windows": [{{"stream": "front", "at": {{"steps": {steps:?}}}}}]}}"#
        );
        let request: Request = serde_json::from_str(&request).unwrap();
        let windows = Samples::bind(dataset, request, &Selection::default()).unwrap();
        let settings = Settings {
            seed: 3,
            batch_size: 16,
            shuffle,
            last_batch: LastBatch::Short,
            ..Settings::default()
        };
        Self {
            order: Order::new(Source::of(&windows).unwrap(), settings).unwrap(),
            frames: windows.len(),
            windows,
        }
    }

    /// Decodes per different frame and epoch after the first epochs, by the loader.
    fn measure(&self, fraction: f64) -> f64 {
        let total: u64 = self.windows.sizes().iter().sum();
        let batches = self.order.batches_of(0).unwrap().end;
        let options = LoaderOptions {
            memory: Some(ByteSize::new((total as f64 * fraction) as u64)),
            threads: Some(1),
            prefetch: Some(2),
            run: Run {
                batches: Some((EPOCHS + 1) * batches),
                ..Run::default()
            },
            ..LoaderOptions::default()
        };
        let budget = options.memory_bytes();
        let windows = vec![vec![self.windows.clone()]];
        let mut loader = Loader::start(self.order.clone(), windows, options).unwrap();
        let mut before = 0;
        // An epoch more is to come, or nothing would be decoded ahead at the end.
        for batch in 0..EPOCHS * batches {
            if batch == (EPOCHS - COUNTED) * batches {
                before = loader.report().frames_decoded;
            }
            loader.next_batch().unwrap().unwrap();
        }
        let report = loader.report();
        assert!(
            report.cache_peak_bytes <= budget,
            "{} of {budget}",
            report.cache_peak_bytes
        );
        (report.frames_decoded - before) as f64 / (COUNTED * self.frames) as f64
    }

    /// How far `episodes` and `ahead` decode ahead, in samples; none where a group does not fit.
    fn leads(&self, shuffle: Shuffle, room: usize) -> Vec<(&'static str, usize)> {
        let samples = self.samples();
        let mut spans = HashMap::new();
        for (at, sample) in samples.iter().enumerate().take(self.frames as usize) {
            let span = spans.entry(sample.episode).or_insert((at, at));
            span.1 = at;
        }
        // An episode has samples from the start of its group to the end.
        let group = spans.values().map(|(first, last)| last - first).max();
        let group = group.unwrap_or(0);
        if shuffle == Shuffle::Global || group > room {
            return Vec::new();
        }
        let ahead = group - group / 10;
        vec![("episodes", 0), ("ahead", ahead.max(LEAST_LEAD))]
    }

    /// Decodes per different frame and epoch if whole episodes are kept, those `lead` samples ahead are decoded as far as
    /// there is room, and the episode goes that is needed last.
    fn by_episode(&self, lead: usize, room: usize) -> f64 {
        let uses: Vec<u32> = self.samples().iter().map(|sample| sample.episode).collect();
        let next = next_uses(&uses);
        let mut memory = Episodes {
            sizes: self.windows.counts(),
            ..Episodes::default()
        };
        let counted = counted(uses.len());
        let (mut seen, mut decoded) = (0, 0);
        for at in 0..uses.len() {
            while seen < uses.len() && seen <= at + lead {
                let missed = memory.open(uses[seen], room, seen > at);
                let Some(missed) = missed else { break };
                decoded += if counted.contains(&at) { missed } else { 0 };
                seen += 1;
            }
            memory.release(uses[at], next[at]);
        }
        decoded as f64 / (COUNTED * self.frames) as f64
    }

    fn samples(&self) -> Vec<SampleRef> {
        let mut samples = Vec::new();
        let end = (EPOCHS + 1) * self.order.epoch_len();
        self.order.reader().fill(0..end, &mut samples).unwrap();
        samples
    }

    /// The frames that the samples of all epochs use, one after the other.
    fn uses(&self) -> Vec<(u32, u32)> {
        let mut plan = SampleFrames::default();
        let mut uses = Vec::new();
        for sample in self.samples() {
            let episode = self.windows.opened(sample.episode as usize).unwrap();
            episode.plan(sample.sample, &mut plan).unwrap();
            let mut frames = plan.windows[0].frames.clone();
            frames.dedup(); // padding repeats the first frame
            uses.extend(frames.into_iter().map(|frame| (sample.episode, frame)));
        }
        uses
    }
}

/// Of the uses of all epochs, those of the epochs that count.
fn counted(uses: usize) -> Range<usize> {
    let epoch = uses / (EPOCHS + 1) as usize;
    epoch * (EPOCHS - COUNTED) as usize..epoch * EPOCHS as usize
}

/// Of each use, when the same thing is used again.
fn next_uses<T: Eq + Hash + Copy>(uses: &[T]) -> Vec<usize> {
    let mut later = HashMap::new();
    let mut next: Vec<_> = uses
        .iter()
        .enumerate()
        .rev()
        .map(|(at, one)| later.insert(*one, at).unwrap_or(usize::MAX))
        .collect();
    next.reverse();
    next
}

/// Whole episodes in memory.
#[derive(Default)]
struct Episodes<'a> {
    sizes: &'a [u32],
    bytes: usize,
    /// Of those in use: uses ahead that were seen.
    used: HashMap<u32, usize>,
    /// The others, by their next use.
    idle: BTreeSet<(usize, u32)>,
    places: HashMap<u32, usize>,
}

impl Episodes<'_> {
    /// Notes a use; how many frames are decoded for it. `None` if it can wait and there is no room.
    fn open(&mut self, episode: u32, room: usize, can_wait: bool) -> Option<usize> {
        if let Some(place) = self.places.remove(&episode) {
            self.idle.remove(&(place, episode));
        } else if !self.used.contains_key(&episode) {
            let size = self.sizes[episode as usize] as usize;
            while self.bytes + size > room {
                let Some((_, last)) = self.idle.pop_last() else {
                    if can_wait {
                        return None;
                    }
                    break;
                };
                self.places.remove(&last);
                self.bytes -= self.sizes[last as usize] as usize;
            }
            self.bytes += size;
            self.used.insert(episode, 1);
            return Some(size);
        }
        *self.used.entry(episode).or_default() += 1;
        Some(0)
    }

    /// One use less.
    fn release(&mut self, episode: u32, next: usize) {
        let Some(uses) = self.used.get_mut(&episode) else {
            return;
        };
        *uses -= 1;
        if *uses == 0 {
            self.used.remove(&episode);
            self.places.insert(episode, next);
            self.idle.insert((next, episode));
        }
    }
}

/// A rule of eviction: which of the uses miss with room for so many frames.
type Rule = fn(&[(u32, u32)], usize) -> Vec<usize>;

const RULES: [(&str, Rule); 3] = [("age", by_age), ("fixed", fixed_set), ("exact", exact)];

/// The frame that was used longest ago goes.
fn by_age(uses: &[(u32, u32)], room: usize) -> Vec<usize> {
    let (mut last, mut ages) = (HashMap::new(), BTreeSet::new());
    let mut missed = Vec::new();
    for (at, &frame) in uses.iter().enumerate() {
        match last.insert(frame, at) {
            Some(before) => drop(ages.remove(&(before, frame))),
            None => missed.push(at),
        }
        ages.insert((at, frame));
        if ages.len() > room
            && let Some((_, oldest)) = ages.pop_first()
        {
            last.remove(&oldest);
        }
    }
    missed
}

/// What came first stays.
fn fixed_set(uses: &[(u32, u32)], room: usize) -> Vec<usize> {
    let mut kept = BTreeSet::new();
    let mut missed = Vec::new();
    for (at, &frame) in uses.iter().enumerate() {
        if !kept.contains(&frame) {
            missed.push(at);
            if kept.len() < room {
                kept.insert(frame);
            }
        }
    }
    missed
}

/// The frame that is needed last goes, be it the one just used.
fn exact(uses: &[(u32, u32)], room: usize) -> Vec<usize> {
    let next = next_uses(uses);
    let mut kept = BTreeSet::new();
    let mut missed = Vec::new();
    for (at, &frame) in uses.iter().enumerate() {
        if !kept.remove(&(at, frame)) {
            missed.push(at);
        }
        kept.insert((next[at], frame));
        if kept.len() > room {
            kept.pop_last();
        }
    }
    missed
}
