//! Randomness for augmentation: keyed by seed, index and operation, never by worker.
//!
//! A generator per worker gives other images when the number of workers changes, or after a restart; this gives
//! index i its own numbers, on every rank and thread.

use super::keys::{Key, Purpose, below};

/// An operation that needs random numbers, for instance `crop`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation(u64);

impl Operation {
    /// The operation of this name. Two names have different draws.
    pub fn named(name: &str) -> Self {
        let hash = blake3::hash(name.as_bytes());
        let mut first = [0; 8];
        first.copy_from_slice(&hash.as_bytes()[..8]);
        Self(u64::from_le_bytes(first))
    }

    /// The operation's random numbers at index `i`.
    ///
    /// ```
    /// use kino_loader::Operation;
    ///
    /// let crop = Operation::named("crop");
    /// assert_eq!(crop.at(7, 1000).next_u64(), crop.at(7, 1000).next_u64());
    /// assert_ne!(crop.at(7, 1000).next_u64(), crop.at(7, 1001).next_u64());
    /// ```
    pub fn at(self, seed: u64, i: u64) -> Draw {
        Draw {
            key: Key::new(seed, Purpose::Operation, [i, self.0, 0]),
            next: 0,
        }
    }
}

/// An endless row of random numbers.
#[derive(Debug, Clone)]
pub struct Draw {
    key: Key,
    next: u64,
}

impl Draw {
    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let draw = self.key.draw(self.next);
        self.next = self.next.wrapping_add(1);
        draw
    }

    /// The next whole number below `end`; 0 if `end` is 0.
    pub fn next_below(&mut self, end: u64) -> u64 {
        below(self.next_u64(), end)
    }

    /// Whether something of probability `p` happens: never if that is 0, always if it is 1.
    pub fn next_bool(&mut self, p: f64) -> bool {
        self.next_fraction() < p
    }

    /// The next number between two: `least` if they are equal.
    pub fn next_between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.next_fraction()
    }

    /// The next number from 0 to 1, below 1.
    #[expect(
        clippy::cast_precision_loss,
        reason = "53 bits are a 64-bit float exactly"
    )]
    fn next_fraction(&mut self) -> f64 {
        const STEPS: u64 = 1 << 53;
        (self.next_u64() >> 11) as f64 / STEPS as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_do_not_depend_on_who_asked_before() {
        let crop = Operation::named("crop");
        let mut first = crop.at(1, 5);
        let row: Vec<u64> = (0..4).map(|_| first.next_u64()).collect();
        let mut others = Operation::named("flip").at(1, 5);
        assert_ne!(others.next_u64(), row[0]);
        let mut again = crop.at(1, 5);
        assert!(row.iter().all(|&draw| again.next_u64() == draw));
    }

    #[test]
    fn what_is_certain_always_happens_and_what_is_impossible_never() {
        let mut draw = Operation::named("jpeg").at(3, 5);
        assert!((0..1000).all(|_| draw.next_bool(1.0) && !draw.next_bool(0.0)));
        let often = (0..9000).filter(|_| draw.next_bool(0.3)).count();
        assert!((2550..2850).contains(&often), "{often}");
    }

    #[test]
    fn numbers_between_two_are_spread_evenly_and_need_not_differ() {
        let mut draw = Operation::named("jitter").at(3, 5);
        let mut seen = [0; 5];
        for _ in 0..5000 {
            let number = draw.next_between(-1.0, 1.5);
            let place = (0..5).find(|&place| number < -0.5 + 0.5 * f64::from(place));
            seen[usize::try_from(place.unwrap()).unwrap()] += 1;
            assert!(number >= -1.0);
            assert_eq!(draw.next_between(0.9, 0.9).to_bits(), 0.9_f64.to_bits());
        }
        assert!(
            seen.iter().all(|count| (880..1120).contains(count)),
            "{seen:?}"
        );
    }

    #[test]
    fn numbers_stay_in_their_range_and_fill_it() {
        let mut draw = Operation::named("jitter").at(0, 0);
        let mut seen = [0; 7];
        (0..7000).for_each(|_| seen[usize::try_from(draw.next_below(7)).unwrap()] += 1);
        assert!(
            seen.iter().all(|&count| (800..1200).contains(&count)),
            "{seen:?}"
        );
    }
}
