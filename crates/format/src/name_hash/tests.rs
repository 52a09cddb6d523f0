//! Hashes compared with values from real volumes and published ones.

use super::*;

#[test]
fn default_subvolume_name_has_the_hash_that_mkfs_writes() {
    assert_eq!(name_hash(b"default"), 2378154706);
}

#[test]
fn crc_continues_from_its_own_result() {
    let whole = crc32c(7, b"a name in two parts");
    assert_eq!(crc32c(crc32c(7, b"a name "), b"in two parts"), whole);
}

#[test]
fn inverted_at_both_ends_it_is_the_standard_crc32c() {
    assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
}

#[test]
fn extref_seed_is_the_low_half_of_the_parent() {
    assert_eq!(
        extref_hash(0xdead_beef_0000_0101, b"x"),
        extref_hash(0x101, b"x")
    );
    assert_eq!(
        extref_hash(0xffff_fffe, b"default"),
        u64::from(name_hash(b"default"))
    );
}
