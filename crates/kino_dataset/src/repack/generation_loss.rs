//! Whether frames that were compressed with loss may lose more.

use crate::error::{Result, invalid};

use super::changes::StreamChange;

/// Whether frames that were lossy already may lose more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GenerationLoss {
    /// Refuse it, and name the streams.
    #[default]
    Refuse,
    /// Measure the new loss against the stored frames, and record both.
    Allow,
}

/// Refuses a second lossy generation, unless it is allowed.
pub(super) fn check_generations(changes: &[StreamChange], loss: GenerationLoss) -> Result<()> {
    let second = changes.iter().filter(|change| change.is_second_loss);
    let lines: Vec<_> = second
        .map(|change| {
            let before = change.generations.last().map(|one| one.codec.as_str());
            let (name, source) = (&change.stored.name, change.source.as_ref());
            let (before, codec) = (
                before.unwrap_or_default(),
                change.codec.as_deref().unwrap_or_default(),
            );
            match source {
                Some((base, _)) => {
                    format!(
                        "`{base}`, stored as {before}, would be encoded as {codec} for `{name}`"
                    )
                }
                None => format!("`{name}`, stored as {before}, would become {codec}"),
            }
        })
        .collect();
    if lines.is_empty() || loss == GenerationLoss::Allow {
        return Ok(());
    }
    Err(invalid(format!(
        "frames that were compressed with loss would lose more: {}; pack the original recording with this plan, exclude these \
         streams from it, or allow the loss with `--allow-generation-loss` (in Python `allow_generation_loss=True`), which \
         measures it against the stored frames and records both",
        lines.join("; ")
    )))
}
