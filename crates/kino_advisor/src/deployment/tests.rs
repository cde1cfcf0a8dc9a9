//! The limits as a function of the figures, and the file. Whole datasets are compared in `tests/python`.

use std::collections::BTreeMap;

use super::reference::distance;
use super::*;

fn file(stored: &str) -> String {
    format!(
        r#"{{"kinograph": "parity", "format": 1, "tool": "kinograph", "dataset": ["a.kino", 3, "id"], "keys": [
            {{"key": "cam", "stored": {{"stream": "cam", "kind": "image", "dtype": "uint8", "is_lossy": true, "fidelity": "exact",
              {stored}}}, "loaded": {{}}}}]}}"#
    )
}

#[test]
fn no_training_frame_is_unusual_among_the_others() {
    // Episodes differ more than the frames of one.
    let groups: Vec<Vec<f64>> = (0..9_u32)
        .map(|episode| {
            let light = f64::from(episode * episode % 7) * 3.0;
            (0..8)
                .map(|frame| 100.0 + light + f64::from(frame))
                .collect()
        })
        .collect();
    let spread = Spread::of(&groups, 0.5, 9).unwrap();
    for value in groups.iter().flatten() {
        assert!(!spread.is_unusual(*value), "{value} {spread:?}");
    }
    assert!(spread.is_unusual(spread.mean + 2.0 * spread.limit * spread.std));
    assert!(spread.limit >= 3.0);
}

#[test]
fn what_never_varies_is_compared_with_what_rounding_does() {
    let spread = Spread::of(&vec![vec![7.0; 4]; 5], 0.5, 301).unwrap();
    assert_eq!((spread.mean, spread.std), (7.0, 0.5));
    assert!((3.0..3.1).contains(&spread.limit));
    assert!(!spread.is_unusual(8.4));
    assert!(spread.is_unusual(8.6));
    // Two episodes do not show how much a third one varies.
    let few = Spread::of(&vec![vec![7.0; 4]; 2], 0.5, 2).unwrap();
    assert!(few.limit > 3.0 * spread.limit);
    assert_eq!(Spread::of(&[], 0.5, 1), None);
    assert_eq!(Spread::of(&[Vec::new()], 0.5, 1), None);
}

#[test]
fn an_outlier_in_training_widens_the_limit() {
    let mut groups = vec![vec![10.0, 11.0, 12.0]; 8];
    let narrow = Spread::of(&groups, 0.1, 8).unwrap();
    groups[3] = vec![30.0];
    let wide = Spread::of(&groups, 0.1, 8).unwrap();
    assert!(narrow.is_unusual(29.0));
    assert!(!wide.is_unusual(29.0), "{wide:?}");
}

#[test]
fn swapped_colors_are_near_with_the_other_sign() {
    let cells = [(30.0, 2.0), (-12.0, 1.0)];
    assert!(distance(&[31.0, -12.5], &cells, 1.0) < 1.0);
    assert!(distance(&[-31.0, 12.5], &cells, 1.0) > 10.0);
    assert!(distance(&[-31.0, 12.5], &cells, -1.0) < 1.0);
    assert_eq!(distance(&[], &[], 1.0), 0.0);
}

#[test]
fn a_file_gives_the_transform_and_keeps_its_text() {
    let text =
        file(r#""shape": [16, 24, 3], "resized_from": [[32, 48]], "codec": "jpeg:q=40,sub=420""#);
    let parity = Parity::from_json(&text).unwrap();
    parity.check().unwrap();
    assert_eq!(
        Parity::from_json(&parity.to_json().unwrap()).unwrap(),
        parity
    );
    assert_eq!(
        parity.to_string(),
        "Parity with a.kino, version 3\n  cam: uint8[16, 24, 3] (recorded at 32 × 48) → resize 16 × 24 → jpeg:q=40,sub=420 → \
         uint8[16, 24, 3]; exact"
    );
    let key = parity.key("cam").unwrap();
    let pixels: Vec<u8> = (0..32 * 48 * 3_u32)
        .map(|idx| u8::try_from(idx % 251).unwrap())
        .collect();
    let mut live = key.live(&[32, 48, 3]).unwrap();
    let once = live.apply(&pixels).unwrap();
    assert_eq!(once.len(), 16 * 24 * 3);
    // Working memory of the first frame does not matter to the next.
    assert_eq!(live.apply(&pixels).unwrap(), once);
    assert_eq!(live.apply(&pixels.repeat(2)).unwrap(), once.repeat(2));
    let refused = key.live(&[31, 48, 3]).unwrap_err().to_string();
    assert!(
        refused.contains("32 × 48 before the plan resized them"),
        "{refused}"
    );
    assert!(parity.key("wrist").is_err());
}

#[test]
fn hostile_files_are_refused() {
    for (stored, text) in [
        (r#""shape": [1099511627776, 1099511627776, 3]"#, "exceeds"),
        (r#""shape": [16, 24, 3], "codec": "nope""#, "unknown codec"),
        (r#""shape": [16, 24, 3], "codec": "depth""#, "cannot store"),
        (
            r#""shape": [16, 24, 3], "earlier": ["jpeg:carry"]"#,
            "cannot encode",
        ),
    ] {
        let error = Parity::from_json(&file(stored))
            .and_then(|parity| parity.check())
            .unwrap_err();
        let mut shown = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(one) = cause {
            shown += &one.to_string();
            cause = one.source();
        }
        assert!(shown.contains(text), "{stored}: {shown}");
    }
    let damaged = StreamReference {
        frames: 1,
        episodes: 1,
        figures: BTreeMap::from([(
            kino_dataset::Figure::Noise,
            Spread {
                mean: 1.0,
                std: 0.0,
                limit: 3.0,
            },
        )]),
        red_blue: Vec::new(),
        red_blue_limit: 3.0,
        borders: [(0, 0); 4],
        max: 255,
        jpeg: None,
        jpeg_fit: 0.0,
    };
    assert!(damaged.check().is_err());
}
