//! The last name of a path in a volume.

use std::ffi::OsStr;

use super::Location;

#[test]
fn the_file_name_is_the_last_name_of_the_path() {
    let name = |path: &str| {
        let location = Location::parse(OsStr::new(path));
        location.file_name().map(<[u8]>::to_vec)
    };
    assert_eq!(name("no-image:/a/b/"), Some(b"b".to_vec()));
    assert_eq!(name("no-image:/a/."), Some(b"a".to_vec()));
    assert_eq!(name("no-image:/"), None);
}
