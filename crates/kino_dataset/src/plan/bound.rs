//! The bound of a rule in a plan: `lossless`, `abs(1e-4)`, `psnr(42)`, `mm(1)`, `signal(2%)`.

use std::fmt;

use kino_codec::{AbsBound, Bound, Dtype, ValueType};
use serde::{Deserialize, Serialize};

/// A bound, as written in a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum PlanBound {
    /// Every bit is preserved.
    Lossless,
    /// No value changes by more than this, in the stream's unit.
    Abs(AbsBound),
    /// The peak signal-to-noise ratio of every page, in dB, is at least this.
    Psnr(f64),
    /// No distance changes by more than this many millimetres.
    Millimetres(f64),
    /// The held-out error of actions grows by less than so many percent. Only measuring can say which codec that is
    /// (`signal.rs`): until then, nothing is written with it.
    Signal(f64),
}

impl PlanBound {
    /// The bound in the stream's own unit, of which one is `unit_mm` millimetres.
    ///
    /// By default, integers count millimetres and floats metres.
    pub(crate) fn in_unit_of(&self, ty: Option<&ValueType>, unit_mm: Option<f64>) -> Bound {
        match self {
            // No codec is known to keep a signal bound but a lossless one.
            Self::Lossless | Self::Signal(_) => Bound::Lossless,
            Self::Abs(bound) => Bound::Abs(bound.clone()),
            Self::Psnr(db) => Bound::Psnr(*db),
            Self::Millimetres(mm) => {
                let is_float = ty.is_some_and(|ty| Dtype::is_float(ty.dtype()));
                let unit = unit_mm.unwrap_or(if is_float { 1000.0 } else { 1.0 });
                AbsBound::uniform(mm / unit).map_or(Bound::Lossless, Bound::Abs)
            }
        }
    }
}

/// Whether a codec that guarantees `promised` satisfies `wanted` for frames of `elements` values.
pub(crate) fn keeps(promised: &Bound, wanted: &Bound, elements: usize) -> bool {
    match (promised, wanted) {
        (Bound::Lossless, _) => true,
        (Bound::Abs(promised), Bound::Abs(wanted)) => {
            (0..elements).all(|element| promised.eps(element) <= wanted.eps(element))
        }
        (Bound::Psnr(promised), Bound::Psnr(wanted)) => promised >= wanted,
        _ => false,
    }
}

impl TryFrom<String> for PlanBound {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let argument = |name: &str| {
            let inner = text.strip_prefix(name)?.trim().strip_prefix('(')?;
            Some(inner.strip_suffix(')')?.trim())
        };
        let number = |text: &str| text.parse().ok().filter(|value: &f64| value.is_finite());
        let bound = match text.trim() {
            "lossless" => Some(Self::Lossless),
            _ => None,
        };
        bound
            .or_else(|| AbsBound::parse(argument("abs")?).map(Self::Abs))
            .or_else(|| number(argument("psnr")?).map(Self::Psnr))
            .or_else(|| {
                let positive = |mm: &f64| *mm > 0.0;
                number(argument("mm")?)
                    .filter(positive)
                    .map(Self::Millimetres)
            })
            .or_else(|| {
                let share = |percent: &f64| *percent > 0.0 && *percent < 100.0;
                number(argument("signal")?.strip_suffix('%')?.trim())
                    .filter(share)
                    .map(Self::Signal)
            })
            .ok_or_else(|| {
                format!(
                    "cannot parse bound `{text}`: expected lossless, abs(1e-4), abs(1e-4x7/0x3), psnr(42), mm(1) or signal(2%)"
                )
            })
    }
}

impl From<PlanBound> for String {
    fn from(bound: PlanBound) -> Self {
        bound.to_string()
    }
}

impl fmt::Display for PlanBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lossless => f.write_str("lossless"),
            Self::Abs(bound) => write!(f, "abs({bound})"),
            Self::Psnr(db) => write!(f, "psnr({db})"),
            Self::Millimetres(mm) => write!(f, "mm({mm})"),
            Self::Signal(percent) => write!(f, "signal({percent}%)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        for text in [
            "lossless",
            "abs(1e-4)",
            "abs(1e-4x7/0x3)",
            "psnr(42.5)",
            "mm(1)",
            "signal(2%)",
            "signal(0.5%)",
        ] {
            let bound = PlanBound::try_from(text.to_owned()).unwrap();
            assert_eq!(bound.to_string(), text);
        }
        for text in [
            "",
            "abs",
            "abs(x)",
            "abs 1",
            "psnr(nan)",
            "mm(0)",
            "mm(-1)",
            "cm(1)",
            "signal(2)",
            "signal(0%)",
            "signal(100%)",
        ] {
            assert!(PlanBound::try_from(text.to_owned()).is_err(), "{text}");
        }
    }

    #[test]
    fn millimetres_are_converted_to_the_unit_of_the_stream() {
        let eps = |dtype, unit| {
            let ty = ValueType::new(dtype, &[4, 4]).unwrap();
            match PlanBound::Millimetres(1.0).in_unit_of(Some(&ty), unit) {
                Bound::Abs(bound) => bound.eps(0),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(eps(Dtype::U16, None), 1.0);
        assert_eq!(eps(Dtype::F32, None), 0.001);
        assert_eq!(eps(Dtype::U16, Some(0.2)), 5.0);
    }

    #[test]
    fn a_bound_is_satisfied_by_a_tighter_one() {
        let abs = |text: &str| Bound::Abs(AbsBound::parse(text).unwrap());
        assert!(keeps(&Bound::Lossless, &Bound::Psnr(40.0), 3));
        assert!(keeps(&abs("1e-5"), &abs("1e-4x3"), 3));
        assert!(!keeps(&abs("1e-5"), &abs("1e-4x2/0x1"), 3));
        assert!(keeps(&Bound::Psnr(42.0), &Bound::Psnr(40.0), 3));
        assert!(!keeps(&Bound::Psnr(42.0), &Bound::Lossless, 3));
        assert!(!keeps(&Bound::Unbounded, &Bound::Psnr(1.0), 3));
    }
}
