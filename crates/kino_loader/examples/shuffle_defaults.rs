//! What the automatic shuffle chooses for known datasets, and what it costs on machines of 8, 32 and 128 GB.
//!
//! ```text
//! cargo run -p kino_loader --example shuffle_defaults [> bench/results/shuffle_defaults.csv]
//! ```
//!
//! The datasets are tables of episode lengths and frame sizes, as published; the orders are real, and `episodes per batch`
//! and `VIF` are measured on them. Memory is what a loader takes by default: at most a quarter of the machine's.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "an example prints, and stops at the first error"
)]

use kino_loader::{
    AutoShuffle, Deal, Decodes, Order, Ranks, Settings, ShuffleQuality, Source, Unit,
};

const GB: u64 = 1_000_000_000;

/// A dataset under a request.
struct Case {
    name: &'static str,
    episodes: u32,
    /// The shortest and the longest episode, in samples.
    lengths: (u32, u32),
    /// Decoded bytes of a frame of every camera, as requested.
    frame_bytes: u64,
    decodes: Decodes,
    batch: u32,
}

const ALOHA_FRAME: u64 = 4 * 480 * 640 * 3;

/// Of windows of so many frames, each of which is a page.
const fn windows(frames: f64) -> Decodes {
    Decodes {
        per_frame: frames,
        uses: frames,
        per_cut: frames - 1.0,
    }
}

/// Of one frame per sample in pages of eight.
const GROUPS_OF_8: Decodes = Decodes {
    per_frame: 4.5,
    uses: 8.0,
    per_cut: 7.0,
};

const CASES: [Case; 8] = [
    Case {
        name: "Lift 2×84×84, 1 frame",
        episodes: 200,
        lengths: (36, 65),
        frame_bytes: 2 * 84 * 84 * 3,
        decodes: windows(1.0),
        batch: 256,
    },
    Case {
        name: "Lift 2×84×84, 10 frames",
        episodes: 200,
        lengths: (36, 65),
        frame_bytes: 2 * 84 * 84 * 3,
        decodes: windows(10.0),
        batch: 16,
    },
    Case {
        name: "ALOHA 4×480×640, 1 frame",
        episodes: 50,
        lengths: (400, 400),
        frame_bytes: ALOHA_FRAME,
        decodes: windows(1.0),
        batch: 8,
    },
    Case {
        name: "ALOHA 4×480×640, 2 frames",
        episodes: 50,
        lengths: (400, 400),
        frame_bytes: ALOHA_FRAME,
        decodes: windows(2.0),
        batch: 8,
    },
    Case {
        name: "ALOHA 4×480×640, 2 frames, 1000 episodes",
        episodes: 1000,
        lengths: (400, 400),
        frame_bytes: ALOHA_FRAME,
        decodes: windows(2.0),
        batch: 32,
    },
    Case {
        name: "ALOHA resized to 224×224, 2 frames, 1000 episodes",
        episodes: 1000,
        lengths: (400, 400),
        frame_bytes: 4 * 224 * 224 * 3,
        decodes: windows(2.0),
        batch: 32,
    },
    Case {
        name: "G1 480×640 AV1 in groups of 8, 1 frame",
        episodes: 300,
        lengths: (200, 1400),
        frame_bytes: 480 * 640 * 3,
        decodes: GROUPS_OF_8,
        batch: 64,
    },
    Case {
        name: "G1 resized to 224×224, AV1 in groups of 8, 1 frame",
        episodes: 300,
        lengths: (200, 1400),
        frame_bytes: 224 * 224 * 3,
        decodes: GROUPS_OF_8,
        batch: 64,
    },
];

impl Case {
    fn order(&self) -> Order {
        let (least, most) = self.lengths;
        let counts = (0..self.episodes).map(|at| {
            // Spread evenly between the two, in no order.
            least + at.wrapping_mul(2_654_435_761) % (most - least + 1)
        });
        let source = Source::new(self.name, counts.collect::<Vec<_>>());
        let auto = AutoShuffle {
            batch_size: self.batch,
            lanes: 1,
            deal: Deal::Parts,
            decodes: self.decodes,
            unit: Unit::Episodes,
        };
        let settings = Settings {
            batch_size: self.batch,
            shuffle: auto.choose(&[(source.clone(), 1.0)]).unwrap(),
            deal: Deal::Parts,
            ..Settings::default()
        };
        Order::new(source, settings).unwrap()
    }
}

fn main() {
    println!(
        "dataset,batch,shuffle,episodes_per_batch,vif,needed_gb,host_gb,memory_gb,decodes_per_frame"
    );
    for case in CASES {
        let order = case.order();
        let bytes = [order.epoch_samples() * case.frame_bytes];
        let with = |memory| {
            ShuffleQuality::from_sizes(&order, case.decodes, &bytes, memory, Ranks::ONE).unwrap()
        };
        for host in [8, 32, 128] {
            let memory = with(0).default_memory(host * GB, 1);
            let quality = with(memory);
            println!(
                "\"{}\",{},{},{:.1},{:.2},{:.1},{host},{:.1},{:.2}",
                case.name,
                case.batch,
                match order.settings().shuffle {
                    kino_loader::Shuffle::Groups {
                        size: kino_loader::GroupSize::Episodes(episodes),
                        ..
                    } => format!("groups of {episodes} episodes"),
                    _ => "global".to_owned(),
                },
                quality.episodes_per_batch,
                quality.vif,
                quality.memory_needed as f64 / GB as f64,
                memory as f64 / GB as f64,
                quality.decodes_per_frame
            );
        }
    }
}
