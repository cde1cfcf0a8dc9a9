//! Checksums of pages that were linked without reading them, filled in when a page is first read.
//!
//! ```text
//! links/<shard>.<slot>.crc   "KCRC" | u32 pages | u32 × pages checksums | 1 bit × pages: known | u32 crc of all before
//! ```
//!
//! The file is a memory, not a part of the dataset: it is written when an episode is closed, if the folder is writable. If
//! it is lost, only what the pages were is forgotten. A damaged file counts as none. Of two processes that fill it in,
//! the first to know a page is right.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use kino_format::{EpisodeIndex, PageRecord, page_checksum};
use kino_sync::Mutex;

use crate::hash::Hash;
use crate::store::Store;
use kino_storage::write_beside;

const MAGIC: &[u8; 4] = b"KCRC";

/// The checksums of an episode's linked pages, as far as they are known.
#[derive(Debug)]
pub(crate) struct Checksums {
    /// `None` if the index has all checksums.
    unchecked: Option<Unchecked>,
}

#[derive(Debug)]
struct Unchecked {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    known: Vec<Option<u32>>,
    is_changed: bool,
}

impl Checksums {
    /// What is known about the pages of an episode.
    pub(crate) fn open(store: &Store, shard: &Hash, slot: usize, index: &EpisodeIndex) -> Self {
        let pages = index.linked_pages();
        let first = (!pages.is_empty()).then(|| index.page(pages.start));
        let is_unchecked = first.is_some_and(|page| !index.has_checksum(&page));
        let unchecked = is_unchecked.then(|| {
            let path = store.work_folder().join(key(shard, slot));
            let known = read(&path, pages.len()).unwrap_or_else(|| vec![None; pages.len()]);
            let is_changed = false;
            let state = Mutex::new(State { known, is_changed });
            Unchecked { path, state }
        });
        Self { unchecked }
    }

    /// Whether every page in `range` can be compared with a checksum.
    pub(crate) fn has_all(&self, index: &EpisodeIndex, range: &Range<u64>) -> bool {
        let Some(unchecked) = &self.unchecked else {
            return true;
        };
        let last = range.end.saturating_sub(1).max(range.start);
        let ends = [range.start, last].map(|offset| index.linked_position(offset));
        let [Some(first), Some(last)] = ends else {
            return false;
        };
        let state = unchecked.state.lock();
        let pages = state.known.get(first..=last);
        pages.is_some_and(|pages| pages.iter().all(Option::is_some))
    }

    /// The checksum that a linked page must have: what is known, or from now on that of these bytes.
    pub(crate) fn expected(&self, index: &EpisodeIndex, page: &PageRecord, computed: u32) -> u32 {
        let position = index.linked_position(page.offset());
        let (Some(unchecked), Some(position)) = (&self.unchecked, position) else {
            return page.crc;
        };
        let mut state = unchecked.state.lock();
        let State { known, is_changed } = &mut *state;
        match known.get_mut(position) {
            Some(Some(crc)) => *crc,
            Some(unknown) => {
                *is_changed = true;
                *unknown.insert(computed)
            }
            None => computed,
        }
    }
}

impl Drop for Checksums {
    fn drop(&mut self) {
        let Some(unchecked) = &self.unchecked else {
            return;
        };
        let state = unchecked.state.lock();
        if state.is_changed {
            // A reader that may not write here only remembers less.
            let _ = write(unchecked, &state.known);
        }
    }
}

/// The key of an episode's checksums.
fn key(shard: &Hash, slot: usize) -> String {
    format!("links/{}.{slot}.crc", &shard.to_hex()[..32])
}

fn write(unchecked: &Unchecked, known: &[Option<u32>]) -> std::io::Result<()> {
    // What another process has written in the meantime was read first.
    let there = read(&unchecked.path, known.len()).unwrap_or_default();
    let there = there.into_iter().chain(std::iter::repeat(None));
    let known: Vec<_> = known
        .iter()
        .zip(there)
        .map(|(&here, there)| there.or(here))
        .collect();
    let file = write_beside(&unchecked.path, &to_bytes(&known))?;
    Ok(file.persist(&unchecked.path)?)
}

fn to_bytes(known: &[Option<u32>]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    let pages = u32::try_from(known.len()).unwrap_or(u32::MAX);
    bytes.extend(pages.to_le_bytes());
    for crc in known {
        bytes.extend(crc.unwrap_or(0).to_le_bytes());
    }
    for eight in known.chunks(8) {
        let bits = eight.iter().enumerate();
        bytes.push(bits.fold(0, |bits, (idx, crc)| bits | u8::from(crc.is_some()) << idx));
    }
    bytes.extend(page_checksum(&bytes).to_le_bytes());
    bytes
}

fn read(path: &PathBuf, pages: usize) -> Option<Vec<Option<u32>>> {
    let len = 12 + pages.checked_mul(4)? + pages.div_ceil(8);
    let meta = fs::metadata(path).ok()?;
    // A file of any other length is not read at all.
    if !meta.is_file() || meta.len() != len as u64 {
        return None;
    }
    from_bytes(&fs::read(path).ok()?, pages)
}

/// The checksums of `pages` pages, from untrusted bytes.
fn from_bytes(bytes: &[u8], pages: usize) -> Option<Vec<Option<u32>>> {
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    let rest = body.strip_prefix(MAGIC)?;
    let (count, rest) = rest.split_first_chunk::<4>()?;
    let is_right = u32::from_le_bytes(*crc) == page_checksum(body)
        && u32::from_le_bytes(*count) as usize == pages;
    let (crcs, bits) = rest.split_at_checked(pages.checked_mul(4).filter(|_| is_right)?)?;
    let (crcs, _) = crcs.as_chunks::<4>();
    let known = crcs.iter().enumerate().map(|(idx, crc)| {
        let is_known = bits
            .get(idx / 8)
            .is_some_and(|byte| byte >> (idx % 8) & 1 == 1);
        is_known.then(|| u32::from_le_bytes(*crc))
    });
    Some(known.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_round_trips_and_damage_counts_as_nothing() {
        let known: Vec<_> = (0..19)
            .map(|idx| (idx % 3 > 0).then_some(idx * 7))
            .collect();
        let bytes = to_bytes(&known);
        assert_eq!(from_bytes(&bytes, 19), Some(known));
        assert_eq!(from_bytes(&bytes, 18), None);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(from_bytes(&flipped, 19), None, "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert_eq!(from_bytes(&bytes[..len], 19), None);
        }
        assert_eq!(from_bytes(&to_bytes(&[]), 0), Some(vec![]));
    }

    #[test]
    fn the_first_to_know_a_page_is_right() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("links/a.0.crc");
        let state = || {
            Mutex::new(State {
                known: vec![],
                is_changed: false,
            })
        };
        let unchecked = Unchecked {
            path: path.clone(),
            state: state(),
        };
        write(&unchecked, &[Some(1), None]).unwrap();
        write(&unchecked, &[Some(9), Some(2)]).unwrap();
        assert_eq!(read(&path, 2), Some(vec![Some(1), Some(2)]));
    }
}
