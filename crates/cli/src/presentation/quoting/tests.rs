//! No byte of a name can act on a terminal.

use super::{Escaped, ShellQuoted};

fn quoted(bytes: &[u8]) -> String {
    ShellQuoted(bytes).to_string()
}

#[test]
fn plain_names_stay_as_they_are() {
    assert_eq!(quoted(b"hello.txt"), "hello.txt");
    assert_eq!(quoted("uni\u{e9}".as_bytes()), "uni\u{e9}");
}

#[test]
fn spaces_and_quotes_are_quoted_for_a_shell() {
    assert_eq!(quoted(b"sp ace"), "'sp ace'");
    assert_eq!(quoted(b"it's"), r"'it'\''s'");
    assert_eq!(quoted(b""), "''");
}

#[test]
fn control_and_invalid_bytes_are_escaped() {
    assert_eq!(quoted(b"a\nb"), r"$'a\nb'");
    assert_eq!(quoted(b"\x1b[31m"), r"$'\033[31m'");
    assert_eq!(quoted(b"bad\xff"), r"$'bad\377'");
    assert_eq!(quoted("\u{202e}x".as_bytes()), r"$'\342\200\256x'");
}

#[test]
fn messages_escape_what_is_not_text() {
    assert_eq!(Escaped(b"d/bad\xff\x1b").to_string(), r"d/bad\xff\u{1b}");
}
