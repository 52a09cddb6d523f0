//! A walk of a host directory never leaves it.

use std::fs;
use std::os::unix::fs::symlink;

use super::{FromHost, HostFile};
use crate::transfer::copy::CopyError;
use crate::transfer::copy::source::{CopyStep, Source};

static SOURCE: FromHost = FromHost { images: Vec::new() };

/// FROM-HOST-1 and FROM-HOST-2
#[test]
fn names_come_in_order_and_links_are_not_entered() {
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().join("inside");
    fs::create_dir_all(inside.join("b/deep")).unwrap();
    fs::write(inside.join("c"), "").unwrap();
    fs::create_dir(dir.path().join("outside")).unwrap();
    fs::write(dir.path().join("outside/secret"), "").unwrap();
    symlink("../outside", inside.join("a")).unwrap();
    let top = HostFile::open(&inside, true).unwrap();
    let mut walk = SOURCE.walk(&top, b"in").unwrap();
    let mut seen = Vec::new();
    while let Some(step) = walk.next() {
        let CopyStep::Entry { file, .. } = step else {
            continue;
        };
        seen.push(String::from_utf8(walk.path().to_vec()).unwrap());
        // A link is also refused if it replaced a directory in between.
        let entered = walk.enter().is_ok();
        assert_eq!(entered, file.is_dir(), "{seen:?}");
    }
    assert_eq!(seen, ["in/a", "in/b", "in/b/deep", "in/c"]);
}

#[test]
fn holes_are_told_and_the_rest_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse");
    let file = fs::File::create(&path).unwrap();
    file.set_len(3 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 4096], 1 << 20).unwrap();
    let file = HostFile::open(&path, true).unwrap();
    let size = SOURCE.attributes(&file, false).unwrap().size;
    let mut data = SOURCE.open(&file, size).unwrap();
    let mut sum = 0;
    while let Some(range) = data.next_range().unwrap() {
        let mut bytes = vec![1; (range.end - range.start) as usize];
        assert!(data.read(range.start, &mut bytes, &mut Vec::new()).unwrap());
        sum += bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    }
    assert_eq!(sum, 7 * 4096);
}

#[test]
fn an_image_is_not_copied_into_itself() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    fs::write(&path, "").unwrap();
    let file = HostFile::open(&path, true).unwrap();
    let source = FromHost {
        images: vec![file.identity()],
    };
    assert!(matches!(
        source.attributes(&file, true),
        Err(CopyError::Image)
    ));
}
