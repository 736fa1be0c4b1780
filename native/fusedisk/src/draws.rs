//! Seeded random numbers (SplitMix64), so that the run's seed decides what a fault destroys.

/// A generator of random numbers.
#[derive(Debug)]
pub struct Draws(u64);

impl Draws {
    /// Create the generator for a seed.
    pub fn new(seed: u64) -> Draws {
        Draws(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Return a number in `0..limit`. The bias of the remainder does not matter here.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// Return `true` or `false` with equal probability.
    pub fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }

    /// Return `true` with this probability.
    pub fn happens(&mut self, probability: f64) -> bool {
        ((self.next() >> 11) as f64) / ((1_u64 << 53) as f64) < probability
    }
}
