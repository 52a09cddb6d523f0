//! Real hash collisions.

use std::collections::BTreeSet;

use super::*;

#[test]
fn name_hash_is_the_kernels() {
    // The DIR_ITEM of the default subvolume, in the root tree of every volume.
    assert_eq!(name_hash(b"default"), 2_378_154_706);
}

#[test]
fn colliding_names_collide_under_every_seed() {
    for prefix in [&b""[..], b"user.", b"a longer prefix "] {
        let names = colliding_names(prefix, 1000);
        let distinct: BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), 1000);
        for seed in [!1, 0, 256, 0x1234_5678] {
            let hashes: BTreeSet<u32> = names.iter().map(|name| crc32c(seed, name)).collect();
            assert_eq!(hashes.len(), 1, "seed {seed}");
        }
    }
}

#[test]
fn colliding_names_are_printable() {
    for name in colliding_names(b"x-", 5000) {
        assert!(name.iter().all(u8::is_ascii_graphic));
        assert!(!name.contains(&b'/'));
    }
}
