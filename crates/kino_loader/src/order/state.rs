//! Stop here, go on there: a few hundred bytes of JSON, the same on every rank.
//!
//! ```json
//! {"format": 1, "algorithm": "kino-order-2", "order": "9f2c…", "data": "41d0…", "seed": 7, "batch_size": 256, "lanes": 8,
//!  "shuffle": {"groups": {"size": {"episodes": 128}, "unit": "episodes"}}, "last_batch": "short", "epoch_size": null,
//!  "next_index": 123648, "receipt": "c5a1…"}
//! ```
//!
//! `data` is a hash of the sources, `order` of sources and settings, `receipt` of the last samples before `next_index`.
//! Restoring is arithmetic; the receipt proves that the order before the stop was this one, whatever the hashes say.

use serde::{Deserialize, Serialize};

use super::{ALGORITHM, MAX_INDEX, Order, OrderReader, Settings, Shuffle, past_the_end, short_hex};
use crate::error::{LoaderError, Result, invalid};

/// The format of the state.
pub(super) const FORMAT: u32 = 1;
/// How many samples before the next index a receipt covers.
pub(super) const RECEIPT_LEN: u64 = 1000;
/// A state is a few hundred bytes; a longer text is none.
const MAX_TEXT: usize = 1 << 16;

/// Where training stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The format of this state.
    pub format: u32,
    /// The algorithm of the order.
    pub algorithm: String,
    /// Hash of the sources and the settings.
    pub order: String,
    /// Hash of the sources.
    pub data: String,
    /// The settings, for people and for the message when they differ.
    #[serde(flatten)]
    pub settings: Settings,
    /// The first index that was not yet taken.
    pub next_index: u64,
    /// Hash of the last samples before it.
    pub receipt: String,
}

/// What to do with a state of another order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mismatch {
    /// Refuse it, and say what differs.
    #[default]
    Refuse,
    /// Take its seed and its next index, because the dataset or the settings were changed on purpose.
    Force,
}

/// An order at the place where a state stood.
#[derive(Debug)]
pub struct Restored {
    /// A reader of the order; with the seed of the state if it was forced.
    pub reader: OrderReader,
    /// Where to go on.
    pub next_index: u64,
}

/// What to do if groups of a state were not dealt in parts and here they are; and the other way round.
const WITH_LANES: &str =
    "pass shuffle=kinograph.Shuffle(lanes=1), with the size of a group if it was given";
const WITHOUT_LANES: &str = "leave out `lanes` of kinograph.Shuffle";

impl State {
    /// The state as JSON.
    pub fn to_json(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// Reads a state that [`to_json`](Self::to_json) wrote.
    pub fn from_json(text: &str) -> Result<Self> {
        parse(text)
    }
}

/// Reads a state, its format first: a newer one may differ in everything else.
pub(super) fn parse<T: Serialize + serde::de::DeserializeOwned>(text: &str) -> Result<T> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let not_one = |why: String| {
        invalid(format!(
            "this is not the state of an order: {why}; pass what `state_dict` gave"
        ))
    };
    if text.len() > MAX_TEXT {
        return Err(not_one(format!("it has {} bytes", text.len())));
    }
    let Format { format } =
        serde_json::from_str(text).map_err(|error| not_one(error.to_string()))?;
    if format > FORMAT {
        return Err(LoaderError::TooNew {
            found: format,
            supported: FORMAT,
        });
    }
    let given: serde_json::Value =
        serde_json::from_str(text).map_err(|error| not_one(error.to_string()))?;
    let state = T::deserialize(&given).map_err(|error| not_one(error.to_string()))?;
    // What is not understood may not be left out either. serde cannot say so of a struct with flattened fields.
    let known = serde_json::json!(state);
    let mut fields = given.as_object().into_iter().flat_map(|given| given.keys());
    match fields.find(|field| known.get(field).is_none()) {
        Some(field) => Err(not_one(format!(
            "no state of format {format} has `{field}`"
        ))),
        None => Ok(state),
    }
}

impl OrderReader {
    /// The state before index `next_index`.
    pub fn state(&mut self, next_index: u64) -> Result<State> {
        let receipt = self.receipt(next_index)?;
        let order = self.order();
        Ok(State {
            format: FORMAT,
            algorithm: ALGORITHM.into(),
            order: order.id(),
            data: order.inner.data.clone(),
            settings: *order.settings(),
            next_index,
            receipt,
        })
    }

    /// Hash of the last up to 1000 samples before `next_index`.
    fn receipt(&mut self, next_index: u64) -> Result<String> {
        if next_index > MAX_INDEX {
            return Err(past_the_end(&format!("index {next_index}")));
        }
        let mut hasher = blake3::Hasher::new();
        for i in next_index.saturating_sub(RECEIPT_LEN)..next_index {
            if !self.order().has_sample(i) {
                continue;
            }
            let sample = self.at(i)?;
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&i.to_le_bytes());
            bytes[8..12].copy_from_slice(&sample.source.to_le_bytes());
            bytes[12..16].copy_from_slice(&sample.variant.to_le_bytes());
            bytes[16..24].copy_from_slice(&sample.epoch.to_le_bytes());
            bytes[24..28].copy_from_slice(&sample.episode.to_le_bytes());
            bytes[28..].copy_from_slice(&sample.sample.to_le_bytes());
            hasher.update(&bytes);
        }
        Ok(short_hex(&hasher))
    }
}

impl Order {
    /// The hash of the sources and the settings: equal orders have equal ids.
    pub fn id(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        let settings = self.settings().to_lines();
        hasher.update(format!("{ALGORITHM}\ndata {}\n{settings}", self.inner.data).as_bytes());
        short_hex(&hasher)
    }

    /// Goes on where a state stood. A state of another order is refused unless that is meant.
    pub fn restore(&self, state: &State, mismatch: Mismatch) -> Result<Restored> {
        if state.next_index > MAX_INDEX {
            return Err(past_the_end(&format!("index {}", state.next_index)));
        }
        let mut reader = match mismatch {
            Mismatch::Force if state.settings.seed != self.settings().seed => {
                self.with_seed(state.settings.seed)?.reader()
            }
            _ => self.reader(),
        };
        if mismatch == Mismatch::Refuse {
            self.compare(state)?;
            let receipt = reader.receipt(state.next_index)?;
            let hint =
                "the samples before the stop were others; use the library that wrote the state";
            differs("receipt", hint, &state.receipt, &receipt)?;
        }
        Ok(Restored {
            reader,
            next_index: state.next_index,
        })
    }

    /// The same order under another seed.
    pub fn with_seed(&self, seed: u64) -> Result<Self> {
        let settings = Settings {
            seed,
            ..*self.settings()
        };
        let sources = self.inner.sources.clone();
        match &self.inner.mixture {
            Some(mixture) => {
                let slots = mixture.slots.iter().map(|&slots| f64::from(slots));
                Self::mixture(sources.into_iter().zip(slots).collect(), settings)
            }
            None => match sources.into_iter().next() {
                Some(source) => Self::new(source, settings),
                None => Err(invalid("an order without a source")),
            },
        }
    }

    fn compare(&self, state: &State) -> Result<()> {
        let (found, expected) = (&state.settings, self.settings());
        let library = "use the library that wrote the state";
        differs("algorithm", library, &state.algorithm, ALGORITHM)?;
        let setting = "set it as it was";
        differs("seed", setting, found.seed, expected.seed)?;
        differs("batch_size", setting, found.batch_size, expected.batch_size)?;
        differs("lanes", setting, found.lanes, expected.lanes)?;
        match (found.shuffle, expected.shuffle) {
            // Before groups were dealt in parts by default, few episodes were shuffled globally.
            (Shuffle::Global | Shuffle::Groups { .. }, _) if expected.has_parts() => {
                differs("deal", WITH_LANES, found.deal, expected.deal)?;
            }
            (_, Shuffle::Groups { .. }) => {
                differs("deal", WITHOUT_LANES, found.deal, expected.deal)?
            }
            _ => {}
        }
        let json = |value: serde_json::Value| value.to_string();
        let shuffle = |of: &Settings| json(serde_json::json!(of.shuffle));
        differs("shuffle", setting, shuffle(found), shuffle(expected))?;
        let (ours, theirs) = (expected.last_batch.name(), found.last_batch.name());
        differs("last_batch", setting, theirs, ours)?;
        let size = |of: &Settings| json(serde_json::json!(of.epoch_size));
        differs("epoch_size", setting, size(found), size(expected))?;
        let data = "open the version, the selection and the request that the state was made with";
        differs("data", data, &state.data, &self.inner.data)?;
        differs("order", data, &state.order, self.id())
    }
}

/// An error if a field, given with what to do about it, is not what it should be.
pub(super) fn differs(
    field: &str,
    hint: &'static str,
    found: impl ToString,
    expected: impl ToString,
) -> Result<()> {
    let (found, expected) = (found.to_string(), expected.to_string());
    if found == expected {
        return Ok(());
    }
    Err(LoaderError::Mismatch {
        field: field.into(),
        found,
        expected,
        hint,
    })
}
