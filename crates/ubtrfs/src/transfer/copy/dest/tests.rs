//! Nothing outside the destination is touched, regardless of names and links in a volume.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use rustix::fs::FileType;

use super::{
    DestError, directory, file, link, node, open_directory, refer, symlink as make_symlink,
};

/// COPY-1
#[test]
fn names_that_are_not_one_component_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let fd = open_directory(dir.path()).unwrap();
    let bad: [&[u8]; 6] = [b"", b".", b"..", b"a/b", b"/etc", b"nul\0"];
    for name in bad {
        assert!(matches!(directory(&fd, name), Err(DestError::Name)));
        assert!(matches!(file(&fd, name, &[]), Err(DestError::Name)));
        assert!(matches!(
            make_symlink(&fd, name, b"x", &[]),
            Err(DestError::Name)
        ));
        assert!(matches!(
            node(&fd, name, FileType::Fifo, 0, &[]),
            Err(DestError::Name)
        ));
        assert!(matches!(refer(&fd, name), Err(DestError::Name)));
        assert!(matches!(
            link(&fd, b"", b"first", &fd, name, &[]),
            Err(DestError::Name)
        ));
        assert!(matches!(
            link(&fd, b"", name, &fd, b"new", &[]),
            Err(DestError::Name)
        ));
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// COPY-1
#[test]
fn a_link_among_the_copies_is_neither_entered_nor_written_through() {
    let dir = tempfile::tempdir().unwrap();
    let outside = dir.path().join("outside");
    let inside = dir.path().join("inside");
    fs::create_dir(&outside).unwrap();
    fs::create_dir(&inside).unwrap();
    fs::write(outside.join("victim"), "old").unwrap();
    symlink(&outside, inside.join("dir")).unwrap();
    symlink(outside.join("victim"), inside.join("file")).unwrap();
    let fd = open_directory(&inside).unwrap();

    assert!(matches!(
        directory(&fd, b"dir"),
        Err(DestError::ReplacedByDirectory)
    ));
    assert!(link(&fd, b"dir", b"victim", &fd, b"stolen", &[]).is_err());
    file(&fd, b"file", &[]).unwrap();
    assert_eq!(fs::read(outside.join("victim")).unwrap(), b"old");
    assert!(fs::symlink_metadata(inside.join("file")).unwrap().is_file());
    // A hard link to a symbolic link refers to the link itself.
    link(&fd, b"", b"dir", &fd, b"again", &[]).unwrap();
    assert!(
        fs::symlink_metadata(inside.join("again"))
            .unwrap()
            .is_symlink()
    );
}

#[test]
fn image_that_is_read_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    fs::write(&image, "the volume").unwrap();
    let metadata = fs::metadata(&image).unwrap();
    let images = [(metadata.dev(), metadata.ino())];
    let fd = open_directory(dir.path()).unwrap();
    let refused = file(&fd, b"image", &images);
    assert!(matches!(refused, Err(DestError::ReplacesImage)));
    let refused = make_symlink(&fd, b"image", b"x", &images);
    assert!(matches!(refused, Err(DestError::ReplacesImage)));
    assert_eq!(fs::read(&image).unwrap(), b"the volume");
}
