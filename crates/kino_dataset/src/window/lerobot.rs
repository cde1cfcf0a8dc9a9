//! LeRobot's options: `delta_timestamps`, in seconds, on a dataset with one frame rate.
//!
//! ```text
//! {"observation.image": [-0.1, 0.0]}  at 10 frames a second   ▶   steps [-1, 0], the edge frame repeated
//! ```
//!
//! Keys that are not in `delta_timestamps` come as single frames, without a time axis and without a mask. A stream with
//! another clock than the anchor's keeps the times: its frames are not the anchor's steps.

use kino_format::Clock;
use serde::Deserialize;

use super::request::{Anchor, At, Request, Stack, Window};
use super::shared::{share_clock, shared_anchor};
use crate::dataset::Dataset;
use crate::error::{Result, invalid};

/// A request in LeRobot's options; in JSON every field is given.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeRobot {
    /// The stream whose frames are the items; the clock that the streams with `delta_timestamps` share if `None`.
    pub anchor: Option<String>,
    /// Every requested stream, in the order of the fields.
    pub keys: Vec<String>,
    /// Seconds around the item, by stream.
    pub delta_timestamps: Vec<(String, Vec<f64>)>,
    /// How far a time may lie from a frame, in seconds; LeRobot's default is 1e-4.
    pub tolerance_s: f64,
}

/// The items of a request: the stream whose frames they are, and its rate.
struct Items {
    anchor: String,
    fps: f64,
}

impl LeRobot {
    /// The request that means the same on `dataset`, by the clocks of its first episode.
    pub fn request(&self, dataset: &Dataset) -> Result<Request> {
        self.check()?;
        let items = self.items(dataset)?;
        let episode = dataset.episode(0)?;
        self.request_for(&items, |key| share_clock(&episode, key, &items.anchor))
    }

    fn request_for(
        &self,
        items: &Items,
        is_on_clock: impl Fn(&str) -> Result<bool>,
    ) -> Result<Request> {
        let windows = self.keys.iter().map(|key| {
            let mut window = self.window(key, items)?;
            if let At::Steps(steps) = &window.at
                && !is_on_clock(key)?
            {
                window.at = At::Times(steps.iter().map(|&step| items.time_ns(step)).collect());
            }
            Ok(window)
        });
        Ok(Request::new(
            Anchor::Stream(items.anchor.clone()),
            windows.collect::<Result<_>>()?,
        ))
    }

    fn check(&self) -> Result<()> {
        if self.tolerance_s.is_nan() || self.tolerance_s < 0.0 {
            let found = self.tolerance_s;
            return Err(invalid(format!(
                "tolerance_s is {found}; it must be 0 or more"
            )));
        }
        let unasked = |(key, _): &&(String, Vec<f64>)| !self.keys.contains(key);
        if let Some((key, _)) = self.delta_timestamps.iter().find(unasked) {
            let keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
            return Err(invalid(format!(
                "delta_timestamps has `{key}`, which is not requested; {}",
                super::suggest(key, &keys)
            )));
        }
        Ok(())
    }

    fn items(&self, dataset: &Dataset) -> Result<Items> {
        let anchor = match &self.anchor {
            Some(anchor) => anchor.clone(),
            None => self.default_anchor(dataset)?,
        };
        let streams = &dataset.manifest().streams;
        if !streams.iter().any(|stream| stream.name == anchor) {
            return Err(super::bound::unknown_stream("anchor", &anchor, streams));
        }
        let stream = dataset.episode(0)?.stream(&anchor)?;
        match stream.clock()? {
            Clock::Regular(clock) => Ok(Items {
                anchor,
                fps: clock.rate_hz(),
            }),
            Clock::Explicit(_) => Err(invalid(format!(
                "`{anchor}` has no fixed rate, which delta_timestamps need; request `windows={{...}}` in seconds"
            ))),
        }
    }

    fn default_anchor(&self, dataset: &Dataset) -> Result<String> {
        let deltas = self.delta_timestamps.iter().map(|(key, _)| key);
        let mut keys: Vec<&String> = deltas.collect();
        if keys.is_empty() {
            keys = self.keys.iter().collect();
        }
        let windows: Vec<Window> = keys
            .iter()
            .map(|key| Window::new(key, At::Steps(vec![0])))
            .collect();
        match shared_anchor(dataset, 0, &windows, &[])? {
            Anchor::Stream(name) => Ok(name),
            _ => Err(invalid(
                "delta_timestamps: no streams are requested; give `keys`",
            )),
        }
    }

    fn window(&self, key: &str, items: &Items) -> Result<Window> {
        let mut deltas = self.delta_timestamps.iter();
        let Some((_, deltas)) = deltas.find(|(name, _)| name == key) else {
            return Ok(Window {
                stack: Stack::Single,
                ..Window::new(key, At::Steps(vec![0]))
            });
        };
        let steps = deltas.iter().map(|&delta| self.step(key, delta, items.fps));
        Ok(Window::new(key, At::Steps(steps.collect::<Result<_>>()?)))
    }

    /// The step of a time; halves round to even, as Python's `round` has it.
    fn step(&self, key: &str, delta: f64, fps: f64) -> Result<i32> {
        let frames = delta * fps;
        let step = frames.round_ties_even();
        let nearest = step / fps;
        let away = (frames - step).abs() / fps;
        if away.is_nan() || away > self.tolerance_s {
            return Err(invalid(format!(
                "delta_timestamps of `{key}`: {delta} s is {:.3} frames at {} fps, farther than {} s from a frame; the nearest frame is at {nearest} s",
                frames, fps, self.tolerance_s
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

impl Items {
    /// The time of a step, in nanoseconds.
    fn time_ns(&self, step: i32) -> i64 {
        let time_ns = (f64::from(step) / self.fps * 1e9).round();
        #[expect(clippy::cast_possible_truncation, reason = "`as` saturates")]
        let time_ns = time_ns as i64;
        time_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(asked: &LeRobot) -> Result<Request> {
        let items = Items {
            anchor: "action".to_owned(),
            fps: 10.0,
        };
        asked.check()?;
        asked.request_for(&items, |key| Ok(key != "force"))
    }

    fn asked(deltas: &[f64]) -> LeRobot {
        LeRobot {
            anchor: None,
            keys: vec!["image".to_owned(), "action".to_owned()],
            delta_timestamps: vec![("image".to_owned(), deltas.to_vec())],
            tolerance_s: 1e-4,
        }
    }

    #[test]
    fn seconds_become_steps_and_other_keys_stay_single() {
        let found = request(&asked(&[-0.2, 0.1, 0.000_05, 0.1])).unwrap();
        assert_eq!(found.windows[0].at, At::Steps(vec![-2, 1, 0, 1]));
        assert_eq!(found.windows[1].stack, Stack::Single);
        found.check().unwrap();
        // Python rounds halves to even, which only a wide tolerance lets through.
        let wide = LeRobot {
            tolerance_s: 1.0,
            ..asked(&[0.25, 0.35, -0.25])
        };
        assert_eq!(
            request(&wide).unwrap().windows[0].at,
            At::Steps(vec![2, 4, -2])
        );
    }

    #[test]
    fn a_time_between_frames_is_refused_with_the_nearest_one() {
        for (deltas, says) in [
            (
                &[0.13][..],
                "`image`: 0.13 s is 1.300 frames at 10 fps, farther than 0.0001 s from a frame; the nearest frame is at 0.1 s",
            ),
            (&[f64::NAN], "NaN"),
            (&[1e12], "at most 2147483647"),
        ] {
            let error = request(&asked(deltas)).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let mut unasked = asked(&[0.0]);
        unasked.keys.remove(0);
        let error = request(&unasked).unwrap_err().to_string();
        assert!(error.contains("not requested; there are action"), "{error}");
        for tolerance_s in [-1.0, f64::NAN] {
            let wrong = LeRobot {
                tolerance_s,
                ..asked(&[0.0])
            };
            let error = request(&wrong).unwrap_err().to_string();
            assert!(error.contains("must be 0 or more"), "{error}");
        }
    }

    #[test]
    fn a_stream_with_another_clock_keeps_the_times() {
        let mut asked = asked(&[-0.2, 0.1]);
        asked.keys.push("force".to_owned());
        let deltas = vec![-0.1, 0.0, 0.3];
        asked.delta_timestamps.push(("force".to_owned(), deltas));
        let found = request(&asked).unwrap();
        assert_eq!(found.windows[0].at, At::Steps(vec![-2, 1]));
        let times = At::Times(vec![-100_000_000, 0, 300_000_000]);
        assert_eq!(found.windows[2].at, times);
    }
}
