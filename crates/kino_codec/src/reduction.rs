//! Images decoded at a fraction of their size, by decoders that do less work then.
//!
//! ```text
//! JPEG: a block of coefficients ──IDCT──▶ 8 × 8 pixels, or the means of neighbouring ones: 4 × 4, 2 × 2 or 1 × 1
//! ```
//!
//! Entropy decoding costs the same, all that follows less. The means are those of a box; resizing the whole image weighs
//! pixels by a triangle and interpolates the chroma first, so the pixels differ.

/// By how much an image shrinks while it is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reduction {
    /// To half the height and width.
    Half,
    /// To a quarter.
    Quarter,
    /// To an eighth.
    Eighth,
}

impl Reduction {
    /// The strongest one that leaves a side of `from` pixels at least `wanted` long, for each pair; `None` if none does.
    ///
    /// ```
    /// use kino_codec::Reduction;
    ///
    /// assert_eq!(Reduction::strongest([(480, 224), (640, 224)]), Some(Reduction::Half));
    /// assert_eq!(Reduction::strongest([(480, 256), (640, 256)]), None);
    /// ```
    pub fn strongest(sides: [(usize, usize); 2]) -> Option<Self> {
        let all = [Self::Eighth, Self::Quarter, Self::Half];
        let is_enough = |one: &Self| sides.iter().all(|&(from, wanted)| one.side(from) >= wanted);
        all.into_iter().find(is_enough)
    }

    /// What a height or width is divided by.
    pub fn divisor(self) -> usize {
        match self {
            Self::Half => 2,
            Self::Quarter => 4,
            Self::Eighth => 8,
        }
    }

    /// The height or width that comes out of one of `from` pixels: the fraction, rounded up.
    pub fn side(self, from: usize) -> usize {
        from.div_ceil(self.divisor())
    }
}
