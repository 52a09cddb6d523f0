//! Real mounts of a tree in memory. Process-level tests run this test program again as a child.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};

#[path = "../../tests/idle/mod.rs"]
mod idle;
#[path = "../../../../benches/transport/src/switch.rs"]
mod switch;

use ubtrfs_fuse_server::request::{ConnectionFlags, FileKind};
use ubtrfs_sim::{is_root_or_skip, skip, skip_optional};

use self::idle::{BUSY_LIMIT, unmount_once_idle};
use super::*;
use crate::adapter::Adapter;
use crate::adapter::memory::{Memory, TOP, content_byte, file};

const CONNECTION_FLAGS: ConnectionFlags = ConnectionFlags {
    posix_acl: true,
    writable: false,
    writeback_cache: false,
    idmapped: false,
};
const NOBODY: u32 = 65534;
const NAMES_IN_BIG: u64 = 100_000;
/// Odd, so that it ends within a page.
const LONG_BYTES: u64 = 5 * 1024 * 1024 + 4321;
const SOURCE: &str = "/images/with,comma and blank.img";

const TEXT: u64 = 257;
const BIG: u64 = 258;
const GUARDED: u64 = 259;
const LINK: u64 = 260;
const CURSED: u64 = 261;

/// Creates an ACL in the form of the xattr: the owner reads and writes, `NOBODY` reads, all others have no rights.
fn acl_for_nobody() -> Vec<u8> {
    let mut acl = 2u32.to_le_bytes().to_vec();
    let none = u32::MAX;
    for (tag, permissions, id) in [
        (0x01u16, 6u16, none),
        (0x02, 4, NOBODY),
        (0x04, 0, none),
        (0x10, 4, none),
        (0x20, 0, none),
    ] {
        acl.extend_from_slice(&tag.to_le_bytes());
        acl.extend_from_slice(&permissions.to_le_bytes());
        acl.extend_from_slice(&id.to_le_bytes());
    }
    acl
}

fn tree() -> Memory {
    let mut memory = Memory::new();
    let text = memory.add(TOP, "long", file(5, TEXT), FileKind::Regular);
    text.inode.attr.size_bytes = LONG_BYTES;
    text.inode.attr.blocks = LONG_BYTES.div_ceil(4096) * 8;
    text.xattrs
        .insert(b"user.colour".to_vec(), b"blue".to_vec());
    text.inode.flags = ubtrfs_format::item::InodeFlags::NODATACOW;
    let guarded = memory.add(TOP, "guarded", file(5, GUARDED), FileKind::Regular);
    guarded.inode.attr.size_bytes = 10;
    // With an ACL the group bits are the mask.
    guarded.inode.attr.permissions = 0o640;
    guarded
        .xattrs
        .insert(b"system.posix_acl_access".to_vec(), acl_for_nobody());
    let link = memory.add(TOP, "link", file(5, LINK), FileKind::Symlink);
    link.target = b"long".to_vec();
    link.inode.attr.permissions = 0o777;
    link.inode.attr.size_bytes = 4;
    let cursed = memory.add(TOP, "cursed", file(5, CURSED), FileKind::Regular);
    cursed.inode.attr.size_bytes = 1;
    memory.cursed.push(file(5, CURSED));
    memory.add(TOP, "big", file(5, BIG), FileKind::Directory);
    for number in 0..NAMES_IN_BIG {
        memory.add(
            file(5, BIG),
            &format!("name-{number}"),
            file(5, 1000 + number),
            FileKind::Regular,
        );
    }
    memory.add(TOP, "nested", file(300, 256), FileKind::Directory);
    memory.add(file(300, 256), "long", file(300, TEXT), FileKind::Regular);
    memory
}

fn read_only() -> Options {
    Options {
        read_only: Some(true),
        ..Options::default()
    }
}

fn serve(mountpoint: &Path) -> Result<Session, MountError> {
    switch::with_uring(false, || serve_over(mountpoint, TransportChoice::Auto)).unwrap()
}

fn serve_over(mountpoint: &Path, transport: TransportChoice) -> Result<Session, MountError> {
    let adapter = Adapter::new(tree(), TOP, CONNECTION_FLAGS);
    let options = Options {
        transport,
        ..read_only()
    };
    mount_file_system(adapter, Path::new(SOURCE), mountpoint, &options)
}

/// Mounts a tree over each transport that this user can use.
fn mounted() -> impl Iterator<Item = (tempfile::TempDir, Session)> {
    [TransportChoice::Classic, TransportChoice::Uring]
        .into_iter()
        .filter_map(|transport| {
            let dir = tempfile::tempdir().unwrap();
            let mount = || serve_over(dir.path(), transport);
            let mounted = switch::with_uring(transport == TransportChoice::Uring, mount)
                .map_err(|error| skip_optional(format_args!("no FUSE over io_uring: {error}")));
            match mounted.ok()? {
                Ok(session) => Some((dir, session)),
                Err(
                    error @ (MountError::NoFuse
                    | MountError::NoHelper
                    | MountError::OpenFuse(_)
                    | MountError::Helper(_)),
                ) => {
                    skip(format_args!("cannot mount here: {error}"));
                    None
                }
                Err(error) => panic!("{transport:?}: {error}"),
            }
        })
}

fn unmount_session(mut session: Session) {
    unmount_once_idle(&mut session);
}

#[test]
fn a_mount_shows_its_type_and_source_and_is_gone_after_unmounting() {
    for (dir, session) in mounted() {
        let entry = mount_at(dir.path()).unwrap().unwrap();
        assert_eq!(entry.fs_type, FS_TYPE);
        assert_eq!(entry.source, Path::new(SOURCE));
        assert!(matches!(
            serve(dir.path()),
            Err(MountError::AlreadyMounted { .. })
        ));
        unmount_session(session);
        assert_eq!(mount_at(dir.path()).unwrap(), None);
        assert!(matches!(
            unmount(dir.path(), IfBusy::Refuse),
            Err(UnmountError::NotMounted(_))
        ));
    }
}

#[test]
fn a_directory_of_100_000_names_lists_each_name_once_with_its_number() {
    for (dir, session) in mounted() {
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(dir.path().join("big")).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let number: u64 = name.strip_prefix("name-").unwrap().parse().unwrap();
            assert_eq!(std::os::unix::fs::DirEntryExt::ino(&entry), 1000 + number);
            if number.is_multiple_of(1000) {
                assert_eq!(entry.metadata().unwrap().ino(), 1000 + number);
            }
            assert!(names.insert(name));
        }
        assert_eq!(names.len() as u64, NAMES_IN_BIG);
        unmount_session(session);
    }
}

#[test]
fn contents_are_read_whole_at_random_and_through_links() {
    for (dir, session) in mounted() {
        let mut whole = Vec::new();
        File::open(dir.path().join("link"))
            .unwrap()
            .read_to_end(&mut whole)
            .unwrap();
        assert_eq!(whole.len() as u64, LONG_BYTES);
        let wrong = (0..LONG_BYTES).find(|&at| whole[at as usize] != content_byte(at));
        assert_eq!(wrong, None);

        let file = File::open(dir.path().join("long")).unwrap();
        let mut part = vec![0; 70_000];
        for at in [1, 4095, 131_071, LONG_BYTES - 70_000] {
            file.read_exact_at(&mut part, at).unwrap();
            assert!((0..70_000).all(|n| part[n as usize] == content_byte(at + n)));
        }
        assert_eq!(file.read_at(&mut part, LONG_BYTES).unwrap(), 0);
        drop(file);
        unmount_session(session);
    }
}

#[test]
fn stat_shows_what_the_inode_says() {
    for (dir, session) in mounted() {
        let stat = fs::metadata(dir.path().join("long")).unwrap();
        assert_eq!((stat.ino(), stat.size()), (TEXT, LONG_BYTES));
        assert_eq!(stat.mode(), 0o100_644);
        assert_eq!(stat.blocks(), LONG_BYTES.div_ceil(4096) * 8);
        assert_eq!((stat.mtime(), stat.mtime_nsec()), (1_700_000_000, 2));
        let root = fs::metadata(dir.path()).unwrap();
        assert_eq!((root.ino(), root.mode()), (256, 0o040_755));
        let nested = fs::metadata(dir.path().join("nested/long")).unwrap();
        assert_eq!(nested.dev(), stat.dev());
        assert_ne!(nested.ino(), stat.ino());
        let whole = rustix::fs::statvfs(dir.path()).unwrap();
        assert_eq!((whole.f_blocks, whole.f_bavail), (1000, 500));
        assert!(File::create(dir.path().join("new")).is_err());
        assert!(fs::metadata(dir.path().join("none")).is_err());
        unmount_session(session);
    }
}

#[test]
fn xattrs_seeking_and_flags_reach_programs() {
    for (dir, session) in mounted() {
        let path = dir.path().join("long");
        let mut value = [0; 16];
        let len = rustix::fs::getxattr(&path, "user.colour", &mut value[..]).unwrap();
        assert_eq!(&value[..len], b"blue");
        let mut names = [0; 64];
        let len = rustix::fs::listxattr(&path, &mut names[..]).unwrap();
        assert_eq!(&names[..len], b"user.colour\0");
        assert_eq!(
            rustix::fs::getxattr(&path, "user.none", &mut value[..]),
            Err(rustix::io::Errno::NODATA)
        );

        let mut file = File::open(&path).unwrap();
        for _ in 0..2 {
            file.sync_all().unwrap();
            File::open(dir.path()).unwrap().sync_all().unwrap();
        }
        let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(7)).unwrap();
        assert_eq!(hole, LONG_BYTES);
        assert_eq!(
            rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(LONG_BYTES)),
            Err(rustix::io::Errno::NXIO)
        );
        assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), LONG_BYTES);
        let flags = rustix::fs::ioctl_getflags(&file).unwrap();
        assert_eq!(flags, rustix::fs::IFlags::NOCOW);
        drop(file);
        unmount_session(session);
    }
}

#[test]
fn a_panic_fails_its_request_and_the_mount_lives_on() {
    for (dir, session) in mounted() {
        // More often than there are threads.
        for _ in 0..20 {
            let error = fs::read(dir.path().join("cursed")).unwrap_err();
            assert_eq!(
                error.raw_os_error(),
                Some(rustix::io::Errno::IO.raw_os_error())
            );
        }
        assert_eq!(
            fs::read(dir.path().join("long")).unwrap().len() as u64,
            LONG_BYTES
        );
        unmount_session(session);
    }
}

#[test]
fn an_acl_lets_in_whom_the_mode_keeps_out() {
    if !is_root_or_skip() {
        return;
    }
    for (dir, session) in mounted() {
        fs::set_permissions(dir.path().parent().unwrap(), Permissions::from_mode(0o1777)).unwrap();
        let reads = |uid: u32| -> ExitStatus {
            Command::new("cat")
                .arg(dir.path().join("guarded"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .uid(uid)
                .gid(uid)
                .status()
                .unwrap()
        };
        assert!(reads(0).success());
        assert!(reads(NOBODY).success());
        assert!(!reads(NOBODY - 1).success());
        unmount_session(session);
    }
}

#[test]
fn a_busy_mount_is_not_unmounted_and_says_so() {
    for (dir, mut session) in mounted() {
        let open = File::open(dir.path().join("long")).unwrap();
        assert!(matches!(
            session.unmount(),
            Err(MountError::Unmount(UnmountError::Busy(_)))
        ));
        drop(open);
        unmount_session(session);
    }
}

#[test]
fn a_detached_mount_serves_its_last_user() {
    for (dir, session) in mounted() {
        let mut open = File::open(dir.path().join("long")).unwrap();
        unmount(dir.path(), IfBusy::Detach).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        open.seek(SeekFrom::Start(LONG_BYTES - 1)).unwrap();
        let mut byte = [0];
        open.read_exact(&mut byte).unwrap();
        assert_eq!(byte[0], content_byte(LONG_BYTES - 1));
        drop(open);
        session.wait().unwrap();
    }
}

#[test]
fn an_image_can_be_unmounted_by_its_own_name() {
    let image = tempfile::NamedTempFile::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let adapter = Adapter::new(tree(), TOP, CONNECTION_FLAGS);
    let mounted = mount_file_system(adapter, image.path(), dir.path(), &read_only());
    let Ok(session) = mounted else {
        skip("cannot mount here");
        return;
    };
    unmount(image.path(), IfBusy::Refuse).unwrap();
    session.wait().unwrap();
}

#[test]
fn places_that_cannot_be_mounted_on_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    assert!(matches!(serve(&missing), Err(MountError::NoMountpoint(_))));
    assert!(matches!(
        unmount(&missing, IfBusy::Refuse),
        Err(UnmountError::NoSuchPath(_))
    ));
    let plain = dir.path().join("plain");
    File::create(&plain).unwrap();
    assert!(matches!(serve(&plain), Err(MountError::NotADirectory(_))));
    assert!(matches!(
        unmount(Path::new("/proc"), IfBusy::Refuse),
        Err(UnmountError::NotOurs { .. })
    ));
}

#[test]
fn a_launched_command_is_ready_or_has_failed() {
    let sh = |script: &str| {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        command
    };
    assert!(matches!(
        launch(sh("echo; exec >/dev/null; exit 3")).unwrap(),
        Launched::Ready { .. }
    ));
    let Launched::Failed(status) = launch(sh("exit 32")).unwrap() else {
        panic!("ready without a word");
    };
    assert_eq!(status.code(), Some(32));
}

const CHILD_DIR: &str = "UBTRFS_TEST_MOUNTPOINT";

/// Not a test: the child of the tests below.
#[test]
#[ignore = "run by other tests"]
fn serving_child() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else {
        return;
    };
    match serve(Path::new(&dir)) {
        Ok(session) => {
            session.unmount_on_signals().unwrap();
            eprintln!("ready");
            session.wait().unwrap();
        }
        Err(error) => eprintln!("failed: {error}"),
    }
}

/// A process that serves a mount. On drop it is killed and unmounted.
struct Server {
    child: Child,
    mountpoint: PathBuf,
}

impl Server {
    /// Runs `program`, a copy of this test program, and waits until the mount is ready.
    fn start(program: &Path, mountpoint: &Path, user: Option<u32>) -> Result<Self, String> {
        let mut command = Command::new(program);
        command
            .args(["--exact", "mount::tests::serving_child", "--ignored"])
            .arg("--nocapture")
            .env(CHILD_DIR, mountpoint)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if let Some(user) = user {
            command.uid(user).gid(user).current_dir("/");
        }
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let server = Self {
            child,
            mountpoint: mountpoint.into(),
        };
        for line in lines.map_while(Result::ok) {
            if line.ends_with("ready") {
                return Ok(server);
            }
            if let Some((_, reason)) = line.split_once("failed: ") {
                return Err(reason.into());
            }
        }
        Err("ended without a word".into())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = unmount(&self.mountpoint, IfBusy::Detach);
    }
}

fn wait_until_the_name_is_gone(mountpoint: &Path) {
    let table = File::open("/proc/self/mountinfo").unwrap();
    while mount_at(mountpoint).unwrap().is_some() {
        let mut changed = [PollFd::new(&table, PollFlags::PRI)];
        poll(&mut changed, None).unwrap();
    }
}

fn this_program() -> PathBuf {
    std::env::current_exe().unwrap()
}

#[test]
fn termination_signals_unmount() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let dir = tempfile::tempdir().unwrap();
        let Ok(mut server) = Server::start(&this_program(), dir.path(), None) else {
            skip("cannot mount here");
            return;
        };
        assert!(dir.path().join("long").exists());
        server.signal(signal);
        let status = server.child.wait().unwrap();
        assert!(status.success(), "{status}");
        assert_eq!(mount_at(dir.path()).unwrap(), None);
    }
}

#[test]
fn the_second_signal_ends_a_busy_server() {
    let dir = tempfile::tempdir().unwrap();
    let Ok(mut server) = Server::start(&this_program(), dir.path(), None) else {
        skip("cannot mount here");
        return;
    };
    let mut open = File::open(dir.path().join("long")).unwrap();
    server.signal(Signal::TERM);
    wait_until_the_name_is_gone(dir.path());
    let mut byte = [0];
    open.read_exact(&mut byte).unwrap();
    server.signal(Signal::TERM);
    let status = server.child.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::TERM.as_raw()));
    open.seek(SeekFrom::Start(LONG_BYTES / 2)).unwrap();
    assert!(open.read_exact(&mut byte).is_err());
}

#[test]
fn a_mount_whose_server_was_killed_can_be_unmounted() {
    let dir = tempfile::tempdir().unwrap();
    let Ok(mut server) = Server::start(&this_program(), dir.path(), None) else {
        skip("cannot mount here");
        return;
    };
    server.signal(Signal::KILL);
    server.child.wait().unwrap();
    assert!(fs::metadata(dir.path()).is_err());
    unmount(dir.path(), IfBusy::Refuse).unwrap();
    assert_eq!(mount_at(dir.path()).unwrap(), None);
}

/// Starts a process in a mount namespace that keeps copies of all mounts.
fn elsewhere() -> Child {
    let mut child = Command::new("unshare")
        .args(["--mount", "--propagation", "private"])
        .args(["sh", "-c", "echo; exec 1>&-; read _"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut made = Vec::new();
    let stdout = child.stdout.as_mut().unwrap();
    stdout.read_to_end(&mut made).unwrap();
    assert_eq!(made, b"\n", "no namespace");
    child
}

#[test]
fn a_server_lives_on_with_a_mount_elsewhere_and_ends_with_it() {
    if !is_root_or_skip() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Ok(mut server) = Server::start(&this_program(), dir.path(), None) else {
        skip("cannot mount here");
        return;
    };
    let process = super::Server::of(dir.path()).unwrap();
    assert_eq!(process.pid(), server.child.id());
    let device = mount_at(dir.path()).unwrap().unwrap().device;
    let mut elsewhere = elsewhere();
    unmount(dir.path(), IfBusy::Refuse).unwrap();
    let wait = || process.wait(Duration::from_millis(100), BUSY_LIMIT);
    assert_eq!(wait(), Afterwards::LivesOn);
    let holders = holders_of(device);
    assert!(holders.iter().any(|holder| {
        (holder.pid, holder.mountpoint.as_path()) == (elsewhere.id(), dir.path())
    }));
    elsewhere.kill().unwrap();
    elsewhere.wait().unwrap();
    assert!(server.child.wait().unwrap().success());
    assert_eq!(wait(), Afterwards::Ended);
}

#[test]
fn a_user_mounts_and_unmounts_through_fusermount3() {
    let setuid_helper = fs::metadata("/usr/bin/fusermount3")
        .is_ok_and(|helper| helper.mode() & 0o4000 != 0 && helper.uid() == 0);
    let open_to_all = fs::metadata("/dev/fuse").is_ok_and(|device| device.mode() & 0o6 == 0o6);
    if !is_root_or_skip() {
        return;
    }
    if !setuid_helper || !open_to_all {
        skip_optional("needs a set-user-id fusermount3, and /dev/fuse with the mode of udev, 0666");
        return;
    }
    // A folder where the user nobody can run and mount; the build's own folder may be private.
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("server");
    fs::copy(this_program(), &program).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let mountpoint = dir.path().join("mnt");
    fs::create_dir(&mountpoint).unwrap();
    chown(&mountpoint, Some(NOBODY), Some(NOBODY)).unwrap();

    let mut server = Server::start(&program, &mountpoint, Some(NOBODY)).unwrap();
    let entry = mount_at(&mountpoint).unwrap().unwrap();
    assert_eq!(entry.fs_type, FS_TYPE);
    assert_eq!(entry.source, Path::new(SOURCE));
    let as_nobody = |command: &[&str]| {
        Command::new(command[0])
            .args(&command[1..])
            .arg(&mountpoint)
            .uid(NOBODY)
            .gid(NOBODY)
            .output()
            .unwrap()
    };
    let listing = as_nobody(&["ls"]);
    assert_eq!(
        String::from_utf8_lossy(&listing.stdout),
        "big\ncursed\nguarded\nlink\nlong\nnested\n"
    );
    // Not even root may look into a user's mount.
    assert!(fs::read_dir(&mountpoint).is_err());
    server.signal(Signal::TERM);
    assert!(server.child.wait().unwrap().success());
    assert_eq!(mount_at(&mountpoint).unwrap(), None);
}
