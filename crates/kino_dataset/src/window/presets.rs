//! Requests that many policies share: past observations, an action chunk ahead, whole episodes.

use super::request::{Anchor, At, MaskDialect, Pad, Request, Window};
use crate::error::{Result, invalid};

/// The last `count` observations up to the anchor: steps `1 − count` to 0; the first frame is repeated before the start.
pub fn observation(stream: &str, count: u32) -> Result<Window> {
    let steps = i32::try_from(count).ok().filter(|&count| count > 0);
    let count = steps.ok_or_else(|| few(stream, "observations", count))?;
    Ok(Window::new(stream, At::Steps((1 - count..1).collect())))
}

/// The next `horizon` actions from the anchor on: steps 0 to `horizon − 1`; past the end stands what `after` says.
pub fn action_chunk(stream: &str, horizon: u32, after: Pad) -> Result<Window> {
    let steps = i32::try_from(horizon).ok().filter(|&horizon| horizon > 0);
    let horizon = steps.ok_or_else(|| few(stream, "actions", horizon))?;
    Ok(Window {
        after,
        ..Window::new(stream, At::Steps((0..horizon).collect()))
    })
}

/// Every frame of these streams, one sample per episode.
pub fn whole_episode(streams: &[&str]) -> Request {
    Request {
        anchor: Anchor::Episode,
        windows: streams
            .iter()
            .map(|stream| Window::new(stream, At::All))
            .collect(),
        masks: MaskDialect::Off,
        drop_first: 0,
        drop_last: 0,
    }
}

fn few(stream: &str, what: &str, count: u32) -> crate::error::DatasetError {
    invalid(format!(
        "window `{stream}`: {count} {what}; nearest legal value {}",
        count.clamp(1, i32::MAX.unsigned_abs())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_the_steps_that_policies_mean() {
        assert_eq!(
            observation("cam", 3).unwrap().at,
            At::Steps(vec![-2, -1, 0])
        );
        let chunk = action_chunk("act", 3, Pad::Zero).unwrap();
        assert_eq!(
            (chunk.at, chunk.after),
            (At::Steps(vec![0, 1, 2]), Pad::Zero)
        );
        let error = action_chunk("act", 0, Pad::Edge).unwrap_err().to_string();
        assert_eq!(error, "window `act`: 0 actions; nearest legal value 1");
        assert!(observation("cam", 0).is_err());
        whole_episode(&["cam", "act"]).check().unwrap();
    }
}
