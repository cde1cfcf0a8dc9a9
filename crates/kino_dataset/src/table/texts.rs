//! Many distinct texts in one buffer, found by content.
//!
//! ```text
//! text   "ep-00ep-01ep-02…"        ends  [5, 10, 15, …]
//! table  [0, 2, 0, 1, 3, …]        open addressing: 0 is free, n is text n-1
//! ```
//!
//! A `HashMap<String, u32>` costs about 90 bytes per 20-byte text; this costs about 35, and 24 without the table, which
//! can be dropped when all texts are there and is made again when one is looked up.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

/// Distinct texts, numbered in order of insertion.
#[derive(Default)]
pub(super) struct Texts {
    text: String,
    ends: Vec<u32>,
    table: Vec<u32>,
    /// The table, if it was dropped and then needed.
    again: OnceLock<Vec<u32>>,
    // Keyed, so that a hostile file cannot choose ids that all collide.
    hasher: RandomState,
}

/// The result of [`Texts::insert`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Inserted {
    /// It is new and has this number.
    New(u32),
    /// It already exists, with this number.
    Known(u32),
    /// More than 4 GiB of text, or more texts than `u32` counts.
    Full,
}

impl Texts {
    /// The number of texts.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Text `idx`.
    pub(super) fn get(&self, idx: usize) -> Option<&str> {
        let end = *self.ends.get(idx)?;
        let start = match idx.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        self.text.get(to_usize(start)..to_usize(end))
    }

    /// The number of `text`.
    pub(super) fn find(&self, text: &str) -> Option<usize> {
        let table = if self.table.is_empty() {
            self.again.get_or_init(|| self.index())
        } else {
            &self.table
        };
        let found = *table.get(self.probe(table, text)?)?;
        found.checked_sub(1).map(to_usize)
    }

    /// Adds `text` unless it exists.
    pub(super) fn insert(&mut self, text: &str) -> Inserted {
        if (self.len() + 1) * 4 > self.table.len() * 3 {
            self.grow();
        }
        let Some(place) = self.probe(&self.table, text) else {
            return Inserted::Full;
        };
        if let Some(known) = self.table[place].checked_sub(1) {
            return Inserted::Known(known);
        }
        let count = u32::try_from(self.len() + 1);
        let end = u32::try_from(self.text.len() + text.len());
        let (Ok(count), Ok(end)) = (count, end) else {
            return Inserted::Full;
        };
        self.text.push_str(text);
        self.ends.push(end);
        self.table[place] = count;
        Inserted::New(count - 1)
    }

    /// Shrinks and drops the table, which [`find`](Self::find) makes again; nothing can be added afterwards.
    pub(super) fn drop_index(&mut self) {
        self.shrink();
        self.table = Vec::new();
    }

    /// Frees spare capacity.
    fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// Bytes held in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let again = self.again.get().map_or(0, Vec::capacity);
        let numbers = self.ends.capacity() + self.table.capacity() + again;
        self.text.capacity() + numbers * size_of::<u32>()
    }

    /// The slot that holds `text`, or the free one where it belongs; `None` without a table.
    fn probe(&self, table: &[u32], text: &str) -> Option<usize> {
        let mask = table.len().checked_sub(1)?;
        let hash = self.hasher.hash_one(text);
        let mut place = usize::try_from(hash & u64::from(u32::MAX)).ok()? & mask;
        loop {
            match table[place].checked_sub(1) {
                None => return Some(place),
                Some(known) if self.get(to_usize(known)) == Some(text) => return Some(place),
                Some(_) => place = (place + 1) & mask,
            }
        }
    }

    fn grow(&mut self) {
        self.table = self.index_of((self.table.len() * 2).max(16));
    }

    /// A table for as many texts as there are.
    fn index(&self) -> Vec<u32> {
        self.index_of((self.len() * 4 / 3 + 1).next_power_of_two().max(16))
    }

    /// A table of `len` slots: a power of two, so that a mask wraps the probe, and never full, so that the probe ends.
    fn index_of(&self, len: usize) -> Vec<u32> {
        let mut table = vec![0; len];
        for idx in 0..self.len() {
            let place = self.get(idx).and_then(|text| self.probe(&table, text));
            if let (Some(place), Ok(count)) = (place, u32::try_from(idx + 1)) {
                table[place] = count;
            }
        }
        table
    }
}

/// `u32` always fits: the crate needs at least 32-bit addresses.
pub(super) fn to_usize(value: u32) -> usize {
    value as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_hash_map(inserted in prop::collection::vec("[a-cé]{0,3}", 0..200)) {
            let mut texts = Texts::default();
            let mut expected_numbers: HashMap<String, u32> = HashMap::new();
            for word in &inserted {
                let next = u32::try_from(expected_numbers.len()).unwrap();
                let expected = match expected_numbers.get(word) {
                    Some(&known) => Inserted::Known(known),
                    None => Inserted::New(next),
                };
                expected_numbers.entry(word.clone()).or_insert(next);
                prop_assert_eq!(texts.insert(word), expected);
            }
            prop_assert_eq!(texts.len(), expected_numbers.len());
            for (word, &idx) in &expected_numbers {
                prop_assert_eq!(texts.find(word), Some(to_usize(idx)));
                prop_assert_eq!(texts.get(to_usize(idx)), Some(word.as_str()));
            }
            prop_assert_eq!(texts.find("absent"), None);
            texts.drop_index();
            for (word, &idx) in &expected_numbers {
                prop_assert_eq!(texts.find(word), Some(to_usize(idx)));
            }
            prop_assert_eq!(texts.find("absent"), None);
            prop_assert_eq!(texts.get(expected_numbers.len()), None);
        }
    }

    #[test]
    fn an_empty_collection_finds_nothing() {
        assert_eq!(Texts::default().find(""), None);
    }
}
