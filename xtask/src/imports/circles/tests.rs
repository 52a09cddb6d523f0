//! Circles are found through reexports, and not between a file and the files below it.

use std::path::Path;

use super::*;

/// Returns the circles of a crate with these files below its `src`, as `FOLDER: MODULES`.
fn circles(files: &[(&str, &str)]) -> Vec<String> {
    let files: Vec<File> = files
        .iter()
        .map(|(path, text)| {
            let path = format!("crates/fs/src/{path}");
            File::new(Path::new(&path), (*text).to_owned())
        })
        .collect();
    let circles = find(&files);
    let shown = |circle: &Circle| format!("{}: {}", circle.folder, circle.modules.join(" "));
    circles.iter().map(shown).collect()
}

/// TIDY-19
#[test]
fn files_that_use_each_other_are_a_circle() {
    let files = [
        ("a.rs", "mod x; mod y; mod z;"),
        ("a/x.rs", "use super::y::Y;"),
        ("a/y.rs", "fn f() { super::z::g() }"),
        ("a/z.rs", "use crate::a::x::X;"),
    ];
    assert_eq!(circles(&files), ["fs/a: x y z"]);
}

#[test]
fn reexported_name_belongs_to_the_file_that_declares_it() {
    let files = [
        (
            "a.rs",
            "mod x; mod y; pub use x::X as Z; pub(crate) use self::y::Y;",
        ),
        ("a/x.rs", "use super::Y;"),
        ("a/y.rs", "use super::Z;"),
    ];
    assert_eq!(circles(&files), ["fs/a: x y"]);
    let shown = [
        ("a.rs", "mod x; mod y; pub use x::X; pub use y::Y;"),
        ("a/x.rs", "use super::Y;"),
        ("a/y.rs", ""),
    ];
    assert!(circles(&shown).is_empty());
}

#[test]
fn file_and_the_files_below_it_are_no_circle() {
    let files = [
        ("a.rs", "mod x; use x::X; struct A;"),
        ("a/x.rs", "use super::A;"),
        ("b.rs", "pub(in crate::b) struct B;"),
    ];
    assert!(circles(&files).is_empty());
}

#[test]
fn folder_stands_for_its_files() {
    let files = [
        ("x/deep.rs", "use crate::y::Y;"),
        ("y.rs", "use crate::x::deep::X;"),
        ("x.rs", "mod deep;"),
    ];
    assert_eq!(circles(&files), ["fs: x y"]);
}

#[test]
fn tests_are_in_no_circle() {
    let files = [
        ("a.rs", "use crate::b::B;"),
        ("b.rs", "#[cfg(test)]\nmod tests { use crate::a::A; }"),
    ];
    assert!(circles(&files).is_empty());
}
