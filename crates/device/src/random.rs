//! Random numbers. `clippy.toml` has everything take them from here.

use std::hash::{BuildHasher, RandomState};

use ubtrfs_format::uuid::Uuid;

/// Creates a unique number that cannot be guessed: a UUID of version 4.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place that asks")]
pub fn random_uuid() -> Uuid {
    Uuid(uuid::Uuid::new_v4().into_bytes())
}

/// Creates numbers that others cannot guess, as the secret of a hash.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place that asks")]
pub fn random_words<const N: usize>() -> [u64; N] {
    let state = RandomState::new();
    std::array::from_fn(|index| state.hash_one(index))
}
