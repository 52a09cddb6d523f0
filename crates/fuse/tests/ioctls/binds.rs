//! Requests through a read-only bind mount are refused as on the kernel's btrfs.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount_bind, mount_change, mount_remount,
    unmount,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use ubtrfs_sim::Scratch;
use ubtrfs_sim::kernel::{KernelVolume, MkfsSpec, or_skip};

use super::raw::*;
use super::with_ours;

/// A read-only bind mount of the same files.
struct Bound {
    dir: PathBuf,
    _scratch: Scratch,
}

impl Bound {
    fn new(of: &Path) -> Bound {
        let scratch = Scratch::new().unwrap();
        let dir = scratch.path().join("ro");
        fs::create_dir(&dir).unwrap();
        mount_bind(of, &dir).unwrap();
        let bound = Bound {
            dir,
            _scratch: scratch,
        };
        mount_remount(&bound.dir, MountFlags::BIND | MountFlags::RDONLY, "").unwrap();
        bound
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        unmount(&self.dir, UnmountFlags::DETACH).unwrap();
    }
}

/// Makes every kind of change below `top`.
fn changes(top: &Path, answers: &mut Answers) {
    let mut note = |what: &str, answer| answers.note(what, silent(answer));
    let open = |path: &str| File::open(top.join(path)).unwrap();
    let (root, a, r) = (open(""), open("a"), open("r"));
    let source = a.as_raw_fd();
    note("create", ask(&root, SUBVOL_CREATE, &named(b"new")));
    note("create", ask(&root, SUBVOL_CREATE, &named(b"a")));
    let args = named_v2(0, 0, b"new2");
    note("create v2", ask(&root, SUBVOL_CREATE_V2, &args));
    let args = named_from(source, b"s1");
    note("snapshot", ask(&root, SNAP_CREATE, &args));
    let args = named_v2(source.into(), READ_ONLY, b"s2");
    note("snapshot v2", ask(&a, SNAP_CREATE_V2, &args));
    note("flags", ask(&r, SETFLAGS, &numbers(&[0])));
    note("flags", ask(&r, SETFLAGS, &numbers(&[READ_ONLY])));
    note("flags", ask(&r, SETFLAGS, &numbers(&[77])));
    note("received", ask(&a, SET_RECEIVED, &[7; 16]));
    note("default", ask(&root, DEFAULT_SUBVOL, &numbers(&[256])));
    note("default", ask(&root, DEFAULT_SUBVOL, &numbers(&[5])));
    note("label", ask(&root, SET_FSLABEL, b"other"));
    note("trim", ask(&root, FITRIM, &numbers(&[0, u64::MAX, 0])));
    note("sync", ask(&root, SYNC, b""));
    note("delete", ask(&root, SNAP_DESTROY, &named(b"gone")));
    let args = named_v2(0, 0, b"gone2");
    note("delete v2", ask(&root, SNAP_DESTROY_V2, &args));
    let args = named_v2(0, BY_ID, &numbers(&[260]));
    note("delete by id", ask(&root, SNAP_DESTROY_V2, &args));
}

fn script(top: &Path) -> Vec<String> {
    let root = File::open(top).unwrap();
    for name in ["a", "r", "gone", "gone2", "gone3"] {
        ask(&root, SUBVOL_CREATE, &named(name.as_bytes())).unwrap();
    }
    let mut answers = Answers::default();
    {
        // No other file of the volume is open here.
        drop(root);
        let bound = Bound::new(top);
        changes(&bound.dir, &mut answers);
        // Only the directory of the new snapshot must be writable.
        let source = File::open(bound.dir.join("a")).unwrap();
        let root = File::open(top).unwrap();
        let args = named_v2(source.as_raw_fd().into(), 0, b"copy");
        answers.note("copy", ask(&root, SNAP_CREATE_V2, &args).map(|_| vec![]));
    }
    answers.0.push("writable".into());
    changes(top, &mut answers);
    answers.0
}

#[test]
fn a_read_only_bind_mount_refuses_what_the_kernels_refuses() {
    if !or_skip("a_read_only_bind_mount_refuses_what_the_kernels_refuses") {
        return;
    }
    let theirs = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let kernel = theirs.mount("").unwrap();
    let expected = script(kernel.path());
    kernel.unmount().unwrap();
    let refused = expected.iter().filter(|said| said.contains("code: 30"));
    assert_eq!(refused.count(), 15, "{expected:#?}");
    with_ours("", |dir| assert_same(&script(dir), &expected));
}

/// In a container the volume has no other mount.
#[test]
fn a_caller_with_read_only_mounts_alone_changes_nothing() {
    if !or_skip("a_caller_with_read_only_mounts_alone_changes_nothing") {
        return;
    }
    with_ours("", |dir| {
        let bound = Bound::new(dir);
        // It is a descriptor of the same file, through a mount that allows writes.
        let _writable = File::open(dir).unwrap();
        let in_container = || {
            // SAFETY: the namespace belongs to this thread alone, which shares nothing else with others.
            #[allow(unsafe_code)]
            unsafe { unshare_unsafe(UnshareFlags::FS | UnshareFlags::NEWNS) }.unwrap();
            let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            mount_change("/", private).unwrap();
            unmount(dir, UnmountFlags::DETACH).unwrap();
            let root = File::open(&bound.dir).unwrap();
            ask(&root, SUBVOL_CREATE, &named(b"new"))
        };
        let made = thread::scope(|scope| scope.spawn(in_container).join().unwrap());
        assert_eq!(made, Err(Errno::ROFS));
        assert!(!dir.join("new").exists());
    });
}
