//! Epochs with little memory: how often frames are decoded after the first epoch, by the loader and by three rules of
//! eviction that are simulated on the same order.
//!
//! ```text
//! cargo run --release -p kino_loader --example cache_epochs [> bench/results/cache.csv]
//! ```
//!
//! 200 episodes of 40 to 54 frames of one camera are trained on for six epochs, with memory for a fraction f of the decoded
//! frames; the last four epochs count. `age`, `fixed` and `exact` are simulated frame by frame and load on demand: the frame
//! that was used longest ago goes; what came first stays; the frame that is needed last goes. The loader keeps whole
//! episodes, decodes ahead, and holds the groups in work in the same memory.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an example prints, and stops at the first error"
)]

mod cameras;

use std::collections::{BTreeSet, HashMap};

use kino_dataset::{ByteSize, Dataset, Request, SampleFrames, Samples, Selection};
use kino_loader::{
    GroupSize, LastBatch, Loader, LoaderOptions, Order, Run, Settings, Shuffle, Source, Unit,
};

use cameras::write_cameras;

const EPISODES: u64 = 200;
const SIDE: usize = 48;
const EPOCHS: u64 = 6;
const COUNTED: u64 = 4;
const FRACTIONS: [f64; 4] = [0.2, 0.3, 0.5, 0.8];

fn main() {
    let (_folder, dataset) = write_cameras(EPISODES, SIDE, |_, at, byte| byte / 97 + at * 5);
    println!("shuffle,frames_per_sample,memory,rule,decodes_per_frame");
    let shuffles = [
        ("groups of 5 %", groups(0.05)),
        ("groups of 10 %", groups(0.1)),
        ("global", Shuffle::Global),
        ("none", Shuffle::Sequential),
    ];
    for (name, shuffle) in shuffles {
        for frames in [1, 10] {
            let run = Training::new(&dataset, shuffle, frames);
            for fraction in FRACTIONS {
                let row = |rule: &str, decodes: f64| {
                    println!("{name},{frames},{fraction},{rule},{decodes:.3}");
                };
                row("loader", run.measure(fraction));
                let (uses, room) = (run.uses(), (run.frames as f64 * fraction) as usize);
                for (rule, simulate) in RULES {
                    let missed = simulate(&uses, room);
                    let first = uses.len() * (EPOCHS - COUNTED) as usize / EPOCHS as usize;
                    let missed = missed.into_iter().filter(|&at| at >= first).count();
                    row(rule, missed as f64 / (COUNTED * run.frames) as f64);
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
                batches: Some(EPOCHS * batches),
                ..Run::default()
            },
            ..LoaderOptions::default()
        };
        let budget = options.memory_bytes();
        let windows = vec![vec![self.windows.clone()]];
        let mut loader = Loader::start(self.order.clone(), windows, options).unwrap();
        let mut before = 0;
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

    /// The frames that the samples of all epochs use, one after the other.
    fn uses(&self) -> Vec<(u32, u32)> {
        let mut samples = Vec::new();
        let end = EPOCHS * self.order.epoch_len();
        self.order.reader().fill(0..end, &mut samples).unwrap();
        let mut plan = SampleFrames::default();
        let mut uses = Vec::new();
        for sample in samples {
            let episode = self.windows.opened(sample.episode as usize).unwrap();
            episode.plan(sample.sample, &mut plan).unwrap();
            let mut frames = plan.windows[0].frames.clone();
            frames.dedup(); // padding repeats the first frame
            uses.extend(frames.into_iter().map(|frame| (sample.episode, frame)));
        }
        uses
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
    let mut next = vec![usize::MAX; uses.len()];
    let mut seen = HashMap::new();
    for (at, &frame) in uses.iter().enumerate().rev() {
        if let Some(later) = seen.insert(frame, at) {
            next[at] = later;
        }
    }
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
