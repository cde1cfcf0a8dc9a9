//! How many bytes the requested frames take decoded, all together and the small streams alone.

use kino_codec::FrameType;
use kino_dataset::Samples;

use super::ImageOptions;

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

/// The windows of small streams, vectors and text, and those of images.
pub(super) fn split(windows: &[Vec<Samples>], requested: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let first = windows.iter().flatten().next();
    requested.iter().partition(
        |window| match first.and_then(|first| first.frame_type(**window)) {
            Some(FrameType::Values(ty)) => ty.shape().len() < 2,
            _ => true,
        },
    )
}

/// Decoded bytes of the streams of these windows in all datasets, of all episodes.
pub(super) fn small_bytes(windows: &[Vec<Samples>], requested: &[usize]) -> u64 {
    let each = windows.iter().flatten();
    each.map(|one| stored_bytes(one, requested))
        .fold(0, u64::saturating_add)
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
