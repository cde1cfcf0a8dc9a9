//! Episodes selected by split, list and filter from a table with labels.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(clippy::cast_precision_loss, reason = "small generated numbers")]

mod common;

use common::{random_bytes, vector_info};
use kino_dataset::{
    Dataset, DatasetWriter, EpisodeInfo, Episodes, Label, Selection, Start, WriterOptions,
};

/// Episodes `ep-0` to `ep-5` with 10, 20, … frames.
fn open() -> (tempfile::TempDir, Dataset) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let mut writer = DatasetWriter::open(&path, Start::New, WriterOptions::default()).unwrap();
    for number in 0..6_usize {
        let frames = 10 * (number + 1);
        let mut labels = std::collections::BTreeMap::new();
        if number != 5 {
            labels.insert(
                "operator".to_owned(),
                Label::Text(["ana", "bo"][number % 2].to_owned()),
            );
            labels.insert("score".to_owned(), Label::Float(number as f64 / 2.0));
            labels.insert("is good".to_owned(), Label::Bool(number < 2));
        }
        let info = EpisodeInfo {
            id: format!("ep-{number}"),
            position: Some(number as u64),
            splits: match number {
                0..3 => vec!["train".to_owned()],
                3 => vec!["train".to_owned(), "small".to_owned()],
                _ => vec!["valid".to_owned()],
            },
            task: Some(["lift", "can", "pour"][number % 3].to_owned()),
            success: (number > 0).then_some(number % 2 == 0),
            labels,
            ..EpisodeInfo::default()
        };
        let mut episode = writer.episode(info).unwrap();
        let bytes = random_bytes(frames * 8, number as u64);
        common::push(&mut episode, &vector_info("x", frames as u64, 1), &bytes);
        episode.finish().unwrap();
    }
    writer.commit("test").unwrap();
    let dataset = Dataset::open(&path).unwrap();
    (folder, dataset)
}

fn filter(text: &str) -> Selection {
    Selection {
        filter: Some(text.to_owned()),
        ..Selection::default()
    }
}

fn splits(names: &[&str]) -> Selection {
    Selection {
        splits: names.iter().map(|&name| name.to_owned()).collect(),
        ..Selection::default()
    }
}

fn ids(names: &[&str]) -> Option<Episodes> {
    Some(Episodes::Ids(
        names.iter().map(|&name| name.to_owned()).collect(),
    ))
}

#[test]
fn filters_keep_the_rows_for_which_every_condition_holds() {
    let (_folder, dataset) = open();
    for (text, expected) in [
        ("success", &[2, 4][..]),
        ("not success", &[1, 3, 5]),
        ("success == false", &[1, 3, 5]),
        ("success != null", &[1, 2, 3, 4, 5]),
        ("success == null", &[0]),
        ("frames >= 30 and frames < 60", &[2, 3, 4]),
        ("frames in [10, 60.0]", &[0, 5]),
        ("frames > 25.5 and score <= 1.5", &[2, 3]),
        ("score == 1", &[2]),
        ("task in ['lift', \"can\"] and frames > 10", &[1, 3, 4]),
        ("task != 'lift'", &[1, 2, 4, 5]),
        ("operator == 'ana'", &[0, 2, 4]),
        ("operator != 'ana'", &[1, 3]),
        ("`is good`", &[0, 1]),
        ("not `is good`", &[2, 3, 4]),
        ("id >= 'ep-4'", &[4, 5]),
        ("episode == 3", &[3]),
    ] {
        let rows = filter(text).rows(&dataset).unwrap();
        assert_eq!(rows, expected, "{text}");
    }
}

#[test]
fn splits_lists_and_filters_are_combined_with_and() {
    let (_folder, dataset) = open();
    let rows = |selection: &Selection| selection.rows(&dataset).unwrap();
    assert_eq!(rows(&Selection::default()), [0, 1, 2, 3, 4, 5]);
    assert_eq!(rows(&splits(&["train"])), [0, 1, 2, 3]);
    assert_eq!(rows(&splits(&["small", "valid"])), [3, 4, 5]);
    let listed = Selection {
        episodes: ids(&["ep-4", "ep-3", "ep-0"]),
        ..Selection::default()
    };
    assert_eq!(rows(&listed), [4, 3, 0]);
    let all = Selection {
        splits: vec!["train".to_owned()],
        filter: Some("frames > 10".to_owned()),
        episodes: Some(Episodes::Rows(vec![4, 3, 0, 2])),
    };
    assert_eq!(rows(&all), [3, 2]);
}

#[test]
fn an_invalid_selection_lists_what_exists() {
    let (_folder, dataset) = open();
    let listed = |episodes| Selection {
        episodes,
        ..Selection::default()
    };
    let outside = Selection {
        episodes: ids(&["ep-0"]),
        ..splits(&["valid"])
    };
    for (selection, says) in [
        (
            splits(&["tarin"]),
            "no split `tarin`; did you mean `train`? There are small, train, valid",
        ),
        (outside, "none of the listed episodes is in split valid"),
        (
            listed(ids(&["ep-1", "ep-1"])),
            "episode `ep-1` is listed twice",
        ),
        (
            listed(ids(&["ep-9"])),
            "no episode `ep-9`; did you mean `ep-0`?",
        ),
        (
            listed(Some(Episodes::Rows(vec![6]))),
            "no episode 6; the dataset has 6 episodes, the nearest valid index is 5",
        ),
        (
            listed(Some(Episodes::Rows(vec![2, 2]))),
            "episode 2 is listed twice",
        ),
        (listed(Some(Episodes::Rows(vec![]))), "empty list"),
        (
            filter("succes"),
            "filter: there is no column `succes`; did you mean `success`? There are episode, id, frames",
        ),
        (
            filter("frames"),
            "`frames` does not fit column `frames` of type number; compare it with a number",
        ),
        (filter("frames == 'a'"), "compare it with a number"),
        (
            filter("success < true"),
            "`success < true` does not fit column `success` of type bool",
        ),
        (filter("task == 3"), "compare it with a string in quotes"),
        (filter("splits == 'train'"), "select splits with `splits`"),
        (
            filter("success and frames > 1e3"),
            "filter: `frames > 1e3` matches no episode (checked 2); the values are 30 to 50",
        ),
        (
            filter("operator == 'cy'"),
            "matches no episode (checked 6); the values are \"ana\", \"bo\", null in 1 episodes",
        ),
    ] {
        let error = selection.rows(&dataset).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}
