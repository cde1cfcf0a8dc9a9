//! Stop and go on with batches of whole episodes.
//!
//! ```json
//! {"format": 1, "algorithm": "kino-order-2", "order": "9f2c…", "data": "41d0…", "settings": {"seed": 7, …},
//!  "cursor": {"epoch": 3, "done": 1250}, "receipt": "c5a1…"}
//! ```

use serde::{Deserialize, Serialize};

use super::length_settings::LengthSettings;
use super::lengths::{Cursor, LengthOrder, LengthReader};
use super::state::{FORMAT, RECEIPT_LEN, differs, parse};
use super::{ALGORITHM, Mismatch, short_hex};
use crate::error::Result;

/// Where training on whole episodes stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LengthState {
    /// The format of this state.
    pub format: u32,
    /// The algorithm of the order.
    pub algorithm: String,
    /// Hash of the episodes and the settings.
    pub order: String,
    /// Hash of the episodes.
    pub data: String,
    /// The settings.
    pub settings: LengthSettings,
    /// Where the next step starts.
    pub cursor: Cursor,
    /// Hash of the last batches of the epoch before it.
    pub receipt: String,
}

/// An order at the place where a state stood.
#[derive(Debug, Clone)]
pub struct LengthRestored {
    /// The order; with the seed of the state if it was forced.
    pub order: LengthOrder,
    /// Where to go on.
    pub cursor: Cursor,
}

impl LengthState {
    /// The state as JSON.
    pub fn to_json(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// Reads a state that [`to_json`](Self::to_json) wrote.
    pub fn from_json(text: &str) -> Result<Self> {
        parse(text)
    }
}

impl LengthReader {
    /// The state before the step at `cursor`.
    pub fn state(&mut self, cursor: Cursor) -> Result<LengthState> {
        let receipt = self.receipt(cursor)?;
        let order = self.order();
        let data = order.data();
        Ok(LengthState {
            format: FORMAT,
            algorithm: ALGORITHM.into(),
            order: order.id_of(&data),
            data,
            settings: *order.settings(),
            cursor,
            receipt,
        })
    }

    /// Hash of the last up to 1000 batches of the epoch before `cursor`.
    fn receipt(&mut self, cursor: Cursor) -> Result<String> {
        let mut hasher = blake3::Hasher::new();
        for batch in self.before(cursor, RECEIPT_LEN)? {
            hasher.update(&batch.epoch.to_le_bytes());
            hasher.update(&(batch.episodes.len() as u64).to_le_bytes());
            for episode in batch.episodes {
                hasher.update(&episode.to_le_bytes());
            }
        }
        Ok(short_hex(&hasher))
    }
}

impl LengthOrder {
    /// Goes on where a state stood. A state of another order is refused unless that is meant.
    pub fn restore(&self, state: &LengthState, mismatch: Mismatch) -> Result<LengthRestored> {
        let order = match mismatch {
            Mismatch::Refuse => {
                self.compare(state)?;
                self.clone()
            }
            Mismatch::Force => self.with_seed(state.settings.seed),
        };
        Ok(LengthRestored {
            order,
            cursor: state.cursor,
        })
    }

    fn data(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(self.id.len() as u64).to_le_bytes());
        hasher.update(self.id.as_bytes());
        for length in self.lengths.iter() {
            hasher.update(&length.to_le_bytes());
        }
        short_hex(&hasher)
    }

    fn id_of(&self, data: &str) -> String {
        let settings = serde_json::json!(self.settings);
        let mut hasher = blake3::Hasher::new();
        hasher
            .update(format!("{ALGORITHM} lengths\ndata {data}\nsettings {settings}\n").as_bytes());
        short_hex(&hasher)
    }

    fn compare(&self, state: &LengthState) -> Result<()> {
        let library = "use the library that wrote the state";
        differs("algorithm", library, &state.algorithm, ALGORITHM)?;
        let json = |settings: &LengthSettings| serde_json::json!(settings).to_string();
        let (found, expected) = (json(&state.settings), json(&self.settings));
        differs("settings", "set them as they were", found, expected)?;
        let hint = "open the version and the selection that the state was made with";
        let data = self.data();
        differs("data", hint, &state.data, &data)?;
        differs("order", hint, &state.order, self.id_of(&data))?;
        let receipt = self.reader().receipt(state.cursor)?;
        differs("receipt", library, &state.receipt, receipt)
    }
}
