//! Random numbers. `clippy.toml` has everything take them from here.

use ubtrfs_format::uuid::Uuid;

/// A number that nothing else has and nobody can guess: a UUID of version 4.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place that asks")]
pub fn random_uuid() -> Uuid {
    Uuid(uuid::Uuid::new_v4().into_bytes())
}
