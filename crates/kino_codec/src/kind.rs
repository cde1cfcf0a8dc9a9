//! What a stream is.

use serde::{Deserialize, Serialize};

/// What a stream is, which determines its default codec and how it is displayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// Numeric values: joints, forces, actions, rewards.
    Vector,
    /// A color or grey image of 8-bit values.
    Image,
    /// A depth image.
    Depth,
    /// Text, such as a language instruction.
    Text,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Vector, Self::Image, Self::Depth, Self::Text];

    /// The name in schemas and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vector => "vector",
            Self::Image => "image",
            Self::Depth => "depth",
            Self::Text => "text",
        }
    }
}
