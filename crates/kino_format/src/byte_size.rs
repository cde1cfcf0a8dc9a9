//! Byte sizes as people write them: `512MB`, `4GB`, `1.5 GiB`. Every option and every report uses this one grammar.
//!
//! ```text
//! B   kB  MB  GB  TB  PB      powers of 1000, upper or lower case
//!     KiB MiB GiB TiB PiB     powers of 1024
//! ```

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of bytes.
///
/// ```
/// use kino_format::ByteSize;
///
/// let size: ByteSize = "1.5GB".parse()?;
/// assert_eq!(size.bytes(), 1_500_000_000);
/// assert_eq!(size.to_string(), "1.50 GB");
/// assert!("512".parse::<ByteSize>().is_err()); // the unit is missing
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(u64);

const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];

impl ByteSize {
    /// A size of this many bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is not a size; write it with a unit, such as 512MB or 4GB");
        let text = text.trim();
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let factor = factor(&text[digits.len()..]).ok_or_else(wrong)?;
        let digits = digits.trim_end();
        if let Ok(whole) = digits.parse::<u64>() {
            return whole.checked_mul(factor).map(Self).ok_or_else(wrong);
        }
        let plain = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let number: f64 = digits.parse().ok().filter(|_| plain).ok_or_else(wrong)?;
        #[expect(
            clippy::cast_precision_loss,
            reason = "a size with a fraction is rounded anyway"
        )]
        let bytes = (number * factor as f64).round();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the value is between 0 and 2^63"
        )]
        let rounded = ((0.0..9.2e18).contains(&bytes)).then_some(bytes as u64);
        rounded.map(Self).ok_or_else(wrong)
    }
}

/// The factor of a unit.
fn factor(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    let (prefix, base) = match unit.strip_suffix("ib") {
        Some(prefix) if !prefix.is_empty() => (prefix, 1024_u64),
        Some(_) => return None,
        None => (unit.strip_suffix('b')?, 1000_u64),
    };
    let power = ["", "k", "m", "g", "t", "p"]
        .iter()
        .position(|one| *one == prefix)?;
    base.checked_pow(u32::try_from(power).ok()?)
}

impl fmt::Display for ByteSize {
    /// Three digits: `5.84 MB`.
    #[expect(clippy::cast_precision_loss, reason = "three digits, for display")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1000 {
            return f.pad(&format!("{} B", self.0));
        }
        let mut value = self.0 as f64 / 1000.0;
        let mut unit = 1;
        while value >= 999.5 && unit + 1 < UNITS.len() {
            value /= 1000.0;
            unit += 1;
        }
        let digits = match value {
            value if value < 9.995 => 2,
            value if value < 99.95 => 1,
            _ => 0,
        };
        f.pad(&format!("{value:.digits$} {}", UNITS[unit]))
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    /// A number counts bytes; text has a unit.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = ByteSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of bytes, or a size such as \"4GB\"")
    }

    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
        Ok(ByteSize(bytes))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_with_their_units() {
        for (text, bytes) in [
            ("0B", 0),
            ("77B", 77),
            ("512MB", 512_000_000),
            ("512 mb", 512_000_000),
            ("2kB", 2_000),
            ("1.5GB", 1_500_000_000),
            ("4GiB", 4 << 30),
            ("1KiB", 1024),
            (" 3TB ", 3_000_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn text_that_is_not_a_size_is_refused_with_an_example() {
        for text in [
            "",
            "512",
            "GB",
            "-1MB",
            "1XB",
            "1e3MB",
            "ib",
            "1ib",
            "nanGB",
            "infGB",
            "1.2.3MB",
            "99999999999GB",
        ] {
            let error = text.parse::<ByteSize>().unwrap_err();
            assert!(error.ends_with("such as 512MB or 4GB"), "{text}: {error}");
        }
    }

    #[test]
    fn sizes_are_displayed_with_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (5_840_000, "5.84 MB"),
            (9_996_000, "10.0 MB"),
            (999_600_000, "1.00 GB"),
            (u64::MAX, "18447 PB"),
        ] {
            assert_eq!(ByteSize(bytes).to_string(), text);
        }
    }

    #[test]
    fn json_sizes_are_numbers_or_text() {
        let sizes: Vec<ByteSize> = serde_json::from_str(r#"[1024, "4GB"]"#).unwrap();
        assert_eq!(sizes, [ByteSize(1024), ByteSize(4_000_000_000)]);
        assert!(serde_json::from_str::<ByteSize>("-1").is_err());
        assert!(serde_json::from_str::<ByteSize>("\"512\"").is_err());
    }
}
