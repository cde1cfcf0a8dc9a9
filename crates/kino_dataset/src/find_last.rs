//! The last version of a dataset on a storage that cannot list, such as a web server.
//!
//! ```text
//! 1 2 4 8 ?    there: 1 2, not 4 8        versions have no gaps
//! 3 ?          not there ─▶ 2             each row is one round trip: its questions are asked at once
//! ```

use crate::error::Result;
use crate::manifest::MAX_VERSION;
use kino_storage::at_once;

/// The last version, or 0 if there is none; `is_there` tells whether a version exists.
pub(crate) fn find_last(is_there: impl Fn(u64) -> Result<bool> + Sync) -> Result<u64> {
    let (mut last, mut missing) = (0, MAX_VERSION + 1);
    while missing - last > 1 {
        let asked = questions(last, missing);
        let answers = at_once(&asked, |&version| is_there(version));
        for (version, is_there) in asked.into_iter().zip(answers) {
            if is_there? {
                last = last.max(version);
            } else {
                missing = missing.min(version);
            }
        }
    }
    Ok(last)
}

/// Versions between one that is there and one that is missing.
fn questions(last: u64, missing: u64) -> Vec<u64> {
    let is_open = missing > MAX_VERSION && last < MAX_VERSION / 16;
    let mut asked: Vec<u64> = if is_open {
        // Most datasets have few: the first round trip tells 0, 1 and 2.
        let first = (2 * last).max(1);
        (0..4).map(|doubled| first << doubled).collect()
    } else {
        (1..5)
            .map(|part| last + (missing - last) * part / 5)
            .collect()
    };
    asked.retain(|&one| last < one && one < missing);
    asked.dedup();
    asked
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::error::invalid;

    #[test]
    fn every_last_version_is_found_in_a_few_round_trips() {
        for last in (0..200).chain([1000, 123_456, MAX_VERSION - 1, MAX_VERSION]) {
            let asked = AtomicU32::new(0);
            let is_there = |version| {
                asked.fetch_add(1, Ordering::Relaxed);
                Ok(version <= last)
            };
            assert_eq!(find_last(is_there).unwrap(), last);
            let most = if last < 3 { 6 } else { 4 * 40 };
            assert!(asked.into_inner() <= most, "{last} versions");
        }
    }

    #[test]
    fn an_error_is_not_a_missing_version() {
        assert!(find_last(|_| Err(invalid("no connection"))).is_err());
    }
}
