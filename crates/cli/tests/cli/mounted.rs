//! Commands on a path in a mount have the same output and effect as on its image.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{StatVfsMountFlags, inotify};
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use ubtrfs_sim::{Scratch, fingerprint, is_root_or_skip, with_roots_rights};

use crate::mapped::{MAPPED_BYTES, Mapped, let_pages_lie};
use crate::process::{Waiting, empty_volume, fail, judge, location, succeed, ubtrfs};
use crate::stored::remount;
use crate::subvolumes::{COMMANDS, assert_as_progs, by_progs, listed, outcome, words};
use crate::switch;

/// A volume, mounted by this program.
pub(crate) struct Mounted {
    pub(crate) image: PathBuf,
    pub(crate) dir: PathBuf,
    _scratch: Scratch,
}

impl Mounted {
    /// Creates a volume and mounts it. Returns None, and prints that, if nothing can be mounted.
    pub(crate) fn new(options: &str, fill: impl FnOnce(&Path)) -> Option<Mounted> {
        if !ubtrfs_sim::has_fuse_or_skip() {
            return None;
        }
        let (scratch, image) = empty_volume();
        fill(&image);
        let dir = scratch.path().join("mnt");
        std::fs::create_dir(&dir).unwrap();
        let mounted = Mounted {
            image,
            dir,
            _scratch: scratch,
        };
        mounted.mount(options);
        Some(mounted)
    }

    /// Mounts it again after `unmount`.
    pub(crate) fn mount(&self, options: &str) {
        let args = ["mount".as_ref(), "-o".as_ref(), options.as_ref()];
        let places = [self.image.as_os_str(), self.dir.as_os_str()];
        let over_rings = options.contains("transport=uring");
        // No other test may change the kernel's switch while this mounts.
        switch::with_uring(over_rings, || succeed(args.into_iter().chain(places))).unwrap();
    }

    /// Unmounts the image and releases it.
    pub(crate) fn unmount(&self) {
        unmount_by(ubtrfs().arg("umount").arg(&self.dir));
    }
}

/// Unmounts with a command, and retries. A process started by another test shares all open files until it executes its
/// program. The mount namespaces of other tests have copies of all mounts.
pub(crate) fn unmount_by(command: &mut Command) {
    let begun = Instant::now();
    loop {
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            if let Some(rest) = stderr.strip_prefix("WARNING: ")
                && let Some((dir, _)) = rest.split_once(": unmounted here")
            {
                crate::namespace_copies::wait_until_gone(dir);
            } else {
                assert_eq!(stderr, "");
            }
            return;
        }
        let may_end = stderr.contains("busy") && begun.elapsed() < Duration::from_secs(5);
        assert!(may_end, "{stderr}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let mut umount = ubtrfs();
        let _ = umount.args(["umount", "--lazy"]).arg(&self.dir).output();
    }
}

fn fill(image: &Path) {
    let at = |path: &str| location(image, path);
    for name in ["a", "a/b", "c"] {
        succeed(["subvolume".into(), "create".into(), "-q".into(), at(name)]);
    }
    succeed(["mkdir".into(), at("c/dir")]);
    succeed(["touch".into(), at("c/dir/file")]);
    succeed([
        "subvolume".into(),
        "snapshot".into(),
        "-qr".into(),
        at("a"),
        at("s"),
    ]);
}

/// '@' stands for the volume, "@/..." for a path in it.
const READING: &[&str] = &[
    "device usage @",
    "filesystem df @",
    "filesystem df --format json @",
    "filesystem du @",
    "filesystem du -s @/c @/c/dir/file",
    "filesystem label @",
    "filesystem show @",
    "filesystem show --format json @",
    "filesystem usage -T @",
    "inspect-internal dump-super -f @",
    "inspect-internal dump-tree @",
    "inspect-internal inode-resolve 257 @/c",
    "inspect-internal list-chunks @",
    "inspect-internal rootid @/c/dir/file",
    "inspect-internal subvolid-resolve 257 @",
    "property get @/s",
    "property get --format json @/s ro",
    "property list @/c/dir/file",
    "subvolume get-default @",
    "subvolume list -puqt @",
    "subvolume list --format json @",
    "subvolume list -o @/a",
    "subvolume show @/a/b",
    "subvolume show @/c/dir",
    "subvolume show @/none",
];

/// Commands on the whole volume, with a path that does not exist.
const OF_NOTHING: &[&str] = &[
    "device stats @/none",
    "device usage @/none",
    "filesystem df @/none",
    "filesystem label @/none",
    "filesystem label @/none other",
    "filesystem show @/none",
    "filesystem stats @/none",
    "filesystem sync @/none",
    "filesystem usage @/none",
    "filesystem usage @/c/none/deep",
    "inspect-internal dump-tree @/none",
    "inspect-internal list-chunks @/none",
    "inspect-internal min-dev-size @/none",
    "property get @/none",
    "subvolume delete @/none",
    "subvolume get-default @/none",
    "subvolume list @/none",
    "subvolume set-default @/none",
    "subvolume snapshot @/none @/copy",
    "subvolume sync @/none",
];

#[test]
fn a_path_that_is_not_there_is_no_path_in_a_mount() {
    let Some(mounted) = Mounted::new(&with_roots_rights("rw"), fill) else {
        return;
    };
    for command in OF_NOTHING {
        let output = run(command, &mounted.dir, "");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {said}");
        assert_eq!(output.stdout, b"", "{command}");
        let is_missing = said.contains("cannot access '") && said.contains("no such file");
        assert!(is_missing, "{command}: {said}");
    }
    let label = run("filesystem label @", &mounted.dir, "");
    assert_eq!(label.stdout, b"\n");
    for command in ["subvolume create @/new", "subvolume snapshot @/a @/copy"] {
        let output = run(command, &mounted.dir, "");
        assert!(output.status.success(), "{command}");
    }
}

fn run(command: &str, volume: &Path, separator: &str) -> Output {
    let words = command.split(' ').map(|word| match word.strip_prefix('@') {
        None => OsString::from(word),
        Some("") => volume.into(),
        Some(path) => {
            let mut argument = volume.as_os_str().to_owned();
            argument.push(separator);
            argument.push(path);
            argument
        }
    });
    ubtrfs().args(words).output().unwrap()
}

#[test]
fn a_mount_says_what_its_image_says() {
    let Some(mounted) = Mounted::new("ro", fill) else {
        return;
    };
    let on_mount: Vec<Output> = READING
        .iter()
        .map(|command| run(command, &mounted.dir, ""))
        .collect();
    mounted.unmount();
    for (command, found) in READING.iter().zip(on_mount) {
        let expected = run(command, &mounted.image, ":");
        let plain = |bytes: &[u8], volume: &Path| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let volume = volume.to_str().unwrap();
            text.replace(&format!("{volume}:/"), "@/")
                .replace(mounted.dir.to_str().unwrap(), "@")
                .replace("@/\n", "@\n")
        };
        let stderr = plain(&found.stderr, &mounted.dir);
        assert_eq!(found.status, expected.status, "{command}: {stderr}");
        assert_eq!(
            plain(&found.stdout, &mounted.dir),
            plain(&expected.stdout, &mounted.image),
            "{command}"
        );
        assert_eq!(
            stderr.lines().count(),
            plain(&expected.stderr, &mounted.image).lines().count()
        );
    }
}

#[test]
fn nobody_can_take_the_place_of_the_process_that_serves_a_mount() {
    // Occupies names that could have been guessed.
    let taken: Vec<_> = (0..400)
        .filter_map(|minor| {
            let name = format!("ubtrfs/control/0:{minor}");
            let address = SocketAddr::from_abstract_name(name).ok()?;
            UnixListener::bind_addr(&address).ok()
        })
        .collect();
    let Some(mounted) = Mounted::new("rw", fill) else {
        return;
    };
    succeed([
        "filesystem".as_ref(),
        "df".as_ref(),
        mounted.dir.as_os_str(),
    ]);
    drop(taken);
    // Any path in it returns the address for commands, and no list of attributes contains it.
    let attribute = "system.ubtrfs.control";
    let address = |path: &Path| xattr::get(path, attribute).unwrap().unwrap();
    let file = mounted.dir.join("c/dir/file");
    assert_eq!(address(&file), address(&mounted.dir));
    assert!(xattr::list(&mounted.dir).unwrap().next().is_none());
    assert!(xattr::set(&file, attribute, b"elsewhere").is_err());
}

#[test]
fn paths_are_those_of_the_caller() {
    let Some(mounted) = Mounted::new("ro", fill) else {
        return;
    };
    let rootid = |dir: &str, path: &str| {
        let output = ubtrfs()
            .args(["inspect-internal", "rootid", path])
            .current_dir(mounted.dir.join(dir))
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(rootid("", "."), "5\n");
    assert_eq!(rootid("a", "b"), "257\n");
    assert_eq!(rootid("c/dir", "../../a"), "256\n");
    let link = mounted.image.with_file_name("link");
    std::os::unix::fs::symlink(mounted.dir.join("c/dir"), &link).unwrap();
    assert_eq!(rootid("", link.join("file").to_str().unwrap()), "258\n");
}

#[test]
fn paths_of_no_mount_are_refused() {
    let Some(mounted) = Mounted::new("ro", fill) else {
        return;
    };
    let dir = mounted.dir.as_os_str();
    let create: [OsString; 3] = [
        "subvolume".into(),
        "create".into(),
        mounted.dir.join("x").into(),
    ];
    fail(create, "is mounted read-only");
    fail(["stat".as_ref(), dir], "is in a mount");
    fail(
        [
            "filesystem".as_ref(),
            "df".as_ref(),
            "--degraded".as_ref(),
            dir,
        ],
        "the volume is mounted",
    );
    let (_scratch, other) = empty_volume();
    fail(
        [
            "filesystem".as_ref(),
            "usage".as_ref(),
            dir,
            other.as_os_str(),
        ],
        "are not in the same volume",
    );
}

#[test]
fn a_directory_of_the_kernels_btrfs_is_the_kernels() {
    use ubtrfs_sim::kernel::{KernelVolume, or_skip};
    if !or_skip("a_directory_of_the_kernels_btrfs_is_the_kernels") {
        return;
    }
    let (_scratch, image) = empty_volume();
    let volume = KernelVolume::of_files(vec![image], Scratch::new().unwrap());
    let mount = volume.mount("").unwrap();
    for command in ["dump-super", "dump-tree", "tree-stats"] {
        let words = ["inspect-internal", command].map(OsString::from);
        let words = words.into_iter().chain([mount.path().into()]);
        fail(words, "is in a mount of the kernel's btrfs");
    }
    // An image stored there is treated as an image.
    let inside = mount.path().join("v.img");
    let words = ["mkfs", "-q", "-b", "256M"].map(OsString::from);
    succeed(words.into_iter().chain([inside.clone().into()]));
    succeed(["filesystem".as_ref(), "df".as_ref(), inside.as_os_str()]);
    // An image whose superblock is lost is not mistaken for the volume that contains it.
    std::fs::write(&inside, b"").unwrap();
    let label = ["filesystem", "label"].map(OsString::from);
    fail(
        label.into_iter().chain([inside.into(), "other".into()]),
        "cannot open",
    );
}

#[test]
fn a_subvolume_that_is_mounted_is_not_deleted() {
    let Some(mounted) = Mounted::new(&with_roots_rights("rw,subvol=c"), fill) else {
        return;
    };
    for (options, id) in [("-i", "258"), ("-Ri", "258")] {
        let words = ["subvolume", "delete", options, id].map(OsString::from);
        let words = words.into_iter().chain([mounted.dir.clone().into()]);
        fail(words, "it is mounted");
    }
    assert!(mounted.dir.join("dir/file").exists());
    mounted.unmount();
    judge(&mounted.image);
}

#[test]
fn a_watch_on_a_subvolume_reports_that_a_command_deletes_it() {
    let Some(mounted) = Mounted::new(&with_roots_rights("rw"), fill) else {
        return;
    };
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    let victim = mounted.dir.join("c");
    inotify::add_watch(&watch, &victim, inotify::WatchFlags::DELETE_SELF).unwrap();
    let words = ["subvolume", "delete"].map(OsString::from);
    succeed(words.into_iter().chain([victim.into()]));
    let mut room = [std::mem::MaybeUninit::uninit(); 1024];
    let mut events = inotify::Reader::new(&watch, &mut room);
    let mut heard = inotify::ReadFlags::empty();
    while let Ok(event) = events.next() {
        heard |= event.events();
    }
    assert!(heard.contains(inotify::ReadFlags::DELETE_SELF), "{heard:?}");
}

/// A read-only bind mount of a directory.
struct ReadOnlyBind(PathBuf);

impl ReadOnlyBind {
    /// Creates a read-only bind mount. Returns None, and prints that, for a user who is not root.
    fn new(of: &Mounted) -> Option<ReadOnlyBind> {
        let dir = of.dir.with_file_name("ro");
        std::fs::create_dir(&dir).unwrap();
        if mount_bind(&of.dir, &dir).is_err() {
            ubtrfs_sim::skip("only root can make bind mounts");
            return None;
        }
        mount_remount(&dir, MountFlags::BIND | MountFlags::RDONLY, "").unwrap();
        Some(ReadOnlyBind(dir))
    }
}

impl Drop for ReadOnlyBind {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn commands_that_write_change_nothing_in_a_read_only_bind_mount() {
    let Some(mounted) = Mounted::new("rw", fill) else {
        return;
    };
    let Some(bound) = ReadOnlyBind::new(&mounted) else {
        return;
    };
    let at = |path: &str| match path.strip_prefix("ro/") {
        Some("") => bound.0.clone().into_os_string(),
        Some(path) => bound.0.join(path).into(),
        None => mounted.dir.join(path).into(),
    };
    for command in [
        "subvolume create @ro/new",
        "subvolume snapshot @a @ro/new",
        "subvolume delete @ro/s",
        "subvolume delete @c @ro/s",
        "subvolume set-default @ro/a",
        "property set @ro/s ro false",
        "property set @ro/a compression zstd",
        "filesystem label @ro/ other",
    ] {
        fail(words(command, at), "' is mounted read-only");
        assert!(!mounted.dir.join("new").exists(), "{command}");
        assert!(mounted.dir.join("s").exists(), "{command}");
    }
    // The part of the command for the writable mount was done.
    assert!(!mounted.dir.join("c").exists());
    for command in [
        "subvolume snapshot @ro/a @new",
        "subvolume list @ro/",
        "filesystem sync @ro/",
        "subvolume sync @ro/",
        "property set @s ro false",
    ] {
        succeed(words(command, at));
    }
    assert!(mounted.dir.join("new").exists());
    drop(bound);
    mounted.unmount();
    judge(&mounted.image);
}

#[test]
fn a_reader_that_goes_away_ends_the_command() {
    let Some(mounted) = Mounted::new("ro", fill) else {
        return;
    };
    let script = "{ \"$0\" inspect-internal dump-tree \"$1\"; echo $? >&2; } | true";
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_ubtrfs")])
        .arg(&mounted.dir)
        .output()
        .unwrap();
    let code = String::from_utf8(output.stderr).unwrap();
    assert!(matches!(code.trim(), "0" | "141"), "{code}");
}

/// Returns the process that serves the mount of an image.
fn server_of(image: &Path) -> Pid {
    let image = image.as_os_str().as_bytes();
    let is_server = |pid: &i32| {
        let args = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        args.split(|&byte| byte == 0).any(|arg| arg == image)
    };
    let processes = std::fs::read_dir("/proc").unwrap();
    let names = processes.map(|process| process.unwrap().file_name());
    let mut pids = names.filter_map(|name| name.to_str()?.parse().ok());
    let pid = pids.find(is_server).expect("a process serves the mount");
    Pid::from_raw(pid).expect("no process has the number 0")
}

#[test]
fn a_command_waits_while_the_server_has_no_descriptors_left() {
    let Some(mounted) = Mounted::new("rw", fill) else {
        return;
    };
    let server = server_of(&mounted.image);
    let limit = getrlimit(Resource::Nofile);
    let limit_server = |current| {
        let limit = Rlimit { current, ..limit };
        prlimit(Some(server), Resource::Nofile, limit).unwrap()
    };
    let dir = |name: &str| mounted.dir.join(name);
    let create = |name: &str| {
        let mut command = ubtrfs();
        command.args(["subvolume", "create", "-q"]).arg(dir(name));
        command
    };
    let before = limit_server(Some(1)).current;
    // The server may have one descriptor ready for the first client, but none for its output.
    let waits = |name: &str| {
        let mut command = create(name).stderr(Stdio::piped()).spawn().unwrap();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(300) {
            if command.try_wait().unwrap().is_some() {
                let refused = command.wait_with_output().unwrap();
                let message = String::from_utf8_lossy(&refused.stderr);
                assert_eq!(refused.status.code(), Some(1), "{message}");
                assert!(message.contains("cannot reach the process"), "{message}");
                return None;
            }
        }
        Some((dir(name), command))
    };
    let waiting = ["first", "second", "third"]
        .iter()
        .find_map(|name| waits(name));
    let (made, mut command) = waiting.expect("a command waits");
    limit_server(before);
    assert!(command.wait().unwrap().success());
    assert!(made.is_dir());
}

#[test]
fn commands_change_a_mount_as_btrfs_progs_changes_the_kernels() {
    use ubtrfs_sim::kernel::or_skip;
    if !or_skip("commands_change_a_mount_as_btrfs_progs_changes_the_kernels") {
        return;
    }
    let (_scratch, theirs) = empty_volume();
    let expected = by_progs(&theirs);
    let Some(mounted) = Mounted::new("rw", |_| {}) else {
        return;
    };
    let shown = format!("{}/", mounted.dir.display());
    let at = |path: &str| match path {
        "" => mounted.dir.clone().into_os_string(),
        path => mounted.dir.join(path).into(),
    };
    for (command, expected) in COMMANDS.iter().zip(expected) {
        let output = ubtrfs().args(words(command, at)).output().unwrap();
        let found = outcome(&output, &shown, "@");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_as_progs(command, &found, &expected, &stderr);
        // A reader looks up everything in the mount.
        let seen = std::fs::read_dir(&mounted.dir).unwrap();
        for entry in seen {
            entry.unwrap().metadata().unwrap();
        }
    }
    mounted.unmount();
    assert_eq!(listed(&mounted.image), listed(&theirs));
    judge(&mounted.image);
}

#[test]
fn changes_by_commands_are_seen_at_once() {
    let Some(mounted) = Mounted::new(&with_roots_rights("rw"), |_| {}) else {
        return;
    };
    let at = |name: &str| mounted.dir.join(name);
    let subvolume = |verb: &str, names: &[&str]| {
        let words = ["subvolume", verb, "-q"].map(OsString::from);
        succeed(
            words
                .into_iter()
                .chain(names.iter().map(|name| at(name).into())),
        );
    };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Two threads are always working in the same directory, so that the kernel's lock on it is usually
        // held.
        for number in 0..2 {
            let (is_over, path) = (&is_over, at(&format!("busy{number}")));
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    std::fs::write(&path, b"x").unwrap();
                    std::fs::remove_file(&path).unwrap();
                }
            });
        }
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..5 {
                assert!(!at("a").exists() && !at("s").exists(), "{round}");
                subvolume("create", &["a"]);
                assert!(at("a").is_dir(), "{round}");
                std::fs::write(at("a/file"), b"x").unwrap();
                subvolume("snapshot", &["a", "s"]);
                assert_eq!(std::fs::read(at("s/file")).unwrap(), b"x", "{round}");
                std::fs::rename(at("a"), at("b")).unwrap();
                assert!(!at("a").exists(), "{round}");
                subvolume("snapshot", &["s", "a"]);
                assert!(at("a/file").exists(), "{round}");
                subvolume("delete", &["a", "b", "s"]);
                assert!(!at("a").exists() && !at("b").exists() && !at("s").exists());
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = seen {
            std::panic::resume_unwind(panic);
        }
    });
    mounted.unmount();
    judge(&mounted.image);
}

#[test]
fn a_mount_made_read_only_is_committed_and_left_alone() {
    // The kernel keeps the flag.
    if !is_root_or_skip() {
        return;
    }
    // Without the remount, access times would be updated, deleted subvolumes freed, and a commit made every
    // second.
    let Some(mounted) = Mounted::new("rw,commit=1,strictatime", |_| {}) else {
        return;
    };
    let at = |name: &str| mounted.dir.join(name);
    let succeed_on = |words: &[&str], names: &[&str]| {
        let names = names.iter().map(|name| at(name).into());
        succeed(words.iter().map(OsString::from).chain(names));
    };
    for name in ["gone", "stays"] {
        succeed_on(&["subvolume", "create", "-q"], &[name]);
        for number in 0..2000 {
            std::fs::write(at(&format!("{name}/{number}")), [b'x'; 3000]).unwrap();
        }
    }
    std::fs::write(at("last"), b"written last").unwrap();
    succeed_on(&["subvolume", "delete", "-q"], &["gone"]);
    succeed_on(&["mount", "-o", "remount,ro"], &[""]);
    let left = fingerprint(&mounted.image).unwrap();

    let make: [OsString; 3] = ["subvolume".into(), "create".into(), at("new").into()];
    fail(make, "is mounted read-only");
    let flags = rustix::fs::IFlags::NODUMP;
    let last = std::fs::File::open(at("last")).unwrap();
    assert_eq!(
        rustix::fs::ioctl_setflags(&last, flags),
        Err(rustix::io::Errno::ROFS)
    );
    drop(last);
    let begun = Instant::now();
    // This is longer than any interval.
    while begun.elapsed() < Duration::from_millis(2500) {
        assert_eq!(std::fs::read(at("last")).unwrap(), b"written last");
        std::fs::read_dir(at("stays")).unwrap().for_each(drop);
    }
    assert_eq!(fingerprint(&mounted.image).unwrap(), left, "written to");

    succeed_on(&["mount", "-o", "remount,rw"], &[""]);
    std::fs::write(at("more"), b"x").unwrap();
    succeed_on(&["subvolume", "create", "-q"], &["new"]);
    succeed_on(&["mount", "-o", "remount,ro"], &[""]);
    let left = fingerprint(&mounted.image).unwrap();
    mounted.unmount();
    let after = fingerprint(&mounted.image).unwrap();
    assert_eq!(after, left, "written to by unmounting");
    judge(&mounted.image);
}

#[test]
fn a_mount_of_a_read_only_subvolume_is_made_read_only_and_back() {
    // The kernel keeps the flag.
    if !is_root_or_skip() {
        return;
    }
    let Some(mounted) = Mounted::new("subvol=s", fill) else {
        return;
    };
    let is_read_only = || {
        let flags = rustix::fs::statvfs(&mounted.dir).unwrap().f_flag;
        flags.contains(StatVfsMountFlags::RDONLY)
    };
    let dir = mounted.dir.as_os_str();
    let words = "remount,rescue=all".as_ref();
    fail(["mount".as_ref(), "-o".as_ref(), words, dir], "needs 'ro'");
    assert!(!is_read_only());
    remount(&mounted, "ro");
    assert!(is_read_only());
    remount(&mounted, "rw");
    assert!(!is_read_only());
}

#[test]
fn a_mount_for_reading_is_synced_and_made_read_only_as_it_is() {
    // The kernel keeps the flag.
    if !is_root_or_skip() {
        return;
    }
    let Some(mounted) = Mounted::new("ro", |_| {}) else {
        return;
    };
    let dir = mounted.dir.as_os_str();
    let sync = ["filesystem".as_ref(), "sync".as_ref(), dir];
    succeed(sync);
    succeed(["mount".as_ref(), "-o".as_ref(), "remount,ro".as_ref(), dir]);
    succeed(sync);
    mounted.unmount();
}

#[test]
fn a_subvolume_of_a_mount_is_waited_for_until_it_is_deleted() {
    let Some(mounted) = Mounted::new(&with_roots_rights("rw"), |_| {}) else {
        return;
    };
    let subvolume = mounted.dir.join("sub").into_os_string();
    let run =
        |words: [&str; 2]| succeed(words.iter().map(OsString::from).chain([subvolume.clone()]));
    run(["subvolume", "create"]);
    let id = String::from_utf8(run(["inspect-internal", "rootid"])).unwrap();
    let waiting = Waiting::start(&mounted.dir, id.trim());
    run(["subvolume", "delete"]);
    waiting.end(id.trim());
    mounted.unmount();
}

#[test]
fn a_snapshot_of_a_mount_has_what_was_just_written() {
    let Some(mounted) = Mounted::new(&with_roots_rights("rw"), |_| {}) else {
        return;
    };
    let at = |name: &str| mounted.dir.join(name).into_os_string();
    let subvolume = |verb: &str, paths: &[&str]| {
        let words = ["subvolume", verb, "-q"].map(OsString::from);
        succeed(words.into_iter().chain(paths.iter().map(|path| at(path))));
    };
    // The kernel caches that these names do not exist.
    assert!(!mounted.dir.join("a").exists() && !mounted.dir.join("s").exists());
    subvolume("create", &["a"]);
    let mut file = std::fs::File::create(mounted.dir.join("a/file")).unwrap();
    for round in 0..3 {
        let contents = vec![round; 1_000_000];
        file.write_all(&contents).unwrap();
        subvolume("snapshot", &["a", "s"]);
        let seen = std::fs::read(mounted.dir.join("s/file")).unwrap();
        assert_eq!(seen.len(), (usize::from(round) + 1) * 1_000_000);
        assert!(seen.ends_with(&contents));
        subvolume("delete", &["s"]);
        assert!(!mounted.dir.join("s").exists());
    }
    drop(file);
    mounted.unmount();
    succeed(["check".as_ref(), "-q".as_ref(), mounted.image.as_os_str()]);
}

/// Runs a command as root, without the capability to open files regardless of their modes.
fn run_by_modes(words: &[&str], paths: &[PathBuf]) {
    let output = Command::new("setpriv")
        .args(["--bounding-set", "-dac_override,-dac_read_search", "--"])
        .arg(env!("CARGO_BIN_EXE_ubtrfs"))
        .args(words)
        .args(paths)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
}

#[test]
fn mapped_data_is_kept_by_a_caller_that_cannot_open_the_mounts_directory() {
    let has_rights = Command::new("setpriv").arg("true").status();
    if !ubtrfs_sim::is_root_or_skip() {
        return;
    }
    if !has_rights.is_ok_and(|status| status.success()) {
        ubtrfs_sim::skip("no setpriv");
        return;
    }
    for options in ["rw", "rw,opens"] {
        let Some(mounted) = Mounted::new(options, |_| {}) else {
            return;
        };
        let_pages_lie(&mounted.dir);
        let at = |name: &str| mounted.dir.join(name);
        let create = ["subvolume", "create", "-q"].map(OsString::from);
        succeed(create.into_iter().chain([at("a").into()]));
        std::fs::write(at("a/file"), vec![b'0'; MAPPED_BYTES]).unwrap();
        let mapped = Mapped::new(&at("a/file"));
        std::fs::set_permissions(&mounted.dir, Permissions::from_mode(0o300)).unwrap();
        mapped.change(b'1');
        run_by_modes(&["subvolume", "snapshot", "-q"], &[at("a"), at("s")]);
        assert_eq!(std::fs::read(at("s/file")).unwrap()[0], b'1', "{options}");
        mapped.change(b'2');
        run_by_modes(&["property", "set"], &[at("a"), "ro".into(), "true".into()]);
        assert!(File::create(at("a/new")).is_err(), "{options}");
        drop(mapped);
        mounted.unmount();
        let inside = location(&mounted.image, "a/file");
        let seen = ubtrfs().arg("cat").arg(inside).output().unwrap();
        assert_eq!(seen.stdout.first(), Some(&b'2'), "{options}");
        judge(&mounted.image);
    }
}
