//! What members make together, whatever order they come in.

use super::*;

const DIR: u32 = 0o040_700;
const FILE: u32 = 0o100_600;

fn names() -> Names {
    Names::new(Marks::new(&[], &[]), Times::default())
}

fn attributes(mode: u32) -> Attributes {
    Attributes {
        mode,
        ..Attributes::default()
    }
}

fn place(names: &mut Names, path: &str, mode: u32) -> Result<NodeId, ArchiveError> {
    names.place(path.as_bytes(), &attributes(mode), false)
}

fn link(names: &mut Names, path: &str, target: &str) -> Result<(), ArchiveError> {
    names.link(path.as_bytes(), &attributes(FILE), target.as_bytes())
}

/// Paths in the order of directories and names, each with the path of its inode if that is another.
fn listing(names: &Names) -> Vec<(String, Option<NodeId>)> {
    let shown = |id| names.path(id).display().to_string();
    let ids = names.sorted().into_iter();
    ids.map(|id| (shown(id), names.node(id).link)).collect()
}

#[test]
fn directories_on_the_way_are_made_and_then_known_better() {
    let mut names = names();
    place(&mut names, "./a/b/file", FILE).unwrap();
    let made = names.look_up(b"a/b").unwrap();
    assert_eq!(names.node(made).mode, MODE_OF_MADE);
    assert_eq!(place(&mut names, "/a//b/", DIR).unwrap(), made);
    assert_eq!(names.node(made).mode, DIR);
    assert_eq!(place(&mut names, "./", DIR).unwrap(), ROOT);
    let paths: Vec<String> = listing(&names).into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["a", "a/b", "a/b/file"]);
}

#[test]
fn later_member_takes_the_place_of_an_earlier_one() {
    let mut names = names();
    let first = place(&mut names, "name", FILE).unwrap();
    let second = place(&mut names, "name", 0o120_777).unwrap();
    let third = place(&mut names, "name", DIR).unwrap();
    assert!(first != second && second != third);
    assert_eq!(names.sorted(), [third]);
    place(&mut names, "name/inside", FILE).unwrap();
    let error = place(&mut names, "name", FILE).unwrap_err();
    assert!(matches!(error, ArchiveError::ReplacesDirectory { .. }));
    let error = place(&mut names, "name/inside/deeper", FILE).unwrap_err();
    assert!(matches!(error, ArchiveError::NotADirectory { .. }));
}

#[test]
fn links_find_what_comes_before_and_after_them() {
    let mut names = names();
    link(&mut names, "early", "file").unwrap();
    let file = place(&mut names, "file", FILE).unwrap();
    link(&mut names, "late", "./file").unwrap();
    link(&mut names, "of-a-link", "late").unwrap();
    link(&mut names, "of-an-early-link", "early").unwrap();
    link(&mut names, "file", "late").unwrap();
    names.finish().unwrap();
    for id in names.sorted() {
        assert_eq!(names.inode(id), file, "{}", names.path(id).display());
    }
    assert_eq!(names.sorted().len(), 5);
}

#[test]
fn link_keeps_what_it_was_made_to() {
    let mut names = names();
    let old = place(&mut names, "file", FILE).unwrap();
    link(&mut names, "link", "file").unwrap();
    let new = place(&mut names, "file", FILE).unwrap();
    names.finish().unwrap();
    let inodes: Vec<NodeId> = names.sorted().iter().map(|&id| names.inode(id)).collect();
    assert_eq!(inodes, [new, old]);
}

#[test]
fn links_that_lead_nowhere_are_refused() {
    for (path, target) in [("a", "none"), ("a", "dir"), ("a", "a"), ("a", "../x")] {
        let mut names = names();
        place(&mut names, "dir/file", FILE).unwrap();
        link(&mut names, path, target).unwrap();
        let error = names.finish().unwrap_err();
        assert!(matches!(error, ArchiveError::LinkTarget { .. }), "{target}");
    }
    let mut names = names();
    link(&mut names, "a", "b").unwrap();
    link(&mut names, "b", "a").unwrap();
    assert!(names.finish().is_err());
}

#[test]
fn names_that_cannot_be_are_refused() {
    for path in ["../a", "a/../../b", "a/.."] {
        let error = place(&mut names(), path, FILE).unwrap_err();
        assert!(matches!(error, ArchiveError::Outside { .. }), "{path}");
    }
    for path in [
        "x".repeat(256),
        format!("a/{}/b", "x".repeat(256)),
        "nul\0".to_owned(),
    ] {
        let error = place(&mut names(), &path, FILE).unwrap_err();
        assert!(matches!(error, ArchiveError::Name { .. }), "{path}");
    }
    assert!(place(&mut names(), "/", FILE).is_err());
}

#[test]
fn names_sort_by_their_bytes_within_each_directory() {
    let mut names = names();
    for path in ["b/z", "b.c", "b/A", "a\u{ff}", "a", "b-"] {
        place(&mut names, path, if path == "b/z" { FILE } else { DIR }).unwrap();
    }
    let top: Vec<String> = names
        .sorted()
        .into_iter()
        .filter(|&id| names.parent(id) == ROOT)
        .map(|id| names.path(id).display().to_string())
        .collect();
    assert_eq!(top, ["a", "a\u{ff}", "b", "b-", "b.c"]);
}
