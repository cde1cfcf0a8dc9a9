//! How padding is told: one request, five dialects.
//!
//! ```text
//! dialect    name                              true is    shape   of which window
//! is_pad     <key>_is_pad                      padding    [T]     every stacked one
//! pad_mask   pad_mask                          real       [T, 1]  the anchor stream's
//! octo       observation.timestep_pad_mask     real       [T]     the first that looks back only
//!            <key>_pad_mask                    real       [T]     every one that reaches ahead
//! act        is_pad                            padding    [T]     the first that reaches ahead
//! off
//! ```
//!
//! Where no window reaches ahead, those of the anchor stream take the place of the ones that do.

use serde::{Deserialize, Serialize};

use super::frames::Out;
use super::request::{Anchor, Request, Stack, Window};
use crate::error::{Result, invalid};

/// How a sample says which of its frames are padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaskDialect {
    /// `<key>_is_pad` `[T]` of every stacked window; true is padding (LeRobot).
    #[default]
    IsPad,
    /// One `pad_mask` `[T, 1]`; true is real (robomimic).
    PadMask,
    /// `observation.timestep_pad_mask` and `<action>_pad_mask` `[T]`; true is real (Octo).
    Octo,
    /// One `is_pad` `[T]` of the window that reaches ahead; true is padding (ACT).
    Act,
    /// No mask.
    Off,
}

/// A mask of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mask {
    /// Its name in the sample.
    pub name: String,
    /// The place of its window in the request.
    pub window: usize,
    /// What `true` means.
    pub polarity: Polarity,
    /// Its axes.
    pub shape: MaskShape,
}

/// What `true` means in a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polarity {
    /// The frame is padding.
    TrueIsPad,
    /// The frame is real.
    TrueIsReal,
}

/// The axes of a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaskShape {
    /// `[T]`.
    Steps,
    /// `[T, 1]`.
    StepsByOne,
}

/// The values of a mask in one sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskArray {
    /// Its shape.
    pub shape: Vec<usize>,
    /// One value per frame of the window.
    pub values: Vec<bool>,
}

impl Mask {
    /// The value that says padding.
    pub fn padding(&self) -> bool {
        self.polarity == Polarity::TrueIsPad
    }

    /// The mask of frames in these states.
    pub fn array(&self, states: &[Out]) -> MaskArray {
        let real_is = self.polarity == Polarity::TrueIsReal;
        let values = states.iter().map(|&state| (state == Out::Real) == real_is);
        let mut shape = vec![states.len()];
        if self.shape == MaskShape::StepsByOne {
            shape.push(1);
        }
        MaskArray {
            shape,
            values: values.collect(),
        }
    }
}

/// The masks that a request asks for.
pub(super) fn masks(request: &Request) -> Result<Vec<Mask>> {
    use Polarity::{TrueIsPad, TrueIsReal};
    let stacked: Vec<(usize, &Window)> = (request.windows.iter().enumerate())
        .filter(|(_, window)| window.stack == Stack::Stacked)
        .collect();
    let mask = |name: String, window: usize, polarity| Mask {
        name,
        window,
        polarity,
        shape: MaskShape::Steps,
    };
    Ok(match request.masks {
        MaskDialect::Off => Vec::new(),
        MaskDialect::IsPad => {
            let name = |window: &Window| format!("{}_is_pad", window.key);
            let windows = stacked.iter();
            let masks = windows.map(|&(idx, window)| mask(name(window), idx, TrueIsPad));
            masks.collect()
        }
        MaskDialect::PadMask => {
            let of_anchor = stacked
                .iter()
                .find(|(_, window)| is_anchors(request, window));
            let (idx, _) = of_anchor
                .or(stacked.first())
                .ok_or_else(|| none("pad_mask"))?;
            vec![Mask {
                shape: MaskShape::StepsByOne,
                ..mask("pad_mask".to_owned(), *idx, TrueIsReal)
            }]
        }
        MaskDialect::Octo => {
            let ahead = reaching_ahead(request, &stacked);
            let mut masks = Vec::new();
            if let Some((idx, _)) = stacked.iter().find(|(idx, _)| !ahead.contains(idx)) {
                let name = "observation.timestep_pad_mask".to_owned();
                masks.push(mask(name, *idx, TrueIsReal));
            }
            for idx in ahead {
                let name = format!("{}_pad_mask", request.windows[idx].key);
                masks.push(mask(name, idx, TrueIsReal));
            }
            if masks.is_empty() {
                return Err(none("octo"));
            }
            masks
        }
        MaskDialect::Act => {
            let ahead = reaching_ahead(request, &stacked);
            let idx = *ahead.first().ok_or_else(|| none("act"))?;
            vec![mask("is_pad".to_owned(), idx, TrueIsPad)]
        }
    })
}

fn is_anchors(request: &Request, window: &Window) -> bool {
    matches!(&request.anchor, Anchor::Stream(stream) if *stream == window.stream)
}

/// The stacked windows that reach ahead, or those of the anchor stream where none does.
fn reaching_ahead(request: &Request, stacked: &[(usize, &Window)]) -> Vec<usize> {
    let filter = |keep: &dyn Fn(&Window) -> bool| -> Vec<usize> {
        let kept = stacked.iter().filter(|(_, window)| keep(window));
        kept.map(|(idx, _)| *idx).collect()
    };
    let ahead = filter(&Window::reaches_ahead);
    if ahead.is_empty() {
        filter(&|window| is_anchors(request, window))
    } else {
        ahead
    }
}

fn none(dialect: &str) -> crate::error::DatasetError {
    invalid(format!(
        "masks `{dialect}` need a stacked window to describe, and the request has none; use masks `off`, or `is_pad`"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::request::At;
    use super::*;

    fn request(masks: MaskDialect) -> Request {
        let single = Window {
            stack: Stack::Single,
            ..Window::new("task", At::Last)
        };
        let windows = vec![
            single,
            Window::new("cam", At::Steps(vec![-1, 0])),
            Window::new("action", At::Steps(vec![0, 1])),
        ];
        Request {
            masks,
            ..Request::new(Anchor::Stream("action".to_owned()), windows)
        }
    }

    fn told(dialect: MaskDialect) -> Vec<(String, MaskArray)> {
        let masks = masks(&request(dialect)).unwrap();
        let states = [
            vec![Out::Real],
            vec![Out::Before, Out::Real],
            vec![Out::Real, Out::After],
        ];
        masks
            .iter()
            .map(|mask| (mask.name.clone(), mask.array(&states[mask.window])))
            .collect()
    }

    fn array(shape: &[usize], values: &[bool]) -> MaskArray {
        MaskArray {
            shape: shape.to_vec(),
            values: values.to_vec(),
        }
    }

    #[test]
    fn every_dialect_tells_the_same_padding_in_its_own_words() {
        let [t, f] = [true, false];
        let owned = |list: Vec<(&str, MaskArray)>| -> Vec<(String, MaskArray)> {
            list.into_iter()
                .map(|(name, array)| (name.to_owned(), array))
                .collect()
        };
        let is_pad = vec![
            ("cam_is_pad", array(&[2], &[t, f])),
            ("action_is_pad", array(&[2], &[f, t])),
        ];
        assert_eq!(told(MaskDialect::IsPad), owned(is_pad));
        assert_eq!(
            told(MaskDialect::PadMask),
            owned(vec![("pad_mask", array(&[2, 1], &[t, f]))])
        );
        let octo = vec![
            ("observation.timestep_pad_mask", array(&[2], &[f, t])),
            ("action_pad_mask", array(&[2], &[t, f])),
        ];
        assert_eq!(told(MaskDialect::Octo), owned(octo));
        assert_eq!(
            told(MaskDialect::Act),
            owned(vec![("is_pad", array(&[2], &[f, t]))])
        );
        assert_eq!(told(MaskDialect::Off), []);
    }

    #[test]
    fn a_dialect_without_a_window_to_describe_is_refused() {
        for dialect in [MaskDialect::PadMask, MaskDialect::Octo, MaskDialect::Act] {
            let mut request = request(dialect);
            request.windows.truncate(1);
            let error = masks(&request).unwrap_err().to_string();
            assert!(error.contains("use masks `off`"), "{error}");
        }
    }
}
