//! Paths of members, and the times of more directories than are remembered.

use std::io::{Seek, Write};
use std::ops::ControlFlow;
use std::path::Path;

use ubtrfs_device::progress::Event;

use super::*;

#[test]
fn paths_begin_at_the_directory() {
    for path in ["a/b", "/a/b", "./a//b/", "///a/./b"] {
        assert_eq!(names_of(path.as_bytes()).unwrap(), [b"a", b"b"], "{path}");
    }
    for path in ["", "/", ".", "./"] {
        assert!(names_of(path.as_bytes()).unwrap().is_empty(), "{path}");
    }
}

/// UNPACK-1
#[test]
fn no_path_leads_upward() {
    for path in ["..", "../a", "a/../b", "a/..", "/.."] {
        let refused = names_of(path.as_bytes());
        assert!(matches!(refused, Err(UnpackError::Outside)), "{path}");
    }
}

fn header(path: &str, kind: ::tar::EntryType, mtime: u64) -> ::tar::Header {
    let mut header = ::tar::Header::new_ustar();
    header.set_path(path).unwrap();
    header.set_entry_type(kind);
    header.set_mode(0o755);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    header.set_mtime(mtime);
    header.set_cksum();
    header
}

/// UNPACK-3
#[test]
fn directories_keep_their_times_however_many_there_are() {
    const DIRS: u64 = 20;
    let mut archive = ::tar::Builder::new(tempfile::tempfile().unwrap());
    for dir in 0..DIRS {
        let header = header(&format!("{dir}/"), ::tar::EntryType::Directory, dir);
        archive.append(&header, &b""[..]).unwrap();
    }
    for path in (0..DIRS).flat_map(|dir| [format!("{dir}/file"), format!("{dir}/made/file")]) {
        let header = header(&path, ::tar::EntryType::Regular, 5);
        archive.append(&header, &b""[..]).unwrap();
    }
    let mut file = archive.into_inner().unwrap();
    file.flush().unwrap();
    file.rewind().unwrap();

    let volume = crate::Volume::in_memory(256 << 20).unwrap();
    let top = volume.root().resolve(Path::new("/")).unwrap();
    let volume = volume.engine();
    let mut observer = |event: &Event<'_>| {
        assert!(!matches!(event, Event::Problem(_)), "{event:?}");
        ControlFlow::Continue(())
    };
    let mut unpacker = Unpacker::new(volume, (top, b"/"), 0o022, &mut observer);
    unpacker.max_timed = 3;
    unpacker.all(&mut Members::open(file).unwrap()).unwrap();
    for dir in 0..DIRS {
        let id = volume.lookup(top, dir.to_string().as_bytes()).unwrap();
        let attr = volume.attr(id.unwrap()).unwrap();
        assert_eq!(attr.mtime.sec, dir as i64);
        assert!(volume.lookup(id.unwrap(), b"file").unwrap().is_some());
    }
}
