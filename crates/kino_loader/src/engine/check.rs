//! What a loader is asked for is looked at before a thread starts: afterwards nobody is there to be told.

use kino_codec::FrameType;
use kino_dataset::{Kind, Samples};

use super::cpu::CpuShare;
use super::{ImageOptions, LoaderOptions};
use crate::error::{Result, invalid};
use crate::order::Order;

/// More threads or batches than this are a slip of the pen.
const MOST: usize = 1024;

/// Refuses numbers that nobody can mean.
pub(super) fn check_options(options: &LoaderOptions) -> Result<()> {
    let numbers = [
        ("threads", options.decode_threads()),
        ("readers", options.run.readers),
        ("depth", options.prefetch.unwrap_or(1)),
    ];
    for (name, number) in numbers {
        if !(1..=MOST).contains(&number) {
            return Err(invalid(format!(
                "{name} is {number}; it goes from 1 to {MOST}"
            )));
        }
    }
    match options.cpu {
        Some(CpuShare::Cores(cores)) if !(cores > 0.0 && cores.is_finite()) => Err(invalid(
            format!("a share of {cores} cores; it has to be more than 0"),
        )),
        Some(CpuShare::Fraction(part)) if !(part > 0.0 && part <= 1.0) => Err(invalid(format!(
            "a share of {part} of the machine; it goes from more than 0 to 1"
        ))),
        _ => Ok(()),
    }
}

/// Refuses windows that do not belong to the order's sources, or differ in what a batch has to hold alike.
///
/// Recordings of different sizes go into one batch if their images are resized or cropped to one.
pub(super) fn check_windows(
    order: &Order,
    windows: &[Vec<Samples>],
    images: &ImageOptions,
) -> Result<()> {
    let sources = order.sources();
    if sources.len() != windows.len() {
        return Err(invalid(format!(
            "the order has {}, there are windows for {}",
            count(sources.len(), "source"),
            windows.len()
        )));
    }
    for (idx, (source, given)) in sources.iter().zip(windows).enumerate() {
        let wanted = source.variants.len().max(1);
        if given.len() != wanted {
            return Err(invalid(format!(
                "source {idx} has {}, there are windows for {}",
                count(wanted, "variant"),
                given.len()
            )));
        }
        if let Some(other) = given.iter().find(|given| *given.counts() != *source.counts) {
            return Err(invalid(format!(
                "source {idx} was ordered by other windows than those of {}",
                other.dataset().path().display()
            )));
        }
    }
    let mut all = windows.iter().flatten();
    match all.next() {
        Some(first) => all.try_for_each(|other| check_alike(first, other, images)),
        None => Err(invalid("a loader of no windows")),
    }
}

/// Samples of both go into one batch.
fn check_alike(first: &Samples, other: &Samples, images: &ImageOptions) -> Result<()> {
    let (ours, theirs) = (describe(first, images)?, describe(other, images)?);
    let longest = ours.len().max(theirs.len());
    for idx in 0..longest {
        let (ours, theirs) = (ours.get(idx), theirs.get(idx));
        if ours != theirs {
            let text = |one: Option<&String>| one.map_or("nothing".to_owned(), Clone::clone);
            return Err(invalid(format!(
                "samples of one batch must be alike: {} in {}, {} in {}; request the same windows of both",
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
