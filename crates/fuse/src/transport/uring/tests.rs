//! The kernel's lists of CPUs.

use super::*;

#[test]
fn lists_of_cpus_are_counted() {
    for (list, count) in [
        ("0\n", Some(1)),
        ("0-1\n", Some(2)),
        ("0-3,8", Some(5)),
        ("0-3,8-9,12", Some(7)),
        ("", None),
        ("3-1", None),
        ("0-65535", None),
        ("x", None),
    ] {
        assert_eq!(count_of(list), count, "{list}");
    }
    assert!(possible_cpus().unwrap() >= 1);
}
