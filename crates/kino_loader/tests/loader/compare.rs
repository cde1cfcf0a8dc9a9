//! What the loader's tests share: a request with everything in it, its order, and the plain reader's word on a batch.

#![allow(dead_code, reason = "each test uses some of it")]

use std::ops::Range;
use std::path::Path;

use kino_dataset::{Array, Dataset, Request, Samples, Selection};
use kino_loader::{Batch, GroupSize, LastBatch, Order, SampleRef, Settings, Shuffle, Source, Unit};

/// Two cameras, joints at another rate, text, padding on both sides, blending, and where each sample comes from.
pub(crate) const REQUEST: &str = r#"{"anchor": {"stream": "actions"}, "windows": [
    {"stream": "front", "at": {"steps": [-2, -1, 0]}},
    {"stream": "wrist", "at": {"times_ns": [0, 100000000]}, "after": "zero"},
    {"stream": "joints", "at": {"times_ns": [-12345678, 0, 7654321]}, "resolve": "linear"},
    {"stream": "actions", "at": {"steps": [0, 1, 2, 3, 4]}},
    {"stream": "words", "at": {"steps": [0]}, "resolve": "hold", "stack": "single"},
    {"key": "goal", "stream": "front", "at": "last", "stack": "single"}],
    "include": ["episode", "sample", "task", "frame"]}"#;

pub(crate) fn bind(dataset: &Dataset, request: &str) -> Samples {
    let request: Request = serde_json::from_str(request).unwrap();
    Samples::bind(dataset, request, &Selection::default()).unwrap()
}

pub(crate) fn order(windows: &Samples, shuffle: Shuffle, last_batch: LastBatch) -> Order {
    let settings = Settings {
        seed: 5,
        batch_size: 12,
        lanes: 2,
        shuffle,
        last_batch,
        ..Settings::default()
    };
    Order::new(Source::of(windows).unwrap(), settings).unwrap()
}

pub(crate) fn groups(size: GroupSize) -> Shuffle {
    Shuffle::Groups {
        size,
        unit: Unit::Episodes,
    }
}

/// Compares a batch with what the plain reader says of its samples.
pub(crate) fn assert_batch(batch: &Batch, order: &Order, windows: &Samples, indices: Range<u64>) {
    let mut samples = Vec::new();
    order.reader().fill(indices, &mut samples).unwrap();
    assert_eq!(batch.samples(), samples);
    assert_values(batch, order, windows);
}

/// Compares the values of a batch, whichever samples it has.
pub(crate) fn assert_values(batch: &Batch, order: &Order, windows: &Samples) {
    let samples: &[SampleRef] = batch.samples();
    for (slot, sample) in samples.iter().enumerate() {
        let expected = windows.read(order.sample_index(sample)).unwrap();
        let masks = expected.masks.iter().map(|(name, mask)| {
            let bytes: Vec<u8> = mask.values.iter().map(|&value| u8::from(value)).collect();
            (name, mask.shape.clone(), bytes)
        });
        let masks: Vec<_> = masks.collect();
        for (name, array) in &expected.fields {
            let idx = batch
                .infos()
                .iter()
                .position(|info| info.name == *name)
                .unwrap();
            match array {
                Array::Values { shape, bytes, .. } => {
                    assert_eq!(batch.infos()[idx].shape[1..], *shape);
                    let all = batch.array(idx);
                    assert_eq!(&all[slot * bytes.len()..][..bytes.len()], bytes, "{name}");
                }
                Array::Texts { texts, .. } => assert_eq!(batch.texts(idx)[slot], *texts),
            }
        }
        for (name, shape, bytes) in &masks {
            let idx = batch
                .infos()
                .iter()
                .position(|info| info.name == **name)
                .unwrap();
            assert_eq!(batch.infos()[idx].shape[1..], *shape);
            let all = batch.array(idx);
            assert_eq!(&all[slot * bytes.len()..][..bytes.len()], bytes, "{name}");
        }
    }
}

/// Flips a byte in the middle of every shard.
pub(crate) fn damage(folder: &Path) {
    damage_parts(folder, 2);
}

/// Flips the bytes that divide every shard into so many parts.
pub(crate) fn damage_parts(folder: &Path, parts: usize) {
    for shard in std::fs::read_dir(folder.join("a.kino/shards")).unwrap() {
        let path = shard.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        for part in 1..parts {
            let place = bytes.len() * part / parts;
            bytes[place] ^= 1;
        }
        std::fs::write(&path, bytes).unwrap();
    }
}
