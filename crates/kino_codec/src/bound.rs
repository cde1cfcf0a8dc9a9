//! What a codec guarantees about decoded values, and the error allowed for each element.

use std::fmt;

/// What a codec guarantees about decoded values.
///
/// A codec enforces its guarantee inside `encode`: it checks what it wrote and writes it again, more precisely,
/// where it missed. The dataset writer decodes every page once more and rejects one that breaks the guarantee.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Bound {
    /// Every bit comes back.
    Lossless,
    /// No value is off by more than this; NaN, infinities and −0 come back bit for bit.
    Abs(AbsBound),
    /// The peak signal-to-noise ratio of every page, in dB, is at least this.
    Psnr(f64),
    /// Close, without a fixed bound: the error is measured and recorded when a page is packed.
    Unbounded,
}

impl Bound {
    /// The parameter that sets this bound in a codec string.
    pub fn parameter(&self) -> Option<String> {
        match self {
            Self::Abs(bound) => Some(format!("abs={bound}")),
            Self::Psnr(db) => Some(format!("psnr={db}")),
            Self::Lossless | Self::Unbounded => None,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lossless => f.write_str("lossless"),
            Self::Abs(bound) => write!(f, "abs({bound})"),
            Self::Psnr(db) => write!(f, "psnr({db})"),
            Self::Unbounded => f.write_str("unbounded"),
        }
    }
}

/// The absolute error allowed for each element of a frame, in the stream's unit.
///
/// ```text
/// 1e-4           every element within 0.0001
/// 1e-4x7/0x3     seven elements within 0.0001, then three exact
/// ```
///
/// ```
/// let bound = kino_codec::AbsBound::parse("1e-4x2/0").unwrap();
/// assert_eq!((bound.eps(1), bound.eps(2), bound.len()), (1e-4, 0.0, Some(3)));
/// assert_eq!(bound.to_string(), "1e-4x2/0x1");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct AbsBound {
    /// Tolerances, each with the end of the run of elements it applies to.
    runs: Vec<(f64, usize)>,
}

/// More elements than any frame has: the end of a bound that applies to every element.
const EVERY: usize = usize::MAX;

impl AbsBound {
    /// The same tolerance for every element; `None` if it is negative or not finite.
    pub fn uniform(eps: f64) -> Option<Self> {
        let allowed = eps.is_finite() && eps.is_sign_positive();
        allowed.then(|| Self {
            runs: vec![(eps, EVERY)],
        })
    }

    /// Parses a codec parameter; `None` if it does not have the form above.
    pub fn parse(text: &str) -> Option<Self> {
        if !text.contains(['x', '/']) {
            return parse_eps(text).and_then(Self::uniform);
        }
        let mut runs: Vec<(f64, usize)> = Vec::new();
        let mut end = 0_usize;
        for part in text.split('/') {
            let (eps, count) = part.split_once('x').unwrap_or((part, "1"));
            let digits = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
            let count: usize = count.parse().ok().filter(|&count| digits && count > 0)?;
            end = end.checked_add(count).filter(|&end| end < EVERY)?;
            let eps = parse_eps(eps)?;
            match runs.last_mut() {
                Some((last, last_end)) if *last == eps => *last_end = end,
                _ => runs.push((eps, end)),
            }
        }
        Some(Self { runs })
    }

    /// The tolerance of element `element` of a frame; 0 beyond the last.
    pub fn eps(&self, element: usize) -> f64 {
        let run = self.runs.iter().find(|(_, end)| element < *end);
        run.map_or(0.0, |(eps, _)| *eps)
    }

    /// How many elements a frame must have, or `None` if any number will do.
    pub fn len(&self) -> Option<usize> {
        let end = self.runs.last().map_or(0, |(_, end)| *end);
        (end != EVERY).then_some(end)
    }

    /// Whether the bound is for frames without elements, which [`parse`](Self::parse) never returns.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// The largest tolerance.
    pub fn max(&self) -> f64 {
        self.runs.iter().fold(0.0, |max, (eps, _)| eps.max(max))
    }
}

fn parse_eps(text: &str) -> Option<f64> {
    // `f64::from_str` also accepts `inf` and `nan`: a tolerance is digits.
    let plain = |byte: u8| byte.is_ascii_digit() || b".e-+".contains(&byte);
    let digits = text.as_bytes().first()?.is_ascii_digit() && text.bytes().all(plain);
    let eps: f64 = text.parse().ok().filter(|_| digits)?;
    eps.is_finite().then_some(eps)
}

/// The shorter of `0.0001` and `1e-4`.
fn write_eps(f: &mut fmt::Formatter<'_>, eps: f64) -> fmt::Result {
    let (plain, scientific) = (eps.to_string(), format!("{eps:e}"));
    f.write_str(if plain.len() <= scientific.len() {
        &plain
    } else {
        &scientific
    })
}

impl fmt::Display for AbsBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut start = 0;
        for (idx, &(eps, end)) in self.runs.iter().enumerate() {
            if idx > 0 {
                f.write_str("/")?;
            }
            write_eps(f, eps)?;
            if end != EVERY {
                write!(f, "x{}", end - start)?;
            }
            start = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_one_canonical_form() {
        for (text, canonical) in [
            ("1e-4", "1e-4"),
            ("0.0001", "1e-4"),
            ("0.5", "0.5"),
            ("1", "1"),
            ("1.0", "1"),
            ("1e-4x7/0x3", "1e-4x7/0x3"),
            ("1e-4/1e-4/0.0001x2", "1e-4x4"),
            ("2/0", "2x1/0x1"),
        ] {
            let bound = AbsBound::parse(text).unwrap();
            assert_eq!(bound.to_string(), canonical, "{text}");
            assert_eq!(AbsBound::parse(canonical), Some(bound));
        }
    }

    #[test]
    fn every_element_has_its_tolerance() {
        let bound = AbsBound::parse("1e-3x2/0x1/2").unwrap();
        let all: Vec<f64> = (0..5).map(|element| bound.eps(element)).collect();
        assert_eq!(all, [1e-3, 1e-3, 0.0, 2.0, 0.0]);
        assert_eq!((bound.len(), bound.max()), (Some(4), 2.0));
        let every = AbsBound::uniform(0.25).unwrap();
        assert_eq!((every.eps(1 << 40), every.len()), (0.25, None));
    }

    #[test]
    fn text_that_is_not_a_tolerance_is_refused() {
        for text in [
            "",
            "x",
            "/",
            "1e-4/",
            "-1",
            "inf",
            "nan",
            "1e999",
            "1x0",
            "1x",
            "1x-2",
            "1x2x3",
            "1x99999999999999999999",
            "+1",
            ".5",
        ] {
            assert_eq!(AbsBound::parse(text), None, "{text:?}");
        }
        assert_eq!(AbsBound::uniform(-1.0), None);
        assert_eq!(AbsBound::uniform(f64::NAN), None);
    }
}
