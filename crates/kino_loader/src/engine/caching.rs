//! What stays in the cache: everything where it pays, small streams where a shuffle of everything would come back too late.

use kino_codec::FrameType;
use kino_dataset::Samples;

use super::{ImageOptions, LoaderOptions};
use crate::error::{Result, invalid};
use crate::order::{Order, Shuffle};

/// Decoded bytes of everything that is requested, in the sizes that it is requested in.
pub fn decoded_bytes(windows: &[Vec<Samples>], images: &ImageOptions) -> u64 {
    let all = windows.iter().flatten().map(|windows| {
        let stored = windows.sizes().iter().copied();
        smaller(stored.fold(0, u64::saturating_add), windows, images)
    });
    all.fold(0, u64::saturating_add)
}

/// What so many decoded bytes of all requested streams are when images are made smaller (or larger), rounded up.
///
/// By the sizes of the streams in the whole dataset: an estimate where the chosen episodes have another mixture of streams.
fn smaller(bytes: u64, windows: &Samples, images: &ImageOptions) -> u64 {
    let asked = windows.request().windows.iter().enumerate();
    let mut forms: Vec<_> = asked
        .filter_map(|(idx, window)| {
            let ty = windows.frame_type(idx)?.as_values()?;
            let kind = windows.kind(idx)?;
            let fit = images.form(&window.key, kind, ty).ok()?.fit;
            let reduce = fit.reduce(ty).ok()?;
            let frame_bytes = reduce.map_or(ty.frame_bytes(), |reduce| reduce.frame_bytes());
            Some((window.stream.as_str(), fit, ty.frame_bytes(), frame_bytes))
        })
        .collect();
    forms.sort_unstable();
    forms.dedup();
    if forms
        .iter()
        .all(|(_, _, stored, requested)| stored == requested)
    {
        return bytes;
    }
    let streams = &windows.dataset().manifest().streams;
    let (mut stored_sum, mut requested_sum) = (0_u128, 0_u128);
    for stream in streams {
        let mut forms = forms.iter().filter(|form| form.0 == stream.name).peekable();
        if forms.peek().is_some() {
            stored_sum += u128::from(stream.raw_bytes);
        }
        for &(_, _, stored, requested) in forms {
            requested_sum +=
                u128::from(stream.raw_bytes) * requested as u128 / (stored as u128).max(1);
        }
    }
    let bytes = (u128::from(bytes) * requested_sum).div_ceil(stored_sum.max(1));
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Which windows are pooled, and which are read for one sample.
pub(super) fn held(
    order: &Order,
    windows: &[Vec<Samples>],
    options: &LoaderOptions,
) -> Result<(Vec<usize>, Vec<usize>)> {
    let budget = options.memory_bytes();
    let each = windows.iter().flatten();
    let Some(first) = each.clone().next() else {
        return Err(invalid("a loader of no windows"));
    };
    let all: Vec<usize> = (0..first.request().windows.len()).collect();
    if decoded_bytes(windows, &options.images) <= budget
        || order.settings().shuffle != Shuffle::Global
    {
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
fn stored_bytes(windows: &Samples, requested: &[usize]) -> u64 {
    let asked = &windows.request().windows;
    let streams = windows.dataset().manifest().streams.iter();
    let requested = streams.filter(|stream| {
        requested.iter().any(|&window| {
            asked
                .get(window)
                .is_some_and(|window| window.stream == stream.name)
        })
    });
    requested
        .map(|stream| stream.raw_bytes)
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use kino_dataset::{Request, Selection};

    use super::super::recording;
    use kino_dataset::ByteSize;

    use super::*;
    use crate::order::{GroupSize, Settings, Source, Unit};

    #[test]
    fn what_is_held_follows_from_shuffle_and_budget() {
        let (_folder, dataset) = recording::open(4);
        let request = r#"{"anchor": {"stream": "actions"}, "windows": [{"stream": "front", "at": {"steps": [0]}},
            {"stream": "actions", "at": {"steps": [0]}}, {"stream": "wrist", "at": {"steps": [0]}}]}"#;
        let request: Request = serde_json::from_str(request).unwrap();
        let windows = Samples::bind(&dataset, request, &Selection::default()).unwrap();
        let order = |shuffle| {
            let settings = Settings {
                shuffle,
                ..Settings::default()
            };
            Order::new(Source::of(&windows).unwrap(), settings).unwrap()
        };
        let size = GroupSize::Fraction(0.5);
        let groups = order(Shuffle::Groups {
            size,
            unit: Unit::Episodes,
        });
        let (global, sequential) = (order(Shuffle::Global), order(Shuffle::Sequential));
        let all = vec![vec![windows.clone()]];
        let total = decoded_bytes(&all, &ImageOptions::default());
        let actions = stored_bytes(&windows, &[1]);
        assert!(0 < actions && actions * 4 < total);
        let decide = |order: &Order, memory_bytes| {
            let options = LoaderOptions {
                memory: Some(ByteSize::new(memory_bytes)),
                ..LoaderOptions::default()
            };
            held(order, &all, &options).unwrap()
        };
        let (every, none) = (vec![0, 1, 2], Vec::new());
        for budget in [0, actions, total, u64::MAX] {
            assert_eq!(decide(&groups, budget), (every.clone(), none.clone()));
            assert_eq!(decide(&sequential, budget), (every.clone(), none.clone()));
        }
        assert_eq!(decide(&global, total), (every.clone(), none.clone()));
        assert_eq!(decide(&global, total - 1), (vec![1], vec![0, 2]));
        assert_eq!(decide(&global, actions * 2), (vec![1], vec![0, 2]));
        assert_eq!(decide(&global, actions * 2 - 1), (none, every));
        assert!(held(&global, &[], &LoaderOptions::default()).is_err());
    }
}
