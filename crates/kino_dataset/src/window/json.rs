//! The JSON of a request where the derived form would be inconvenient.
//!
//! ```text
//! window    every field but `stream` and `at` is optional; `key` defaults to the stream's name
//! resolve   "hold"                 or  {"hold": {"max_staleness_ns": 50000000}}
//! rate_hz   29.97                  or  [2997, 100]
//! ```

use kino_format::RegularClock;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::request::{At, Pad, Rate, Resolve, Stack, Window};
use crate::error::{Result, invalid};

/// A window as JSON has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WindowJson {
    key: Option<String>,
    stream: String,
    at: At,
    #[serde(default)]
    resolve: Resolve,
    #[serde(default)]
    latency_ns: i64,
    #[serde(default)]
    before: Pad,
    #[serde(default)]
    after: Pad,
    #[serde(default)]
    stack: Stack,
}

impl From<WindowJson> for Window {
    fn from(window: WindowJson) -> Self {
        Self {
            key: window.key.unwrap_or_else(|| window.stream.clone()),
            stream: window.stream,
            at: window.at,
            resolve: window.resolve,
            latency_ns: window.latency_ns,
            before: window.before,
            after: window.after,
            stack: window.stack,
        }
    }
}

/// What stands beside a resolver's name.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    #[serde(default)]
    max_staleness_ns: Option<u64>,
}

impl Resolve {
    /// Its name in requests.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Auto { .. } => "auto",
            Self::Nearest { .. } => "nearest",
            Self::Hold { .. } => "hold",
            Self::Linear { .. } => "linear",
            Self::Slerp { .. } => "slerp",
        }
    }

    fn from_name(name: &str, limit: &Limit) -> Option<Self> {
        let max_staleness_ns = limit.max_staleness_ns;
        match name {
            "auto" => Some(Self::Auto { max_staleness_ns }),
            "nearest" => Some(Self::Nearest { max_staleness_ns }),
            "hold" => Some(Self::Hold { max_staleness_ns }),
            "linear" => Some(Self::Linear { max_staleness_ns }),
            "slerp" => Some(Self::Slerp { max_staleness_ns }),
            _ => None,
        }
    }
}

impl Serialize for Resolve {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let limit = Limit {
            max_staleness_ns: self.max_staleness_ns(),
        };
        match limit.max_staleness_ns {
            None => serializer.serialize_str(self.name()),
            Some(_) => serializer.collect_map([(self.name(), limit)]),
        }
    }
}

impl<'de> Deserialize<'de> for Resolve {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (name, limit) = match Value::deserialize(deserializer)? {
            Value::String(name) => (name, Limit::default()),
            Value::Object(map) if map.len() == 1 => {
                let (name, limit) = map.into_iter().next().unwrap_or_default();
                (
                    name,
                    serde_json::from_value(limit).map_err(D::Error::custom)?,
                )
            }
            other => (other.to_string(), Limit::default()),
        };
        Self::from_name(&name, &limit).ok_or_else(|| {
            let known = "auto, nearest, hold, linear, slerp";
            D::Error::custom(format!("`resolve` is {name:.80}; use one of {known}"))
        })
    }
}

impl Rate {
    /// A rate that is a fraction of small numbers to 1 part in 10¹², as those of a regular clock are.
    pub fn from_hz(rate_hz: f64) -> Result<Self> {
        let clock = RegularClock::from_rate_hz(rate_hz, 0, 0)
            .map_err(|error| invalid(format!("anchor: {error}")))?;
        let den = u32::try_from(clock.period_num / 1_000_000_000).unwrap_or(u32::MAX);
        let num = clock.period_den;
        Ok(Self { num, den })
    }

    pub(super) fn check(self) -> Result<()> {
        let rate_hz = f64::from(self.num) / f64::from(self.den);
        if (1e-6..=1e9).contains(&rate_hz) {
            return Ok(());
        }
        Err(invalid(format!(
            "anchor: rate {}/{} Hz is outside 1e-6 to 1e9",
            self.num, self.den
        )))
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        [self.num, self.den].serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "`rate_hz` is a number of Hz or [num, den]")]
        enum RateJson {
            Fraction([u32; 2]),
            Hz(f64),
        }
        let rate = match RateJson::deserialize(deserializer)? {
            RateJson::Fraction([num, den]) => Self { num, den },
            RateJson::Hz(rate_hz) => Self::from_hz(rate_hz).map_err(D::Error::custom)?,
        };
        rate.check().map_err(D::Error::custom)?;
        Ok(rate)
    }
}
