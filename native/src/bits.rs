//! Sets of small numbers, for linearized open slots and for used unknown operations.
//!
//! The width is a compile-time constant, so in the usual case (up to 64 numbers) a set is one
//! machine word.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A set of numbers below `64 * W`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bits<const W: usize>([u64; W]);

impl<const W: usize> Bits<W> {
    /// The empty set.
    pub const EMPTY: Self = Self([0; W]);

    /// Whether `index` is in the set.
    #[inline]
    pub fn has(&self, index: u32) -> bool {
        self.0[index as usize / 64] >> (index % 64) & 1 == 1
    }

    /// The set with `index` added.
    #[inline]
    #[must_use]
    pub fn with(mut self, index: u32) -> Self {
        self.0[index as usize / 64] |= 1 << (index % 64);
        self
    }

    /// The set without `index`.
    #[inline]
    #[must_use]
    pub fn without(mut self, index: u32) -> Self {
        self.0[index as usize / 64] &= !(1 << (index % 64));
        self
    }

    /// Whether the set is a subset of `other`.
    #[inline]
    pub fn is_within(&self, other: &Self) -> bool {
        self.0
            .iter()
            .zip(&other.0)
            .all(|(mine, theirs)| mine & !theirs == 0)
    }

    /// The numbers in the set, ascending.
    pub fn indices(&self) -> Vec<u32> {
        (0..64 * W as u32)
            .filter(|index| self.has(*index))
            .collect()
    }
}

impl<const W: usize> Hash for Bits<W> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        for word in self.0 {
            state.write_u64(word);
        }
    }
}

/// A multiplicative hash of a few words. It has no random seed, since equal runs must behave
/// equally. No adversary chooses the keys.
#[derive(Default)]
pub struct WordHasher(u64);

impl Hasher for WordHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        // The constant is 2^64 divided by the golden ratio, made odd.
        let mixed = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// A map with a fast hash that is the same in every run. Never iterate over it.
pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<WordHasher>>;

/// A set with the hash of `Map`.
pub type Set<K> = HashSet<K, BuildHasherDefault<WordHasher>>;

/// The minimal sets of unknown operations that reached the same mask and state.
#[derive(Clone, Debug)]
pub enum Antichain<const U: usize> {
    /// A single set. This is by far the most frequent case, and needs no allocation.
    One(Bits<U>),
    /// Any other number of sets. None is a subset of another.
    Many(Vec<Bits<U>>),
}

impl<const U: usize> Antichain<U> {
    /// The empty antichain.
    pub const fn new() -> Self {
        Self::Many(Vec::new())
    }

    /// Whether some set is a subset of `used`. If not, add `used` and remove its supersets.
    pub fn dominates(&mut self, used: &Bits<U>) -> bool {
        match self {
            Self::One(other) => {
                if other.is_within(used) {
                    return true;
                }
                *self = if used.is_within(other) {
                    Self::One(*used)
                } else {
                    Self::Many(vec![*other, *used])
                };
            }
            Self::Many(sets) => {
                if sets.iter().any(|other| other.is_within(used)) {
                    return true;
                }
                sets.retain(|other| !used.is_within(other));
                sets.push(*used);
            }
        }
        false
    }

    /// Whether exactly this set is in the antichain.
    pub fn contains(&self, used: &Bits<U>) -> bool {
        match self {
            Self::One(other) => other == used,
            Self::Many(sets) => sets.contains(used),
        }
    }
}
