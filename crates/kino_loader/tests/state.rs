//! States, ranks and epochs of an order: what is taken, and what is refused with which words.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kino_dataset::ErrorKind;
use kino_loader::{
    Deal, GroupSize, LastBatch, Mismatch, Order, Settings, Shuffle, Source, State, Uneven, Unit,
};

#[test]
fn a_state_of_another_order_is_refused_with_the_field_and_forced_if_meant() {
    let settings = Settings {
        seed: 7,
        batch_size: 8,
        lanes: 2,
        ..Settings::default()
    };
    let source = Source::new("demos", vec![30, 20]);
    let order = Order::new(source.clone(), settings).unwrap();
    let state = order.reader().state(1234).unwrap();
    let refused = |source: &Source, settings| {
        let other = Order::new(source.clone(), settings).unwrap();
        other
            .restore(&state, Mismatch::Refuse)
            .unwrap_err()
            .to_string()
    };
    for (field, settings) in [
        (
            "`seed` is 7 in the state, 8 here",
            Settings {
                seed: 8,
                ..settings
            },
        ),
        (
            "`batch_size` is 8 in the state, 16 here",
            Settings {
                batch_size: 16,
                ..settings
            },
        ),
        (
            "`lanes` is 2 in the state, 4 here",
            Settings {
                lanes: 4,
                ..settings
            },
        ),
        (
            "`shuffle` is \"global\" in the state, \"sequential\" here",
            Settings {
                shuffle: Shuffle::Sequential,
                ..settings
            },
        ),
        (
            "`last_batch`",
            Settings {
                last_batch: LastBatch::Drop,
                ..settings
            },
        ),
    ] {
        let error = refused(&source, settings);
        assert!(
            error.contains(field) && error.contains("`force`"),
            "{error}"
        );
    }
    for other in [
        Source::new("demos-2", vec![30, 20]),
        Source::new("demos", vec![20, 30]),
    ] {
        assert!(refused(&other, settings).contains("`data`"));
    }
    let other = Order::new(
        Source::new("demos-2", vec![5]),
        Settings {
            seed: 8,
            ..settings
        },
    )
    .unwrap();
    let forced = other.restore(&state, Mismatch::Force).unwrap();
    assert_eq!(
        (forced.next_index, forced.reader.order().settings().seed),
        (1234, 7)
    );
}

#[test]
fn a_state_of_before_groups_had_parts_goes_on_with_one_lane_and_is_refused_without() {
    let groups = Shuffle::Groups {
        size: GroupSize::Episodes(5),
        unit: Unit::Episodes,
    };
    let order = |shuffle, deal| {
        let settings = Settings {
            batch_size: 8,
            shuffle,
            deal,
            ..Settings::default()
        };
        Order::new(Source::new("demos", vec![30; 20]), settings).unwrap()
    };
    let before = order(groups, Deal::Strata);
    let state = before.reader().state(80).unwrap();
    assert!(!state.to_json().contains("deal"), "as it was written then");
    let parts = order(groups, Deal::Parts);
    for old in [
        &state,
        &order(Shuffle::Global, Deal::Strata)
            .reader()
            .state(80)
            .unwrap(),
    ] {
        let error = parts
            .restore(old, Mismatch::Refuse)
            .unwrap_err()
            .to_string();
        let said = "`deal` is strata in the state, parts here";
        assert!(
            error.contains(said) && error.contains("kinograph.Shuffle(lanes=1)"),
            "{error}"
        );
    }
    assert_eq!(
        before.restore(&state, Mismatch::Refuse).unwrap().next_index,
        80
    );
    let new = parts.reader().state(80).unwrap();
    assert!(new.to_json().contains("\"deal\":\"parts\""));
    let error = before
        .restore(&new, Mismatch::Refuse)
        .unwrap_err()
        .to_string();
    assert!(error.contains("leave out `lanes`"), "{error}");
    let error = order(Shuffle::Sequential, Deal::Strata)
        .restore(&new, Mismatch::Refuse)
        .unwrap_err()
        .to_string();
    assert!(error.contains("`shuffle` is"), "{error}");
}

#[test]
fn a_state_that_was_changed_by_hand_is_refused() {
    let order = Order::new(Source::new("demos", vec![30, 20]), Settings::default()).unwrap();
    let state = order.reader().state(1234).unwrap();
    for tampered in [
        State {
            receipt: "0".repeat(32),
            ..state.clone()
        },
        State {
            next_index: 1235,
            ..state.clone()
        },
    ] {
        assert!(
            order
                .restore(&tampered, Mismatch::Refuse)
                .unwrap_err()
                .to_string()
                .contains("`receipt`")
        );
    }
    let late = State {
        next_index: u64::MAX,
        ..state.clone()
    };
    assert!(order.restore(&late, Mismatch::Force).is_err());
    let newer = state.to_json().replace("\"format\":1", "\"format\":2");
    assert_eq!(
        State::from_json(&newer).unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    let strange = state
        .to_json()
        .replace("\"format\":1", "\"format\":1,\"ranks\":4");
    let error = State::from_json(&strange).unwrap_err().to_string();
    assert!(
        error.contains("no state of format 1 has `ranks`"),
        "{error}"
    );
    assert!(State::from_json("{}").is_err() && State::from_json(&"[".repeat(100_000)).is_err());
}

#[test]
fn every_prefix_of_a_state_is_refused_never_a_panic() {
    let order = Order::new(Source::new("demos", vec![30, 20]), Settings::default()).unwrap();
    let text = order.reader().state(17).unwrap().to_json();
    for end in 0..text.len() {
        assert!(State::from_json(&text[..end]).is_err());
    }
    assert_eq!(State::from_json(&text).unwrap().next_index, 17);
}

#[test]
fn ranks_that_do_not_divide_the_batch_are_refused_with_those_that_do() {
    let order = Order::new(
        Source::new("demos", vec![300]),
        Settings {
            batch_size: 64,
            last_batch: LastBatch::Wrap,
            ..Settings::default()
        },
    )
    .unwrap();
    let error = order
        .rank_range(0, 0, 24, Uneven::Refuse)
        .unwrap_err()
        .to_string();
    assert!(error.contains("48 or 72, or `uneven=True`"), "{error}");
    assert_eq!(order.rank_range(2, 1, 3, Uneven::Allow).unwrap(), 149..170);
    assert!(order.rank_range(0, 3, 3, Uneven::Allow).is_err());
    assert!(order.rank_range(0, 0, 0, Uneven::Allow).is_err());
    assert!(order.rank_range(0, 0, 65, Uneven::Allow).is_err());
    assert!(
        order
            .rank_range(u64::MAX / 8, 0, 1, Uneven::Refuse)
            .is_err()
    );
}

#[test]
fn the_batches_of_all_epochs_lie_side_by_side() {
    let order = Order::new(
        Source::new("demos", vec![30]),
        Settings {
            batch_size: 8,
            last_batch: LastBatch::Wrap,
            ..Settings::default()
        },
    )
    .unwrap();
    let ranges: Vec<_> = (0..4)
        .map(|epoch| order.batches_of(epoch).unwrap())
        .collect();
    assert_eq!(ranges, [0..4, 4..8, 8..12, 12..15]);
    assert_eq!(
        (
            order.epoch_of(29),
            order.epoch_of(30),
            order.epoch_start(2).unwrap()
        ),
        (0, 1, 60)
    );
}
