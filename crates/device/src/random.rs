//! Random numbers. `clippy.toml` forbids other sources.

use std::hash::{BuildHasher, RandomState};

use ubtrfs_format::uuid::Uuid;

/// Creates a unique and unpredictable number: a UUID of version 4.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the only place")]
pub fn random_uuid() -> Uuid {
    Uuid(uuid::Uuid::new_v4().into_bytes())
}

/// Creates unpredictable numbers, for example for the secret of a hash.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the only place")]
pub fn random_words<const N: usize>() -> [u64; N] {
    let state = RandomState::new();
    std::array::from_fn(|index| state.hash_one(index))
}
