//! Splitting paths into a directory and the last name.

use super::split;

#[test]
fn the_last_name_stands_in_the_directory_before_it() {
    let both = |path: &'static str| {
        let (dir, name) = split(path.as_bytes())?;
        Some((str::from_utf8(dir).ok()?, str::from_utf8(name).ok()?))
    };
    assert_eq!(both("/a"), Some(("/", "a")));
    assert_eq!(both("/a/b//"), Some(("/a/", "b")));
    assert_eq!(both("a"), Some((".", "a")));
    for path in ["", "/", "//", "/a/.", "/a/..", "."] {
        assert_eq!(both(path), None, "{path:?}");
    }
}
