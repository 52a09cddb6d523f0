//! Opening files by handles that outlive the kernel's cached inodes.

use super::calls::{self, Fd, FileHandle};
use super::stage::{Stage, done, state_at};

/// Drops all unused names and inodes from the kernel's caches.
fn forget_inodes(stage: &Stage) {
    let here = stage.open(".", libc::O_RDONLY | libc::O_DIRECTORY);
    calls::sync_file_system(&here).unwrap();
    std::fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
}

fn contents(file: &Result<Fd, calls::Errno>) -> String {
    match file {
        Ok(file) => format!("{:?}", calls::pread(file, 100, 0)),
        Err(error) => format!("{error:?}"),
    }
}

/// Describes the path from the top of the mount to an open directory, as the kernel has reconstructed it.
fn way_to(dir: &Fd) -> String {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", dir.0)).unwrap();
    let way: Vec<_> = link.iter().rev().take(2).collect();
    format!("{way:?}")
}

pub(crate) fn by_handle(stage: &mut Stage) {
    calls::mkdir(stage.dir(), b"a", 0o755).unwrap();
    calls::mkdir(stage.dir(), b"a/b", 0o755).unwrap();
    calls::mkdir(stage.dir(), b"a/gone", 0o755).unwrap();
    for name in ["file", "moved", "lost", "a/b/deep", "linked"] {
        drop(stage.file(name, name.as_bytes()));
    }
    calls::symlink(b"file", stage.dir(), b"link").unwrap();
    calls::link((stage.dir(), b"linked"), (stage.dir(), b"a/second"), 0).unwrap();
    let names = [
        "file", "moved", "lost", "a/b/deep", "a/b", "a", "a/gone", "linked",
    ];
    let handles: Vec<(&str, FileHandle)> = names
        .into_iter()
        .map(|name| {
            (
                name,
                calls::handle_of(stage.dir(), name.as_bytes()).unwrap(),
            )
        })
        .collect();
    calls::rename((stage.dir(), b"moved"), (stage.dir(), b"a/b/moved"), 0).unwrap();
    calls::unlink(stage.dir(), b"lost", 0).unwrap();
    calls::unlink(stage.dir(), b"linked", 0).unwrap();
    calls::unlink(stage.dir(), b"a/gone", libc::AT_REMOVEDIR).unwrap();
    for round in ["first", "again"] {
        for (name, handle) in &handles {
            forget_inodes(stage);
            let flags = if name.starts_with('a') && !name.ends_with("deep") {
                libc::O_RDONLY | libc::O_DIRECTORY
            } else {
                libc::O_RDWR
            };
            let opened = calls::open_handle(stage.dir(), handle, flags);
            stage.note(format!("{round}: contents of {name}"), contents(&opened));
            let Ok(file) = opened else { continue };
            stage.note(format!("{round}: {name}"), state_at(file.0, b""));
            if flags & libc::O_DIRECTORY != 0 {
                stage.note(format!("{round}: way to {name}"), way_to(&file));
                stage.note(format!("{round}: above {name}"), state_at(file.0, b".."));
                let names = calls::entries(&file, 4096).map(|found| found.len());
                stage.note(format!("{round}: entries of {name}"), names);
            }
        }
    }
    let (_, file) = &handles[0];
    forget_inodes(stage);
    let opened = calls::open_handle(stage.dir(), file, libc::O_RDWR);
    let written = opened.map(|file| calls::pwrite(&file, b"new", 0).unwrap());
    stage.note("written by handle", written);
    let file = stage.open("file", libc::O_RDONLY);
    stage.note("what was written", calls::pread(&file, 100, 0));
    stage.note(
        "list by handle of a file",
        done(calls::open_handle(
            stage.dir(),
            &handles[0].1,
            libc::O_RDONLY | libc::O_DIRECTORY,
        )),
    );
}
