//! A small random number generator that depends only on its seed, on every machine and in every version.

use std::time::{SystemTime, UNIX_EPOCH};

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn fill(&mut self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            let bytes = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

/// Returns the seed of the test `name`, and prints it, so that a failure can be reproduced. It is `UBTRFS_SEED` if
/// set, random in a soak, and otherwise derived from the name. So results depend on the change under test and not on
/// chance.
pub fn seed(name: &str) -> u64 {
    let given = std::env::var("UBTRFS_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            Rng::new(now.map_or(0, |since| since.as_nanos() as u64)).next_u64()
        }
        None => name
            .bytes()
            .fold(0, |seed, byte| Rng::new(seed ^ u64::from(byte)).next_u64()),
    });
    println!("{name}: UBTRFS_SEED={seed}");
    seed
}
