//! Each pattern is found in comments and pages, and neither in code nor in words that only look alike.

use std::path::Path;

use super::*;

fn found(path: &str, text: &str) -> Vec<(usize, &'static str)> {
    hits(&File::new(Path::new(path), text.to_owned()))
}

/// TIDY-18
#[test]
fn patterns_are_found_in_comments() {
    let text = "//! Forgets what is dirty,\n//! those\n//! of others too.\n\n/// Has it go on.\nfn a() {}\n";
    let hits = [(1, "what"), (2, "that-of"), (5, "goes-on"), (5, "has-do")];
    assert_eq!(found("a.rs", text), hits);
}

#[test]
fn patterns_are_found_in_pages() {
    assert_eq!(
        found("a.md", "# What\n\nIt says so much.\n"),
        [(3, "says"), (3, "so-many")]
    );
}

#[test]
fn code_and_like_words_are_left_out() {
    let text =
        "/// Whatever `what is this` understands. No one may go.\nfn what() { say(\"what\") }\n";
    assert_eq!(found("a.rs", text), []);
}

#[test]
fn crates_are_counted_apart() {
    assert_eq!(folder(Path::new("crates/tree/src/lib.rs")), "crates/tree");
    assert_eq!(folder(Path::new("docs/design/log.md")), "docs");
    assert_eq!(folder(Path::new("README.md")), "README.md");
}
