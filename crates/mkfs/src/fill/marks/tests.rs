//! The flags of each file.

use super::*;

const PLAIN: InodeFlags = InodeFlags::empty();

fn marks() -> Marks {
    let subvolume = |path: &str| SubvolumeRequest {
        path: path.into(),
        is_read_only: false,
        is_default: false,
    };
    let flags = |path: &str, flags| FlagsRequest {
        path: path.into(),
        flags,
    };
    Marks::new(
        &[subvolume("./a/sub/"), subvolume("missing")],
        &[
            flags("a", InodeFlags::NODATASUM),
            flags("a/sub/deep", InodeFlags::NODATACOW),
            flags("a/b", InodeFlags::NODATACOW),
        ],
        &["boot".into(), "a/sub".into()],
    )
}

#[test]
fn flags_are_inherited_but_not_into_a_subvolume() {
    let mut marks = marks();
    let a = marks.visit(b"a", true, PLAIN);
    assert_eq!((a.subvolume, a.flags), (None, InodeFlags::NODATASUM));
    let b = marks.visit(b"a/b", true, a.flags);
    assert_eq!(b.flags, InodeFlags::NODATASUM | InodeFlags::NODATACOW);
    assert_eq!(marks.visit(b"a/c", false, a.flags).flags, a.flags);
    let sub = marks.visit(b"a/sub", true, a.flags);
    assert_eq!((sub.subvolume, sub.flags), (Some(0), DENSE));
    let deep = marks.visit(b"a/sub/deep", false, sub.flags);
    assert_eq!(deep.flags, InodeFlags::NODATACOW | DENSE);
}

#[test]
fn paths_that_are_not_met_are_reported() {
    let mut marks = marks();
    for path in [&b"a"[..], b"a/b", b"a/sub", b"a/sub/deep"] {
        marks.visit(path, true, PLAIN);
    }
    assert_eq!(marks.unvisited(), Some(PathBuf::from("missing")));
    // A regular file cannot become a subvolume.
    assert_eq!(marks.visit(b"missing", false, PLAIN).subvolume, None);
    assert!(marks.unvisited().is_some());
    marks.visit(b"missing", true, PLAIN);
    assert_eq!(marks.unvisited(), None);
}
