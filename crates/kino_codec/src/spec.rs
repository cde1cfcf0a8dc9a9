//! A codec's name and parameters as text: `raw`, `zstd:level=3`, `jpeg:q=95,sub=444`.
//!
//! ```text
//! spec  = name [ ":" param *( "," param ) ]
//! param = key [ "=" value ]
//! ```
//!
//! Names, keys and values consist of `a–z 0–9 . + -`, values also of `/`; keys do not repeat. The schema stores the
//! canonical form, in which the codec has filled in its defaults, so that a file never depends on them.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

use crate::error::{CodecError, Result};

/// The longest codec string.
const MAX_LEN: usize = 256;

/// A codec's name and parameters, parsed but not yet interpreted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CodecSpec {
    name: String,
    params: Vec<(String, String)>,
}

impl CodecSpec {
    /// A spec from parts that are known to be well-formed.
    pub(crate) fn new(name: &str, params: &[(&str, String)]) -> Self {
        let params = params
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.clone()))
            .collect();
        Self {
            name: name.to_owned(),
            params,
        }
    }

    /// The codec's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of parameter `key`: empty for a key without a value, `None` if absent.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.params
            .iter()
            .find(|(k, _)| k == key)
            .map(|(_, v)| v.as_str())
    }

    /// The value of `key` as an integer in `range`, or `default`.
    pub(crate) fn integer(
        &self,
        key: &str,
        range: std::ops::RangeInclusive<i32>,
        default: i32,
    ) -> Result<i32> {
        let Some(text) = self.get(key) else {
            return Ok(default);
        };
        text.parse()
            .ok()
            .filter(|value| range.contains(value))
            .ok_or_else(|| {
                self.error(format!(
                    "`{key}` must be an integer from {} to {}",
                    range.start(),
                    range.end()
                ))
            })
    }

    /// The value of `key` as a number of frames in `range`, or `default`.
    pub(crate) fn count(
        &self,
        key: &str,
        range: std::ops::RangeInclusive<i32>,
        default: i32,
    ) -> Result<NonZeroUsize> {
        let count = usize::try_from(self.integer(key, range, default)?).ok();
        Ok(count
            .and_then(NonZeroUsize::new)
            .unwrap_or(NonZeroUsize::MIN))
    }

    /// The value of `key` as a PSNR: from 10 to 90 dB.
    pub(crate) fn decibels(&self, key: &str) -> Result<f64> {
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let text = self.get(key).filter(|text| digits(text));
        let value: Option<f64> = text.and_then(|text| text.parse().ok());
        value
            .filter(|db| (10.0..=90.0).contains(db))
            .ok_or_else(|| self.error(format!("`{key}` must be a PSNR from 10 to 90 (dB)")))
    }

    /// Rejects parameters other than `known`.
    pub(crate) fn allow(&self, known: &[&str]) -> Result<()> {
        match self
            .params
            .iter()
            .find(|(key, _)| !known.contains(&key.as_str()))
        {
            None => Ok(()),
            Some((key, _)) if known.is_empty() => {
                Err(self.error(format!("`{key}` is not a parameter; this codec has none")))
            }
            Some((key, _)) => Err(self.error(format!(
                "`{key}` is not a parameter; use one of {}",
                known.join(", ")
            ))),
        }
    }

    /// Rejects a canonical text that a reader would reject: with defaults filled in, it may be longer than the input.
    pub(crate) fn check_len(&self) -> Result<()> {
        if self.to_string().len() <= MAX_LEN {
            return Ok(());
        }
        let what = "with all its parameters it exceeds 256 characters; use fewer distinct values";
        Err(CodecError::Parameter {
            spec: self.to_string().chars().take(MAX_LEN).collect(),
            what: what.to_owned(),
        })
    }

    /// A parameter error about this spec.
    pub(crate) fn error(&self, what: impl Into<String>) -> CodecError {
        CodecError::Parameter {
            spec: self.to_string(),
            what: what.into(),
        }
    }
}

impl FromStr for CodecSpec {
    type Err = CodecError;

    fn from_str(text: &str) -> Result<Self> {
        let error = |what: &str| {
            // A hostile manifest could contain anything here: quote only its beginning.
            let spec = text.chars().take(MAX_LEN).collect();
            CodecError::Parameter {
                spec,
                what: what.to_owned(),
            }
        };
        if text.len() > MAX_LEN {
            return Err(error("it exceeds 256 characters"));
        }
        let is_made_of = |word: &str, more: &[u8]| {
            let known = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'+' | b'-');
            word.bytes().all(|byte| known(byte) || more.contains(&byte))
        };
        let is_word = |word: &str| !word.is_empty() && is_made_of(word, b"");
        let (name, rest) = text
            .split_once(':')
            .map_or((text, None), |(name, rest)| (name, Some(rest)));
        if !is_word(name) {
            let bound = if name.contains('=') {
                "; for a bound write `psnr(38)`"
            } else {
                ""
            };
            return Err(error(&format!(
                "expected `name` or `name:key=value,…`{bound}"
            )));
        }
        let mut params: Vec<(String, String)> = Vec::new();
        for param in rest.into_iter().flat_map(|rest| rest.split(',')) {
            let (key, value) = param.split_once('=').unwrap_or((param, ""));
            if !is_word(key) || !is_made_of(value, b"/") {
                return Err(error("expected `key=value` or `key`, separated by commas"));
            }
            if params.iter().any(|(known, _)| known == key) {
                return Err(error("a parameter is repeated"));
            }
            params.push((key.to_owned(), value.to_owned()));
        }
        Ok(Self {
            name: name.to_owned(),
            params,
        })
    }
}

impl fmt::Display for CodecSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (idx, (key, value)) in self.params.iter().enumerate() {
            f.write_str(if idx == 0 { ":" } else { "," })?;
            f.write_str(key)?;
            if !value.is_empty() {
                write!(f, "={value}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        for text in [
            "raw",
            "zstd:level=3",
            "jpeg:q=95,sub=444",
            "jpeg:carry",
            "pco:abs=1e-4",
            "pco:abs=1e-4x7/0x3",
        ] {
            assert_eq!(text.parse::<CodecSpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn malformed_text_is_refused() {
        for text in [
            "",
            ":",
            "zstd:",
            "zstd:level=3,",
            "zstd:level=3,level=4",
            "zs td",
            "zstd:=3",
            "é",
            "a/b",
            "zstd:a/b=1",
        ] {
            assert!(text.parse::<CodecSpec>().is_err(), "{text:?}");
        }
        assert!("a".repeat(300).parse::<CodecSpec>().is_err());
    }
}
