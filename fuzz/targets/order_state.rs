//! Any JSON as the state of an order, of samples or of whole episodes; the settings in it make an order of their own.

#![no_main]

use kino_loader::{LengthOrder, LengthState, Mismatch, Order, Settings, Source, State};
use libfuzzer_sys::fuzz_target;

const COUNTS: [u32; 5] = [7, 0, 3, 12, 1];

fuzz_target!(|text: &str| {
    if let Ok(state) = State::from_json(text) {
        assert_eq!(State::from_json(&state.to_json()).expect("a state"), state);
        samples(&state);
    }
    if let Ok(state) = LengthState::from_json(text) {
        assert_eq!(
            LengthState::from_json(&state.to_json()).expect("a state"),
            state
        );
        episodes(&state);
    }
});

fn samples(state: &State) {
    let source = || Source::new("fuzz", COUNTS);
    for settings in [Settings::default(), state.settings] {
        let Ok(order) = Order::new(source(), settings) else {
            continue;
        };
        let _ = order.restore(state, Mismatch::Refuse);
        let Ok(mut forced) = order.restore(state, Mismatch::Force) else {
            continue;
        };
        let mut taken = Vec::new();
        let end = forced.next_index.saturating_add(20);
        let _ = forced.reader.fill(forced.next_index..end, &mut taken);
        for sample in &taken {
            assert!(sample.sample < COUNTS[sample.episode as usize]);
        }
        // A state of this order is one that it accepts.
        if let Ok(own) = forced.reader.state(forced.next_index) {
            let order = forced.reader.order().clone();
            order
                .restore(&own, Mismatch::Refuse)
                .expect("its own state");
        }
    }
}

fn episodes(state: &LengthState) {
    let Ok(order) = LengthOrder::new("fuzz", COUNTS, state.settings) else {
        return;
    };
    let _ = order.restore(state, Mismatch::Refuse);
    let Ok(forced) = order.restore(state, Mismatch::Force) else {
        return;
    };
    let mut reader = forced.order.reader();
    if let Ok(step) = reader.step(forced.cursor) {
        let episodes = step.batches.iter().flat_map(|batch| &batch.episodes);
        assert!(
            episodes
                .into_iter()
                .all(|&episode| (episode as usize) < COUNTS.len())
        );
    }
    if let Ok(own) = reader.state(forced.cursor) {
        forced
            .order
            .restore(&own, Mismatch::Refuse)
            .expect("its own state");
    }
}
