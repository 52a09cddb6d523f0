//! A device that rejects writes: the mount is read-only from then on, and reports it.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use ubtrfs_sim::kernel::{self, LoopDevice};

use crate::served::{Place, Server, alone, assert_ok, can_mount, read_from, ubtrfs};

const DISK_BYTES: u64 = 64 << 20;

/// A small file system in memory with an image in it, which can no longer grow once the file system is full.
struct Disk {
    place: Place,
    dir: PathBuf,
}

impl Disk {
    fn new() -> Disk {
        let mut place = Place::new(1 << 30);
        let dir = place.scratch.path().join("disk");
        fs::create_dir(&dir).unwrap();
        let size = CString::new(format!("size={DISK_BYTES}")).unwrap();
        mount("none", &dir, "tmpfs", MountFlags::empty(), size.as_c_str()).unwrap();
        place.image = dir.join("v.img");
        let image = File::create(&place.image).unwrap();
        image.set_len(1 << 30).unwrap();
        assert_ok(ubtrfs().args(["mkfs", "-q"]).arg(&place.image));
        Disk { place, dir }
    }

    /// Fills the rest of the file system.
    fn fill(&self) {
        let mut rest = File::create(self.dir.join("rest")).unwrap();
        while rest.write_all(&[1; 4096]).is_ok() {}
    }

    fn free(&self) {
        fs::remove_file(self.dir.join("rest")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = unmount(&self.place.mountpoint, UnmountFlags::DETACH);
        let _ = unmount(&self.dir, UnmountFlags::DETACH);
    }
}

fn is_shown_read_only(mountpoint: &Path) -> bool {
    let flags = statvfs(mountpoint).unwrap().f_flag;
    flags.contains(rustix::fs::StatVfsMountFlags::RDONLY)
}

fn is_refused(outcome: io::Result<impl Sized>) -> bool {
    outcome.is_err_and(|error| error.kind() == ErrorKind::ReadOnlyFilesystem)
}

fn is_read_only_once_its_device_takes_no_writes(disk: &Disk, source: &Path) {
    let mountpoint = &disk.place.mountpoint;
    let mut server = Server::start(source, mountpoint);
    let mut before = File::create(mountpoint.join("before")).unwrap();
    before.write_all(b"durable\n").unwrap();
    before.sync_all().unwrap();
    drop(before);
    disk.fill();
    let kept = File::create(mountpoint.join("kept open")).unwrap();
    for number in 0..500 {
        let _ = File::create(mountpoint.join(format!("new{number}")));
    }
    assert!(kept.sync_all().is_err());
    // While a file is open for writing, the kernel does not make the mount read-only. The server logs that it
    // is waiting for this file.
    server.wait_for("until no file is open for writing");
    assert!(!is_shown_read_only(mountpoint));
    assert!(is_refused((&kept).write(b"x")));
    assert!(is_refused(kept.sync_all()));
    assert!(is_refused(File::create(mountpoint.join("more"))));
    assert!(is_refused(fs::create_dir(mountpoint.join("dir"))));
    assert!(is_refused(fs::remove_file(mountpoint.join("before"))));
    drop(kept);
    server.wait_for("forced read-only");
    assert!(is_shown_read_only(mountpoint));
    let opened = File::options().write(true).open(mountpoint.join("before"));
    assert!(is_refused(opened));
    let before = fs::read_to_string(mountpoint.join("before")).unwrap();
    assert_eq!(before, "durable\n");

    let stats = ubtrfs()
        .args(["filesystem", "stats"])
        .arg(mountpoint)
        .output()
        .unwrap();
    let stats = String::from_utf8(stats.stdout).unwrap();
    let aborted = stats.lines().find(|line| line.starts_with("Aborted:"));
    assert!(
        aborted.is_some_and(|line| line.contains("cannot ")),
        "{stats}"
    );

    disk.free();
    let again = ubtrfs()
        .args(["mount", "-o", "remount,rw"])
        .arg(mountpoint)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(
        !again.status.success() && said.contains("a transaction"),
        "{said}"
    );
    assert!(is_shown_read_only(mountpoint));

    unmount(mountpoint, UnmountFlags::empty()).unwrap();
    assert!(!server.end().expect("it ends").success());
    assert_ok(ubtrfs().args(["check", "-q"]).arg(source));
    assert_eq!(read_from(source, "before"), b"durable\n");
}

#[test]
fn umount_fails_if_the_last_commit_does() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let disk = Disk::new();
    let mountpoint = &disk.place.mountpoint;
    let mut server = disk.place.serve_with("commit=300");
    disk.fill();
    for number in 0..500 {
        File::create(mountpoint.join(format!("new{number}"))).unwrap();
    }
    let umount = ubtrfs().arg("umount").arg(mountpoint).output().unwrap();
    let said = String::from_utf8_lossy(&umount.stderr);
    assert_eq!(umount.status.code(), Some(1), "{said}");
    assert!(said.contains("some written data may be lost"), "{said}");
    assert!(!server.end().expect("it ends").success());
}

#[test]
fn a_mount_is_read_only_once_its_image_takes_no_writes() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let disk = Disk::new();
    is_read_only_once_its_device_takes_no_writes(&disk, &disk.place.image);
}

#[test]
fn a_mount_is_read_only_once_its_block_device_takes_no_writes() {
    if !kernel::or_skip("a_mount_is_read_only_once_its_block_device_takes_no_writes") {
        return;
    }
    let _alone = alone();
    let disk = Disk::new();
    let device = LoopDevice::attach(&disk.place.image).unwrap();
    is_read_only_once_its_device_takes_no_writes(&disk, device.path());
}
