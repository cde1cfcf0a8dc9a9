//! What stays in the pool: everything where it pays, small streams where a shuffle of everything would come back too late.

use kino_codec::FrameType;
use kino_dataset::Windows;

use crate::error::{Result, invalid};
use crate::order::{Order, Shuffle};

/// Decoded bytes of everything that is wished.
pub(super) fn decoded_bytes(windows: &[Vec<Windows>]) -> u64 {
    let all = windows.iter().flatten().flat_map(|windows| windows.sizes());
    all.copied().fold(0, u64::saturating_add)
}

/// Which windows are pooled, and which are read for one sample.
pub(super) fn held(
    order: &Order,
    windows: &[Vec<Windows>],
    budget: u64,
) -> Result<(Vec<usize>, Vec<usize>)> {
    let each = windows.iter().flatten();
    let Some(first) = each.clone().next() else {
        return Err(invalid("a loader of no windows"));
    };
    let all: Vec<usize> = (0..first.request().windows.len()).collect();
    if decoded_bytes(windows) <= budget || order.settings().shuffle != Shuffle::Global {
        return Ok((all, Vec::new()));
    }
    // A global shuffle comes back to an episode long after it was dropped: only what stays is worth keeping.
    let is_small = |window: &usize| match first.frame_type(*window) {
        Some(FrameType::Values(ty)) => ty.shape().len() < 2,
        _ => true,
    };
    let (small, large): (Vec<usize>, Vec<usize>) = all.iter().partition(|window| is_small(window));
    let bytes = each.map(|windows| stored_bytes(windows, &small));
    if bytes.fold(0, u64::saturating_add) <= budget / 2 {
        return Ok((small, large));
    }
    Ok((Vec::new(), all))
}

/// Decoded bytes of the streams of these windows in the whole dataset.
fn stored_bytes(windows: &Windows, wished: &[usize]) -> u64 {
    let asked = &windows.request().windows;
    let streams = windows.dataset().manifest().streams.iter();
    let wished = streams.filter(|stream| {
        wished.iter().any(|&window| {
            asked
                .get(window)
                .is_some_and(|window| window.stream == stream.name)
        })
    });
    wished
        .map(|stream| stream.raw_bytes)
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use kino_dataset::{Request, Selection};

    use super::super::recording;
    use super::*;
    use crate::order::{PoolSize, Settings, Source, Unit};

    #[test]
    fn what_is_held_follows_from_shuffle_and_budget() {
        let (_folder, dataset) = recording::open(4);
        let request = r#"{"anchor": {"stream": "actions"}, "windows": [{"stream": "front", "at": {"steps": [0]}},
            {"stream": "actions", "at": {"steps": [0]}}, {"stream": "wrist", "at": {"steps": [0]}}]}"#;
        let request: Request = serde_json::from_str(request).unwrap();
        let windows = Windows::bind(&dataset, request, &Selection::default()).unwrap();
        let order = |shuffle| {
            let settings = Settings {
                shuffle,
                ..Settings::default()
            };
            Order::new(Source::of(&windows).unwrap(), settings).unwrap()
        };
        let pool = PoolSize::Fraction(0.5);
        let groups = order(Shuffle::Groups {
            pool,
            unit: Unit::Episodes,
        });
        let (global, sequential) = (order(Shuffle::Global), order(Shuffle::Sequential));
        let all = vec![vec![windows.clone()]];
        let total = decoded_bytes(&all);
        let actions = stored_bytes(&windows, &[1]);
        assert!(0 < actions && actions * 4 < total);
        let decide = |order: &Order, budget| held(order, &all, budget).unwrap();
        let (every, none) = (vec![0, 1, 2], Vec::new());
        for budget in [0, actions, total, u64::MAX] {
            assert_eq!(decide(&groups, budget), (every.clone(), none.clone()));
            assert_eq!(decide(&sequential, budget), (every.clone(), none.clone()));
        }
        assert_eq!(decide(&global, total), (every.clone(), none.clone()));
        assert_eq!(decide(&global, total - 1), (vec![1], vec![0, 2]));
        assert_eq!(decide(&global, actions * 2), (vec![1], vec![0, 2]));
        assert_eq!(decide(&global, actions * 2 - 1), (none, every));
        assert!(held(&global, &[], total).is_err());
    }
}
