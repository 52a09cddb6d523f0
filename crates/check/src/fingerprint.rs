//! Comparison of two multisets of facts in different orders, in constant memory.
//!
//! Each fact is hashed with a key that is random for every check. One side adds the hash to a sum, the other
//! subtracts it. A sum of zero means that both sides have equal facts, with an error probability of 2^-64. Facts that
//! belong together share a bucket, so that a second pass only needs the nonzero buckets.
//!
//! Not here: the facts themselves (`facts`, `files::names`).

use ubtrfs_device::random_words;

/// A keyed hash of a few words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hasher {
    secret: [u64; 4],
}

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Hasher {
    pub(crate) fn new() -> Hasher {
        Hasher {
            // Odd, because an even factor could lose bits.
            secret: random_words().map(|word| word | 1),
        }
    }

    pub(crate) fn words<const N: usize>(&self, words: [u64; N]) -> u64 {
        let [first, second, third, _] = self.secret;
        let mut hash = third;
        for pair in words.chunks(2) {
            let other = pair.get(1).copied().unwrap_or(N as u64);
            hash = fold(pair[0] ^ first ^ hash, other ^ second);
        }
        self.finish(hash)
    }

    pub(crate) fn bytes(&self, bytes: &[u8]) -> u64 {
        let [first, second, third, _] = self.secret;
        let mut hash = third ^ bytes.len() as u64;
        let (pairs, rest) = bytes.as_chunks::<16>();
        for pair in pairs {
            let word = |at: usize| {
                u64::from_le_bytes(pair[at..at + 8].try_into().expect("eight of sixteen bytes"))
            };
            hash = fold(word(0) ^ first ^ hash, word(8) ^ second);
        }
        let mut last = [0; 16];
        last[..rest.len()].copy_from_slice(rest);
        let last = u128::from_le_bytes(last);
        hash = fold(last as u64 ^ first ^ hash, (last >> 64) as u64 ^ second);
        self.finish(hash)
    }

    fn finish(&self, hash: u64) -> u64 {
        fold(hash ^ self.secret[3], self.secret[1])
    }
}

/// Sums of hashes, by bucket.
#[derive(Clone, Debug)]
pub(crate) struct Sums {
    sums: Box<[u64]>,
}

impl Sums {
    /// Creates sums of zero. `buckets` must be a power of two.
    pub(crate) fn new(buckets: usize) -> Sums {
        assert!(buckets.is_power_of_two(), "buckets are chosen by mask");
        Sums {
            sums: vec![0; buckets].into(),
        }
    }

    pub(crate) fn add(&mut self, bucket: u64, hash: u64) {
        let slot = self.slot(bucket);
        self.sums[slot] = self.sums[slot].wrapping_add(hash);
    }

    pub(crate) fn take(&mut self, bucket: u64, hash: u64) {
        let slot = self.slot(bucket);
        self.sums[slot] = self.sums[slot].wrapping_sub(hash);
    }

    /// Returns whether the sides differ in the bucket of this hash.
    pub(crate) fn differs(&self, bucket: u64) -> bool {
        self.sums[self.slot(bucket)] != 0
    }

    pub(crate) fn all_equal(&self) -> bool {
        self.sums.iter().all(|&sum| sum == 0)
    }

    pub(crate) fn clear(&mut self) {
        self.sums.fill(0);
    }

    fn slot(&self, bucket: u64) -> usize {
        bucket as usize & (self.sums.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_facts_in_another_order_cancel() {
        let hasher = Hasher::new();
        let mut sums = Sums::new(16);
        for n in 0..1000u64 {
            sums.add(n, hasher.words([n, n * n, 5]));
        }
        assert!(!sums.all_equal());
        for n in (0..1000u64).rev() {
            sums.take(n, hasher.words([n, n * n, 5]));
        }
        assert!(sums.all_equal());
    }

    #[test]
    fn facts_that_differ_in_one_word_do_not_cancel() {
        let hasher = Hasher::new();
        let mut sums = Sums::new(1);
        sums.add(0, hasher.words([1, 2, 3]));
        sums.take(0, hasher.words([1, 2, 4]));
        assert!(sums.differs(0));
        assert_ne!(hasher.words([1, 2]), hasher.words([1, 2, 0]));
    }

    #[test]
    fn names_of_all_lengths_hash_differently() {
        let hasher = Hasher::new();
        let name = [7; 255];
        let mut hashes: Vec<u64> = (0..=255).map(|len| hasher.bytes(&name[..len])).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 256);
    }
}
