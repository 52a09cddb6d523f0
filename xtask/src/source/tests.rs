//! Comments, strings and tests are told from code.

use super::*;

/// The words of the code that is left.
fn words(text: &str) -> Vec<String> {
    let source = Source::new(text);
    assert_eq!(source.code.len(), text.len());
    source.code.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn comments_and_strings_are_blank() {
    let text = "//! a\n/// b\n// c\nlet d = \"//e\\\"\"; /* f\n/* g */ */ h\n//// i\n";
    assert_eq!(words(text), ["let", "d", "=", "\"", "\";", "h"]);
}

#[test]
fn raw_strings_end_at_their_hashes() {
    let text = "a(r#\"b\"//\"#, br\"\\\", letter\"x\") // c\n";
    let code = Source::new(text).code;
    assert_eq!(code.trim_end(), "a(r#\"    \"#, br\" \", letter\" \")");
}

#[test]
fn characters_are_told_from_lifetimes() {
    let text = "fn a<'b>(c: &'b u8) { d('\"', '\\'', b'\"', '\\u{22}', 'ä', '\"') } // e\n";
    let code = Source::new(text).code;
    assert!(code.starts_with("fn a<'b>(c: &'b u8) { d(' ',"));
    assert!(code.trim_end().ends_with("' ') }"));
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
