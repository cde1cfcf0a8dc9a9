//! Defects of a recording, and what an import does about them.
//!
//! ```text
//! walk ──▶ defects of the files     ─┐
//! survey ▶ defects of values, times ─┴▶ policy ──▶ error: nothing is written, all of them are listed
//!                                               ├▶ drop-episode: every episode with a defect is skipped
//!                                               └▶ keep: everything readable is imported
//! ```

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::{ImportError, invalid};

/// Something in a source that is not as it should be, or that a dataset cannot hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Defect {
    /// File and object: `demos.hdf5:/mask/train`.
    pub place: String,
    /// What is wrong.
    pub what: String,
    /// The id of the affected episode, if it is a single one.
    pub episode: Option<String>,
    /// What the import does about it.
    pub action: Action,
}

/// What an import does about a [`Defect`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Nothing is wrong; it is worth knowing.
    Noted,
    /// The object is imported as it is.
    Kept,
    /// The object is not imported: data is lost.
    Skipped,
    /// The whole episode is skipped, because the policy allows no defects.
    Dropped,
}

/// What to do with a source that has defects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnDefect {
    /// Write nothing, and list them all.
    #[default]
    Error,
    /// Skip every episode that has one.
    DropEpisode,
    /// Import everything that can be read.
    Keep,
}

impl Defect {
    /// A defect of a source as a whole, or of no episode in particular.
    pub(crate) fn new(place: impl Into<String>, what: impl Into<String>, action: Action) -> Self {
        Self {
            place: place.into(),
            what: what.into(),
            episode: None,
            action,
        }
    }

    /// An object that is not imported.
    pub(crate) fn lost(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::new(place, what, Action::Skipped)
    }

    /// An object that is imported as it is.
    pub(crate) fn kept(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::new(place, what, Action::Kept)
    }

    /// Something worth knowing.
    pub(crate) fn noted(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::new(place, what, Action::Noted)
    }

    /// The same defect, attributed to an episode.
    pub(crate) fn of(mut self, episode: &str) -> Self {
        self.episode = Some(episode.to_owned());
        self
    }

    /// Whether something is wrong, rather than only worth knowing.
    pub fn is_fault(&self) -> bool {
        self.action != Action::Noted
    }

    /// Whether data of the source is not imported.
    pub fn is_lost(&self) -> bool {
        matches!(self.action, Action::Skipped | Action::Dropped)
    }

    /// As shown in reports and stored in the manifest.
    pub fn to_json(&self) -> Value {
        json!({
            "place": self.place,
            "what": self.what,
            "episode": self.episode,
            "action": self.action.name(),
            "lost": self.is_lost(),
        })
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.action.name(), self.place, self.what)
    }
}

impl Action {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Noted => "note",
            Self::Kept => "kept",
            Self::Skipped => "lost",
            Self::Dropped => "dropped",
        }
    }
}

impl OnDefect {
    /// Every policy, by its user-facing name.
    pub const NAMES: [&'static str; 3] = ["error", "drop-episode", "keep"];

    /// Its user-facing name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::DropEpisode => "drop-episode",
            Self::Keep => "keep",
        }
    }

    /// Applies the policy: refuses the defects, or marks those whose episodes are dropped.
    pub(crate) fn judge(self, mut defects: Vec<Defect>) -> Result<Vec<Defect>, ImportError> {
        match self {
            Self::Error if defects.iter().any(Defect::is_fault) => {
                return Err(ImportError::Defects { defects });
            }
            Self::DropEpisode => {
                let faults = defects.iter_mut().filter(|defect| defect.is_fault());
                for defect in faults.filter(|defect| defect.episode.is_some()) {
                    defect.action = Action::Dropped;
                }
            }
            Self::Error | Self::Keep => {}
        }
        Ok(defects)
    }
}

impl FromStr for OnDefect {
    type Err = ImportError;

    fn from_str(name: &str) -> Result<Self, ImportError> {
        match name.replace('_', "-").as_str() {
            "error" => Ok(Self::Error),
            "drop-episode" => Ok(Self::DropEpisode),
            "keep" => Ok(Self::Keep),
            _ => Err(invalid(format!(
                "on_defect={name:?} is not a policy; use one of {}",
                Self::NAMES.join(", ")
            ))),
        }
    }
}
