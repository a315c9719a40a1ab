//! How often a fault test does what it does, and with which random numbers.

use std::collections::hash_map::RandomState;
use std::env;
use std::hash::BuildHasher as _;
use std::thread;
use std::time::Duration;

/// Random numbers that a seed repeats: the generator of Knuth's MMIX.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Whose turn it is in a round, before anything is drawn: as many rounds as there are things have one each.
    pub fn turn<'a, T>(&self, things: &'a [T]) -> &'a T {
        let number = self.0 % things.len() as u64;
        &things[usize::try_from(number).expect("it is an index")]
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// A time below `limit`, in whole milliseconds.
    pub fn delay(&mut self, limit: Duration) -> Duration {
        Duration::from_millis(self.below(u64::try_from(limit.as_millis()).expect("some minutes at most")))
    }

    /// The same things in another order.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for end in (1..things.len()).rev() {
            let other = self.below(end as u64 + 1);
            things.swap(end, usize::try_from(other).expect("it is an index"));
        }
    }
}

/// Leaves a third of the things, drawn at random, or all with `STOA_TEST_ALL`. So one run is short, and many runs try all.
pub fn leave_part<T>(random: &mut Random, things: &mut Vec<T>) {
    random.shuffle(things);
    if !is_in_full() {
        things.truncate(things.len().div_ceil(3));
    }
}

/// Whether slow tests run in full (`hack/test --all`).
pub fn is_in_full() -> bool {
    env::var_os("STOA_TEST_ALL").is_some()
}

/// How many rounds a fault test has: `STOA_TEST_REPEAT`, or one.
pub fn repeat() -> usize {
    let told = env::var("STOA_TEST_REPEAT").ok();
    told.map_or(1, |told| told.parse().expect("STOA_TEST_REPEAT is a number"))
}

/// The seed of the first round: `STOA_TEST_SEED`, or another one every time.
pub fn seed() -> u64 {
    let told = env::var("STOA_TEST_SEED").ok();
    told.map_or_else(|| RandomState::new().hash_one(0), |told| told.parse().expect("STOA_TEST_SEED is a number"))
}

/// Does a round as often as [`repeat`] says, each with random numbers of a seed of its own. A round that fails says what
/// repeats it.
pub fn rounds(mut round: impl FnMut(&mut Random)) {
    let (first, count) = (seed(), repeat());
    for number in 0..count {
        let seed = first.wrapping_add(number as u64);
        if count > 1 {
            eprintln!("round {} of {count}, STOA_TEST_SEED={seed}", number + 1);
        }
        let _told = ToldOnFailure(seed);
        round(&mut Random::new(seed));
    }
}

/// Prints a seed when the test fails while it is there.
struct ToldOnFailure(u64);

impl Drop for ToldOnFailure {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("STOA_TEST_SEED={} STOA_TEST_REPEAT=1 repeats this round", self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_repeats_its_numbers() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            let mut order: Vec<u64> = (0..20).collect();
            random.shuffle(&mut order);
            (order, random.below(1000), random.delay(Duration::from_secs(1)))
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let (mut order, ..) = draw(7);
        order.sort_unstable();
        assert_eq!(order, (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn everything_has_its_turn_in_as_many_rounds() {
        let things = ["a", "b", "c", "d"];
        let mut had: Vec<&str> = (5..9).map(|seed| *Random::new(seed).turn(&things)).collect();
        had.sort_unstable();
        assert_eq!(had, things);
    }
}
