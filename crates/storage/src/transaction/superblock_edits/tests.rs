//! Superblocks after an edit.

use zerocopy::FromZeros;

use super::*;

#[test]
fn caches_of_free_space_are_never_of_the_generation_that_is_committed() {
    let after = |cached: u64, edits: SuperblockEdits| {
        let mut sb = Superblock::new_zeroed();
        sb.generation = 10.into();
        sb.cache_generation = cached.into();
        edits.apply(&mut sb);
        sb.cache_generation.get()
    };
    let none = SuperblockEdits::default;
    assert_eq!(after(0, none()), 0, "no caches");
    assert_eq!(after(9, none()), 9);
    assert_eq!(after(10, none()), u64::MAX);
    assert_eq!(after(12, none()), u64::MAX);
    assert_eq!(after(u64::MAX, none()), u64::MAX);
    let dropped = SuperblockEdits {
        drops_v1_cache: true,
        ..none()
    };
    assert_eq!(after(9, dropped), 0);
}
