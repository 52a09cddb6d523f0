//! Invalid names.

use super::*;

/// ENTRY-PATH-1
#[test]
fn name_that_is_none_becomes_one() {
    for (name, shown) in [
        (&b""[..], &b"\\"[..]),
        (b".", b"\\x2e"),
        (b"..", b"\\x2e\\x2e"),
        (b"/", b"\\x2f"),
        (b"../..", b"..\\x2f.."),
        (b"\xff\0", b"\xff\\x00"),
    ] {
        assert!(!is_component(name));
        assert_eq!(escaped(name), shown);
        assert!(is_component(&escaped(name)));
    }
}
