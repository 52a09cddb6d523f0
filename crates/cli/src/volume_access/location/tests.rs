//! Splitting an argument into image and path.

use std::ffi::OsStr;
use std::path::Path;

use super::Location;

fn parse(argument: &str, images: &[&str]) -> (String, String) {
    let is_image = |path: &Path| images.iter().any(|image| path == Path::new(image));
    let location = Location::parse_with(OsStr::new(argument), &is_image);
    (
        location.image.to_string_lossy().into_owned(),
        String::from_utf8(location.path).expect("the test's paths are text"),
    )
}

fn pair(image: &str, path: &str) -> (String, String) {
    (image.to_owned(), path.to_owned())
}

#[test]
fn an_image_alone_is_its_root() {
    assert_eq!(parse("disk.img", &["disk.img"]), pair("disk.img", "/"));
    assert_eq!(parse("a:/b", &["a:/b"]), pair("a:/b", "/"));
}

#[test]
fn an_image_name_may_hold_colons() {
    assert_eq!(parse("a:b.img:/c", &["a:b.img"]), pair("a:b.img", "/c"));
    assert_eq!(
        parse(
            "/dev/disk/by-path/pci-0:1:/x",
            &["/dev/disk/by-path/pci-0:1"]
        ),
        pair("/dev/disk/by-path/pci-0:1", "/x")
    );
}

#[test]
fn a_path_may_hold_a_colon_and_slash() {
    assert_eq!(parse("d.img:/a:/b", &["d.img"]), pair("d.img", "/a:/b"));
}

#[test]
fn nothing_that_exists_splits_at_the_last_place() {
    assert_eq!(parse("no.img:/a:/b", &[]), pair("no.img:/a", "/b"));
    assert_eq!(parse("no.img", &[]), pair("no.img", "/"));
}

#[test]
fn the_file_name_is_the_last_name_of_the_path() {
    let name = |path: &str| {
        let location = Location::parse_with(OsStr::new(path), &|_| false);
        location.file_name().map(<[u8]>::to_vec)
    };
    assert_eq!(name("i:/a/b/"), Some(b"b".to_vec()));
    assert_eq!(name("i:/a/."), Some(b"a".to_vec()));
    assert_eq!(name("i:/"), None);
}
