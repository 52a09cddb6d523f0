//! Lines are split as in a POSIX shell.

use std::os::unix::ffi::OsStringExt;

use super::{WordsError, split};
use crate::presentation::quoting::ShellQuoted;

fn words(line: &str) -> Vec<Vec<u8>> {
    let words = split(line.as_bytes()).unwrap();
    words.into_iter().map(OsStringExt::into_vec).collect()
}

#[track_caller]
fn assert_words(line: &str, expected: &[&str]) {
    let expected: Vec<Vec<u8>> = expected.iter().map(|word| word.as_bytes().into()).collect();
    assert_eq!(words(line), expected, "{line:?}");
}

#[test]
fn white_space_separates_words() {
    assert_words("", &[]);
    assert_words("  \t\r\n", &[]);
    assert_words(" ls\t-l  /a \n", &["ls", "-l", "/a"]);
}

#[test]
fn quotes_keep_white_space_and_may_be_empty() {
    assert_words(
        r#"a 'b c'd "e \" \\ \n $x" '' """#,
        &["a", "b cd", r#"e " \ \n $x"#, "", ""],
    );
    assert_words(r"a\ b \'", &["a b", "'"]);
}

#[test]
fn a_comment_begins_at_a_word_only() {
    assert_words("# all\n", &[]);
    assert_words("a # b 'c", &["a"]);
    assert_words("a#b '#' \\#", &["a#b", "#", "#"]);
}

#[test]
fn escapes_give_any_byte() {
    let expected: Vec<Vec<u8>> = vec![b"\x1b[2J\n\xff\t'\xc3\xa4".to_vec()];
    assert_eq!(words(r"$'\e[2J\n\377\t\'\u00e4'"), expected);
    assert_eq!(words(r"$'\x1b'x"), vec![b"\x1bx".to_vec()]);
    assert_words("a$ $b", &["a$", "$b"]);
}

#[test]
fn names_that_listings_print_are_read_back() {
    let names: [&[u8]; 6] = [
        b"plain",
        b"with 'quotes' and \"others\"",
        b"new\nline",
        b"esc\x1b[2Jape",
        b"not\xff\xfeutf8'",
        b"#back\\slash$",
    ];
    for name in names {
        let line = ShellQuoted(name).to_string();
        assert_eq!(words(&line), vec![name.to_vec()], "{line}");
    }
}

#[test]
fn a_line_may_go_on() {
    for line in ["'a\n", "\"a\n", "$'a\n", "a \\\n", "a \\"] {
        assert_eq!(
            split(line.as_bytes()),
            Err(WordsError::Unfinished),
            "{line:?}"
        );
    }
    assert_words("a \\\nb 'c\nd'", &["a", "b", "c\nd"]);
    assert_eq!(split(b"$'a\\0b'"), Err(WordsError::Nul));
}
