//! Notes about streams that are no larger without loss than with it.

use kino_dataset::{ByteSize, StreamUsage, Trial, Tried};

use crate::defect::Defect;

/// A note for each stream that a lossy codec was asked for and that is no larger without loss.
pub(crate) fn notes(streams: &[StreamUsage]) -> Vec<Defect> {
    let found = streams.iter().filter_map(|stream| {
        let what = describe(stream.trial.as_ref()?)?;
        let name = stream.schema.name.escape_debug();
        Some(Defect::noted(format!("stream `{name}`"), what))
    });
    found.collect()
}

/// What was done about a loss that saves nothing; `None` if it saves something.
pub(crate) fn describe(trial: &Trial) -> Option<String> {
    let (lossless, lossy) = trial.needless_loss()?;
    let size = |one: &Tried| format!("`{}` takes {}", one.codec, ByteSize::new(one.bytes));
    let sizes = format!(
        "{} and the lossless {} for the first {} frames",
        size(lossy),
        size(lossless),
        trial.frames
    );
    Some(if trial.chosen.is_lossless() {
        format!("is stored without loss, because that is no larger: {sizes}")
    } else {
        format!(
            "is lossy as the plan says, which saves nothing: {sizes}; remove `codec` from the rule to store it without loss"
        )
    })
}
