//! Tests of the whole table: rows to bytes and back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use proptest::prelude::*;

use super::{Column, EpisodeRow, EpisodeTable, Label, MAX_SPLITS, MAX_TEXT_BYTES, write_table};
use crate::error::{DatasetError, Result};
use crate::hash::Hash;

/// A row with every field derived from `number`.
fn row(number: u32) -> EpisodeRow {
    let hash_of = |number: u32| *Hash::of(&number.to_le_bytes()).as_bytes();
    EpisodeRow {
        id: format!("episode_{number:06}"),
        frames: 200 + u64::from(number % 100),
        start_ns: 1_700_000_000_000_000_000 + i64::from(number) * 60_000_000_000,
        duration_s: 10.0 + f64::from(number % 100) / 20.0,
        bytes: 5_000_000 + u64::from(number) * 7919 % 1_000_003,
        raw_bytes: 90_000_000 + u64::from(number) * 104_729 % 10_000_019,
        shard: hash_of(number / 200),
        slot: number % 200,
        hash: hash_of(!number),
        splits: vec!["train".to_owned()],
        task: Some(format!("put the cup on shelf {}", number % 40)),
        success: Some(!number.is_multiple_of(3)),
        licence: Some("cc-by-4.0".to_owned()),
        consent: None,
        source: Some(format!("demos/part-{}.hdf5", number / 500)),
        source_hash: None,
        labels: BTreeMap::from([("operator".to_owned(), Label::Int(i64::from(number % 7)))]),
    }
}

fn parse(rows: &[EpisodeRow]) -> EpisodeTable {
    EpisodeTable::parse(Bytes::from(write_table(rows).unwrap())).unwrap()
}

fn refused(change: impl Fn(&mut EpisodeRow)) -> String {
    let mut changed = row(1);
    change(&mut changed);
    match write_table(&[row(0), changed]) {
        Err(DatasetError::Invalid { what }) => what,
        other => panic!("not refused as invalid: {other:?}"),
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "\\PC{0,12}",
        "[a-c]{1,2}",
        Just("é\u{0}🤖".to_owned())
    ]
}

/// Labels of one name have one type, as a table requires.
fn labels() -> impl Strategy<Value = BTreeMap<String, Label>> {
    let columns = (
        prop::option::of(any::<bool>().prop_map(Label::Bool)),
        prop::option::of(any::<i64>().prop_map(Label::Int)),
        prop::option::of((-1e300..1e300).prop_map(Label::Float)),
        prop::option::of(text().prop_map(Label::Text)),
    );
    columns.prop_map(|(a, b, c, d)| {
        let named = [("yes / no", a), ("ganz", b), ("値", c), (" ", d)];
        let present = named
            .into_iter()
            .filter_map(|(name, label)| Some((name.to_owned(), label?)));
        present.collect()
    })
}

/// For as many rows as are generated here, the sum still fits an `i64`.
const MOST: u64 = 1 << 57;

prop_compose! {
    fn any_row()(
        numbers in (0..=MOST, any::<i64>(), 0.0..1e9, 0..=MOST),
        place in (any::<[u8; 32]>(), 0..=i32::MAX as u32, any::<[u8; 32]>()),
        splits in prop::collection::vec(text(), 0..5),
        texts in prop::array::uniform5(prop::option::of(text())),
        success in any::<Option<bool>>(),
        labels in labels(),
    ) -> EpisodeRow {
        let [task, licence, consent, source, source_hash] = texts;
        EpisodeRow {
            id: String::new(),
            frames: numbers.0,
            start_ns: numbers.1,
            duration_s: numbers.2,
            bytes: numbers.3,
            raw_bytes: numbers.0 ^ numbers.3,
            shard: place.0,
            slot: place.1,
            hash: place.2,
            splits,
            task, success, licence, consent, source, source_hash, labels,
        }
    }
}

prop_compose! {
    /// Rows with distinct ids, one of them possibly empty.
    fn any_rows()(
        rows in prop::collection::vec(any_row(), 0..20),
        ids in prop::collection::hash_set("\\PC{0,6}", 20),
    ) -> Vec<EpisodeRow> {
        let named = rows.into_iter().zip(ids);
        named.map(|(row, id)| EpisodeRow { id, ..row }).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rows_round_trip(rows in any_rows()) {
        let bytes = write_table(&rows).unwrap();
        prop_assert_eq!(&bytes, &write_table(&rows).unwrap(), "equal rows, equal bytes");
        let table = EpisodeTable::parse(Bytes::from(bytes)).unwrap();
        prop_assert_eq!(table.len(), rows.len());
        for (idx, row) in rows.iter().enumerate() {
            prop_assert_eq!(table.find(&row.id), Some(idx));
            prop_assert_eq!(table.id(idx), Some(row.id.as_str()));
            prop_assert_eq!(table.frames(idx), Some(row.frames));
            prop_assert_eq!(table.start_ns(idx), Some(row.start_ns));
            prop_assert_eq!(table.duration_s(idx), Some(row.duration_s));
            prop_assert_eq!(table.bytes(idx), Some(row.bytes));
            prop_assert_eq!(table.raw_bytes(idx), Some(row.raw_bytes));
            prop_assert_eq!(table.shard(idx), Some(&row.shard));
            prop_assert_eq!(table.slot(idx), Some(row.slot));
        }
        prop_assert_eq!(table.rows().unwrap(), rows);
    }

    #[test]
    fn noise_is_an_error_never_a_panic(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(EpisodeTable::parse(Bytes::from(noise)).is_err());
    }
}

#[test]
fn row_groups_are_one_table() {
    let rows: Vec<_> = (0..70_000).map(row).collect();
    let table = parse(&rows);
    assert_eq!(table.len(), 70_000);
    for number in [0, 65_535, 65_536, 69_999] {
        let place = usize::try_from(number).unwrap();
        assert_eq!(table.find(&row(number).id), Some(place));
        assert_eq!(table.row(place).unwrap(), row(number));
    }
    assert_eq!(table.find("episode_070000"), None);
    assert_eq!(table.id(70_000), None);
    assert!(matches!(
        table.row(70_000),
        Err(DatasetError::Invalid { .. })
    ));
    let Column::Int(numbers) = table.column("episode").unwrap() else {
        panic!("`episode` holds integers")
    };
    assert!(numbers.into_iter().eq((0..70_000).map(Some)));
}

/// Prints the figures in the documentation: `cargo test --release -p kino_dataset episodes_open -- --nocapture`.
#[test]
fn a_hundred_thousand_episodes_open_fast_and_small() {
    let rows: Vec<_> = (0..100_000).map(row).collect();
    let bytes = write_table(&rows).unwrap();
    let file = bytes.len() as f64 / 1e5;
    let bytes = Bytes::from(bytes);
    // The best of a few, so that other load on the machine does not count.
    let parse = || {
        let start = std::time::Instant::now();
        EpisodeTable::parse(bytes.clone()).unwrap();
        start.elapsed()
    };
    let parsed = (0..5).map(|_| parse()).min().unwrap();
    let table = EpisodeTable::parse(bytes).unwrap();
    let open = table.memory_bytes() as f64 / 1e5;
    let start = std::time::Instant::now();
    assert_eq!(table.rows().unwrap(), rows);
    let read = start.elapsed();
    let whole = table.memory_bytes() as f64 / 1e5;
    println!("100,000 episodes: parse {parsed:?}, all rows {read:?}");
    println!("bytes per episode: file {file:.1}, open {open:.1}, every column decoded {whole:.1}");
    assert!(open - file < 80.0, "{open} bytes per episode");
}

#[test]
fn a_table_whose_file_was_dropped_reads_it_again_for_other_columns() {
    let rows: Vec<_> = (0..300).map(row).collect();
    let bytes = Bytes::from(write_table(&rows).unwrap());
    let reads = Arc::new(AtomicUsize::new(0));
    let dropped = || {
        let (bytes, reads) = (bytes.clone(), Arc::clone(&reads));
        let table = EpisodeTable::parse(bytes.clone()).unwrap();
        table.without_file(move || {
            reads.fetch_add(1, Ordering::Relaxed);
            Ok(bytes.clone())
        })
    };
    let (table, kept) = (dropped(), parse(&rows));
    assert!(table.memory_bytes() + bytes.len() <= kept.memory_bytes());
    for (number, row) in rows.iter().enumerate() {
        assert_eq!(table.find(&row.id), Some(number));
        assert_eq!(table.start_ns(number), Some(row.start_ns));
        assert_eq!(table.bytes(number), Some(row.bytes));
        assert!(table.has_hash(number, &row.hash) && !table.has_hash(number, &row.shard));
    }
    assert_eq!(table.bytes(300), None);
    assert!(!table.has_hash(300, &rows[0].hash));
    assert_eq!(
        reads.load(Ordering::Relaxed),
        0,
        "opening has read what these need"
    );
    assert_eq!(table.rows().unwrap(), rows);
    assert_eq!(table.rows().unwrap()[7], rows[7]);
    let once = dropped();
    assert_eq!(once.task(3).unwrap(), rows[3].task);
    assert_eq!(once.task(4).unwrap(), rows[4].task);
    assert_eq!(
        reads.load(Ordering::Relaxed),
        2,
        "all columns at once, each at most once"
    );
    let lost = parse(&rows).without_file(|| Err(crate::error::not_found("the table is gone")));
    assert!(lost.task(0).unwrap_err().to_string().contains("is gone"));
}

#[test]
fn an_empty_table_is_valid() {
    let table = parse(&[]);
    assert!(table.is_empty());
    assert_eq!(table.rows().unwrap(), []);
    assert_eq!(
        table.column("splits").unwrap(),
        Column::TextList(Vec::new())
    );
}

#[test]
fn never_change_these_columns() {
    let table = parse(&[row(0)]);
    let expected = "episode id frames start_ns duration_s bytes raw_bytes shard slot hash splits task success \
                    licence consent source source_hash operator";
    assert_eq!(table.column_names().join(" "), expected);
    assert_eq!(
        table.column("hash").unwrap(),
        Column::Text(vec![Some(Hash::from(row(0).hash).to_hex())])
    );
}

#[test]
fn an_unknown_column_is_refused_with_the_known_names() {
    let error = parse(&[row(0)]).column("opertor").unwrap_err();
    assert!(error.to_string().contains("`opertor`"), "{error}");
    assert!(error.to_string().contains("operator"), "{error}");
}

#[test]
fn integers_and_floats_share_a_column_of_floats() {
    let mut rows = [row(0), row(1), row(2)];
    for row in &mut rows {
        row.labels.clear();
    }
    rows[0].labels.insert("mass_kg".to_owned(), Label::Int(2));
    rows[2]
        .labels
        .insert("mass_kg".to_owned(), Label::Float(0.5));
    let column = parse(&rows).column("mass_kg").unwrap();
    assert_eq!(column, Column::Float(vec![Some(2.0), None, Some(0.5)]));

    rows[0]
        .labels
        .insert("mass_kg".to_owned(), Label::Int((1 << 53) + 1));
    assert!(write_table(&rows).is_err(), "a digit would be lost");
}

#[test]
fn labels_of_incompatible_types_are_refused_by_name() {
    let what = refused(|row| {
        row.labels
            .insert("operator".to_owned(), Label::Text("ana".to_owned()));
    });
    assert!(
        what.contains("`operator`") && what.contains("int") && what.contains("text"),
        "{what}"
    );
}

#[test]
fn values_that_a_table_cannot_hold_are_refused() {
    refused(|row| row.id = self::row(0).id);
    refused(|row| row.frames = 1 << 63);
    refused(|row| row.slot = 1 << 31);
    refused(|row| row.task = Some("x".repeat(MAX_TEXT_BYTES + 1)));
    refused(|row| row.splits = vec![String::new(); MAX_SPLITS + 1]);
    for name in ["hash", "", "a\nb", &"x".repeat(256)] {
        refused(|row| {
            row.labels.insert(name.to_owned(), Label::Bool(true));
        });
    }
}

#[test]
fn the_largest_texts_and_lists_round_trip() {
    let mut rows: Vec<_> = (0..600).map(row).collect();
    for (number, row) in rows.iter_mut().enumerate() {
        let text = format!("{number}{}", "é".repeat(MAX_TEXT_BYTES / 2));
        row.task = Some(text.chars().take(MAX_TEXT_BYTES / 2).collect());
        row.splits = (0..MAX_SPLITS).map(|i| format!("{number}-{i}")).collect();
    }
    assert_eq!(parse(&rows).rows().unwrap(), rows);
}

/// Opens the table and reads everything.
fn read_all(bytes: Vec<u8>) -> Result<Vec<EpisodeRow>> {
    EpisodeTable::parse(Bytes::from(bytes))?.rows()
}

#[test]
fn flipping_any_bit_is_an_error_or_a_table_never_a_panic() {
    let bytes = write_table(&[row(0), row(1), row(2)]).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        if let Ok(rows) = read_all(damaged) {
            assert_eq!(rows.len(), 3, "bit {bit}");
        }
    }
}

#[test]
fn every_prefix_is_an_error() {
    let bytes = write_table(&[row(0), row(1)]).unwrap();
    for len in 0..bytes.len() {
        assert!(read_all(bytes[..len].to_vec()).is_err(), "{len}");
    }
}
