//! Commands on users' own mounts have the permissions that the kernel's btrfs gives these users. The server
//! does nothing for users other than the mount's owner.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io::{Read, pipe};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ubtrfs_sim::kernel::{KernelVolume, or_skip};
use ubtrfs_sim::manifest::{Field, assert_same};
use ubtrfs_sim::{Scratch, is_root_or_skip, skip_optional};

use crate::mounted::Mounted;
use crate::process::{empty_volume, failure_of, judged, location, succeed};
use crate::subvolumes::words;

/// The user `nobody`: fusermount3 requires a user with a name.
pub(crate) const USER: u32 = 65_534;
pub(crate) const STRANGER: u32 = 1002;

/// Commands of btrfs-progs and ours. A word that begins with '@' is a path in the volume. Commands that only
/// read are not included: a user who may read the image may list its contents with our program.
const COMMANDS: &[&str] = &[
    "subvolume create @home/new",
    "subvolume create @roots/new",
    "subvolume create @open/new",
    "subvolume create @shut/new",
    "subvolume create @home/frozen/new",
    "subvolume snapshot @home/mine @home/s1",
    "subvolume snapshot @home/roots @home/s2",
    "subvolume snapshot -r @home/mine @home/s3",
    "subvolume snapshot @home/mine @roots/s4",
    "subvolume snapshot @home/mine @shut/s5",
    "property set @home/mine ro true",
    "property set @home/mine ro false",
    "property set @home/roots ro true",
    "property set @home/mine compression zstd",
    "property set @home/roots compression zstd",
    "property set @home/frozen compression zstd",
    "filesystem label @ other",
    "property set @ label other",
    "filesystem sync @",
    "subvolume set-default @home/mine",
    "subvolume delete @home/new",
    "subvolume delete @home/roots",
    "subvolume delete @home/frozen",
    "subvolume delete @home/s3",
    "subvolume delete @open/roots",
    "subvolume delete @sticky/roots",
    "subvolume delete @sticky/mine",
    "subvolume delete @roots/mine",
    "subvolume delete @home/dir",
    "subvolume delete @home/none",
];

/// The program where every user may run it; the build's own folder may be private.
pub(crate) struct Program {
    path: PathBuf,
    scratch: Scratch,
}

impl Program {
    /// Copies the program for other users. Returns None, and prints that, if the test cannot become another
    /// user or users cannot mount.
    pub(crate) fn new() -> Option<Program> {
        let is_setuid = fs::metadata("/usr/bin/fusermount3")
            .is_ok_and(|helper| helper.permissions().mode() & 0o4000 != 0);
        let is_open =
            fs::metadata("/dev/fuse").is_ok_and(|device| device.permissions().mode() & 0o6 == 0o6);
        let scratch = Scratch::new().unwrap();
        let path = ubtrfs_sim::share_program(env!("CARGO_BIN_EXE_ubtrfs"), scratch.path()).unwrap();
        let program = Program { path, scratch };
        let mut version = program.of(USER);
        let runs = version
            .arg("--version")
            .output()
            .is_ok_and(|said| said.status.success());
        if !is_root_or_skip() {
            return None;
        }
        if !is_setuid || !is_open || !runs {
            skip_optional(
                "needs a set-user-id fusermount3, and /dev/fuse and a folder open to all",
            );
            return None;
        }
        Some(program)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder for files that users need to access.
    pub(crate) fn folder(&self) -> &Path {
        self.scratch.path()
    }

    pub(crate) fn of(&self, user: u32) -> Command {
        let mut command = Command::new(&self.path);
        command.uid(user).gid(user).env_remove("UBTRFS_LOG");
        command
    }

    pub(crate) fn run<I: IntoIterator<Item = OsString>>(&self, user: u32, words: I) -> Output {
        self.of(user).args(words).output().unwrap()
    }
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_server_of_a_mount_runs_no_command_of_a_stranger() {
    let Some(program) = Program::new() else {
        return;
    };
    let Some(mounted) = Mounted::new("rw", |_| {}) else {
        return;
    };
    fs::set_permissions(&mounted.dir, Permissions::from_mode(0o777)).unwrap();
    let by_owner = "was mounted by user 0";
    for (words, reason) in [
        (["filesystem", "stats"], by_owner),
        (["filesystem", "du"], by_owner),
        (["subvolume", "sync"], "Operation not permitted"),
    ] {
        let words = words.map(OsString::from).into_iter();
        let refused = program.run(STRANGER, words.chain([mounted.dir.clone().into()]));
        assert_eq!(refused.status.code(), Some(1));
        assert_eq!(refused.stdout, b"");
        let said = said(&refused);
        assert!(said.contains(reason), "{said}");
    }
    // A user who may read the mount may sync it.
    let sync = ["filesystem", "sync"].map(OsString::from);
    let synced = program.run(
        STRANGER,
        sync.into_iter().chain([mounted.dir.clone().into()]),
    );
    assert!(synced.status.success(), "{}", said(&synced));
}

/// Commands that the kernel's btrfs permits only administrators; our `remount` corresponds to its `mount`.
/// '@' is the volume.
const OF_ADMINISTRATORS: &[&str] = &[
    "device stats @",
    "filesystem label @ other",
    "filesystem remount user_subvol_rm_allowed,nodatacow @",
    "inspect-internal dump-super @",
    "inspect-internal dump-tree @",
    "inspect-internal inode-resolve 256 @",
    "inspect-internal list-chunks @",
    "inspect-internal logical-resolve 13631488 @",
    "inspect-internal min-dev-size @",
    "inspect-internal subvolid-resolve 5 @",
    "inspect-internal tree-stats @",
    "subvolume delete -i 256 @",
    "subvolume diff @ @",
    "subvolume find-new @ 0",
    "subvolume get-default @",
    "subvolume list @",
    "subvolume set-default 5 @",
    "subvolume show @",
    "subvolume sync @",
];

const OF_ALL: &[&str] = &[
    "device usage @",
    "filesystem df @",
    "filesystem du @",
    "filesystem label @",
    "filesystem sync @",
    "filesystem usage @",
    "inspect-internal rootid @",
    "property get @",
];

#[test]
fn root_without_capabilities_is_no_administrator() {
    let Some(mounted) = Mounted::new("rw", |_| {}) else {
        return;
    };
    let run = |command: &&str| {
        let mut without = Command::new("setpriv");
        without.args(["--bounding-set=-all", "--inh-caps=-all"]);
        without.arg(env!("CARGO_BIN_EXE_ubtrfs"));
        without.args(words(command, |_| mounted.dir.clone().into()));
        without.output().unwrap()
    };
    if !is_root_or_skip() {
        return;
    }
    for command in OF_ALL {
        let output = run(command);
        assert!(output.status.success(), "{command}: {}", said(&output));
    }
    for command in OF_ADMINISTRATORS {
        let output = run(command);
        let said = said(&output);
        let args: Vec<&str> = command.split_whitespace().collect();
        let code = output.status.code();
        assert_eq!(code, Some(failure_of(&args)), "{command}: {said}");
        assert_eq!(output.stdout, b"", "{command}");
        assert!(
            said.contains("Operation not permitted"),
            "{command}: {said}"
        );
    }
}

/// Fills the image with directories and subvolumes that belong to the user or to root, or are open to
/// everyone.
pub(crate) fn furnish(image: &Path) {
    let at = |path: &str| location(image, path);
    let run = |words: &[&str], path: &str| {
        let words = words.iter().map(OsString::from);
        succeed(words.chain([at(path)]));
    };
    let user = format!("{USER}:{USER}");
    for dir in ["home", "roots", "open", "sticky", "shut", "home/dir"] {
        run(&["mkdir"], dir);
    }
    for subvolume in [
        "home/mine",
        "home/roots",
        "home/frozen",
        "roots/mine",
        "open/roots",
        "sticky/roots",
        "sticky/mine",
    ] {
        run(&["subvolume", "create", "-q"], subvolume);
        run(&["touch"], &format!("{subvolume}/file"));
    }
    for path in [
        "home",
        "home/dir",
        "home/mine",
        "home/frozen",
        "roots/mine",
        "sticky/mine",
    ] {
        run(&["chown", &user], path);
    }
    for (mode, path) in [
        ("777", "open"),
        ("777", "open/roots"),
        ("1777", "sticky"),
        ("777", "sticky/roots"),
        ("700", "shut"),
    ] {
        run(&["chmod", mode], path);
    }
    let frozen = [at("home/frozen"), "ro".into(), "true".into()];
    succeed(
        ["property", "set"]
            .map(OsString::from)
            .into_iter()
            .chain(frozen),
    );
}

/// Returns whether each command of the user succeeded on the kernel's mount, and its output if not.
pub(crate) fn on_kernels_mount(program: &Path, image: &Path, options: &str) -> Vec<(bool, String)> {
    let volume = KernelVolume::of_files(vec![image.to_owned()], Scratch::new().unwrap());
    let mount = volume.mount(options).unwrap();
    let at = |path: &str| match path {
        "" => mount.path().into(),
        path => mount.path().join(path).into(),
    };
    let outcomes = as_user(program, at);
    mount.unmount().unwrap();
    outcomes
}

pub(crate) fn as_user(program: &Path, at: impl Fn(&str) -> OsString + Copy) -> Vec<(bool, String)> {
    let run = |command: &&str| {
        let mut program = Command::new(program);
        program.args(words(command, at)).uid(USER).gid(USER);
        let output = program.output().unwrap();
        (output.status.success(), said(&output))
    };
    COMMANDS.iter().map(run).collect()
}

pub(crate) fn assert_as_kernel(
    options: &str,
    outcomes: &[(bool, String)],
    expected: &[(bool, String)],
) {
    for ((command, ours), theirs) in COMMANDS.iter().zip(outcomes).zip(expected) {
        assert_eq!(
            ours.0, theirs.0,
            "{command} -o '{options}': {ours:?}, kernel: {theirs:?}"
        );
    }
}

/// Compares two images after the same commands, ignoring times.
pub(crate) fn assert_same_but_times(what: &str, theirs: &Path, ours: &Path) {
    let times = [Field::Atime, Field::Mtime, Field::Ctime, Field::Btime];
    assert_same(what, &judged(theirs), &judged(ours), &times);
}

/// Returns whether a process of the user gets the standard output of a command that root runs.
fn is_given_what_root_has_open(program: &Program, dir: &Path) -> bool {
    let (mut reader, writer) = pipe().unwrap();
    // The output does not fit into the pipe, so the command waits for this process.
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    let fd = format!("/proc/self/fd/{}", reader.as_raw_fd());
    let ours = fs::read_link(fd).unwrap();
    let mut dump = program.of(0);
    dump.args(["inspect-internal", "dump-tree"])
        .arg(dir)
        .stdout(writer);
    let mut running = dump.spawn().unwrap();
    drop(dump);
    reader.read_exact(&mut [0]).unwrap();
    let is_users = |process: &PathBuf| fs::metadata(process).is_ok_and(|of| of.uid() == USER);
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut processes = processes.map(|process| process.path()).filter(is_users);
    let is_given = processes.any(|process| {
        let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten();
        let mut files = descriptors.flatten().map(|fd| fs::read_link(fd.path()));
        files.any(|file| file.is_ok_and(|file| file == ours))
    });
    std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
    assert!(running.wait().unwrap().success());
    is_given
}

#[test]
fn root_hands_nothing_to_the_server_of_a_users_mount() {
    let Some(program) = Program::new() else {
        return;
    };
    let (_scratch, image) = empty_volume();
    let dir = program.scratch.path().join("mnt");
    fs::create_dir(&dir).unwrap();
    let mine = dir.with_extension("img");
    fs::copy(&image, &mine).unwrap();
    for path in [&dir, &mine] {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
    let words_of = |command: &str| words(command, |_| dir.clone().into_os_string());
    let mut mount = words_of("mount -o rw,allow_other");
    mount.extend([mine.into(), dir.clone().into()]);
    let mounted = program.run(USER, mount);
    if !mounted.status.success() {
        return skip_optional("users may not mount with allow_other (/etc/fuse.conf)");
    }
    let list = "inspect-internal list-chunks @";
    let by_root = program.run(0, words_of(list));
    let is_given = by_root.status.success() && is_given_what_root_has_open(&program, &dir);
    let by_user = program.run(USER, words_of(list));
    let refused = program.run(0, words_of("filesystem df --degraded @"));
    let subvolumes = [0, USER].map(|user| program.run(user, words_of("subvolume list @")));
    let unmounted = program.run(USER, words_of("umount @"));
    assert!(unmounted.status.success(), "{}", said(&unmounted));
    assert!(by_root.status.success(), "{}", said(&by_root));
    assert_eq!(by_root.stdout, by_user.stdout);
    for listed in &subvolumes {
        assert!(listed.status.success(), "{}", said(listed));
    }
    assert_eq!(subvolumes[0].stdout, subvolumes[1].stdout);
    assert!(!is_given);
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).starts_with("ERROR: "), "{}", said(&refused));
}

#[test]
fn a_user_may_on_his_mount_what_the_kernel_lets_him() {
    if !or_skip("a_user_may_on_his_mount_what_the_kernel_lets_him") {
        return;
    }
    let Some(program) = Program::new() else {
        return;
    };
    let allowed = "user_subvol_rm_allowed";
    for (number, [options, remounted]) in
        [["", ""], [allowed, ""], ["", allowed]].iter().enumerate()
    {
        let (_scratch, theirs) = empty_volume();
        furnish(&theirs);
        let dir = program.scratch.path().join(format!("mnt{number}"));
        fs::create_dir(&dir).unwrap();
        let image = dir.with_extension("img");
        fs::copy(&theirs, &image).unwrap();
        for path in [&dir, &image] {
            chown(path, Some(USER), Some(USER)).unwrap();
        }
        let progs = Path::new("btrfs");
        let expected = on_kernels_mount(progs, &theirs, &[*options, *remounted].concat());

        let mount = ["mount".into(), "-o".into(), format!("rw,{options}").into()];
        let mounted = program.run(
            USER,
            mount
                .into_iter()
                .chain([image.clone().into(), dir.clone().into()]),
        );
        assert!(mounted.status.success(), "{}", said(&mounted));
        if !remounted.is_empty() {
            let words = format!("remount,{remounted}");
            let args = [
                "mount".into(),
                "-o".into(),
                words.into(),
                dir.clone().into(),
            ];
            let remounted = program.run(USER, args);
            assert!(remounted.status.success(), "{}", said(&remounted));
        }
        let at = |path: &str| match path {
            "" => dir.clone().into_os_string(),
            path => dir.join(path).into(),
        };
        let outcomes = as_user(&program.path, at);
        let label = [
            "filesystem".into(),
            "label".into(),
            dir.clone().into(),
            "x".into(),
        ];
        let refused = program.run(USER, label);
        assert!(
            said(&refused).contains("option fakeroot"),
            "{}",
            said(&refused)
        );
        // A user's mount is not accessible to others.
        let stranger = ["subvolume".into(), "list".into(), dir.clone().into()];
        assert!(!program.run(STRANGER, stranger).status.success());
        let unmounted = program.run(USER, ["umount".into(), dir.clone().into()]);
        assert!(unmounted.status.success(), "{}", said(&unmounted));
        assert_as_kernel(options, &outcomes, &expected);
        assert_same_but_times(options, &theirs, &image);
    }
}

#[test]
fn owner_without_root_trims_an_own_mount() {
    let Some(program) = Program::new() else {
        return;
    };
    let dir = program.folder().join("mnt");
    let image = program.folder().join("v.img");
    fs::create_dir(&dir).unwrap();
    fs::File::create(&image)
        .unwrap()
        .set_len(512 << 20)
        .unwrap();
    for path in [&dir, &image] {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
    let words = |words: &[&str], paths: &[&Path]| -> Vec<OsString> {
        let words = words.iter().map(OsString::from);
        words.chain(paths.iter().map(OsString::from)).collect()
    };
    let done = |output: Output| assert!(output.status.success(), "{}", said(&output));
    done(program.run(USER, words(&["mkfs", "-q"], &[&image])));
    let mount = words(&["mount", "-o", "nodiscard"], &[&image, &dir]);
    done(program.run(USER, mount));
    let allocated = || fs::metadata(&image).unwrap().blocks() * 512;
    let file = dir.join("file");
    let fill = || {
        let script = format!(
            "head -c 64M /dev/urandom >{0}; sync {0}; rm {0}",
            file.display()
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).uid(USER).gid(USER);
        done(shell.output().unwrap());
        assert!(allocated() > 64 << 20);
    };
    let trim = words(&["filesystem", "trim"], &[&dir]);
    fill();
    // The kernel forgets the file asynchronously.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while allocated() > 32 << 20 {
        assert!(std::time::Instant::now() < until, "{} bytes", allocated());
        done(program.run(USER, trim.clone()));
    }
    fill();
    while allocated() > 32 << 20 {
        assert!(std::time::Instant::now() < until, "{} bytes", allocated());
        let mut fstrim = Command::new("fstrim");
        done(fstrim.arg(&dir).uid(USER).gid(USER).output().unwrap());
    }
    assert!(!program.run(STRANGER, trim).status.success());
    done(program.run(USER, words(&["umount"], &[&dir])));
    // On a busy machine the server has been observed to keep the image a little longer than the mount.
    done(program.run(USER, words(&["check", "-q", "--wait=60"], &[&image])));
}

#[test]
fn owner_without_root_receives_differences_of_the_files_of_others() {
    let Some(program) = Program::new() else {
        return;
    };
    let (_scratch, source) = empty_volume();
    succeed([
        "subvolume".into(),
        "create".into(),
        location(&source, "data"),
    ]);
    succeed(["touch".into(), location(&source, "data/secret")]);
    succeed([
        "chmod".into(),
        "600".into(),
        location(&source, "data/secret"),
    ]);
    let streams = [("one", None), ("two", Some("one"))].map(|(name, parent)| {
        let snapshot = ["subvolume", "snapshot", "-r"].map(OsString::from);
        let paths = [location(&source, "data"), location(&source, name)];
        succeed(snapshot.into_iter().chain(paths));
        let stream = program.folder().join(name);
        let mut send = vec!["send".into(), "-f".into(), stream.clone().into_os_string()];
        if let Some(parent) = parent {
            send.extend(["-p".into(), location(&source, parent)]);
        }
        send.push(location(&source, name));
        let mut sent = crate::process::ubtrfs();
        let sent = sent.arg("-q").args(send).output().unwrap();
        assert!(sent.status.success(), "{}", said(&sent));
        fs::set_permissions(&stream, Permissions::from_mode(0o644)).unwrap();
        stream
    });

    let (dir, image) = (program.folder().join("mnt"), program.folder().join("v.img"));
    fs::create_dir(&dir).unwrap();
    fs::File::create(&image)
        .unwrap()
        .set_len(256 << 20)
        .unwrap();
    for path in [&dir, &image] {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
    let run = |words: &[&str], paths: &[&Path]| {
        let words = words.iter().map(OsString::from);
        let output = program.run(USER, words.chain(paths.iter().map(OsString::from)));
        assert!(output.status.success(), "{}", said(&output));
    };
    run(&["mkfs", "-q"], &[&image]);
    run(&["mount"], &[&image, &dir]);
    // The image belongs to the user, and so do the parent snapshots in it, though root owns their files.
    for stream in &streams {
        run(&["receive", "-f"], &[stream, &dir]);
    }
    run(&["umount"], &[&dir]);
    run(&["check", "-q"], &[&image]);
    let received = succeed(["stat".into(), location(&image, "two")]);
    let received = String::from_utf8_lossy(&received);
    assert!(received.contains("Uid: (    0/"), "{received}");
}

#[test]
fn copy_by_a_user_says_that_it_leaves_out_attributes() {
    let Some(program) = Program::new() else {
        return;
    };
    fs::set_permissions(program.folder(), Permissions::from_mode(0o777)).unwrap();
    let image = program.folder().join("x.img");
    let run = |args: &[&OsStr]| {
        let output = program.of(USER).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {said}");
        said
    };
    let word = OsStr::new;
    run(&[
        word("mkfs"),
        word("-q"),
        word("-b"),
        word("128M"),
        image.as_os_str(),
    ]);
    let file = location(&image, "file");
    run(&[word("touch"), &file]);
    let set = ["setfattr", "-n", "trusted.mine", "-v", "value"].map(word);
    run(&[&set[..], &[&file]].concat());
    let copy = program.folder().join("copy");
    let said = run(&[word("cp"), word("-a"), &file, copy.as_os_str()]);
    assert!(
        said.contains("attributes such as trusted.mine are left out"),
        "{said}"
    );
    assert!(copy.exists());
}
