//! The tree of members in any order.

use ubtrfs_spill::ScratchDir;

use super::*;

const DIR: u32 = 0o040_700;
const FILE: u32 = 0o100_600;

fn scratch(memory_bytes: usize) -> Scratch {
    Scratch {
        memory_bytes,
        ..Scratch::new(ScratchDir::named(std::env::temp_dir()))
    }
}

fn names() -> Names {
    Names::new(
        Marks::new(&[], &[], &[]),
        Times::default(),
        &scratch(1 << 20),
    )
    .unwrap()
}

fn attributes(mode: u32) -> Attributes {
    let mut attributes = Attributes::default();
    attributes.file.mode = mode;
    attributes
}

fn place(names: &mut Names, path: &str, mode: u32) -> std::result::Result<NodeId, ArchiveError> {
    let placed = names.place(path.as_bytes(), &attributes(mode), false);
    placed.map_err(of_archive)
}

fn link(names: &mut Names, path: &str, target: &str) -> std::result::Result<(), ArchiveError> {
    let linked = names.link(path.as_bytes(), &attributes(FILE), target.as_bytes());
    linked.map_err(of_archive)
}

fn of_archive(error: NamesError) -> ArchiveError {
    match error {
        NamesError::Archive(error) => error,
        NamesError::Scratch(error) => panic!("{error}"),
    }
}

fn order(names: &mut Names) -> Vec<NodeId> {
    let order = names.sort().unwrap();
    (0..order.len()).map(|at| order.get(at).unwrap()).collect()
}

fn path(names: &Names, id: NodeId) -> String {
    names.path(id).unwrap().display().to_string()
}

/// Lists paths by directory and name, each with its inode if that is another node.
fn listing(names: &mut Names) -> Vec<(String, Option<NodeId>)> {
    let ids = order(names).into_iter();
    ids.map(|id| (path(names, id), names.node(id).unwrap().link))
        .collect()
}

#[test]
fn directories_on_the_way_are_made_and_then_known_better() {
    let mut names = names();
    place(&mut names, "./a/b/file", FILE).unwrap();
    let made = names.look_up(b"a/b").unwrap().unwrap();
    assert_eq!(names.node(made).unwrap().file.mode, MODE_OF_MADE);
    assert_eq!(place(&mut names, "/a//b/", DIR).unwrap(), made);
    assert_eq!(names.node(made).unwrap().file.mode, DIR);
    assert_eq!(place(&mut names, "./", DIR).unwrap(), ROOT);
    let paths: Vec<String> = listing(&mut names)
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    assert_eq!(paths, ["a", "a/b", "a/b/file"]);
}

#[test]
fn later_member_takes_the_place_of_an_earlier_one() {
    let mut names = names();
    let first = place(&mut names, "name", FILE).unwrap();
    let second = place(&mut names, "name", 0o120_777).unwrap();
    let third = place(&mut names, "name", DIR).unwrap();
    assert!(first != second && second != third);
    assert_eq!(order(&mut names), [third]);
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
    let ids = order(&mut names);
    assert_eq!(ids.len(), 5);
    for id in ids {
        assert_eq!(names.inode(id).unwrap(), file, "{}", path(&names, id));
        assert_eq!(names.node(file).unwrap().names, 5);
    }
}

#[test]
fn link_keeps_what_it_was_made_to() {
    let mut names = names();
    let old = place(&mut names, "file", FILE).unwrap();
    link(&mut names, "link", "file").unwrap();
    let new = place(&mut names, "file", FILE).unwrap();
    names.finish().unwrap();
    let ids = order(&mut names).into_iter();
    let inodes: Vec<NodeId> = ids.map(|id| names.inode(id).unwrap()).collect();
    assert_eq!(inodes, [new, old]);
}

#[test]
fn links_that_lead_nowhere_are_refused() {
    for (path, target) in [("a", "none"), ("a", "dir"), ("a", "a"), ("a", "../x")] {
        let mut names = names();
        place(&mut names, "dir/file", FILE).unwrap();
        link(&mut names, path, target).unwrap();
        let error = of_archive(names.finish().unwrap_err());
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

/// SOURCE-1
#[test]
fn names_sort_by_their_bytes_within_each_directory() {
    let mut names = names();
    for path in ["b/z", "b.c", "b/A", "a\u{ff}", "a", "b-"] {
        place(&mut names, path, if path == "b/z" { FILE } else { DIR }).unwrap();
    }
    let top: Vec<String> = order(&mut names)
        .into_iter()
        .filter(|&id| names.node(id).unwrap().parent == ROOT)
        .map(|id| path(&names, id))
        .collect();
    assert_eq!(top, ["a", "a\u{ff}", "b", "b-", "b.c"]);
}

#[test]
fn order_and_links_do_not_depend_on_how_much_memory_there_is() {
    let made = |memory_bytes| {
        let marks = Marks::new(&[], &[], &[]);
        let mut names = Names::new(marks, Times::default(), &scratch(memory_bytes)).unwrap();
        for number in 0..5000_u32 {
            // In pseudo-random order.
            let number = number.wrapping_mul(0x9e37_79b9) >> 12;
            let dir = number % 7;
            place(&mut names, &format!("dir {dir}/name {number}"), FILE).unwrap();
            if number % 5 == 0 {
                let target = format!("dir {dir}/name {number}");
                link(&mut names, &format!("link {number}"), &target).unwrap();
            }
        }
        names.finish().unwrap();
        let dirs: Vec<_> = order(&mut names)
            .into_iter()
            .map(|id| (path(&names, id), names.node(id).unwrap()))
            .collect();
        dirs
    };
    let usual = made(64 << 20);
    assert!(usual.iter().any(|(_, node)| node.names == 2));
    for memory_bytes in [0, 100_000] {
        assert!(made(memory_bytes) == usual);
    }
}
