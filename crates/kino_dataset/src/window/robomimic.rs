//! robomimic's options: `seq_length`, `frame_stack`, `pad_*`, `goal_mode`, `load_next_obs`.
//!
//! ```text
//! item at step t     [t − (frame_stack − 1), t + seq_length)     dataset keys, obs and next_obs alike
//! pads on            the edge frame is repeated
//! pads off           items that look past an end are not there
//! ```
//!
//! A dataset has `next_obs/x` where it was recorded; otherwise it is `obs/x` one step later, whose last frame is
//! repeated at the end.

use serde::Deserialize;

use super::mask::MaskDialect;
use super::request::{Anchor, At, Pad, Request, Stack, Window};
use crate::dataset::Dataset;
use crate::error::{Result, invalid};

/// A request in robomimic's options; in JSON every field is given.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Robomimic {
    /// Streams such as `actions`, `rewards`, `dones`; the first is the anchor.
    pub dataset_keys: Vec<String>,
    /// Observations without their folder: `agentview_image` is stream `obs/agentview_image`.
    pub obs_keys: Vec<String>,
    /// Steps ahead, the anchor's included.
    pub seq_length: u32,
    /// Steps back, the anchor's included.
    pub frame_stack: u32,
    /// What stands past the end: `Edge` with `pad_seq_length`, `Drop` without.
    pub after: Pad,
    /// What stands before the start: `Edge` with `pad_frame_stack`, `Drop` without.
    pub before: Pad,
    /// `PadMask` with `get_pad_mask`, `Off` without.
    pub masks: MaskDialect,
    /// The goal, if any.
    pub goal: Goal,
    /// Whether the observations of the next step come too.
    pub next_obs: NextObs,
}

/// What an item's goal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// None.
    #[default]
    None,
    /// The last observation of the episode.
    Last,
}

/// Whether the observations of the next step come too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NextObs {
    /// They do, as `next_obs/x`.
    #[default]
    Load,
    /// They do not.
    Leave,
}

impl Default for Robomimic {
    /// robomimic's own defaults, without any key.
    fn default() -> Self {
        Self {
            dataset_keys: Vec::new(),
            obs_keys: Vec::new(),
            seq_length: 1,
            frame_stack: 1,
            after: Pad::Edge,
            before: Pad::Edge,
            masks: MaskDialect::Off,
            goal: Goal::None,
            next_obs: NextObs::Load,
        }
    }
}

impl Robomimic {
    /// The request that means the same on `dataset`.
    pub fn request(&self, dataset: &Dataset) -> Result<Request> {
        let streams = &dataset.manifest().streams;
        self.request_for(|name| streams.iter().any(|stream| stream.name == name))
    }

    fn request_for(&self, has: impl Fn(&str) -> bool) -> Result<Request> {
        let Some(anchor) = self.dataset_keys.first() else {
            return Err(invalid(
                "robomimic: dataset_keys is empty; the first one is the anchor, usually `actions`",
            ));
        };
        let steps = self.steps()?;
        let mut windows: Vec<Window> = (self.dataset_keys.iter())
            .map(|key| self.window(key.clone(), key.clone(), steps.clone()))
            .collect();
        for key in &self.obs_keys {
            let name = format!("obs/{key}");
            windows.push(self.window(name.clone(), name, steps.clone()));
        }
        for key in &self.obs_keys {
            let (next, now) = (format!("next_obs/{key}"), format!("obs/{key}"));
            let is_stored = has(&next);
            if self.next_obs == NextObs::Load {
                windows.push(if is_stored {
                    self.window(next.clone(), next.clone(), steps.clone())
                } else {
                    self.next_of(&now, &next, &steps)
                });
            }
            if self.goal == Goal::Last {
                windows.push(Window {
                    key: format!("goal_obs/{key}"),
                    stack: Stack::Single,
                    ..Window::new(if is_stored { &next } else { &now }, self.goal_at())
                });
            }
        }
        Ok(Request {
            masks: self.masks,
            ..Request::new(Anchor::Stream(anchor.clone()), windows)
        })
    }

    /// Without padding robomimic's goal is that of the last item's first step, not the end of the episode.
    fn goal_at(&self) -> At {
        match self.after {
            Pad::Drop if self.seq_length > 1 => At::FromEnd(self.seq_length - 1),
            _ => At::Last,
        }
    }

    /// `obs/x` one step later. Its last step lies past the end wherever the others just reach it, so it never drops an
    /// item: the other windows do.
    fn next_of(&self, now: &str, next: &str, steps: &[i32]) -> Window {
        Window {
            before: Pad::Edge,
            after: Pad::Edge,
            ..self.window(
                next.to_owned(),
                now.to_owned(),
                steps.iter().map(|step| step + 1).collect(),
            )
        }
    }

    fn window(&self, key: String, stream: String, steps: Vec<i32>) -> Window {
        Window {
            key,
            before: self.before,
            after: self.after,
            ..Window::new(&stream, At::Steps(steps))
        }
    }

    fn steps(&self) -> Result<Vec<i32>> {
        // As many steps as a window may have, so that what follows fits.
        let bounds = 1..=1_u32 << 15;
        for (name, value) in [
            ("seq_length", self.seq_length),
            ("frame_stack", self.frame_stack),
        ] {
            if !bounds.contains(&value) {
                return Err(invalid(format!(
                    "robomimic: {name} is {value}; the nearest valid value is {}",
                    value.clamp(*bounds.start(), *bounds.end())
                )));
            }
        }
        let to_i32 = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
        Ok((1 - to_i32(self.frame_stack)..to_i32(self.seq_length)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Robomimic {
        Robomimic {
            dataset_keys: vec!["actions".to_owned(), "rewards".to_owned()],
            obs_keys: vec!["image".to_owned()],
            seq_length: 3,
            frame_stack: 2,
            after: Pad::Drop,
            masks: MaskDialect::PadMask,
            goal: Goal::Last,
            ..Robomimic::default()
        }
    }

    #[test]
    fn every_key_gets_the_same_steps_and_the_goal_is_the_last_next_observation() {
        let request = asked().request_for(|_| true).unwrap();
        let keys: Vec<&str> = request
            .windows
            .iter()
            .map(|window| window.key.as_str())
            .collect();
        assert_eq!(
            keys,
            [
                "actions",
                "rewards",
                "obs/image",
                "next_obs/image",
                "goal_obs/image"
            ]
        );
        for window in &request.windows[..4] {
            assert_eq!(window.at, At::Steps(vec![-1, 0, 1, 2]));
            assert_eq!((window.before, window.after), (Pad::Edge, Pad::Drop));
        }
        assert_eq!(
            (request.windows[4].stream.as_str(), &request.windows[4].at),
            ("next_obs/image", &At::FromEnd(2))
        );
        request.check().unwrap();
    }

    #[test]
    fn next_observations_that_were_not_recorded_are_those_one_step_later() {
        let request = asked().request_for(|_| false).unwrap();
        let next = &request.windows[3];
        assert_eq!(
            (next.stream.as_str(), &next.at, next.after),
            ("obs/image", &At::Steps(vec![0, 1, 2, 3]), Pad::Edge)
        );
        assert_eq!(request.windows[4].stream, "obs/image");
        let without = Robomimic {
            next_obs: NextObs::Leave,
            goal: Goal::None,
            ..asked()
        };
        assert_eq!(without.request_for(|_| false).unwrap().windows.len(), 3);
    }

    #[test]
    fn lengths_out_of_bounds_are_refused_with_the_nearest_legal_value() {
        for (seq_length, frame_stack, says) in [
            (0, 1, "seq_length is 0; the nearest valid value is 1"),
            (
                1,
                40_000,
                "frame_stack is 40000; the nearest valid value is 32768",
            ),
        ] {
            let error = Robomimic {
                seq_length,
                frame_stack,
                ..asked()
            }
            .request_for(|_| true)
            .unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
        let error = Robomimic::default().request_for(|_| true).unwrap_err();
        assert!(
            error.to_string().contains("dataset_keys is empty"),
            "{error}"
        );
    }
}
