//! How often the ranks of a host decode a frame together, by real loaders and by counting on the order, and how well batches
//! mix: with the default shuffle, whose groups are dealt in parts, and with one lane for all ranks.
//!
//! ```text
//! cargo run --release -p kino_loader --example rank_decodes [> bench/results/rank_decodes.csv]
//! ```
//!
//! Loaders run one after the other in this process, each with its share of the memory that `ShuffleQuality` says is needed,
//! for one epoch. `counted` is what they would decode if every rank decoded each of its frames once. Datasets have the
//! lengths of known ones and tiny images: how often frames are decoded does not depend on their size. Every batch is
//! compared with the order; the memory of a rank is what its cache held at most, in frames.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an example prints, and stops at the first error"
)]

mod cameras;

use kino_dataset::{ByteSize, Dataset, Request, Samples, Selection};
use kino_loader::{
    Deal, GroupSize, Loader, LoaderOptions, Order, Ranks, Run, Settings, Shuffle, ShuffleQuality,
    Source, Uneven,
};
use serde_json::json;

const SIDE: usize = 8;
const WORLDS: [u32; 11] = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 64];
/// More ranks than this are only counted.
const MOST_LOADERS: u32 = 16;

/// A dataset under a request.
struct Case {
    name: &'static str,
    episodes: u64,
    /// The shortest and the longest episode.
    lengths: (u64, u64),
    frames_per_sample: i64,
    batch: u32,
}

const CASES: [Case; 6] = [
    Case {
        name: "400 episodes",
        episodes: 400,
        lengths: (40, 80),
        frames_per_sample: 2,
        batch: 64,
    },
    Case {
        name: "Lift-sized",
        episodes: 200,
        lengths: (36, 65),
        frames_per_sample: 10,
        batch: 16,
    },
    Case {
        name: "Lift-sized",
        episodes: 200,
        lengths: (36, 65),
        frames_per_sample: 10,
        batch: 128,
    },
    Case {
        name: "Lift-sized",
        episodes: 200,
        lengths: (36, 65),
        frames_per_sample: 1,
        batch: 128,
    },
    Case {
        name: "PushT-sized",
        episodes: 206,
        lengths: (49, 200),
        frames_per_sample: 2,
        batch: 64,
    },
    Case {
        name: "3 demonstrations",
        episodes: 3,
        lengths: (40, 60),
        frames_per_sample: 2,
        batch: 16,
    },
];

fn main() {
    println!(
        "dataset,frames_per_sample,batch,deal,shuffle,episodes_per_batch,vif,ranks,counted,measured,said,needed_frames,peak_frames"
    );
    for case in CASES {
        let (_folder, dataset) = case.write();
        let samples = case.samples(&dataset);
        for lanes in [Some(1), None] {
            let order = case.order(&samples, lanes);
            let worlds = WORLDS.into_iter().filter(|&world| world <= case.batch);
            worlds.for_each(|world| case.row(&order, &samples, world));
        }
    }
}

impl Case {
    fn write(&self) -> (tempfile::TempDir, Dataset) {
        let (least, most) = self.lengths;
        let length = |at: u64| least + at.wrapping_mul(2_654_435_761) % (most - least + 1);
        let lengths: Vec<u64> = (0..self.episodes).map(length).collect();
        let value = |episode, frame, byte| episode + frame * 5 + byte;
        cameras::write_lengths(&lengths, SIDE, cameras::single_frames(), value)
    }

    fn samples(&self, dataset: &Dataset) -> Samples {
        let steps: Vec<i64> = (1 - self.frames_per_sample..=0).collect();
        let request = json!({
            "anchor": {"stream": "front"}, "windows": [{"stream": "front", "at": {"steps": steps}}],
        });
        let request: Request = serde_json::from_value(request).unwrap();
        Samples::bind(dataset, request, &Selection::default()).unwrap()
    }

    fn order(&self, samples: &Samples, lanes: Option<u32>) -> Order {
        let source = Source::of(samples).unwrap();
        // A short last batch would be too short for 64 ranks.
        let mut written = json!({"batch_size": self.batch, "seed": 7, "last_batch": "drop"});
        if let Some(lanes) = lanes {
            written["lanes"] = lanes.into();
        }
        let parts = [(source.clone(), 1.0)];
        let settings = Settings::choose(&written, &parts, std::slice::from_ref(samples)).unwrap();
        Order::new(source, settings).unwrap()
    }

    fn row(&self, order: &Order, samples: &Samples, world: u32) {
        let all = vec![vec![samples.clone()]];
        let ranks = Ranks {
            world,
            local: world,
        };
        let images = LoaderOptions::default().images;
        let with = |memory| ShuffleQuality::of(order, &all, &images, memory, ranks).unwrap();
        // A global shuffle of single frames needs no memory: a tenth of all then.
        let least = with(0).memory_for_all / u64::from(world) / 10;
        let memory = with(0).memory_needed.max(least);
        let quality = with(memory);
        let (counted, frames) = self.count(order, samples, world);
        // With one lane, what few ranks do shows what many do.
        let is_measured = match order.settings().deal {
            Deal::Parts => world <= MOST_LOADERS,
            Deal::Strata => [1, 2, 4].contains(&world),
        };
        let (measured, peak) = if is_measured {
            let (decoded, peak) = measure(order, samples, world, memory / u64::from(world));
            (format!("{:.3}", decoded as f64 / frames), peak.to_string())
        } else {
            (String::new(), String::new())
        };
        println!(
            "{},{},{},{},{},{:.1},{:.3},{world},{:.3},{measured},{:.3},{},{peak}",
            self.name,
            self.frames_per_sample,
            self.batch,
            if order.settings().deal == Deal::Parts {
                "parts"
            } else {
                "one lane"
            },
            match order.settings().shuffle {
                Shuffle::Groups {
                    size: GroupSize::Episodes(episodes),
                    ..
                } => format!("groups of {episodes}"),
                _ => "global".to_owned(),
            },
            quality.episodes_per_batch,
            quality.vif,
            counted / frames,
            quality.decodes_per_frame,
            memory / u64::from(world) / frame_bytes(),
        );
    }

    /// Decodes in an epoch if each rank decodes each of its frames once, and different frames.
    fn count(&self, order: &Order, samples: &Samples, world: u32) -> (f64, f64) {
        let mut ranks_of = vec![0_u64; samples.len() as usize];
        let first: Vec<u64> = running_sum(samples.counts());
        let (mut reader, mut taken) = (order.reader(), Vec::new());
        for batch in order.batches_of(0).unwrap() {
            for rank in 0..world {
                taken.clear();
                let range = order.rank_range(batch, rank, world, Uneven::Allow);
                reader.fill(range.unwrap(), &mut taken).unwrap();
                for sample in &taken {
                    let before = (self.frames_per_sample - 1) as u32;
                    for frame in sample.sample.saturating_sub(before)..=sample.sample {
                        let at = first[sample.episode as usize] + u64::from(frame);
                        ranks_of[at as usize] |= 1 << rank;
                    }
                }
            }
        }
        let decoded: u32 = ranks_of.iter().map(|ranks| ranks.count_ones()).sum();
        let different = ranks_of.iter().filter(|ranks| **ranks != 0).count();
        (f64::from(decoded), different as f64)
    }
}

fn frame_bytes() -> u64 {
    (SIDE * SIDE * 3) as u64
}

fn running_sum(counts: &[u32]) -> Vec<u64> {
    let sums = counts.iter().scan(0, |sum, &count| {
        let before = *sum;
        *sum += u64::from(count);
        Some(before)
    });
    sums.collect()
}

/// Frames decoded in the first epoch by all ranks together, and the frames that one of them held at most.
fn measure(order: &Order, samples: &Samples, world: u32, memory_bytes: u64) -> (u64, u64) {
    let (mut decoded, mut peak) = (0, 0);
    let batches = order.batches_of(0).unwrap();
    let mut reader = order.reader();
    for rank in 0..world {
        let options = LoaderOptions {
            rank,
            world_size: world,
            uneven: Uneven::Allow,
            memory: Some(ByteSize::new(memory_bytes)),
            threads: Some(1),
            run: Run {
                batches: Some(batches.end),
                ..Run::default()
            },
            ..LoaderOptions::default()
        };
        let windows = vec![vec![samples.clone()]];
        let mut loader = Loader::start(order.clone(), windows, options).unwrap();
        for batch in batches.clone() {
            let mut expected = Vec::new();
            let range = order.rank_range(batch, rank, world, Uneven::Allow);
            reader.fill(range.unwrap(), &mut expected).unwrap();
            let found = loader.next_batch().unwrap().unwrap();
            assert_eq!(found.samples(), expected, "rank {rank} of {world}");
        }
        let report = loader.report();
        decoded += report.frames_decoded;
        peak = peak.max(report.cache_peak_bytes);
    }
    (decoded, peak.div_ceil(frame_bytes()))
}
