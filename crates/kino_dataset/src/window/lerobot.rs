//! LeRobot's words: `delta_timestamps`, in seconds, on a dataset of one frame rate.
//!
//! ```text
//! {"observation.image": [-0.1, 0.0]}  at 10 frames a second   ▶   steps [-1, 0], the edge frame repeated
//! ```
//!
//! Keys that are not in `delta_timestamps` come as single frames, without a time axis and without a mask.

use serde::Deserialize;

use super::request::{Anchor, At, MaskDialect, Request, Stack, Window};
use crate::error::{Result, invalid};

/// A request in LeRobot's words; in JSON every field is there.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeRobot {
    /// The stream whose frames are the items.
    pub anchor: String,
    /// Every requested stream, in the order of the fields.
    pub keys: Vec<String>,
    /// Seconds around the item, by stream.
    pub delta_timestamps: Vec<(String, Vec<f64>)>,
    /// Frames per second.
    pub fps: f64,
    /// How far a time may lie from a frame, in seconds; LeRobot's default is 1e-4.
    pub tolerance_s: f64,
}

impl LeRobot {
    /// The request that means the same.
    pub fn request(&self) -> Result<Request> {
        if !(self.fps > 0.0 && self.fps <= 1e9) {
            return Err(invalid(format!("fps is {}; use 1e-6 to 1e9", self.fps)));
        }
        if self.tolerance_s.is_nan() || self.tolerance_s < 0.0 {
            let found = self.tolerance_s;
            return Err(invalid(format!(
                "tolerance_s is {found}; nearest legal value 0"
            )));
        }
        let unasked = |(key, _): &&(String, Vec<f64>)| !self.keys.contains(key);
        if let Some((key, _)) = self.delta_timestamps.iter().find(unasked) {
            let keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
            return Err(invalid(format!(
                "delta_timestamps has `{key}`, which is not asked for; {}",
                super::suggest(key, &keys)
            )));
        }
        let windows = self.keys.iter().map(|key| self.window(key));
        Ok(Request {
            anchor: Anchor::Stream(self.anchor.clone()),
            windows: windows.collect::<Result<_>>()?,
            masks: MaskDialect::IsPad,
            drop_first: 0,
            drop_last: 0,
        })
    }

    fn window(&self, key: &str) -> Result<Window> {
        let mut deltas = self.delta_timestamps.iter();
        let Some((_, deltas)) = deltas.find(|(name, _)| name == key) else {
            return Ok(Window {
                stack: Stack::Single,
                ..Window::new(key, At::Steps(vec![0]))
            });
        };
        let steps = deltas.iter().map(|&delta| self.step(key, delta));
        Ok(Window::new(key, At::Steps(steps.collect::<Result<_>>()?)))
    }

    /// The step of a time; halves round to even, as Python's `round` has it.
    fn step(&self, key: &str, delta: f64) -> Result<i32> {
        let frames = delta * self.fps;
        let step = frames.round_ties_even();
        let nearest = step / self.fps;
        let away = (frames - step).abs() / self.fps;
        if away.is_nan() || away > self.tolerance_s {
            return Err(invalid(format!(
                "delta_timestamps of `{key}`: {delta} s is {:.3} frames at {} fps, farther than {} s from a frame; nearest legal value {nearest}",
                frames, self.fps, self.tolerance_s
            )));
        }
        if step.abs() > f64::from(i32::MAX) {
            return Err(invalid(format!(
                "delta_timestamps of `{key}`: {delta} s is {step} frames; at most {}",
                i32::MAX
            )));
        }
        #[expect(clippy::cast_possible_truncation, reason = "whole, and seen to fit")]
        Ok(step as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(deltas: &[f64]) -> LeRobot {
        LeRobot {
            anchor: "action".to_owned(),
            keys: vec!["image".to_owned(), "action".to_owned()],
            delta_timestamps: vec![("image".to_owned(), deltas.to_vec())],
            fps: 10.0,
            tolerance_s: 1e-4,
        }
    }

    #[test]
    fn seconds_become_steps_and_other_keys_stay_single() {
        let request = asked(&[-0.2, 0.1, 0.000_05, 0.1]).request().unwrap();
        assert_eq!(request.windows[0].at, At::Steps(vec![-2, 1, 0, 1]));
        assert_eq!(request.windows[1].stack, Stack::Single);
        request.check().unwrap();
        // Python rounds halves to even, which only a wide tolerance lets through.
        let wide = LeRobot {
            tolerance_s: 1.0,
            ..asked(&[0.25, 0.35, -0.25])
        };
        assert_eq!(
            wide.request().unwrap().windows[0].at,
            At::Steps(vec![2, 4, -2])
        );
    }

    #[test]
    fn a_time_between_frames_is_refused_with_the_nearest_one() {
        for (deltas, says) in [
            (
                &[0.13][..],
                "`image`: 0.13 s is 1.300 frames at 10 fps, farther than 0.0001 s from a frame; nearest legal value 0.1",
            ),
            (&[f64::NAN], "NaN"),
            (&[1e12], "at most 2147483647"),
        ] {
            let error = asked(deltas).request().unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let mut unasked = asked(&[0.0]);
        unasked.keys.remove(0);
        let error = unasked.request().unwrap_err().to_string();
        assert!(error.contains("did you mean `action`"), "{error}");
        for (fps, tolerance_s) in [(0.0, 0.1), (f64::NAN, 0.1), (10.0, -1.0), (10.0, f64::NAN)] {
            assert!(
                LeRobot {
                    fps,
                    tolerance_s,
                    ..asked(&[0.0])
                }
                .request()
                .is_err()
            );
        }
    }
}
