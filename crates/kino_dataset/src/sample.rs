//! A few episodes that stand for all of them: at even distances, because neighbours often look alike.

/// A sample has at least this many episodes, however large they are, if there are as many.
const LEAST: usize = 2;

/// The positions of a sample of `episodes` episodes with `bytes` decoded bytes together: about `max_bytes` of them.
pub fn sample_episodes(episodes: usize, bytes: u64, max_bytes: u64) -> impl Iterator<Item = usize> {
    let mean = (bytes / episodes.max(1) as u64).max(1);
    let count = usize::try_from(max_bytes / mean).unwrap_or(usize::MAX);
    let count = count.max(LEAST).min(episodes);
    (0..count).map(move |number| number * episodes / count)
}

#[cfg(test)]
mod tests {
    use super::sample_episodes;

    fn sample(episodes: usize, bytes: u64, max_bytes: u64) -> Vec<usize> {
        sample_episodes(episodes, bytes, max_bytes).collect()
    }

    #[test]
    fn episodes_are_spread_evenly() {
        assert_eq!(sample(10, 1000, 500), [0, 2, 4, 6, 8]);
        assert_eq!(sample(10, 1000, 0), [0, 5]);
        assert_eq!(sample(3, 1000, u64::MAX), [0, 1, 2]);
        assert_eq!(sample(1, 0, 5), [0]);
        assert!(sample(0, 0, 5).is_empty());
    }
}
