//! Episode metadata in attributes: rate, task, splits and success.

use serde_json::{Map, Value};

use crate::hdf5::aloha::TASK_KEYS;
use crate::hdf5::mapping::{From, Said};
use crate::hdf5::robomimic::{control_freq, task_of};
use crate::hdf5::spec::{is_true, success_of};
use crate::specs::{INSTRUCTIONS, RATES, is_rate};

/// Names of the rate in addition to [`RATES`].
const MORE_RATES: &[&str] = &[
    "rate",
    "hz",
    "frequency",
    "freq",
    "nominal_hz",
    "sampling_rate",
    "sample_rate",
];

/// The attributes of an episode, and of the root of its file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Labels<'a> {
    pub(crate) attributes: &'a Map<String, Value>,
    pub(crate) root: Option<&'a Map<String, Value>>,
}

impl Labels<'_> {
    pub(crate) fn task(&self, said: Option<&Said>) -> Option<String> {
        match said {
            Some(Said::Text(text)) => Some(text.clone()),
            Some(Said::From(from)) => text(self.find(from)?),
            None => {
                let keys = INSTRUCTIONS.iter().chain(TASK_KEYS);
                let said = keys
                    .filter_map(|key| self.attributes.get(*key))
                    .find_map(text);
                said.or_else(|| task_of(self.attributes))
                    .or_else(|| task_of(self.root?))
            }
        }
    }

    pub(crate) fn splits(&self, said: Option<&Said>) -> Vec<String> {
        let value = match said {
            Some(Said::Text(text)) => return vec![text.clone()],
            Some(Said::From(from)) => self.find(from),
            None => self.attributes.get("split"),
        };
        match value {
            Some(Value::Array(all)) => all.iter().filter_map(text).collect(),
            value => value.and_then(text).into_iter().collect(),
        }
    }

    pub(crate) fn success(&self, said: Option<&From>) -> Option<bool> {
        match said {
            Some(from) => is_true(only(self.find(from)?)?),
            None => success_of(self.attributes),
        }
    }

    /// The attribute that a mapping names; `/@name` is that of the file.
    pub(crate) fn find(&self, from: &From) -> Option<&Value> {
        match from.from.strip_prefix("/@") {
            Some(name) => self.root?.get(name),
            None => self.attributes.get(from.from.trim_start_matches('@')),
        }
    }
}

/// A value, or the only one in a list.
fn only(value: &Value) -> Option<&Value> {
    match value {
        Value::Array(all) => all.first().filter(|_| all.len() == 1),
        value => Some(value),
    }
}

fn text(value: &Value) -> Option<String> {
    let text = only(value)?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

/// The frame rate in attributes: a rate, the seconds between frames, or robosuite's `env_args`.
pub(crate) fn rate_hz(attributes: &Map<String, Value>) -> Option<f64> {
    let number = |key: &str| attributes.get(key).and_then(Value::as_f64);
    let rates = RATES.iter().chain(MORE_RATES);
    let rate = rates.filter_map(|key| number(key)).find(is_rate);
    rate.or_else(|| Some(1.0 / number("dt")?))
        .or_else(|| control_freq(attributes))
        .filter(is_rate)
}
