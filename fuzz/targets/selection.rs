//! Any text as the filter of a selection, and as the JSON of one.

#![no_main]

use std::sync::LazyLock;

use kino_dataset::{Dataset, Selection};
use libfuzzer_sys::fuzz_target;

static DATASET: LazyLock<Dataset> = LazyLock::new(kino_fuzz::dataset);

fuzz_target!(|text: &str| {
    if let Ok(selection) = Selection::from_json(text) {
        let json = serde_json::to_string(&selection).expect("a selection is JSON");
        let again = Selection::from_json(&json).expect("the JSON of a selection");
        assert_eq!(again, selection);
        check(&selection);
    }
    check(&Selection {
        filter: Some(text.to_owned()),
        ..Selection::default()
    });
});

/// Rows exist, and each is selected once.
fn check(selection: &Selection) {
    let Ok(mut rows) = selection.rows(&DATASET) else {
        return;
    };
    assert!(
        rows.iter()
            .all(|&row| (row as usize) < DATASET.table().len())
    );
    rows.sort_unstable();
    assert!(rows.windows(2).all(|pair| pair[0] < pair[1]));
}
