//! A program that forks while a volume is open. The volume stays with the parent.

#![allow(unsafe_code)]

use std::io::{ErrorKind, Read};
use std::path::Path;

use ubtrfs::{Checker, File, OpenOptions, Snapshot, Volume};

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
    fn alarm(seconds: u32) -> u32;
}

/// Runs `work` in a fork, and returns its exit status as from `wait(2)`.
fn in_fork(work: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the test program has no other thread that the child needs: locks of the library are not taken there.
    unsafe {
        match fork() {
            0 => {
                // A lock that stays locked must not hang the tests.
                alarm(60);
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                _exit(done.unwrap_or(101))
            }
            pid => {
                let mut status = 0;
                assert_eq!(waitpid(pid, &raw mut status, 0), pid);
                status
            }
        }
    }
}

/// Returns the number of the first call that was not refused, or 0 if all were.
fn first_that_is_not_refused(volume: &Volume, file: &File) -> i32 {
    let root = volume.root();
    let kinds = [
        root.write("/new", b"content")
            .err()
            .map(|error| error.kind()),
        root.read("/file").err().map(|error| error.kind()),
        root.metadata("/file").err().map(|error| error.kind()),
        root.read_dir("/").err().map(|error| error.kind()),
        root.create_dir("/dir").err().map(|error| error.kind()),
        root.remove_file("/file").err().map(|error| error.kind()),
        file.sync_all().err().map(|error| error.kind()),
        file.set_len(0).err().map(|error| error.kind()),
        file.metadata().err().map(|error| error.kind()),
        volume.sync().err().map(|error| error.kind()),
        volume.subvolumes().err().map(|error| error.kind()),
        root.info().err().map(|error| error.kind()),
        volume.clone().close().err().map(|error| error.kind()),
    ];
    let refused = Some(ErrorKind::ResourceBusy);
    let other = kinds.iter().position(|kind| *kind != refused);
    other.map_or(0, |at| at as i32 + 1)
}

fn assert_clean(path: &Path) {
    assert!(Checker::new().check(path).unwrap().is_clean());
}

#[test]
fn fork_leaves_the_volume_to_its_parent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("volume.img");
    let volume = Volume::create(&path, 256 << 20).unwrap();
    let root = volume.root();
    root.write("/file", b"first").unwrap();
    let both = OpenOptions::new().read(true).write(true);
    let mut file = root.open_with("/file", &both).unwrap();
    let kept = root
        .snapshot("/", "/kept", ubtrfs::Access::ReadOnly)
        .and_then(|kept| Snapshot::open(&kept))
        .unwrap();
    root.write("/uncommitted", b"second").unwrap();
    assert_eq!(in_fork(|| first_that_is_not_refused(&volume, &file)), 0);
    // The child drops all its handles of the volume.
    let handles = (volume.clone(), root.clone(), file.try_clone().unwrap());
    let ended = in_fork(move || {
        drop(handles);
        0
    });
    assert_eq!(ended, 0);
    let all = std::mem::ManuallyDrop::new((volume, kept));
    let ended = in_fork(|| {
        // SAFETY: the parent's copy of the memory has its own value.
        drop(unsafe { std::ptr::read(&*all) });
        0
    });
    assert_eq!(ended, 0);
    let (volume, kept) = std::mem::ManuallyDrop::into_inner(all);
    // The parent still has the lock and its changes.
    let other = Volume::open(&path).unwrap_err();
    assert_eq!(other.kind(), ErrorKind::ResourceBusy);
    let root = volume.root();
    root.write("/later", b"third").unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "first");
    let root = root.clone();
    drop((file, kept));
    for (name, content) in [("/uncommitted", "second"), ("/later", "third")] {
        assert_eq!(root.read(name).unwrap(), content.as_bytes());
    }
    drop(root);
    volume.close().unwrap();
    let volume = Volume::open_read_only(&path).unwrap();
    for (name, content) in [("/uncommitted", "second"), ("/later", "third")] {
        assert_eq!(volume.root().read(name).unwrap(), content.as_bytes());
    }
    assert_eq!(in_fork(|| volume.root().read("/later").is_ok().into()), 0);
    drop(volume);
    assert_clean(&path);
}
