//! Comments, strings and tests are distinguished from code.

use super::*;

fn inside<'a>(text: &'a str, source: &Source) -> Vec<(Kind, usize, &'a str)> {
    let pieces = source.pieces.iter();
    pieces
        .map(|piece| (piece.kind, piece.line, text[piece.inside.clone()].trim()))
        .collect()
}

#[test]
fn comments_and_strings_are_pieces_and_blank_in_code() {
    let text = "//! a\n/// b\n// c\nlet d = \"//e\\\"\"; /* f\n/* g */ */ h\n//// i\n";
    let source = Source::new(text);
    assert_eq!(
        inside(text, &source),
        [
            (Kind::Inner, 1, "a"),
            (Kind::Outer, 2, "b"),
            (Kind::Comment, 3, "c"),
            (Kind::String, 4, "//e\\\""),
            (Kind::Comment, 4, "f\n/* g */ */"),
            (Kind::Comment, 6, "// i"),
        ]
    );
    assert_eq!(source.code.len(), text.len());
    let words: Vec<&str> = source.code.split_whitespace().collect();
    assert_eq!(words, ["let", "d", "=", "\"", "\";", "h"]);
}

#[test]
fn raw_strings_end_at_their_hashes() {
    let text = "a(r#\"b\"//\"#, br\"\\\", letter\"x\") // c\n";
    let source = Source::new(text);
    assert_eq!(
        inside(text, &source),
        [
            (Kind::String, 1, "b\"//"),
            (Kind::String, 1, "\\"),
            (Kind::String, 1, "x"),
            (Kind::Comment, 1, "c"),
        ]
    );
}

#[test]
fn characters_are_told_from_lifetimes() {
    let text = "fn a<'b>(c: &'b u8) { d('\"', '\\'', b'\"', '\\u{22}', 'ä', '\"') } // e\n";
    let source = Source::new(text);
    assert_eq!(inside(text, &source), [(Kind::Comment, 1, "e")]);
    assert!(source.code.starts_with("fn a<'b>(c: &'b u8) { d("));
}

#[test]
fn strings_without_an_end_end_with_the_text() {
    for text in ["\"a\\", "r#\"a\"", "/* a", "'", "'\\", "\"ä"] {
        let source = Source::new(text);
        assert_eq!(source.code.len(), text.len());
    }
}

#[test]
fn test_items_end_where_they_end() {
    for (item, behind) in [
        ("#[cfg(test)]\nmod tests;", "\nuse a;"),
        ("#[cfg(test)]\nmod tests { use b::{c, d}; }", " use a;"),
        (
            "#[cfg(all(test, unix))] pub(crate) fn b<C, D>(e: [u8; 3]) -> C { d }",
            " use a;",
        ),
        (
            "#[cfg(test)]\n#[derive(Debug, Default)]\nstruct B(u8);",
            " use a;",
        ),
        ("#[cfg(test)] lookups: AtomicU64,", " b: u8, }"),
        ("#[cfg(test)] pub(crate) lookups: Default::default()", "}"),
    ] {
        let source = Source::new(&format!("{item}{behind}"));
        assert_eq!(source.tests.first(), Some(&(0..item.len())), "{item}");
    }
    assert!(Source::new("#[cfg(not(test))] mod a;").tests.is_empty());
}

#[test]
fn modules_of_tests_in_their_own_files_are_named() {
    let source = Source::new(
        "#[cfg(test)]\nmod tests;\n#[cfg(test)] mod here { }\n#[cfg(test)]\npub(crate) mod volume;\nmod a;\n",
    );
    let names: Vec<&str> = source.test_modules().collect();
    assert_eq!(names, ["tests", "volume"]);
}

#[test]
fn pieces_in_tests_are_marked() {
    let source = Source::new("// a\n#[cfg(test)]\nmod tests {\n// b\n}\n// c\n");
    let marks: Vec<bool> = source.pieces.iter().map(|piece| piece.in_test).collect();
    assert_eq!(marks, [false, true, false]);
}
