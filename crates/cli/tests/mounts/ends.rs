//! The end of a mount: which data is written by then, which users the server waits for, and the effect of
//! signals.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, unmount};
use rustix::process::Signal;
use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};
use ubtrfs_sim::kernel::{self, LoopDevice};

use crate::mapped::{MAPPED_BYTES, Mapped, let_pages_lie};
use crate::other_namespace::Elsewhere;
use crate::served::{
    Place, Server, alone, assert_ok, can_mount, read_from, types_at, ubtrfs,
    wait_until_nothing_is_at,
};

pub(crate) fn generation(device: &File) -> u64 {
    let mut block = vec![0; SUPERBLOCK_SIZE];
    device
        .read_exact_at(&mut block, SUPERBLOCK_OFFSETS[0])
        .unwrap();
    Superblock::from_block(&block).unwrap().generation.get()
}

#[test]
fn nothing_is_written_to_a_device_after_it_was_unmounted() {
    if !kernel::or_skip("nothing_is_written_to_a_device_after_it_was_unmounted") {
        return;
    }
    let _alone = alone();
    let place = Place::new(1 << 30);
    let device = LoopDevice::attach(&place.image).unwrap();
    let mut server = Server::start(device.path(), &place.mountpoint);
    assert_eq!(types_at(&place.mountpoint), ["fuseblk.ubtrfs"]);
    let doomed = place.mountpoint.join("doomed");
    assert_ok(ubtrfs().args(["subvolume", "create"]).arg(&doomed));
    // Block groups that become empty, and a tree of many blocks.
    fs::write(doomed.join("large"), vec![7; 200 << 20]).unwrap();
    for number in 0..2000 {
        fs::write(doomed.join(format!("file{number}")), "small").unwrap();
    }
    rustix::fs::sync();
    fs::write(place.mountpoint.join("last"), "last\n").unwrap();
    assert_ok(ubtrfs().args(["subvolume", "delete"]).arg(&doomed));
    unmount(&place.mountpoint, UnmountFlags::empty()).unwrap();

    let mut options = File::options();
    options.read(true).write(true);
    options.custom_flags(OFlags::EXCL.bits().cast_signed());
    let claimed = options.open(device.path()).unwrap();
    let before = generation(&claimed);
    assert!(server.end().unwrap().success());
    assert_eq!(generation(&claimed), before);
    drop(claimed);
    assert_ok(ubtrfs().args(["check", "-q"]).arg(device.path()));
    assert_eq!(read_from(device.path(), "last"), b"last\n");
}

/// Asserts that all data is on the image after `leave`, which ends a mount and returns with the image's lock.
fn is_on_the_image(leave: impl FnOnce(&Place, &File)) {
    let place = Place::new(1 << 30);
    let mut server = place.serve();
    for number in 0..2000 {
        fs::write(place.mountpoint.join(format!("file{number}")), "small").unwrap();
    }
    fs::write(place.mountpoint.join("last"), vec![7; 100 << 20]).unwrap();
    let image = File::open(&place.image).unwrap();
    leave(&place, &image);
    let at_return = generation(&image);
    assert!(server.end().unwrap().success());
    assert_eq!(generation(&image), at_return);
    drop(image);
    assert_ok(ubtrfs().args(["check", "-q"]).arg(&place.image));
    assert_eq!(read_from(&place.image, "last").len(), 100 << 20);
}

#[test]
fn all_is_on_the_image_when_our_umount_returns() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    is_on_the_image(|place, image| {
        place.umount();
        flock(image, FlockOperation::NonBlockingLockExclusive).unwrap();
    });
}

#[test]
fn all_is_on_the_image_when_its_lock_is_free_after_umount2() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    is_on_the_image(|place, image| {
        unmount(&place.mountpoint, UnmountFlags::empty()).unwrap();
        flock(image, FlockOperation::LockShared).unwrap();
    });
}

/// Asserts that `umount -f` ends the server and loses no written data. It ends the connection first, so the
/// kernel does not ask the server to close the volume.
fn is_ended_by_force(place: &Place, source: &Path, is_busy: bool) {
    let mut server = Server::start(source, &place.mountpoint);
    let is_block = types_at(&place.mountpoint) == ["fuseblk.ubtrfs"];
    let path = |name| place.mountpoint.join(name);
    for name in ["written", "synced"] {
        fs::write(path(name), name).unwrap();
    }
    File::open(path("synced")).unwrap().sync_all().unwrap();
    fs::write(path("last"), "last").unwrap();
    let user = is_busy.then(|| File::open(path("last")).unwrap());
    let unmounted = unmount(&place.mountpoint, UnmountFlags::FORCE);
    assert_eq!(unmounted.is_ok(), !is_busy);
    if is_block && !is_busy {
        server.wait_for("claimed the device again");
    }
    assert!(server.end().expect("it is served on").success());
    if let Some(user) = user {
        let gone = fs::read(path("last")).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(Errno::NOTCONN.raw_os_error()));
        drop(user);
        unmount(&place.mountpoint, UnmountFlags::empty()).unwrap();
    }
    assert_ok(ubtrfs().args(["check", "-q"]).arg(source));
    for name in ["written", "synced", "last"] {
        assert_eq!(read_from(source, name), name.as_bytes());
    }
}

#[test]
fn a_forced_umount_ends_the_server_and_loses_nothing_that_was_written() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    for is_busy in [false, true] {
        is_ended_by_force(&place, &place.image, is_busy);
    }
    if !kernel::or_skip("a_forced_umount of a block device") {
        return;
    }
    let device = LoopDevice::attach(&place.image).unwrap();
    for is_busy in [false, true] {
        is_ended_by_force(&place, device.path(), is_busy);
    }
}

/// While another namespace or an open file keeps the mount alive, the kernel keeps the device.
#[test]
fn a_forced_umount_of_a_device_that_is_kept_elsewhere_loses_nothing_that_was_written() {
    if !kernel::or_skip("a_forced_umount_of_a_device_that_is_kept_elsewhere") {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    let device = LoopDevice::attach(&place.image).unwrap();
    for name in ["namespace", "open", "mapped"] {
        let mut server = Server::start(device.path(), &place.mountpoint);
        let path = place.mountpoint.join(name);
        fs::write(&path, name).unwrap();
        let elsewhere = (name == "namespace").then(|| Elsewhere::keeping(&place.mountpoint));
        let open = (name == "open").then(|| File::open(&path).unwrap());
        let mapped = (name == "mapped").then(|| {
            fs::write(&path, vec![b'm'; MAPPED_BYTES]).unwrap();
            Mapped::new(&path)
        });
        unmount(
            &place.mountpoint,
            UnmountFlags::FORCE | UnmountFlags::DETACH,
        )
        .unwrap();
        assert!(server.end().expect("it is served on").success(), "{name}");
        drop((elsewhere, open, mapped));
        assert_ok(ubtrfs().args(["check", "-q"]).arg(&place.image));
        let found = read_from(&place.image, name);
        assert_eq!(found.first(), name.as_bytes().first(), "{name}");
    }
}

#[test]
fn a_signal_leaves_what_lies_over_the_mount() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    let mut server = place.serve();
    let data = None::<&std::ffi::CStr>;
    let flags = MountFlags::empty();
    rustix::mount::mount("none", &place.mountpoint, "tmpfs", flags, data).unwrap();
    server.signal(Signal::TERM);
    server.wait_for("another mount");
    assert_eq!(types_at(&place.mountpoint), ["fuse.ubtrfs", "tmpfs"]);
    let by_image = ubtrfs().arg("umount").arg(&place.image).output().unwrap();
    assert_eq!(by_image.status.code(), Some(1));
    assert_eq!(types_at(&place.mountpoint), ["fuse.ubtrfs", "tmpfs"]);

    unmount(&place.mountpoint, UnmountFlags::empty()).unwrap();
    fs::write(place.mountpoint.join("file"), "still served").unwrap();
    server.signal(Signal::TERM);
    assert!(server.end().unwrap().success());
    assert!(types_at(&place.mountpoint).is_empty());
}

#[test]
fn a_second_signal_ends_a_mount_that_lives_on_elsewhere() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let place = Place::new(256 << 20);
    let mut server = place.serve();
    let elsewhere = Elsewhere::keeping(&place.mountpoint);
    fs::write(place.mountpoint.join("file"), "written\n").unwrap();
    server.signal(Signal::TERM);
    wait_until_nothing_is_at(&place.mountpoint);
    server.signal(Signal::TERM);
    let ended = server.end().expect("it does not hear signals any more");
    assert_eq!(ended.signal(), Some(Signal::TERM.as_raw()));
    assert_eq!(place.read("file"), "written\n");
    drop(elsewhere);
}

/// A mount that stays busy because one of its files is mapped.
struct Busy {
    place: Place,
    server: Server,
    mapped: Mapped,
}

impl Busy {
    fn new() -> Busy {
        let place = Place::new(256 << 20);
        let server = place.serve();
        let_pages_lie(&place.mountpoint);
        let path = place.mountpoint.join("mapped");
        fs::write(&path, vec![b'0'; MAPPED_BYTES]).unwrap();
        Busy {
            mapped: Mapped::new(&path),
            place,
            server,
        }
    }

    fn is_left(&self) {
        self.server.signal(Signal::TERM);
        wait_until_nothing_is_at(&self.place.mountpoint);
    }

    /// Returns the first byte of a file of the image.
    fn stored(&self, name: &str) -> Option<u8> {
        read_from(&self.place.image, name).first().copied()
    }
}

#[test]
fn data_of_a_busy_mount_at_a_signal_outlives_its_process() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let mut busy = Busy::new();
    fs::write(busy.place.mountpoint.join("plain"), "1").unwrap();
    busy.mapped.change(b'1');
    busy.is_left();
    busy.server.wait_for("all writes are durable");
    busy.server.signal(Signal::KILL);
    busy.server.end().unwrap();
    assert_eq!(busy.stored("plain"), Some(b'1'));
    assert_eq!(busy.stored("mapped"), Some(b'1'));
}

#[test]
fn a_second_signal_ends_a_busy_mount_with_what_was_mapped() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let mut busy = Busy::new();
    busy.is_left();
    busy.mapped.change(b'2');
    busy.server.signal(Signal::TERM);
    busy.server.end().expect("it goes on");
    assert_eq!(busy.stored("mapped"), Some(b'2'));
}
