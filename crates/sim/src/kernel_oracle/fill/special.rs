//! Special files: device nodes, fifos, sockets, symlinks.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::Result;
use crate::error::At;

pub(super) fn fill(dir: &Path) -> Result<()> {
    let nodes = [
        ("char-1-3", FileType::CharacterDevice, (1, 3), 0o666),
        (
            "char-large",
            FileType::CharacterDevice,
            (4095, 1_048_575),
            0o600,
        ),
        ("char-0-0", FileType::CharacterDevice, (0, 0), 0o000),
        ("block-7-0", FileType::BlockDevice, (7, 0), 0o660),
        ("block-259-300", FileType::BlockDevice, (259, 300), 0o640),
        ("fifo", FileType::Fifo, (0, 0), 0o644),
        ("socket", FileType::Socket, (0, 0), 0o755),
    ];
    for (name, kind, (major, minor), mode) in nodes {
        let path = dir.join(name);
        let mode = Mode::from_raw_mode(mode);
        mknodat(CWD, &path, kind, mode, makedev(major, minor)).at("mknod", &path)?;
    }

    let longest = "longest/".repeat(512);
    let targets: [(&str, &[u8]); 6] = [
        ("symlink-short", b"f"),
        ("symlink-dangling", b"../no/such/file"),
        ("symlink-bytes", b"\xff\xfe not utf-8 \n"),
        ("symlink-1024", &[b'k'; 1024]),
        ("symlink-4095", &longest.as_bytes()[..4095]),
        ("symlink-to-itself", b"symlink-to-itself"),
    ];
    for (name, target) in targets {
        // With nodes of 4 KiB the longest target does not fit, and the kernel returns an error.
        let path = dir.join(name);
        match symlink(OsStr::from_bytes(target), &path) {
            Err(error) if error.kind() == std::io::ErrorKind::InvalidFilename => {}
            done => done.at("symlink", &path)?,
        }
    }
    let dir_link = dir.join("symlink-to-dir");
    symlink(".", &dir_link).at("symlink", &dir_link)?;

    let empty = dir.join("empty-dir");
    fs::create_dir(&empty).at("create", &empty)
}
