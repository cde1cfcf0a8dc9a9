//! Records the values in which events are detected, while a stream is written.

use kino_codec::{Dtype, ValueType};

use crate::error::{Result, invalid};

use super::numbers::number;
use super::{EventRule, Protected};

/// The values of one stream that one rule looks at.
#[derive(Debug)]
pub(crate) struct Recorder {
    rule: EventRule,
    dtype: Dtype,
    frame_bytes: usize,
    elements: Vec<usize>,
    values: Vec<f64>,
}

impl Recorder {
    /// Starts recording a stream for a rule; `place` is for messages.
    pub(crate) fn new(rule: &EventRule, ty: Option<&ValueType>, place: &str) -> Result<Self> {
        let refuse = |what: String| {
            let name = &rule.name;
            Err(invalid(format!(
                "{place}: event `{name}` of the plan {what}"
            )))
        };
        let Some(ty) = ty else {
            return refuse("cannot be detected in text; use a stream of values".to_owned());
        };
        let elements = match &rule.elements {
            Some(elements) => elements.clone(),
            None => (0..ty.elements()).collect(),
        };
        if let Some(outside) = elements.iter().find(|element| **element >= ty.elements()) {
            let there = ty.elements();
            return refuse(format!(
                "refers to element {outside}, but a frame has only {there} elements"
            ));
        }
        Ok(Self {
            rule: rule.clone(),
            dtype: ty.dtype(),
            frame_bytes: ty.frame_bytes(),
            elements,
            values: Vec::new(),
        })
    }

    /// Records whole frames of packed values.
    pub(crate) fn push(&mut self, packed: &[u8]) {
        for frame in packed.chunks_exact(self.frame_bytes.max(1)) {
            let values = self
                .elements
                .iter()
                .map(|element| number(self.dtype, frame, *element));
            self.values.extend(values);
        }
    }

    /// The protected time ranges found in the recorded values.
    pub(crate) fn find(&self, times: &[i64]) -> Vec<Protected> {
        self.rule.find(&self.values, times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::rule;

    #[test]
    fn only_the_selected_elements_are_used() {
        let ty = ValueType::new(Dtype::F32, &[3]).unwrap();
        let mut second = rule("transition");
        second.elements = Some(vec![1]);
        let mut recorder = Recorder::new(&second, Some(&ty), "here").unwrap();
        for values in [[0.0_f32, 5.0, 9.0], [1.0, 5.0, 0.0], [0.0, 7.0, 9.0]] {
            let bytes: Vec<u8> = values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect();
            recorder.push(&bytes);
        }
        assert_eq!(recorder.find(&[0, 1, 2]).len(), 1);
        second.elements = Some(vec![3]);
        assert!(Recorder::new(&second, Some(&ty), "here").is_err());
        assert!(Recorder::new(&second, None, "here").is_err());
    }

    #[test]
    fn every_dtype_is_read() {
        for dtype in Dtype::ALL {
            let mut frame = vec![0; dtype.size() * 2];
            let one: &[u8] = match dtype {
                Dtype::F16 => &[0, 0x3c],
                Dtype::F32 => &[0, 0, 0x80, 0x3f],
                Dtype::F64 => &[0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
                _ => &[1],
            };
            frame[dtype.size()..][..one.len()].copy_from_slice(one);
            assert_eq!(number(dtype, &frame, 0), 0.0, "{dtype:?}");
            assert_eq!(number(dtype, &frame, 1), 1.0, "{dtype:?}");
        }
    }
}
