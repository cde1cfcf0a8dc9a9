//! Any text as a parity file: what parses is the same after JSON, transforms frames of the shapes that it names, and
//! compares with its reference.

#![no_main]

use kino_advisor::{Deployment, LiveFrames, Parity, StreamParity};
use libfuzzer_sys::fuzz_target;

/// Larger frames are checked and not transformed, or each input would take seconds.
const MAX_BYTES: usize = 1 << 14;

/// Frames of a shape; none if they are large.
fn frames(of: &StreamParity, shape: &[usize], count: usize) -> Option<Vec<u8>> {
    let dtype = of.stored.value_type().ok()?.dtype();
    let pixels: usize = shape
        .iter()
        .try_fold(1, |all: usize, one| all.checked_mul(*one))?;
    let bytes = pixels.checked_mul(dtype.size() * count)?;
    (bytes <= MAX_BYTES * count).then(|| (0..bytes).map(|at| (at * at / 7) as u8).collect())
}

fn transform(of: &StreamParity, shape: &[usize]) {
    let (Ok(mut live), Some(frame)) = (of.live(shape), frames(of, shape, 1)) else {
        return;
    };
    let size = match live.dtype() {
        "bool" | "uint8" | "int8" => 1,
        "uint16" | "int16" | "float16" | "bfloat16" => 2,
        "float64" | "uint64" | "int64" => 8,
        _ => 4,
    };
    let expected = live.shape().iter().product::<usize>() * size;
    // The loader's own limits: what comes out may be larger than what went in.
    if expected > 64 * MAX_BYTES {
        return;
    }
    if let Ok(once) = live.apply(&frame) {
        assert_eq!(once.len(), expected, "{} {:?}", live.dtype(), live.shape());
        assert!(live.apply(&frame).expect("the same frame") == once);
    }
}

fuzz_target!(|text: &str| {
    let Ok(parity) = Parity::from_json(text) else {
        return;
    };
    let json = parity.to_json().expect("a parity is JSON");
    assert_eq!(
        Parity::from_json(&json).expect("the JSON of a parity"),
        parity
    );
    let _ = parity.to_string();
    if parity.check().is_err() {
        return;
    }
    for one in &parity.keys {
        transform(one, &one.stored.shape);
        let channels = one.stored.shape.get(2).copied().unwrap_or(1);
        for size in &one.stored.resized_from {
            transform(one, &[size.height, size.width, channels]);
        }
        let Some(bytes) = frames(one, &one.stored.shape, 2) else {
            continue;
        };
        let live = LiveFrames {
            key: one.key.clone(),
            dtype: one.stored.dtype.clone(),
            shape: [&[2], one.stored.shape.as_slice()].concat(),
            bytes,
        };
        if let Ok(found) = Deployment::of(&[live], &parity) {
            let _ = (found.to_string(), found.to_html());
        }
    }
});
