//! Valid and invalid maps.

use super::*;

/// SOURCE-2 for archives.
#[test]
fn parts_must_ascend_and_hold_what_is_stored() {
    let sound = vec![(0, 10), (10, 0), (20, 5), (100, 0)];
    assert_eq!(checked(sound, 100, 15), Some(vec![(0, 10), (20, 5)]));
    assert_eq!(checked(vec![], 100, 0), Some(vec![]));
    for (parts, size, stored) in [
        (vec![(0, 10), (9, 1)], 100, 11),
        (vec![(95, 10)], 100, 10),
        (vec![(0, 10)], 100, 11),
        (vec![(u64::MAX, 10)], u64::MAX, 10),
        (vec![(5, 1), (0, 1)], 100, 2),
    ] {
        assert_eq!(checked(parts.clone(), size, stored), None, "{parts:?}");
    }
}

#[test]
fn text_has_pairs() {
    assert_eq!(from_text(b"0,10,4096,1"), Some(vec![(0, 10), (4096, 1)]));
    assert_eq!(from_text(b""), Some(vec![]));
    for text in ["1", "1,2,3", "1,x", ",", "-1,2"] {
        assert_eq!(from_text(text.as_bytes()), None, "{text}");
    }
}
