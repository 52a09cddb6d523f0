//! Records against the examples of POSIX and the arithmetic of their lengths.

use ubtrfs_fs::FileTime;

use super::{PaxRecords, time_text};

#[test]
fn the_length_counts_its_own_digits() {
    let mut records = PaxRecords::default();
    records.push(b"path", b"abc");
    assert_eq!(records.bytes(), b"12 path=abc\n");
    // 97 bytes without the length: with two digits the record has 99.
    let mut records = PaxRecords::default();
    records.push(b"k", &[b'v'; 93]);
    assert!(records.bytes().starts_with(b"99 k="));
    assert_eq!(records.bytes().len(), 99);
    // 98 bytes without it: two digits would make 100, so the length has three.
    let mut records = PaxRecords::default();
    records.push(b"k", &[b'v'; 94]);
    assert!(records.bytes().starts_with(b"101 k="));
    assert_eq!(records.bytes().len(), 101);
}

#[test]
fn times_before_1970_count_backward() {
    let time = |sec, nsec| time_text(FileTime { sec, nsec });
    assert_eq!(time(1, 500_000_000), "1.500000000");
    assert_eq!(time(1, 0), "1");
    assert_eq!(time(-2, 0), "-2");
    assert_eq!(time(-2, 250_000_000), "-1.750000000");
    assert_eq!(time(-1, 1), "-0.999999999");
    assert_eq!(time(i64::MIN, 1), "-9223372036854775807.999999999");
}

#[test]
fn an_equals_sign_in_an_attribute_name_is_escaped() {
    let mut records = PaxRecords::default();
    records.push_xattr(b"user.a=b%", b"\0\n");
    assert_eq!(records.bytes(), b"33 SCHILY.xattr.user.a%3Db%25=\0\n\n");
}
