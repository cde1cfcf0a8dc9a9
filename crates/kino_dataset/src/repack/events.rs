//! The events of an episode that is repacked: those stored with it, and those that the new plan asks for.

use kino_codec::Scratch;

use crate::episode::Episode;
use crate::error::Result;
use crate::events::{EventRule, Protected, Recorder};
use crate::protection;
use crate::stored_stream::StoredStream;
use crate::stream::Stream;

/// The rules by which the events of an episode were found, and where they are: what is stored with the episode, and
/// what the plan's rules find in its stored values. A rule that found them in the original values is not repeated.
pub(super) fn of_episode(
    episode: &Episode,
    rules: &[EventRule],
) -> Result<(Vec<serde_json::Value>, Vec<Protected>)> {
    let (mut events, mut protected) = (episode.read_events()?, episode.read_protected()?);
    for rule in rules {
        let value = serde_json::to_value(rule).unwrap_or_default();
        if events.contains(&value) {
            continue;
        }
        events.push(value);
        for (position, schema) in episode.streams().enumerate() {
            if schema.variant_of.is_none() && rule.matches(&schema.name) {
                protected.extend(find(episode, position, rule)?);
            }
        }
    }
    Ok((events, protected))
}

/// Where a rule finds events in a stream.
fn find(episode: &Episode, position: usize, rule: &EventRule) -> Result<Vec<Protected>> {
    let stored = StoredStream::open(episode.clone(), position)?;
    let ty = stored.frame_type().as_values();
    let mut recorder = Recorder::new(rule, ty, &stored.place())?;
    let frame_bytes = ty.map_or(0, |ty| ty.frame_bytes());
    let (mut values, mut scratch) = (Vec::new(), Scratch::new());
    for mut page in stored.pages(stored.frames()) {
        let one = std::slice::from_ref(&page);
        let fetched = stored.fetch(one)?;
        let bytes = stored.page_bytes(one, &page, &fetched)?;
        let step = stored.frames_at_a_time();
        let mut start = 0;
        while start < page.frames {
            let end = page.frames.min(start.saturating_add(step));
            page.range = start..end;
            values.resize((end - start) * frame_bytes, 0);
            stored.decode(&page, bytes, &mut values, &mut scratch)?;
            recorder.push(&values);
            start = end;
        }
    }
    let stream = Stream::open(episode.clone(), position)?;
    let own_start = stored.record().own_start as usize;
    Ok(protection::find(&[recorder], stream.clock()?, own_start))
}
