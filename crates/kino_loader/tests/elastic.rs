//! Any number of ranks, any stop, any restart: the sequence is the same.
//!
//! ```text
//! setting   samples × batch × lanes or parts × shuffle × last batch × kind of source      oracle: one list, from the slow twin
//! case      a world size from the start, or a chain of stops and world sizes
//! ```
//!
//! This is the order alone. Threads and prefetching do not exist here; the loader that has them is tested with them.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "small numbers, and a wrong one fails the test"
)]

mod twin;

use std::collections::HashMap;

use kino_loader::{
    Deal, GroupSize, LastBatch, Mismatch, Order, SampleRef, Settings, Shuffle, Source, State,
    Uneven, Unit,
};

use twin::{MixtureTwin, Twin};

const WINDOWS: [u32; 5] = [1, 63, 64, 65, 10_007];
const BATCHES: [u32; 2] = [64, 192];
const WORLDS: [u32; 9] = [1, 2, 3, 4, 6, 8, 16, 32, 64];
const LAST_BATCHES: [LastBatch; 4] = [
    LastBatch::Short,
    LastBatch::Drop,
    LastBatch::Wrap,
    LastBatch::Repeat,
];
/// Slots of a mixture of three sources under weights 2 : 1 : 1.
const SLOTS: [u64; 3] = [2048, 1024, 1024];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// All episodes of one dataset.
    Plain,
    /// A list of some of them, with weights, and with variants from epoch 1 on.
    Chosen,
    /// Three datasets.
    Mixture,
}

/// Random numbers for choosing cases; the order has its own.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Episodes of up to 40 windows, some without any, that have `windows` together.
fn source(windows: u32, dice: &mut Dice) -> Source {
    let mut counts = Vec::new();
    let mut rest = windows;
    while rest > 0 {
        let count = rest.min(dice.below(41) as u32);
        counts.push(count);
        rest -= count;
    }
    let shards = (0..counts.len() as u32).map(|at| at / 4).collect();
    Source {
        shards: Some(shards),
        ..Source::new(format!("{windows} windows"), counts)
    }
}

fn sources(kind: Kind, windows: u32, dice: &mut Dice) -> Vec<Source> {
    let mut first = source(windows, dice);
    match kind {
        Kind::Plain => vec![first],
        Kind::Chosen => {
            // A filter is a shorter list. Whole weights, so that the length of an epoch is easy to say.
            let counts: Vec<u32> = first
                .counts
                .iter()
                .copied()
                .filter(|count| count % 3 != 1 || windows == 1)
                .collect();
            first = Source::new("chosen", counts);
            first.shards = Some((0..first.counts.len() as u32).map(|at| at % 7).collect());
            first.weights = Some(
                (0..first.counts.len())
                    .map(|at| [1.0, 2.0, 0.5][at % 3])
                    .collect(),
            );
            first.variants = vec![(0, "small".into()), (1, "large".into())];
            vec![first]
        }
        Kind::Mixture => vec![first, source(65, dice), source(7, dice)],
    }
}

/// The slow list that all cases of a setting are compared with.
enum Oracle {
    One(Box<Twin>),
    Mixed(Box<MixtureTwin>),
}

impl Oracle {
    /// The samples of so many batches, batch by batch.
    fn list(&mut self, batches: u64, batch: u64) -> Vec<Vec<SampleRef>> {
        let mut at = |i| match self {
            Self::One(twin) => twin.at(i),
            Self::Mixed(twin) => twin.at(i),
        };
        (0..batches)
            .map(|k| (k * batch..(k + 1) * batch).filter_map(&mut at).collect())
            .collect()
    }
}

struct Setting {
    sources: Vec<Source>,
    settings: Settings,
    reference: Vec<Vec<SampleRef>>,
}

impl Setting {
    /// `None` if the setting is refused: a batch larger than the epoch, unless it may be short.
    fn new(sources: Vec<Source>, settings: Settings) -> Option<Self> {
        let setting = Self {
            sources,
            settings,
            reference: Vec::new(),
        };
        let order = setting.order()?;
        let mut oracle = match setting.sources.len() {
            1 => Oracle::One(Box::new(Twin::new(&setting.sources[0], &settings))),
            _ => Oracle::Mixed(Box::new(MixtureTwin::new(
                &setting.sources,
                &SLOTS,
                &settings,
            ))),
        };
        let batch = u64::from(settings.batch_size);
        let batches = order.epoch_len().min(11_000) / batch + 10;
        Some(Self {
            reference: oracle.list(batches, batch),
            ..setting
        })
    }

    /// The order as a fresh process builds it.
    fn order(&self) -> Option<Order> {
        match &self.sources[..] {
            [source] => Order::new(source.clone(), self.settings).ok(),
            sources => {
                let weights = [2.0, 1.0, 1.0];
                Order::mixture(
                    sources.iter().cloned().zip(weights).collect(),
                    self.settings,
                )
                .ok()
            }
        }
    }

    fn batches(&self) -> u64 {
        self.reference.len() as u64
    }

    fn worlds(&self) -> impl Iterator<Item = u32> {
        let batch = self.settings.batch_size;
        let fewest = self.fewest();
        WORLDS
            .into_iter()
            .filter(move |world| batch.is_multiple_of(*world) && *world <= fewest)
    }

    /// The fewest samples of a batch: more ranks than that are refused.
    fn fewest(&self) -> u32 {
        let lens = self.reference.iter().map(|batch| batch.len() as u32);
        lens.min().unwrap()
    }

    /// Trains on `world` ranks from a batch on; every rank has a reader of its own.
    fn train(&self, order: &Order, world: u32, batches: std::ops::Range<u64>) {
        let world = world.min(self.fewest());
        let mut readers: Vec<_> = (0..world).map(|_| order.reader()).collect();
        let uneven = if self.settings.batch_size.is_multiple_of(world) {
            Uneven::Refuse
        } else {
            Uneven::Allow
        };
        for batch in batches {
            let mut samples = Vec::new();
            let mut lens = Vec::new();
            for (rank, reader) in (0..).zip(&mut readers) {
                let range = order.rank_range(batch, rank, world, uneven).unwrap();
                lens.push(range.end - range.start);
                reader.fill(range, &mut samples).unwrap();
            }
            let (least, most) = (lens.iter().min().unwrap(), lens.iter().max().unwrap());
            assert!(*least > 0 && most - least <= 1, "{lens:?}");
            assert!(
                samples == self.reference[batch as usize],
                "{:?}, {world} ranks, batch {batch}",
                self.settings
            );
        }
    }

    /// Stops before `batch`; a fresh process goes on.
    fn stop_and_restart(&self, order: &Order, batch: u64) -> Order {
        let next = batch * u64::from(self.settings.batch_size);
        let text = order.reader().state(next).unwrap().to_json();
        assert!(text.len() < 1024, "{text}");
        let state = State::from_json(&text).unwrap();
        let restored = self
            .order()
            .unwrap()
            .restore(&state, Mismatch::Refuse)
            .unwrap();
        assert_eq!(restored.next_index, next);
        restored.reader.order().clone()
    }
}

/// All settings of one kind, each with its reference.
fn settings_of(kind: Kind, mut each: impl FnMut(&Setting, &mut Dice)) {
    let mut dice = Dice(kind as u64);
    let groups = |size, unit| Shuffle::Groups { size, unit };
    let shuffles = [
        Shuffle::Sequential,
        Shuffle::Global,
        groups(GroupSize::Episodes(8), Unit::Episodes),
        groups(GroupSize::Episodes(64), Unit::Shards),
    ];
    for windows in WINDOWS {
        let divided = [(1, Deal::Strata), (8, Deal::Strata), (1, Deal::Parts)];
        for (batch, (lanes, deal)) in BATCHES
            .into_iter()
            .flat_map(|batch| divided.map(|how| (batch, how)))
        {
            for (shuffle, last_batch) in shuffles
                .into_iter()
                .flat_map(|shuffle| LAST_BATCHES.map(|last_batch| (shuffle, last_batch)))
            {
                if deal == Deal::Parts && !matches!(shuffle, Shuffle::Groups { .. }) {
                    continue; // nothing is dealt
                }
                let sources = sources(kind, windows, &mut dice);
                let settings = Settings {
                    seed: dice.below(1 << 30),
                    batch_size: batch,
                    lanes,
                    shuffle,
                    deal,
                    last_batch,
                    epoch_size: None,
                };
                if let Some(setting) = Setting::new(sources, settings) {
                    each(&setting, &mut dice);
                }
            }
        }
    }
}

/// Runs every case of a kind; gives their number.
fn run(kind: Kind) -> u64 {
    let mut cases = 0;
    settings_of(kind, |setting, dice| {
        let order = setting.order().unwrap();
        let whole = setting.batches();
        for world in setting.worlds() {
            setting.train(&order, world, 0..whole.min(12));
            cases += 1;
        }
        setting.train(&order, 5, 0..2); // uneven slices
        setting.train(&order, 1, 0..whole);
        cases += 2;
        // Stops at the start, inside, and around the end of the first epoch.
        let steps = order
            .epoch_len()
            .div_ceil(u64::from(setting.settings.batch_size))
            .min(whole - 3);
        let mut stops = vec![0, 1, steps / 3, steps.saturating_sub(1), steps, steps + 1];
        stops.extend((0..20).map(|_| dice.below(steps + 2)));
        let worlds: Vec<u32> = setting.worlds().collect();
        for stop in stops {
            let after = setting.stop_and_restart(&order, stop);
            let world = worlds[dice.below(worlds.len() as u64) as usize];
            // To the end once; a few batches where the settings are the same.
            let len = if stop == steps / 3 { whole } else { 4 };
            setting.train(&after, world, stop..whole.min(stop + len));
            cases += 1;
        }
        cases += chains(setting, order, dice);
    });
    cases
}

/// Chains of restarts on other world sizes, two of them in one epoch; where 3 and 6 do not divide, slices are uneven.
fn chains(setting: &Setting, order: Order, dice: &mut Dice) -> u64 {
    for chain in [[8, 3, 6, 1], [64, 1, 2, 32]] {
        let mut stops: Vec<u64> = (0..3).map(|_| dice.below(setting.batches() - 1)).collect();
        stops.sort_unstable();
        stops.insert(0, 0);
        stops.push(setting.batches().min(stops[3] + 8));
        let mut order = order.clone();
        for (world, part) in chain.into_iter().zip(stops.windows(2)) {
            order = setting.stop_and_restart(&order, part[0]);
            setting.train(&order, world, part[0]..part[1].min(part[0] + 20));
        }
    }
    2
}

#[test]
fn one_dataset_gives_one_sequence_whatever_happens() {
    println!("{} cases", run(Kind::Plain));
}

#[test]
fn a_filtered_weighted_dataset_with_variants_gives_one_sequence_whatever_happens() {
    println!("{} cases", run(Kind::Chosen));
}

#[test]
fn a_mixture_gives_one_sequence_whatever_happens() {
    println!("{} cases", run(Kind::Mixture));
}

#[test]
fn every_sample_comes_exactly_once_per_epoch() {
    let mut cases = 0;
    settings_of(Kind::Plain, |setting, _| {
        let order = setting.order().unwrap();
        let windows = order.sample_index(&SampleRef {
            source: 0,
            variant: 0,
            epoch: 0,
            episode: setting.sources[0].counts.len() as u32,
            sample: 0,
        });
        let mut reader = order.reader();
        for epoch in 0..3 {
            let mut samples = Vec::new();
            let start = order.epoch_start(epoch).unwrap();
            reader
                .fill(start..start + order.epoch_len(), &mut samples)
                .unwrap();
            let mut counts = HashMap::new();
            samples
                .iter()
                .for_each(|sample| *counts.entry(order.sample_index(sample)).or_insert(0_u64) += 1);
            assert!(samples.iter().all(|sample| sample.epoch == epoch));
            let (len, found) = (samples.len() as u64, counts.len() as u64);
            match setting.settings.last_batch {
                LastBatch::Short | LastBatch::Wrap => assert!(len == windows && found == windows),
                LastBatch::Drop => {
                    assert!(found == len && windows - len < u64::from(setting.settings.batch_size))
                }
                // As often as all others, or once more.
                LastBatch::Repeat => assert!(
                    found == windows
                        && counts
                            .values()
                            .all(|&n| n == len / windows || n == len / windows + 1)
                ),
            }
            cases += 1;
        }
    });
    println!("{cases} cases");
}
