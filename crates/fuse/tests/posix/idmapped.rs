//! A mount that maps users: their rights, and the owners of their files on the volume.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};

use super::calls;
use super::stage::{Kind, Stage, state_at};

/// User 0 of the volume is user 10000 of the mount, 1 is 10001, and so on. Other users are not mapped.
const MAPPING: &str = "0 10000 100";

/// A process in a user namespace with this mapping, which it keeps alive.
struct Mapped {
    child: Child,
}

impl Mapped {
    fn new() -> Mapped {
        let mut child = Command::new("unshare")
            .args(["--user", "sh", "-c", "echo; exec 1>&-; read _"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut made = Vec::new();
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_to_end(&mut made)
            .unwrap();
        assert_eq!(made, b"\n", "no namespace");
        for map in ["uid_map", "gid_map"] {
            fs::write(format!("/proc/{}/{map}", child.id()), MAPPING).unwrap();
        }
        Mapped { child }
    }

    fn users(&self) -> File {
        File::open(format!("/proc/{}/ns/user", self.child.id())).unwrap()
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn note_both(stage: &mut Stage, mapped: i32, name: &str) {
    stage.note_state(name);
    let through = state_at(mapped, name.as_bytes());
    stage.note(format!("mapped state of {name}"), through);
}

pub(crate) fn mapped_users(stage: &mut Stage) {
    if !ubtrfs_sim::is_in_first_pid_namespace() {
        ubtrfs_sim::skip_optional("idmapped mounts: not in the first PID namespace");
        return;
    }
    let users = Mapped::new();
    let mount = calls::idmapped(stage.dir(), users.users().as_raw_fd());
    stage.note("mount with mapped users", mount.as_ref().map(|_| ()));
    let Ok(mount) = mount else { return };
    let dir = mount.0;
    calls::chmod(stage.dir(), b".", 0o777, 0).unwrap();
    for name in ["open", "setgid", "theirs"] {
        calls::mkdir(stage.dir(), name.as_bytes(), 0o755).unwrap();
    }
    calls::chmod(stage.dir(), b"open", 0o777, 0).unwrap();
    calls::chown(stage.dir(), b"setgid", 1, 5, 0).unwrap();
    calls::chmod(stage.dir(), b"setgid", 0o2777, 0).unwrap();
    calls::chown(stage.dir(), b"theirs", 1, 1, 0).unwrap();
    // User 1 of the volume is not mapped in the mount.
    for user in [0, 1, 10_000, 10_001, 10_002] {
        for place in ["open", "setgid", "theirs"] {
            stage.as_user((user, user, &[10_005]), |stage| {
                for kind in [Kind::File, Kind::Dir, Kind::Fifo] {
                    let name = format!("{place}/{kind:?}-{user}");
                    let path = name.as_bytes();
                    let made = match kind {
                        Kind::Dir => calls::mkdir(dir, path, 0o2777).map(|_| ()),
                        Kind::Fifo => calls::mknod(dir, path, libc::S_IFIFO | 0o666, 0).map(|_| ()),
                        _ => calls::open(dir, path, libc::O_CREAT | libc::O_RDWR, 0o6777).map(drop),
                    };
                    stage.note(format!("make {name}"), made);
                    note_both(stage, dir, &name);
                }
                let name = format!("{place}/link-{user}");
                let came = calls::symlink(b"to", dir, name.as_bytes());
                stage.note(format!("make {name}"), came);
                note_both(stage, dir, &name);
            });
        }
    }
    drop(stage.file("file", b"contents"));
    calls::chown(stage.dir(), b"file", 1, 1, 0).unwrap();
    for user in [0, 1, 10_000, 10_001, 10_002] {
        stage.as_user((user, user, &[]), |stage| {
            let mut note = |what: &str, came: calls::Outcome| {
                stage.note(format!("{user}: {what}"), came);
            };
            note("mode", calls::chmod(dir, b"file", 0o6774, 0));
            note("no change", calls::chown(dir, b"file", -1, -1, 0));
            note("own", calls::chown(dir, b"file", user as i32, -1, 0));
            note("give away", calls::chown(dir, b"file", 10_003, -1, 0));
            note(
                "times",
                calls::utimens(dir, Some(b"file"), Some([(5, 5), (6, 6)]), 0),
            );
            let file = calls::open(dir, b"file", libc::O_RDWR, 0);
            let file = file.and_then(|file| calls::pwrite(&file, b"x", 0));
            note("write", file);
            note("readable", calls::access(dir, b"file", libc::R_OK, 0));
            note("move", calls::rename((dir, b"file"), (dir, b"moved"), 0));
            let back = calls::rename((dir, b"moved"), (dir, b"file"), 0);
            note("move back", back);
            note_both(stage, dir, "file");
        });
    }
    for user in [10_001, 0] {
        stage.as_user((user, user, &[]), |stage| {
            let name = format!("open/File-{user}");
            let gone = calls::unlink(dir, name.as_bytes(), 0);
            stage.note(format!("unlink {name}"), gone);
        });
    }
}
