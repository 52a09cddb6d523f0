//! `ubtrfs mount` and `umount` as processes, on images that mkfs.btrfs fills.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use ubtrfs_format::features::Incompat;
use ubtrfs_format::superblock::Superblock;
use ubtrfs_sim::craft;
use ubtrfs_sim::kernel::{self, KernelMount};
use ubtrfs_sim::{
    MdArray, fingerprint, has_fuse_or_skip, nas, skip, skip_optional, with_roots_rights,
};

#[path = "../../../benches/transport/src/switch.rs"]
mod switch;

fn ubtrfs() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ubtrfs"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder with an image `v.img` and a directory `mnt` to mount it on.
struct Place {
    dir: TempDir,
}

impl Place {
    /// Creates the folder. Returns None, and prints that, if images or mounts cannot be created.
    fn new() -> Option<Place> {
        let dir = tempfile::tempdir().unwrap();
        let files = dir.path().join("files");
        fs::create_dir_all(files.join("sub/deep")).unwrap();
        fs::write(files.join("hello"), "hello\n").unwrap();
        fs::write(files.join("sub/inner"), "inner\n").unwrap();
        fs::create_dir(dir.path().join("mnt")).unwrap();
        let image = dir.path().join("v.img");
        File::create(&image).unwrap().set_len(256 << 20).unwrap();
        let made = Command::new("mkfs.btrfs")
            .args(["-q", "--subvol", "rw:sub", "--rootdir"])
            .args([&files, &image])
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
            .output();
        if !made.is_ok_and(|made| made.status.success()) {
            skip("no mkfs.btrfs that knows --subvol");
            return None;
        }
        if !has_fuse_or_skip() {
            return None;
        }
        Some(Place { dir })
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("v.img")
    }

    fn mountpoint(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// Returns the name of the process that has the image locked.
    fn server_name(&self) -> String {
        let inode = format!(":{}", fs::metadata(self.image()).unwrap().ino());
        let locks = fs::read_to_string("/proc/locks").unwrap();
        let fields = locks.lines().map(|line| line.split_whitespace().collect());
        let of_image = |fields: &Vec<&str>| fields[1] == "FLOCK" && fields[5].ends_with(&inode);
        let lock = fields.into_iter().find(of_image).unwrap();
        fs::read_to_string(format!("/proc/{}/comm", lock[4])).unwrap()
    }

    fn mount(&self, options: &str) -> Output {
        ubtrfs()
            .args(["mount", "-o", options])
            .args([self.image(), self.mountpoint()])
            .output()
            .unwrap()
    }

    fn umount(&self) -> Output {
        ubtrfs()
            .arg("umount")
            .arg(self.mountpoint())
            .output()
            .unwrap()
    }

    fn is_mounted(&self) -> bool {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let wanted = self.mountpoint();
        table
            .lines()
            .any(|line| line.split(' ').nth(4) == wanted.to_str())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_mounted() {
            let _ = ubtrfs()
                .args(["umount", "--lazy"])
                .arg(self.mountpoint())
                .status();
        }
    }
}

fn assert_ok(output: &Output) {
    assert!(
        output.status.success(),
        "{}: {}",
        output.status,
        text(&output.stderr)
    );
}

#[test]
fn files_that_the_shell_has_open_are_not_kept_open_by_the_mount() {
    let Some(place) = Place::new() else { return };
    let lock = place.dir.path().join("lock");
    let script = "exec 9>\"$1\" 7>&1; flock 9; \"$0\" mount -o ro \"$2\" \"$3\" 5</dev/null";
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_ubtrfs")])
        .args([&lock, &place.image(), &place.mountpoint()])
        // The output ends only when no process has descriptor 7 any longer.
        .output()
        .unwrap();
    assert_ok(&output);
    assert!(place.is_mounted());
    let lock = File::open(&lock).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert_ok(&place.umount());
}

#[test]
fn the_mount_is_ready_when_the_command_returns() {
    let Some(place) = Place::new() else { return };
    assert_ok(&place.mount("ro"));
    let hello = fs::read_to_string(place.mountpoint().join("hello"));
    assert_eq!(hello.unwrap(), "hello\n");
    assert!(File::create(place.mountpoint().join("new")).is_err());

    let again = place.mount("ro");
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("already mounted on"));
    let elsewhere = place.dir.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let link = place.dir.path().join("link.img");
    fs::hard_link(place.image(), &link).unwrap();
    let writing = ubtrfs()
        .arg("mount")
        .args([&link, &elsewhere])
        .output()
        .unwrap();
    assert_eq!(writing.status.code(), Some(1));
    let said = text(&writing.stderr);
    let mounted = format!("already mounted on {}", place.mountpoint().display());
    assert!(said.contains(&mounted), "{said}");

    assert_ok(&place.umount());
    assert!(!place.is_mounted());
    let gone = place.umount();
    assert_eq!(gone.status.code(), Some(1));
    assert!(text(&gone.stderr).ends_with(": not mounted\n"));
}

#[test]
fn the_image_is_free_when_umount_returns() {
    let Some(place) = Place::new() else { return };
    for _ in 0..5 {
        assert_ok(&place.mount("ro"));
        assert_eq!(place.server_name(), "ubtrfs\n");
        let image = File::open(place.image()).unwrap();
        let exclusive = FlockOperation::NonBlockingLockExclusive;
        assert!(
            flock(&image, exclusive).is_err(),
            "the server holds no lock"
        );
        assert_ok(&place.umount());
        flock(&image, exclusive).unwrap();
    }
}

#[test]
fn subvolumes_are_mounted_by_path_and_by_id() {
    let Some(place) = Place::new() else { return };
    for options in ["ro,subvol=sub", "ro,subvol=/sub", "ro,subvolid=256"] {
        assert_ok(&place.mount(options));
        let inner = place.mountpoint().join("inner");
        assert_eq!(fs::read_to_string(&inner).unwrap(), "inner\n");
        assert_eq!(fs::metadata(place.mountpoint()).unwrap().ino(), 256);
        assert!(fs::metadata(&inner).unwrap().ino() < 1 << 32);
        assert_ok(&place.umount());
    }
    for (options, complaint) in [
        ("ro,subvol=none", "subvolume 'none' not found"),
        ("ro,subvol=sub/deep", "'sub/deep' is not a subvolume"),
        ("ro,subvolid=300", "no subvolume has the id 300"),
        ("ro,subvol=sub,subvolid=5", "has the id 256, not 5"),
    ] {
        let refused = place.mount(options);
        assert_eq!(refused.status.code(), Some(1));
        assert!(
            text(&refused.stderr).contains(complaint),
            "{}",
            text(&refused.stderr)
        );
        assert!(!place.is_mounted());
    }
}

#[test]
fn an_image_that_cannot_be_mounted_is_refused_with_one_line() {
    let Some(place) = Place::new() else { return };
    for (options, complaint) in [
        ("rescue=all", "'rescue' needs 'ro' as well"),
        ("ro,bogus", "unknown mount option 'bogus'"),
    ] {
        let refused = place.mount(options);
        assert_eq!(refused.status.code(), Some(1));
        let said = text(&refused.stderr);
        assert!(
            said.contains(complaint) && said.lines().count() == 1,
            "{said}"
        );
    }
    File::create(place.image())
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let refused = place.mount("ro");
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(
        said.starts_with("ERROR: ") && said.lines().count() == 1,
        "{said}"
    );
    assert!(!place.is_mounted());
}

#[test]
fn termination_of_a_foreground_mount_unmounts() {
    let Some(place) = Place::new() else { return };
    let mut child = ubtrfs()
        .args(["mount", "-f", "-o", "ro"])
        .args([place.image(), place.mountpoint()])
        .env("UBTRFS_LOG", "ubtrfs=info")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("mounted") {
        line.clear();
        assert_ne!(
            said.read_line(&mut line).unwrap(),
            0,
            "ended without a mount"
        );
    }
    assert!(place.mountpoint().join("hello").exists());
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(!place.is_mounted());
}

#[test]
fn a_mount_that_nobody_waits_for_is_undone() {
    let Some(place) = Place::new() else { return };
    // Runs the process that the command normally runs in the background, with its end of the pipe closed.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = ubtrfs()
        .args(["mount", "-o", "ro"])
        .args([place.image(), place.mountpoint()])
        .env("UBTRFS_SERVE_MOUNT", "1")
        .stdout(writer)
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(!place.is_mounted());
}

/// Runs the command through a link, as mount(8) and umount(8) do.
fn helper(place: &Place, name: &str) -> Command {
    let link = place.dir.path().join(name);
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ubtrfs"), &link).unwrap();
    }
    Command::new(link)
}

#[test]
fn the_helpers_do_what_mount_and_umount_ask() {
    let Some(place) = Place::new() else { return };
    let mount = |words: &str| {
        helper(&place, "mount.fuse.ubtrfs")
            .args([place.image(), place.mountpoint()])
            .args(["-o", words, "-t", "fuse.ubtrfs"])
            .output()
            .unwrap()
    };
    assert_ok(&mount("rw,noatime,x-gvfs-show,nofail"));
    assert!(place.mountpoint().join("hello").exists());
    let ended = helper(&place, "umount.fuse.ubtrfs")
        .arg(place.mountpoint())
        .args(["-t", "fuse.ubtrfs"])
        .output()
        .unwrap();
    assert_ok(&ended);
    assert!(!place.is_mounted());

    assert_eq!(mount("rw,bogus").status.code(), Some(32));
    let fake = helper(&place, "mount.ubtrfs")
        .args([place.image(), place.mountpoint()])
        .args(["-sf", "-o", "rw,bogus"])
        .output()
        .unwrap();
    assert_ok(&fake);
    assert!(!place.is_mounted());
}

#[test]
fn a_log_file_records_the_mount() {
    let Some(place) = Place::new() else { return };
    let log = place.dir.path().join("mount.log");
    let options = format!("ro,loglevel=info,log={}", log.display());
    assert_ok(&place.mount(&options));
    assert_ok(&place.umount());
    let said = fs::read_to_string(&log).unwrap();
    let line = said.lines().find(|line| line.contains("INFO: mounted"));
    assert!(line.is_some_and(|line| line.starts_with("20")), "{said}");
}

/// The transport of requests depends on the kernel's features. The log names it, with the reason.
#[test]
fn the_log_says_which_way_requests_come_and_what_a_faster_one_needs() {
    let Some(place) = Place::new() else { return };
    let log = place.dir.path().join("mount.log");
    let said_at = |transport: &str, level: &str| {
        let _ = fs::remove_file(&log);
        let options = format!("ro,transport={transport}{level},log={}", log.display());
        assert_ok(&place.mount(&options));
        assert_ok(&place.umount());
        let said = fs::read_to_string(&log).unwrap();
        let line = said.lines().find(|line| line.contains("requests come"));
        line.unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    let said = |transport| said_at(transport, ",loglevel=info");
    let classic = said("classic");
    assert!(
        classic.ends_with("INFO: requests come through /dev/fuse, as requested"),
        "{classic}"
    );
    match switch::with_uring(true, || said("auto")) {
        Ok(faster) => assert!(
            faster.ends_with("INFO: requests come through io_uring, which the kernel offers"),
            "{faster}"
        ),
        Err(error) => skip_optional(format_args!("no FUSE over io_uring: {error}")),
    }
    let slower = switch::with_uring(true, || {
        fs::write(switch::SWITCH, "N").unwrap();
        said_at("auto", "")
    });
    let (line, advice) = match (slower, Path::new(switch::SWITCH).exists()) {
        (Ok(line), _) => (line, "root allows it with: echo Y > /sys/module/fuse/"),
        (Err(_), false) => (said_at("auto", ""), "Linux 6.14 can"),
        (Err(error), true) => {
            return skip_optional(format_args!("the switch of io_uring: {error}"));
        }
    };
    let said = "WARNING: requests come through /dev/fuse: ";
    assert!(line.contains(said) && line.contains(advice), "{line}");
}

#[test]
fn an_image_that_cannot_be_written_is_mounted_for_reading_unless_rw_is_asked_for() {
    let Some(place) = Place::new() else { return };
    // A seed. The kernel reports the same for it as for a write-protected device.
    let tune = Command::new("btrfstune")
        .args(["-S", "1"])
        .arg(place.image())
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .output();
    if !tune.is_ok_and(|tune| tune.status.success()) {
        skip("no btrfstune");
        return;
    }
    let refused = place.mount("rw");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("seed"));
    let mounted = place.mount("noatime");
    assert_ok(&mounted);
    let said = text(&mounted.stderr);
    assert!(
        said.contains("WARNING: source write-protected, mounted read-only"),
        "{said}"
    );
    assert!(File::create(place.mountpoint().join("new")).is_err());
    assert_ok(&place.umount());
}

#[test]
fn volume_of_a_nas_maker_is_mounted_for_reading_unless_rw_is_asked_for() {
    let Some(place) = Place::new() else { return };
    nas::put(&place.image(), "compat");
    let hash = fingerprint(&place.image()).unwrap();
    let refused = place.mount("rw");
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(said.contains("marks of Synology DSM: compat"), "{said}");
    let mounted = place.mount("noatime");
    assert_ok(&mounted);
    let said = text(&mounted.stderr);
    assert!(said.contains("; mounted read-only"), "{said}");
    assert_eq!(
        fs::read(place.mountpoint().join("hello")).unwrap(),
        b"hello\n"
    );
    assert!(File::create(place.mountpoint().join("new")).is_err());
    assert_ok(&place.umount());
    assert_eq!(fingerprint(&place.image()).unwrap(), hash);
}

#[test]
fn disks_of_an_array_are_mounted_for_reading_unless_rw_is_asked_for() {
    let Some(place) = Place::new() else { return };
    let members = MdArray::new(5, 2, 3).write(&fs::read(place.image()).unwrap());
    let disks: Vec<PathBuf> = members
        .iter()
        .enumerate()
        .map(|(number, member)| {
            // None is found from another.
            let folder = place.dir.path().join(format!("folder{number}"));
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("disk.img"), member).unwrap();
            folder.join("disk.img")
        })
        .collect();
    let mount = |options: &str| {
        let mut command = ubtrfs();
        command.args(["mount", "-o", options]).args(&disks);
        command.arg(place.mountpoint()).output().unwrap()
    };
    let refused = mount("rw");
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(said.contains("read-only: assembled from members"), "{said}");
    for options in ["ro", "noatime"] {
        let mounted = mount(options);
        assert_ok(&mounted);
        let said = text(&mounted.stderr);
        assert_eq!(said.contains("; mounted read-only"), options == "noatime");
        let hello = fs::read(place.mountpoint().join("hello")).unwrap();
        assert_eq!(hello, b"hello\n");
        assert!(File::create(place.mountpoint().join("new")).is_err());
        assert_ok(&place.umount());
    }
    let unchanged = disks.iter().map(|disk| fs::read(disk).unwrap());
    assert!(unchanged.eq(members), "the disks have changed");
}

/// The mark is read only after the volume was opened for writing.
#[test]
fn mount_becomes_read_only_with_the_first_mark() {
    let Some(place) = Place::new() else { return };
    nas::put(&place.image(), "inode-user-quota");
    let hash = fingerprint(&place.image()).unwrap();
    assert_ok(&place.mount("rw"));
    assert_eq!(
        fs::read(place.mountpoint().join("hello")).unwrap(),
        b"hello\n"
    );
    let refused = File::create(place.mountpoint().join("new")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
    place.umount();
    assert_eq!(fingerprint(&place.image()).unwrap(), hash);
}

#[test]
fn figures_of_a_mount_are_shown_in_three_forms() {
    let Some(place) = Place::new() else { return };
    assert_ok(&place.mount("ro"));
    fs::read(place.mountpoint().join("hello")).unwrap();
    let stats = |format: &str| {
        ubtrfs()
            .args(["--format", format, "filesystem", "stats"])
            .arg(place.mountpoint())
            .output()
            .unwrap()
    };
    let shown = stats("text");
    assert_ok(&shown);
    let lines = text(&shown.stdout);
    assert!(
        lines.lines().any(|line| line.starts_with("lookup ")),
        "{lines}"
    );
    let shown = stats("json");
    assert_ok(&shown);
    let json: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let lookups = &json["filesystem-stats"]["requests"]["lookup"]["count"];
    assert!(lookups.as_u64().is_some_and(|count| count > 0), "{json}");
    let shown = stats("prometheus");
    assert_ok(&shown);
    assert!(text(&shown.stdout).contains("\nubtrfs_node_cache_hits_total{mountpoint="));
    assert_ok(&place.umount());
    let elsewhere = stats("text");
    assert_eq!(elsewhere.status.code(), Some(1));
    let listing = ubtrfs()
        .args(["--format", "prometheus", "ls"])
        .arg(place.image())
        .output()
        .unwrap();
    assert_eq!(listing.status.code(), Some(1));
}

/// Returns how many commits and logs a mount has written.
fn commits_and_logs(place: &Place) -> u64 {
    let shown = ubtrfs()
        .args(["--format", "json", "filesystem", "stats"])
        .arg(place.mountpoint())
        .output()
        .unwrap();
    assert_ok(&shown);
    let json: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let writer = &json["filesystem-stats"]["writer"];
    let count = |what: &str| writer[what].as_u64().unwrap_or_else(|| panic!("{json}"));
    count("commits") + count("logs")
}

/// The kernel sends the write in parts, and then syncs the file.
#[test]
fn a_large_write_with_o_sync_is_made_durable_once() {
    let Some(place) = Place::new() else { return };
    for options in ["transport=auto", "transport=classic", "opens"] {
        assert_ok(&place.mount(&format!("commit=300,{options}")));
        let mut file = File::options();
        file.write(true).create(true).truncate(true);
        file.custom_flags(OFlags::SYNC.bits().cast_signed());
        let mut file = file.open(place.mountpoint().join("file")).unwrap();
        let before = commits_and_logs(&place);
        file.write_all(&vec![7; 16 << 20]).unwrap();
        let made = commits_and_logs(&place) - before;
        assert!((1..=2).contains(&made), "{options}: {made}");
        drop(file);
        assert_ok(&place.umount());
    }
}

#[test]
fn a_mount_that_cannot_write_says_how_to_read() {
    let Some(place) = Place::new() else { return };
    let sound = fs::read(place.image()).unwrap();
    fn log_tree(superblock: &mut Superblock) {
        superblock.log_root = superblock.root;
    }
    fn squota(superblock: &mut Superblock) {
        let incompat = superblock.incompat() | Incompat::SIMPLE_QUOTA;
        superblock.incompat_flags = incompat.bits().into();
    }
    type Edit = fn(&mut Superblock);
    let cases: [(Edit, &str, &str); 2] = [
        (
            log_tree,
            "; -o ro,rescue=nologreplay shows the last commit without it, 'rescue zero-log' clears it",
            "ro,rescue=nologreplay",
        ),
        (squota, "it uses squota; -o ro mounts it for reading", "ro"),
    ];
    for (edit, complaint, readable) in cases {
        craft::edit_superblock(&place.image(), edit).unwrap();
        for options in ["noatime", "rw"] {
            let refused = place.mount(options);
            assert_eq!(refused.status.code(), Some(1));
            let said = text(&refused.stderr);
            assert!(
                said.contains(complaint) && said.lines().count() == 1,
                "{said}"
            );
            assert!(!place.is_mounted());
        }
        assert_ok(&place.mount(readable));
        let hello = fs::read_to_string(place.mountpoint().join("hello"));
        assert_eq!(hello.unwrap(), "hello\n");
        assert_ok(&place.umount());
        fs::write(place.image(), &sound).unwrap();
    }
}

#[test]
fn unknown_flags_of_the_superblock_are_ignored_when_asked_for() {
    let Some(place) = Place::new() else { return };
    craft::edit_superblock(&place.image(), |superblock| {
        superblock.flags = (superblock.flags.get() | 1 << 50).into();
    })
    .unwrap();
    let refused = place.mount("ro");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("unknown superblock flags 0x4000000000000"));
    for options in ["ro,rescue=ignoresuperflags", "ro,rescue=all"] {
        assert_ok(&place.mount(options));
        let hello = fs::read_to_string(place.mountpoint().join("hello"));
        assert_eq!(hello.unwrap(), "hello\n");
        assert_ok(&place.umount());
    }
}

/// Changes each place in the image where `bytes` are found at `offset` within a sector.
fn damage(image: &Path, bytes: &[u8], offset: usize) {
    let mut all = fs::read(image).unwrap();
    let mut found = 0;
    for sector in all.chunks_mut(4096).skip(1 << 8) {
        if sector[offset..].starts_with(bytes) {
            sector[offset] ^= 1;
            found += 1;
        }
    }
    assert!(found > 0);
    fs::write(image, all).unwrap();
}

#[test]
fn damaged_data_is_given_on_request() {
    let Some(place) = Place::new() else { return };
    let contents = [b"a sector of its own ".repeat(400), vec![b'\n'; 192]].concat();
    let host = place.dir.path().join("host");
    fs::write(&host, &contents).unwrap();
    let inside = format!("{}:/data", place.image().display());
    assert_ok(&ubtrfs().arg("cp").arg(&host).arg(&inside).output().unwrap());
    damage(&place.image(), b"a sector of its own a", 0);
    assert_ok(&place.mount("ro"));
    assert!(fs::read(place.mountpoint().join("data")).is_err());
    assert_ok(&place.umount());
    assert_ok(&place.mount("ro,rescue=idatacsums"));
    let read = fs::read(place.mountpoint().join("data")).unwrap();
    assert_eq!((read[0], &read[1..]), (b'a' ^ 1, &contents[1..]));
    assert_ok(&place.umount());
}

#[test]
fn a_mount_whose_root_directory_cannot_be_read_is_refused() {
    let Some(place) = Place::new() else { return };
    for (tree, options) in [("5", "ro"), ("5", "rw"), ("256", "ro,subvol=sub")] {
        let image = fs::read(place.image()).unwrap();
        let dump = ubtrfs()
            .args(["inspect-internal", "dump-tree", "-t", tree])
            .arg(place.image())
            .output()
            .unwrap();
        let dump = text(&dump.stdout);
        let block = dump.lines().find(|line| line.starts_with("leaf ")).unwrap();
        let block: u64 = block.split(' ').nth(1).unwrap().parse().unwrap();
        damage(&place.image(), &block.to_le_bytes(), 48);
        let refused = place.mount(options);
        assert_eq!(refused.status.code(), Some(1));
        let said = text(&refused.stderr);
        assert!(said.contains("cannot be read"), "{said}");
        assert!(!place.is_mounted());
        fs::write(place.image(), image).unwrap();
    }
}

/// Creates `one` and `two` in the volume, and damages its root tree. The last transaction created `two`.
fn without_its_last_transaction(place: &Place) {
    for name in ["one", "two"] {
        let inside = format!("{}:/{name}", place.image().display());
        assert_ok(&ubtrfs().arg("mkdir").arg(&inside).output().unwrap());
    }
    // A tree block contains its own address 48 bytes from its start. The superblock contains the root's at
    // 80.
    let image = fs::read(place.image()).unwrap();
    let root = image[(64 << 10) + 80..][..8].to_vec();
    drop(image);
    damage(&place.image(), &root, 48);
}

#[test]
fn the_roots_of_an_earlier_transaction_are_used_when_asked_for() {
    let Some(place) = Place::new() else { return };
    without_its_last_transaction(&place);
    assert_eq!(place.mount("ro").status.code(), Some(1));
    let mounted = place.mount("ro,rescue=usebackuproot");
    assert_ok(&mounted);
    assert!(text(&mounted.stderr).contains("trying the roots of an earlier transaction"));
    assert!(place.mountpoint().join("one").exists());
    assert!(!place.mountpoint().join("two").exists());
    assert_ok(&place.umount());
}

#[test]
fn the_roots_of_an_earlier_transaction_are_written_to_as_if_none_had_followed() {
    let Some(place) = Place::new() else { return };
    without_its_last_transaction(&place);
    assert_eq!(place.mount("rw").status.code(), Some(1));
    let rights = with_roots_rights("rw,usebackuproot");
    assert_ok(&place.mount(&rights));
    let contents = vec![b'x'; 3 << 20];
    for number in 0..500 {
        let name = format!("one/file{number}");
        fs::write(place.mountpoint().join(name), &contents[..number * 10]).unwrap();
    }
    fs::write(place.mountpoint().join("large"), &contents).unwrap();
    assert_ok(&place.umount());
    assert_ok(&ubtrfs().arg("check").arg(place.image()).output().unwrap());
    let system = |program: &str| {
        let mut command = Command::new(program);
        command.env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
        command
    };
    match system("btrfs").arg("check").arg(place.image()).output() {
        Ok(theirs) => assert_ok(&theirs),
        Err(error) => skip(format_args!("btrfs check: {error}")),
    }
    let seen = |dir: &Path| {
        assert_eq!(fs::read_dir(dir.join("one")).unwrap().count(), 500);
        assert_eq!(fs::read(dir.join("large")).unwrap(), contents);
        assert!(!dir.join("two").exists());
    };
    assert_ok(&place.mount("ro"));
    seen(&place.mountpoint());
    assert_ok(&place.umount());
    if kernel::or_skip("the kernel's mount") {
        let kernel = KernelMount::new(&[place.image()], "").unwrap();
        seen(kernel.path());
        kernel.unmount().unwrap();
    }
}
