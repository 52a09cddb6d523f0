//! Without support for ACLs, they grant nothing, are not inherited, and stay unchanged.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags, XattrFlags};
use rustix::process::umask;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use ubtrfs_sim::kernel::{KernelVolume, MkfsSpec, or_skip};

use super::raw::*;
use super::served::Served;
use super::users::{NOBODY, OWNER, PLAYERS, Player, acl, state};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// Creates a directory with an access ACL, one with a default ACL, and a file with an ACL.
fn furnish(top: &Path) {
    for (dir, mode) in [("granted", 0o755), ("heir", 0o777)] {
        fs::create_dir(top.join(dir)).unwrap();
        fs::set_permissions(top.join(dir), PermissionsExt::from_mode(mode)).unwrap();
    }
    fs::write(top.join("file"), "contents").unwrap();
    let named = |bits| {
        acl(&[
            (0x01, 7, NOBODY),
            (0x02, bits, OWNER),
            (0x04, 5, NOBODY),
            (0x10, bits, NOBODY),
            (0x20, 5, NOBODY),
        ])
    };
    let open = acl(&[(0x01, 7, NOBODY), (0x04, 7, NOBODY), (0x20, 7, NOBODY)]);
    for (path, kind, acl) in [
        ("granted", ACCESS, named(7)),
        ("heir", DEFAULT, open),
        ("file", ACCESS, named(6)),
    ] {
        rustix::fs::setxattr(top.join(path), kind, &acl, XattrFlags::empty()).unwrap();
    }
}

/// Runs `play` with a umask of the thread's own.
fn private<T>(play: impl FnOnce() -> T) -> T {
    // SAFETY: the thread only stops sharing its root, working directory and umask.
    #[allow(unsafe_code)]
    unsafe { unshare_unsafe(UnshareFlags::FS) }.unwrap();
    umask(Mode::from_raw_mode(0o077));
    play()
}

/// Creates files as a user, and changes a mode as root. The answers also include their attributes.
fn play(top: &Path, player: &Player) -> Vec<String> {
    let mut answers = Answers::default();
    player.play(|| {
        private(|| {
            for dir in ["granted", "heir"] {
                let opened = File::open(top.join(dir)).unwrap();
                let made = ask(&opened, SUBVOL_CREATE, &named(b"subvolume"));
                answers.note(&format!("subvolume in {dir}"), silent(made));
            }
            let heir = top.join("heir");
            fs::write(heir.join("file"), "secret").unwrap();
            fs::create_dir(heir.join("dir")).unwrap();
            std::os::unix::fs::symlink("file", heir.join("link")).unwrap();
            let unnamed = OpenOptions::new()
                .write(true)
                .mode(0o666)
                .custom_flags(OFlags::TMPFILE.bits().cast_signed())
                .open(&heir);
            let mode = unnamed.unwrap().metadata().unwrap().permissions().mode();
            answers.0.push(format!("without a name: {mode:o}"));
        });
    });
    fs::set_permissions(top.join("file"), PermissionsExt::from_mode(0o604)).unwrap();
    answers.0.extend(states(top));
    answers.0
}

fn states(top: &Path) -> impl Iterator<Item = String> {
    let of = |path: &&str| format!("{path} is {}", state(&top.join(path)));
    let paths = [
        "granted",
        "granted/subvolume",
        "heir",
        "heir/subvolume",
        "heir/file",
        "heir/dir",
        "heir/link",
        "file",
    ];
    paths.iter().map(of).collect::<Vec<_>>().into_iter()
}

/// Sets up a volume by the kernel, and returns its answers after `play`.
fn furnished(play: impl FnOnce(&KernelVolume) -> Vec<String>) -> Vec<String> {
    let made = KernelVolume::make(&MkfsSpec::new()).unwrap();
    let seen_by_kernel = |see: &dyn Fn(&Path)| {
        let kernel = made.mount("").unwrap();
        see(kernel.path());
        kernel.unmount().unwrap();
    };
    seen_by_kernel(&furnish);
    let answers = std::cell::RefCell::new(play(&made));
    seen_by_kernel(&|top| answers.borrow_mut().extend(states(top)));
    made.check().unwrap();
    answers.into_inner()
}

#[test]
fn acls_that_do_not_count_grant_nothing_and_are_not_handed_on() {
    if !or_skip("acls_that_do_not_count_grant_nothing_and_are_not_handed_on") {
        return;
    }
    let ours = |words: &str, player: &Player| {
        furnished(|made| {
            let dir = made.dir().join("ours");
            fs::create_dir(&dir).unwrap();
            let served = Served::start("serving_process", &made.devices()[0], &dir, words);
            let answers = play(&dir, player);
            served.end();
            answers
        })
    };
    let kernels = |words: &str, player: &Player| {
        furnished(|made| {
            let kernel = made.mount(words).unwrap();
            let answers = play(kernel.path(), player);
            kernel.unmount().unwrap();
            answers
        })
    };
    let [owner, .., root] = &PLAYERS;
    for words in ["acl", "noacl"] {
        assert_same(&ours(words, owner), &kernels(words, owner));
    }
    // A mount for a single user, who may do everything and sees no ACLs.
    assert_same(&ours("fakeroot", root), &kernels("noacl", root));
}
