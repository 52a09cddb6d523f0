//! Counts of known faults may only fall.

use super::*;

fn baseline(text: &str) -> Baseline {
    Baseline::new("known.txt", text.to_owned())
}

fn counts(of: &[(&str, usize)]) -> Counts {
    of.iter()
        .map(|(key, count)| ((*key).to_owned(), *count))
        .collect()
}

fn change(key: &str, known: usize, found: usize) -> Change {
    Change {
        key: key.to_owned(),
        known,
        found,
    }
}

#[test]
fn more_and_fewer_than_known_are_reported() {
    let known = baseline("# remark 1\na 2\nb -> c 3\nd 1\n");
    let found = counts(&[("a", 3), ("b -> c", 3), ("e", 1)]);
    assert_eq!(known.grown(&found), [change("a", 2, 3), change("e", 0, 1)]);
    assert_eq!(known.shrunk(&found), [change("d", 1, 0)]);
}

#[test]
fn lowering_never_raises() {
    let known = baseline("# remark\na 2\nb 3\nd 1\n");
    let found = counts(&[("a", 9), ("b", 1), ("e", 5)]);
    assert_eq!(known.lowered(&found), "# remark\na 2\nb 1\n");
}

#[test]
fn moved_file_keeps_what_is_known_of_it() {
    let mut known = baseline("a/x.rs long 4\nb/y.rs long 2\n");
    let found = counts(&[("c/x.rs long", 3), ("c/y.rs long", 1)]);
    known.follow_moves(&found, |path| path == "b/y.rs");
    assert_eq!(known.grown(&found), [change("c/y.rs long", 0, 1)]);
    assert_eq!(known.lowered(&found), "c/x.rs long 3\n");
}

#[test]
fn moved_file_does_not_get_more_than_was_known() {
    let mut known = baseline("a/x.rs long 4\n");
    let found = counts(&[("c/x.rs long", 5)]);
    known.follow_moves(&found, |_| false);
    assert_eq!(known.grown(&found), [change("c/x.rs long", 0, 5)]);
}
