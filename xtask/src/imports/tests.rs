//! Imports are found in all their forms, and only outside of tests.

use super::*;

/// Returns the arrows of a crate with these files below its `src`, as `a -> b 2`.
fn arrows(files: &[(&str, &str)]) -> Vec<String> {
    let files: Vec<File> = files
        .iter()
        .map(|(path, text)| {
            let path = format!("crates/fs/src/{path}");
            File::new(Path::new(&path), (*text).to_owned())
        })
        .collect();
    let imports = &of_crates(&files)["fs"];
    let arrows = imports.arrows.iter();
    arrows
        .map(|((from, to), sites)| format!("{from} -> {to} {}", sites.len()))
        .collect()
}

#[test]
fn trees_of_paths_count_each_name() {
    let text = "use crate::b::{self, c::{D, E as F}, *};\nuse crate::{b::G, b};\n";
    assert_eq!(arrows(&[("a.rs", text), ("b.rs", "")]), ["a -> b 6"]);
}

#[test]
fn super_is_followed_from_where_it_stands() {
    let deep = "use super::super::b::X; use super::d::Y; use self::e::Z;";
    let flat = "use super::b::X; fn f() { super::b::y::<u8>() }";
    let files = [("a/c/mod.rs", deep), ("a.rs", flat), ("b.rs", "")];
    assert_eq!(arrows(&files), ["a -> b 3"]);
}

#[test]
fn paths_in_code_count() {
    let text = "fn f(x: crate::b::X) -> Vec<crate::b::y::Z> { crate::b::new::<u8>(x) }";
    assert_eq!(arrows(&[("a.rs", text), ("b/mod.rs", "")]), ["a -> b 3"]);
}

#[test]
fn names_shown_at_the_top_belong_to_their_module() {
    let top = "mod a; mod b; pub use b::{c::X, Y}; pub use other::W; pub type T = u8;";
    let text = "use crate::{X, Y, W, T};";
    let files = [("lib.rs", top), ("a.rs", text), ("b.rs", "")];
    assert_eq!(arrows(&files), ["a -> b 2", "a -> lib 1"]);
}

#[test]
fn tests_comments_and_strings_do_not_count() {
    let text = "//! [`crate::b`]\n// crate::b::X\nconst A: &str = \"crate::b::X\";\n\
                #[cfg(test)]\nmod tests { use crate::b::X; }\n#[cfg(test)]\nmod judge;\n";
    let files = [
        ("a.rs", text),
        ("a/judge.rs", "use crate::b::X;"),
        ("a/judge/deep.rs", "use crate::b::X;"),
        ("b.rs", ""),
    ];
    assert!(arrows(&files).is_empty());
}

#[test]
fn programs_beside_the_crate_are_no_modules() {
    let files = [("a.rs", ""), ("bin/run/main.rs", "use crate::a::X;")];
    assert!(arrows(&files).is_empty());
}

#[test]
fn site_has_its_line_and_its_name() {
    let file = File::new(
        Path::new("crates/fs/src/a.rs"),
        "//! A.\n\nuse super::b::{\n    X,\n};\n".to_owned(),
    );
    let other = File::new(Path::new("crates/fs/src/b.rs"), String::new());
    let imports = &of_crates(&[file, other])["fs"];
    let site = Site {
        file: "crates/fs/src/a.rs".to_owned(),
        line: 3,
        names: "b::X".to_owned(),
    };
    assert_eq!(
        imports.arrows.values().flatten().collect::<Vec<_>>(),
        [&site]
    );
}
