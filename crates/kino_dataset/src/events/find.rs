//! Events in an episode that is stored already.

use crate::episode::Episode;
use crate::error::Result;

use super::record::Recorder;
use super::{EventRule, Protected};

/// The time ranges around the events of an episode, by rules that it was not written with. Text has no events.
///
/// Reads the streams that the rules name.
pub fn find_events(episode: &Episode, rules: &[EventRule]) -> Result<Vec<Protected>> {
    let mut found = Vec::new();
    for rule in rules {
        rule.check()?;
        let streams = episode.streams().filter(|one| rule.matches(&one.name));
        for name in streams.map(|one| one.name.clone()) {
            let stream = episode.stream(&name)?;
            let Some(ty) = stream.frame_type().as_values() else {
                continue;
            };
            let place = format!("stream `{name}`");
            let mut recorder = Recorder::new(rule, Some(ty), &place)?;
            recorder.push(&stream.read(0..stream.len())?);
            found.extend(recorder.find(&stream.times_ns(0..stream.len())?));
        }
    }
    Ok(found)
}
