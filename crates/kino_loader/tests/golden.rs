//! The samples at the first 1000 indices of 34 orders, for ever: the files in `golden/` grow, their lines never change.
//!
//! ```text
//! {"name": "…", "sources": […], "settings": {…}, "data": "…", "order": "…", "receipt": "…"}
//! 0/0/0:3.17 12.4 0.0 …        episode.window, with source/variant/epoch: where one of them changes
//! ```
//!
//! `states.txt` has the state of each of these orders at index 400, a line each, as a checkpoint stores it.
//!
//! A change here is another algorithm: it needs another name in `ALGORITHM` and a golden file of its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use kino_loader::{
    Batching, Cursor, Deal, GroupSize, LastBatch, LengthOrder, LengthSettings, Mismatch, Order,
    Oversize, SampleRef, Settings, Shuffle, Source, State, Unit,
};
use serde_json::{Value, json};

const SAMPLES: u64 = 1000;

/// Where the states of `states.txt` were taken.
const STOPPED: u64 = 400;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

/// One order of the file.
struct Golden {
    name: String,
    parts: Vec<(Source, f64)>,
    settings: Settings,
}

impl Golden {
    fn order(&self) -> Order {
        match &self.parts[..] {
            [(source, _)] => Order::new(source.clone(), self.settings).unwrap(),
            parts => Order::mixture(parts.to_vec(), self.settings).unwrap(),
        }
    }

    /// What the file says of this order.
    fn to_text(&self) -> String {
        let order = self.order();
        let mut reader = order.reader();
        let state = reader.state(SAMPLES).unwrap();
        let source = |(source, weight): &(Source, f64)| {
            json!({
                "id": source.id, "counts": source.counts[..], "sizes": source.sizes.as_deref(),
                "weights": source.weights.as_deref(), "shards": source.shards.as_deref(),
                "variants": source.variants, "weight": weight,
            })
        };
        let mut substitute = |(i, attempt): (u64, u64)| {
            let sample = reader.substitute(i, attempt).unwrap();
            json!([
                i,
                attempt,
                sample.source,
                sample.variant,
                sample.epoch,
                sample.episode,
                sample.sample
            ])
        };
        let requests = [(0, 0), (0, 1), (17, 0), (999, 5), (100_000, 1_000_000)];
        let requests = requests.into_iter().filter(|(i, _)| order.has_sample(*i));
        let substitutes: Vec<Value> = requests.map(&mut substitute).collect();
        let head = json!({
            "name": self.name, "sources": self.parts.iter().map(source).collect::<Vec<_>>(), "settings": self.settings,
            "data": state.data, "order": state.order, "receipt": state.receipt, "substitutes": substitutes,
        });
        let mut samples = Vec::new();
        reader.fill(0..SAMPLES, &mut samples).unwrap();
        let mut text = format!("{head}\n");
        let mut before = None;
        for line in samples.chunks(20) {
            let words: Vec<String> = line
                .iter()
                .map(|sample| word(sample, &mut before))
                .collect();
            writeln!(text, "{}", words.join(" ")).unwrap();
        }
        text
    }

    fn parse(head: &str) -> Self {
        let head: Value = serde_json::from_str(head).unwrap();
        let source = |value: &Value| {
            let field = |name: &str| value[name].clone();
            let mut source = Source::new(
                value["id"].as_str().unwrap(),
                from::<Vec<u32>>(field("counts")),
            );
            source.sizes = from::<Option<Vec<u64>>>(field("sizes")).map(Into::into);
            source.weights = from::<Option<Vec<f32>>>(field("weights")).map(Into::into);
            source.shards = from::<Option<Vec<u32>>>(field("shards")).map(Into::into);
            source.variants = from(field("variants"));
            (source, value["weight"].as_f64().unwrap())
        };
        Self {
            name: head["name"].as_str().unwrap().into(),
            parts: head["sources"]
                .as_array()
                .unwrap()
                .iter()
                .map(source)
                .collect(),
            settings: from(head["settings"].clone()),
        }
    }
}

fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn word(sample: &SampleRef, before: &mut Option<(u32, u32, u64)>) -> String {
    let of = (sample.source, sample.variant, sample.epoch);
    let place = format!("{}.{}", sample.episode, sample.sample);
    if before.replace(of) == Some(of) {
        return place;
    }
    format!("{}/{}/{}:{place}", of.0, of.1, of.2)
}

/// Episodes of irregular length, some without a window.
fn source(id: &str, episodes: u32) -> Source {
    let mut source = Source::new(id, (0..episodes).map(|at| at * 37 % 23).collect::<Vec<_>>());
    source.sizes = Some(
        (0..u64::from(episodes))
            .map(|at| 100 + at * 7919 % 641)
            .collect(),
    );
    source.shards = Some((0..episodes).map(|at| at * 5 % 11).collect());
    source
}

fn weighted(id: &str, episodes: u32) -> Source {
    let weights = [0.0, 1.0, 2.0, 0.5, 1.3, 0.01];
    let mut source = source(id, episodes);
    source.weights = Some((0..episodes as usize).map(|at| weights[at % 6]).collect());
    source
}

fn groups(size: GroupSize, unit: Unit) -> Shuffle {
    Shuffle::Groups { size, unit }
}

fn one(name: impl Into<String>, source: Source, settings: Settings) -> Golden {
    Golden {
        name: name.into(),
        parts: vec![(source, 1.0)],
        settings,
    }
}

/// Every shuffle with every kind of last batch.
fn single_orders() -> Vec<Golden> {
    let shuffles = [
        ("sequential", Shuffle::Sequential),
        ("global", Shuffle::Global),
        (
            "groups-bytes",
            groups(GroupSize::Bytes(4000), Unit::Episodes),
        ),
        (
            "groups-episodes",
            groups(GroupSize::Episodes(7), Unit::Episodes),
        ),
        (
            "groups-fraction-shards",
            groups(GroupSize::Fraction(0.3), Unit::Shards),
        ),
    ];
    let mut all = Vec::new();
    for (number, (name, shuffle)) in (0..).zip(shuffles) {
        let settings = Settings {
            seed: 7 + number,
            batch_size: 64,
            shuffle,
            last_batch: LastBatch::Wrap,
            ..Settings::default()
        };
        all.push(one(format!("{name}-wrap"), source("a", 40), settings));
        let settings = Settings {
            seed: u64::MAX - number,
            lanes: 8,
            last_batch: LastBatch::Repeat,
            ..settings
        };
        all.push(one(
            format!("{name}-repeat-lanes"),
            weighted("b", 31),
            settings,
        ));
        let (seed, last_batch) = (1 << (40 + number), LastBatch::Drop);
        let settings = Settings {
            seed,
            batch_size: 48,
            lanes: 4,
            last_batch,
            ..settings
        };
        all.push(one(
            format!("{name}-drop-lanes"),
            source("c", 101),
            settings,
        ));
        let settings = Settings {
            lanes: 8,
            last_batch: LastBatch::Short,
            ..settings
        };
        all.push(one(
            format!("{name}-short-lanes"),
            weighted("d", 29),
            settings,
        ));
    }
    all
}

/// The orders that a release writes.
fn orders() -> Vec<Golden> {
    let mut all = single_orders();
    let settings = Settings {
        seed: 11,
        batch_size: 32,
        lanes: 2,
        ..Settings::default()
    };
    let three = |name: &str, settings| Golden {
        name: name.into(),
        parts: vec![
            (source("a", 40), 0.5),
            (weighted("b", 31), 0.3),
            (source("c", 3), 0.2),
        ],
        settings,
    };
    all.push(three("mixture-short", settings));
    let settings = Settings {
        last_batch: LastBatch::Wrap,
        ..settings
    };
    all.push(three("mixture-global", settings));
    let shuffle = groups(GroupSize::Episodes(20), Unit::Episodes);
    all.push(three(
        "mixture-groups",
        Settings {
            shuffle,
            ..settings
        },
    ));
    let shuffle = groups(GroupSize::Bytes(9000), Unit::Shards);
    let (epoch_size, last_batch) = (Some(500), LastBatch::Drop);
    all.push(three(
        "mixture-shards",
        Settings {
            shuffle,
            epoch_size,
            last_batch,
            ..settings
        },
    ));
    let mut curriculum = source("a", 40);
    curriculum.variants = vec![(0, "small".into()), (1, "large".into())];
    all.push(one("curriculum", curriculum, settings));
    let settings = Settings {
        batch_size: 6,
        last_batch: LastBatch::Short,
        ..settings
    };
    all.push(one("few-samples", Source::new("few", vec![1, 2]), settings));
    all.extend(orders_in_parts());
    all
}

/// Groups of which each place of a batch has a part.
fn orders_in_parts() -> Vec<Golden> {
    let settings = Settings {
        seed: 13,
        batch_size: 48,
        deal: Deal::Parts,
        shuffle: groups(GroupSize::Episodes(9), Unit::Episodes),
        ..Settings::default()
    };
    let with = |shuffle, last_batch| Settings {
        shuffle,
        last_batch,
        ..settings
    };
    let shards = groups(GroupSize::Fraction(0.3), Unit::Shards);
    let all = groups(GroupSize::Fraction(1.0), Unit::Episodes);
    let bytes = groups(GroupSize::Bytes(4000), Unit::Episodes);
    let three = |name: &str, settings| Golden {
        name: name.into(),
        parts: vec![
            (source("a", 40), 0.5),
            (weighted("b", 31), 0.3),
            (source("c", 3), 0.2),
        ],
        settings,
    };
    let few = Settings {
        batch_size: 7,
        ..settings
    };
    vec![
        one("parts-short", source("a", 40), settings),
        one("parts-wrap", source("a", 40), with(bytes, LastBatch::Wrap)),
        one(
            "parts-drop-shards",
            source("c", 101),
            with(shards, LastBatch::Drop),
        ),
        one(
            "parts-repeat",
            weighted("b", 31),
            with(settings.shuffle, LastBatch::Repeat),
        ),
        one(
            "parts-of-all-short",
            weighted("d", 29),
            with(all, LastBatch::Short),
        ),
        one("parts-few-samples", Source::new("few", vec![1, 9]), few),
        three("parts-mixture", with(settings.shuffle, LastBatch::Wrap)),
        three("parts-mixture-all", with(all, LastBatch::Drop)),
    ]
}

/// The steps of an order of whole episodes: its cursor, and the episodes of each batch.
fn lengths_text(lengths: &[u32], settings: LengthSettings) -> String {
    let order = LengthOrder::new("a", lengths, settings).unwrap();
    let (mut reader, mut at) = (order.reader(), Cursor::default());
    let mut text = format!("{}\n", json!({ "lengths": lengths, "settings": settings }));
    for _ in 0..30 {
        let step = reader.step(at).unwrap();
        let batches = step.batches.iter().map(|batch| {
            let numbers: Vec<String> = batch.episodes.iter().map(u32::to_string).collect();
            numbers.join(",")
        });
        let batches: Vec<String> = batches.collect();
        writeln!(text, "{}/{}: {}", at.epoch, at.done, batches.join(" ")).unwrap();
        at = step.next;
    }
    text
}

/// The orders of whole episodes that a release writes.
fn length_orders() -> Vec<String> {
    let lengths: Vec<u32> = (0..97).map(|at| at * 53 % 71).collect();
    let settings = LengthSettings {
        seed: 5,
        batching: Batching::Similar { batch: 4 },
        step: 6,
        spread: Some(20),
        last_batch: LastBatch::Wrap,
        oversize: Oversize::Alone,
    };
    let budget = Batching::Budget { frames: 150 };
    [
        settings,
        LengthSettings {
            last_batch: LastBatch::Drop,
            ..settings
        },
        LengthSettings {
            last_batch: LastBatch::Repeat,
            ..settings
        },
        LengthSettings {
            batching: budget,
            spread: None,
            ..settings
        },
        LengthSettings {
            batching: Batching::Budget { frames: 50 },
            seed: 6,
            ..settings
        },
    ]
    .map(|settings| lengths_text(&lengths, settings))
    .to_vec()
}

/// The orders of a golden file, each as text.
fn golden(name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(path(name)).unwrap();
    text.split("\n\n")
        .map(|order| order.trim().to_owned())
        .collect()
}

#[test]
fn reads_every_golden_order() {
    let orders = golden("order.txt");
    assert_eq!(orders.len(), 34);
    for order in orders {
        let golden = Golden::parse(order.lines().next().unwrap());
        assert!(
            golden.to_text().trim() == order,
            "order `{}` has changed",
            golden.name
        );
    }
}

#[test]
fn reads_every_golden_order_of_whole_episodes() {
    for order in golden("lengths.txt") {
        let head: Value = serde_json::from_str(order.lines().next().unwrap()).unwrap();
        let lengths: Vec<u32> = from(head["lengths"].clone());
        let settings = from(head["settings"].clone());
        assert!(
            lengths_text(&lengths, settings).trim() == order,
            "{settings:?} has changed"
        );
    }
}

/// Writes the files that are missing, for a new algorithm: remove them, then
/// `cargo test -p kino_loader --test golden -- --ignored`.
#[test]
#[ignore = "writes into the source tree"]
fn write_missing_golden_files() {
    let orders = orders();
    let texts = orders.iter().map(Golden::to_text).collect();
    for (name, orders) in [("order.txt", texts), ("lengths.txt", length_orders())] {
        if !path(name).exists() {
            std::fs::write(path(name), orders.join("\n")).unwrap();
        }
    }
    if !path("states.txt").exists() {
        let state =
            |golden: &Golden| golden.order().reader().state(STOPPED).unwrap().to_json() + "\n";
        let states: String = orders.iter().map(state).collect();
        std::fs::write(path("states.txt"), states).unwrap();
    }
}

#[test]
fn every_state_that_was_saved_is_restored() {
    let states = std::fs::read_to_string(path("states.txt")).unwrap();
    let orders = golden("order.txt");
    assert_eq!(states.lines().count(), orders.len());
    for (state, order) in states.lines().zip(orders) {
        let golden = Golden::parse(order.lines().next().unwrap());
        let state = State::from_json(state).unwrap();
        let restored = golden.order().restore(&state, Mismatch::Refuse);
        assert_eq!(restored.unwrap().next_index, STOPPED, "{}", golden.name);
    }
}
