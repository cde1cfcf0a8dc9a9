//! The plan of a pack in portions: what every part must agree on, and what every receipt is compared with.
//!
//! ```text
//! {"kinograph": "pack plan", "format": 1,
//!  "settings": {"source": "demos.hdf5 …", "seed": "0", "plan": "{…}", …},      parts with other settings are refused
//!  "portions": [{"episodes": 512, "frames": 130812, "blake3": "…"}, …],        in the order of writing
//!  "source": {…}}                                                              what the manifest will say
//! ```
//!
//! It names no machine, no time and no number of parts. Canonical: the same pack gives the same bytes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{FOLDER, MAX_BYTES, to_invalid};
use crate::attributes::JsonMap;
use crate::error::{Result, corrupt, invalid};
use crate::hash::Hash;
use crate::resume::differences;
use crate::store::Store;

/// The version of the format of plans and receipts.
pub(super) const FORMAT: u32 = 1;

/// What is packed, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PackPlan {
    kinograph: String,
    format: u32,
    /// What decides the bytes, by name.
    pub settings: BTreeMap<String, String>,
    /// The portions, in the order of writing.
    pub portions: Vec<PortionPlan>,
    /// Attributes of the new dataset.
    #[serde(default, skip_serializing_if = "JsonMap::is_empty")]
    pub attributes: JsonMap,
    /// The message of the new version.
    pub message: String,
    /// What the importer says about the source, for its own use at the commit.
    pub source: Value,
}

/// The episodes of one portion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortionPlan {
    /// How many there are.
    pub episodes: u64,
    /// Frames of their longest streams.
    pub frames: u64,
    /// Their bytes before encoding, as far as that is known.
    pub bytes: u64,
    /// BLAKE3 of their ids and lengths, in the order of writing.
    pub blake3: Hash,
}

/// An episode as planned, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpisodePlan {
    /// Its id.
    pub id: String,
    /// Frames of its longest stream.
    pub frames: u64,
    /// Whether it is in no shard, because of a defect.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dropped: bool,
}

impl PortionPlan {
    /// The plan of these episodes, which have so many bytes.
    pub fn of(episodes: &[EpisodePlan], bytes: u64) -> Self {
        let mut hasher = blake3::Hasher::new();
        for episode in episodes {
            hasher.update(&(episode.id.len() as u64).to_le_bytes());
            hasher.update(episode.id.as_bytes());
            hasher.update(&episode.frames.to_le_bytes());
        }
        Self {
            episodes: episodes.len() as u64,
            frames: episodes
                .iter()
                .map(|one| one.frames)
                .fold(0, u64::saturating_add),
            bytes,
            blake3: Hash::from(*hasher.finalize().as_bytes()),
        }
    }
}

impl PackPlan {
    /// A plan.
    pub fn new(
        settings: BTreeMap<String, String>,
        portions: Vec<PortionPlan>,
        attributes: JsonMap,
        message: String,
        source: Value,
    ) -> Self {
        let mut settings = settings;
        let tool = concat!("kinograph ", env!("CARGO_PKG_VERSION"));
        settings.insert("tool".to_owned(), tool.to_owned());
        Self {
            kinograph: "pack plan".to_owned(),
            format: FORMAT,
            settings,
            portions,
            attributes,
            message,
            source,
        }
    }

    /// Its text, and the first digits of its hash.
    pub(super) fn to_text(&self) -> Result<(String, String)> {
        let text = serde_json::to_string_pretty(self).map_err(to_invalid)?;
        let hash = Hash::of(text.as_bytes()).to_hex();
        Ok((text, hash[..16].to_owned()))
    }

    /// Reads the plan of a pack.
    pub(super) fn read(store: &Store, pack: &str) -> Result<Self> {
        let key = format!("{FOLDER}/{pack}.json");
        let text = store.read(&key, MAX_BYTES)?;
        let place = store.path(&key);
        if !Hash::of(&text).to_hex().starts_with(pack) {
            let what = "its name is not the hash of its bytes; remove it, and start one part again";
            return Err(corrupt(place, what));
        }
        let plan: Self =
            serde_json::from_slice(&text).map_err(|error| corrupt(&place, error.to_string()))?;
        if plan.format != FORMAT {
            return Err(invalid(format!(
                "{place} was written by another version of kinograph (format {}, this one has {FORMAT}); use one version for all parts \
                 and the commit",
                plan.format
            )));
        }
        Ok(plan)
    }

    /// The plan of a portion.
    pub(super) fn portion(&self, portion: usize) -> Result<&PortionPlan> {
        self.portions.get(portion).ok_or_else(|| {
            invalid(format!(
                "portion {portion} does not exist; there are {}",
                self.portions.len()
            ))
        })
    }

    /// What differs between two plans.
    pub(super) fn differences(&self, other: &Self) -> String {
        let settings = differences(&other.settings, &self.settings);
        if !settings.is_empty() {
            settings
        } else if self.portions == other.portions {
            "attributes, or what is wrong in the source, differs".to_owned()
        } else {
            "the episodes of the source differ".to_owned()
        }
    }
}
