//! Validates a loader's arguments before any thread starts, while the error can still be returned to the caller.

use kino_codec::FrameType;
use kino_dataset::{Kind, Samples};

use super::cpu::CpuShare;
use super::{ImageOptions, LoaderOptions};
use crate::error::{LoaderError, Result, invalid};
use crate::order::Order;

/// More threads or batches than this are a typing error.
pub(super) const MAX_COUNT: usize = 1024;

/// Refuses values that cannot be intended.
pub(super) fn check_options(options: &LoaderOptions) -> Result<()> {
    let counts = [
        ("threads", options.decode_threads()),
        ("readers", options.run.readers),
        ("prefetch", options.prefetch.unwrap_or(1)),
    ];
    for (name, count) in counts {
        if !(1..=MAX_COUNT).contains(&count) {
            return Err(invalid(format!(
                "`{name}` is {count}; it must be from 1 to {MAX_COUNT}"
            )));
        }
    }
    match options.cpu {
        Some(CpuShare::Cores(cores)) if !(cores > 0.0 && cores.is_finite()) => Err(invalid(
            format!("`cpu` is {cores} cores; it must be a number above 0"),
        )),
        Some(CpuShare::Fraction(fraction)) if !(fraction > 0.0 && fraction <= 1.0) => {
            Err(invalid(format!(
                "`cpu` is {}% of the machine; it must be above 0% and at most 100%",
                fraction * 100.0
            )))
        }
        _ => Ok(()),
    }
}

/// Refuses windows that do not belong to the order's sources, or whose samples cannot be stacked into one batch.
///
/// Recordings of different image sizes fit into one batch if their images are resized or cropped to one size.
pub(super) fn check_windows(
    order: &Order,
    windows: &[Vec<Samples>],
    images: &ImageOptions,
) -> Result<()> {
    let sources = order.sources();
    if sources.len() != windows.len() {
        return Err(invalid(format!(
            "the order has {}, but windows were given for {}; give windows for each source",
            count(sources.len(), "source"),
            windows.len()
        )));
    }
    for (idx, (source, given)) in sources.iter().zip(windows).enumerate() {
        let wanted = source.variants.len().max(1);
        if given.len() != wanted {
            return Err(invalid(format!(
                "source {idx} has {}, but windows were given for {}; give windows for each variant",
                count(wanted, "variant"),
                given.len()
            )));
        }
        if let Some(other) = given.iter().find(|given| *given.counts() != *source.counts) {
            return Err(invalid(format!(
                "source {idx} of the order was built from other windows than those of {}; build the order from these",
                other.dataset().path().display()
            )));
        }
    }
    let mut all = windows.iter().flatten();
    match all.next() {
        Some(first) => all.try_for_each(|other| check_alike(first, other, images)),
        None => Err(no_windows()),
    }
}

/// The error for a loader without windows.
pub(super) fn no_windows() -> LoaderError {
    invalid(
        "a loader needs windows of at least one dataset; pass the windows that the order was built from",
    )
}

/// Checks that samples of both can be stacked into one batch.
fn check_alike(first: &Samples, other: &Samples, images: &ImageOptions) -> Result<()> {
    let (ours, theirs) = (describe(first, images)?, describe(other, images)?);
    let longest = ours.len().max(theirs.len());
    for idx in 0..longest {
        let (ours, theirs) = (ours.get(idx), theirs.get(idx));
        if ours != theirs {
            let text = |array: Option<&String>| array.map_or("nothing".to_owned(), Clone::clone);
            return Err(invalid(format!(
                "samples of one batch must be alike: {} in {}, {} in {}; request the same windows of both, and bring images of \
                 different sizes to one with `images`",
                text(ours),
                first.dataset().path().display(),
                text(theirs),
                other.dataset().path().display()
            )));
        }
    }
    Ok(())
}

/// What a sample holds, array by array.
fn describe(windows: &Samples, images: &ImageOptions) -> Result<Vec<String>> {
    let asked = windows.request().windows.iter().enumerate();
    let arrays = asked.map(|(idx, window)| {
        let ty = match windows.frame_type(idx) {
            Some(FrameType::Values(ty)) => {
                let kind = windows.kind(idx).unwrap_or(Kind::Vector);
                images.form(&window.key, kind, ty)?.ty.to_string()
            }
            _ => "text".to_owned(),
        };
        let steps = window
            .len()
            .map_or("all steps".to_owned(), |len| count(len, "step"));
        Ok(format!(
            "`{}` of {ty}, {steps}, {:?}",
            window.key, window.stack
        ))
    });
    let masks = windows.masks().iter().map(|mask| {
        Ok(format!(
            "mask `{}` of window {}, {:?}, {:?}",
            mask.name, mask.window, mask.polarity, mask.shape
        ))
    });
    let include = windows.request().include.iter();
    let described = include.flat_map(|include| include.fields());
    let described = described.map(|field| Ok(format!("`{}` of each sample", field.name())));
    arrays.chain(masks).chain(described).collect()
}

fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}
