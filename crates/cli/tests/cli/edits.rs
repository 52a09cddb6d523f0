//! Commands that change files have the same effect as coreutils on the kernel's mount, on the command line
//! and in a shell.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use ubtrfs_format::features::Incompat;
use ubtrfs_sim::Scratch;
use ubtrfs_sim::craft;
use ubtrfs_sim::kernel::{KernelVolume, or_skip};
use ubtrfs_sim::manifest::{Field, Manifest, Time, assert_same};

use crate::process::{empty_volume, fail, judged, location, succeed, ubtrfs};

/// Each entry is valid for coreutils or attr, and for our program. A word that begins with '@' is a path in
/// the volume.
const COMMANDS: &[&str] = &[
    "mkdir @a @b",
    "mkdir -m 2751 @a/setgid",
    "mkdir -m u=rwx,go= @a/private",
    "mkdir -p @deep/er/still",
    "mkdir -p -m 1777 @deep/er/sticky @deep",
    "touch @a/file @a/other @b/x @b/y",
    "touch -c @a/missing",
    "touch -d 2001-02-03T04:05:06.123456789Z @a/file",
    "touch -a -d @1000000000.5 @a/file",
    "touch -m -t 199912312359.58 @a/other",
    "touch -r @a/file @b/x",
    "ln -s target/of/link @a/link",
    "ln -s /a/file @b",
    "ln -sf elsewhere @a/link",
    "touch -h -d 1999-01-01T00:00:00Z @a/link",
    "ln @a/file @a/hard",
    "ln @a/file @a/other @deep",
    "ln -f @b/y @deep/other",
    "ln -sT ../a/other @b/text",
    "chmod 4755 @a/file",
    "chmod u=rw,go=r @a/other",
    "chmod 0640 @b/x @b/y",
    "chmod -R g+X,o= @deep",
    "chmod 755 @a/setgid",
    "chown 1000:100 @a/file",
    "chown -h 7:8 @a/link",
    "chown -R :55 @deep",
    "chown 12 @b/text",
    "truncate -s 1000000 @a/other",
    "truncate -s -500 @a/other",
    "truncate -s %4096 @a/other @b/new",
    "truncate -c -s 1 @b/missing",
    "setfattr -n user.plain -v value @a/file",
    "setfattr -n user.binary -v 0x00ff10 @a/other",
    "setfattr -n trusted.of.link -v 0sAAEC -h @a/link",
    "setfattr -n user.gone @a/other",
    "setfattr -x user.gone @a/other",
    "mv @b/x @b/renamed",
    "mv @b/renamed @b/y @deep/er",
    "mv -T @deep/er/still @deep/moved",
    "mv -n @a/hard @a/other",
    "mv -f @a/hard @a/other",
    "mkdir @full @full/sub @empty",
    "touch @full/1 @full/2 @full/sub/3",
    "rm @full/1",
    "rm -f @full/missing @full/2",
    "rm -d @empty",
    "rm -r @full",
    "mkdir -p @up/to/here",
    "rmdir -p @up/to/here",
    "rmdir --ignore-fail-on-non-empty @a",
];

/// Fields in which two runs differ: times, and the inode numbers.
const OF_A_RUN: [Field; 4] = [Field::Ino, Field::Ctime, Field::Btime, Field::Atime];

const UMASK: u32 = 0o027;

/// Returns the words of a command with its paths filled in.
fn words(command: &str, path: impl Fn(&str) -> OsString) -> Vec<OsString> {
    let word = |word: &str| match word.strip_prefix('@') {
        // A time for touch.
        Some(name) if !name.starts_with(|c: char| c.is_ascii_digit()) => path(name),
        _ => word.into(),
    };
    command.split(' ').map(word).collect()
}

fn with_umask(command: &mut Command) -> &mut Command {
    // The shell sets the umask, so that the test's own umask stays unchanged.
    let program = command.get_program().to_owned();
    let args: Vec<OsString> = command.get_args().map(Into::into).collect();
    let dir = command
        .get_current_dir()
        .unwrap_or(Path::new("."))
        .to_owned();
    *command = Command::new("sh");
    command.current_dir(dir).env("TZ", "UTC");
    command
        .arg("-c")
        .arg(format!("umask {UMASK:o}; exec \"$0\" \"$@\""));
    command.arg(program).args(args).env_remove("UBTRFS_LOG")
}

fn run(command: &mut Command) {
    let output = with_umask(command).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    assert_eq!(stderr, "", "{command:?}");
}

/// Clears the times of directories, which differ between runs. Other times were set explicitly.
fn without_times_of_runs(mut manifest: Manifest) -> Manifest {
    let set = [&b"a/file"[..], b"a/link", b"deep/file", b"deep/er/renamed"];
    for entry in &mut manifest.entries {
        if !set.contains(&entry.path.as_slice()) {
            entry.stat.mtime = Time {
                seconds: 0,
                nanoseconds: 0,
            };
        }
    }
    manifest
}

fn by_coreutils(image: &Path) -> Manifest {
    let scratch = Scratch::new().unwrap();
    let volume = KernelVolume::of_files(vec![image.to_owned()], scratch);
    let mount = volume.mount("").unwrap();
    for command in COMMANDS {
        let words = words(command, |path| path.into());
        let mut command = Command::new(&words[0]);
        run(command.args(&words[1..]).current_dir(mount.path()));
    }
    mount.unmount().unwrap();
    judged(image)
}

fn by_commands(image: &Path) -> Manifest {
    for command in COMMANDS {
        run(ubtrfs().args(words(command, |path| location(image, path))));
    }
    judged(image)
}

fn by_shell(image: &Path) -> Manifest {
    let mut shell = ubtrfs();
    shell.arg("shell").arg(image);
    let mut shell = with_umask(&mut shell)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut script = shell.stdin.take().unwrap();
    for command in COMMANDS {
        let words = words(command, |path| format!("'/{path}'").into());
        let line: Vec<&str> = words.iter().map(|word| word.to_str().unwrap()).collect();
        writeln!(script, "{} # as it is", line.join(" ")).unwrap();
    }
    drop(script);
    assert!(shell.wait().unwrap().success());
    judged(image)
}

#[test]
fn files_are_changed_as_by_coreutils() {
    if !or_skip("files_are_changed_as_by_coreutils") {
        return;
    }
    let (scratch, first) = empty_volume();
    let copies = ["second", "third"].map(|name| scratch.path().join(name));
    for copy in &copies {
        std::fs::copy(&first, copy).unwrap();
    }
    let expected = without_times_of_runs(by_coreutils(&first));
    assert!(expected.entries.len() > 15);
    let found = without_times_of_runs(by_commands(&copies[0]));
    assert_same("commands", &expected, &found, &OF_A_RUN);
    let found = without_times_of_runs(by_shell(&copies[1]));
    assert_same("shell", &expected, &found, &OF_A_RUN);
}

#[test]
fn two_files_exchange_their_names() {
    let (_scratch, image) = empty_volume();
    let at = |path| location(&image, path);
    for (path, text) in [("a", "first"), ("b", "second")] {
        write(&image, path, text.as_bytes());
    }
    succeed(["mv".into(), "--exchange".into(), at("a"), at("b")]);
    assert_eq!(succeed(["cat".into(), at("a")]), b"second");
    assert_eq!(succeed(["cat".into(), at("b")]), b"first");
    let args = ["mv".into(), "--exchange".into(), at("a"), at("none")];
    fail(args, "no such file or directory");
}

#[test]
fn symbolic_link_to_a_path_of_the_image_keeps_the_path() {
    let (scratch, image) = empty_volume();
    let at = |path| location(&image, path);
    succeed(["mkdir".into(), at("dir")]);
    write(&image, "file", b"contents");
    let respelled = scratch.path().join(".").join(image.file_name().unwrap());
    let link = |target: &Path, name| {
        let target = location(target, "file");
        succeed(["ln".into(), "-s".into(), target, at(name)]);
    };
    link(&image, "link");
    link(&respelled, "other");
    link(&image, "dir");
    for path in ["link", "other", "dir/file"] {
        let shown = succeed(["ls".into(), "-l".into(), at(path)]);
        let shown = String::from_utf8(shown).unwrap();
        assert!(shown.ends_with(" -> /file\n"), "{shown}");
        assert_eq!(succeed(["cat".into(), at(path)]), b"contents");
    }
    // Another image is no volume in which the path could be followed.
    let elsewhere = location(&scratch.path().join("none.img"), "file");
    succeed(["ln".into(), "-s".into(), elsewhere.clone(), at("text")]);
    let shown = succeed(["ls".into(), "-l".into(), at("text")]);
    let shown = String::from_utf8(shown).unwrap();
    let text = format!(" -> {}\n", elsewhere.display());
    assert!(shown.ends_with(&text), "{shown}");
}

/// Writes content to a file through standard input.
pub(crate) fn write(image: &Path, path: &str, bytes: &[u8]) {
    let mut child = ubtrfs()
        .args(["cp".into(), "-".into(), location(image, path)])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn failures_are_said_and_the_rest_is_done() {
    let (_scratch, image) = empty_volume();
    let at = |path: &str| location(&image, path);
    succeed(["mkdir".into(), at("dir"), at("dir/sub")]);
    write(&image, "file", b"contents");
    let cases: &[(&[&str], &str)] = &[
        (&["mkdir", "@dir"], "file exists"),
        (&["mkdir", "@none/x"], "no such file or directory"),
        (&["mkdir", "-p", "@file/x"], "not a directory"),
        (&["mkdir", "-m", "9", "@x"], "invalid mode"),
        (&["rmdir", "@dir"], ": directory is not empty"),
        (&["rmdir", "@file"], "not a directory"),
        (&["rm", "@dir"], "is a directory"),
        (&["rm", "@none"], "no such file or directory"),
        (&["rm", "-r", "@"], "refusing to remove"),
        (&["rm", "-r", "@dir/.."], "refusing to remove"),
        (&["ln", "-T", "@file", "@dir"], "file exists"),
        (&["ln", "@dir", "@x"], "is a directory"),
        (&["ln", "@none", "@x"], "no such file or directory"),
        (&["ln", "-s", "x", "@file"], "file exists"),
        (&["mv", "@none", "@x"], "no such file or directory"),
        (&["mv", "@file", "@file"], "are the same file"),
        (&["mv", "@file", "@dir", "@x"], "is not a directory"),
        (&["mv", "@dir", "@dir/sub/x"], "into itself"),
        (&["touch", "@none/x"], "no such file or directory"),
        (&["touch", "-d", "yesterday", "@x"], "invalid date"),
        (&["chmod", "rwx", "@file"], "invalid mode"),
        (&["chmod", "644", "@none"], "no such file or directory"),
        (&["chown", "no such user", "@file"], "invalid user"),
        (&["truncate", "-s", "1Q", "@file"], "invalid size"),
        (&["truncate", "-s", "9E", "@file"], "too large"),
        (&["truncate", "-s", "1", "@dir"], "directory"),
        (
            &["setfattr", "-x", "user.none", "@file"],
            "no such attribute",
        ),
        (&["setfattr", "-n", "other.name", "@file"], "not supported"),
        (
            &["getfattr", "-n", "user.none", "@file"],
            "no such attribute",
        ),
    ];
    for (words, message) in cases {
        let word = |word: &&str| match word.strip_prefix('@') {
            Some(path) => at(path),
            None => OsString::from(word),
        };
        println!("{words:?}");
        fail(words.iter().map(word), message);
    }
    // One of several operands fails.
    fail(
        ["mkdir".into(), at("one"), at("dir"), at("two")],
        "file exists",
    );
    let listed = succeed(["ls".into(), at("")]);
    assert_eq!(String::from_utf8(listed).unwrap(), "dir\nfile\none\ntwo\n");
    succeed(["check".as_ref(), "-q".as_ref(), image.as_os_str()]);
}

#[test]
fn attributes_are_shown_as_by_getfattr() {
    let (_scratch, image) = empty_volume();
    write(&image, "file", b"");
    for (name, value) in [("user.text", "a \"b\""), ("user.raw", "0x000102")] {
        let at = location(&image, "file");
        let words = ["setfattr", "-n", name, "-v", value].map(OsString::from);
        succeed(words.into_iter().chain([at]));
    }
    let get = |options: &[&str]| {
        let words = ["getfattr"].iter().chain(options).map(OsString::from);
        let shown = succeed(words.chain([location(&image, "file")]));
        String::from_utf8(shown).unwrap()
    };
    let mut names: Vec<String> = get(&[]).lines().map(str::to_owned).collect();
    names.sort();
    assert_eq!(names, ["", "# file: file", "user.raw", "user.text"]);
    let shown = get(&["-n", "user.text"]);
    assert_eq!(shown, "# file: file\nuser.text=\"a \\\"b\\\"\"\n\n");
    assert!(get(&["-d"]).contains("user.raw=0sAAEC\n"));
    assert!(get(&["-d", "-e", "hex"]).contains("user.raw=0x000102\n"));
    assert_eq!(get(&["--only-values", "-n", "user.raw"]), "\0\u{1}\u{2}");
    let list: serde_json::Value = serde_json::from_str(&get(&["--format", "json"])).unwrap();
    let file = &list["getfattr"][0];
    assert_eq!(file["path"], "/file");
    let xattrs = file["xattrs"].as_array().unwrap();
    let text = xattrs.iter().find(|xattr| xattr["name"] == "user.text");
    assert_eq!(text.unwrap()["value"], "a \"b\"");
}

#[test]
fn an_image_that_is_written_is_locked() {
    let (_scratch, image) = empty_volume();
    let mut shell = ubtrfs()
        .arg("shell")
        .arg(&image)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut script = shell.stdin.take().unwrap();
    script.write_all(b"mkdir /x\npwd\n").unwrap();
    // When it answers, it has opened the image.
    let mut answer = [0; 2];
    std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut answer).unwrap();
    fail(
        ["mkdir".into(), location(&image, "y")],
        "in use by another process",
    );
    fail(
        ["ls".into(), location(&image, "")],
        "in use by another process",
    );
    drop(script);
    assert!(shell.wait().unwrap().success());
    assert_eq!(succeed(["ls".into(), location(&image, "")]), b"x\n");
}

#[test]
fn a_command_that_is_killed_leaves_the_last_commit() {
    let (_scratch, image) = empty_volume();
    write(&image, "before", b"kept");
    let mut child = ubtrfs()
        .args(["cp".into(), "-".into(), location(&image, "after")])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    // More than a pipe takes: the command has written part of it.
    input.write_all(&vec![7; 20 << 20]).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    succeed(["check".as_ref(), "-q".as_ref(), image.as_os_str()]);
    assert_eq!(succeed(["cat".into(), location(&image, "before")]), b"kept");
    assert_eq!(succeed(["ls".into(), location(&image, "")]), b"before\n");
}

#[test]
fn a_full_volume_is_an_error_and_stays_sound() {
    let scratch = Scratch::new().unwrap();
    let image = scratch.path().join("small.img");
    let made = ["mkfs", "-q", "-b", "128M"].map(OsString::from);
    succeed(made.into_iter().chain([image.clone().into()]));
    write(&image, "first", b"kept");
    let source = scratch.path().join("source");
    std::fs::create_dir(&source).unwrap();
    for name in ["a", "b", "c"] {
        let bytes: Vec<u8> = (0..40u32 << 20)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        std::fs::write(source.join(name), bytes).unwrap();
    }
    let args = [
        "cp".into(),
        "-r".into(),
        source.into(),
        location(&image, ""),
    ];
    let output = fail(args, "no space left");
    // Printed once, not for each file.
    let said = String::from_utf8_lossy(&output.stderr)
        .matches("no space left")
        .count();
    assert_eq!(said, 1);
    succeed(["check".as_ref(), "-q".as_ref(), image.as_os_str()]);
    assert_eq!(succeed(["cat".into(), location(&image, "first")]), b"kept");
    succeed(["rm".into(), "-r".into(), location(&image, "source")]);
    write(&image, "second", &[1; 1 << 20]);
}

#[test]
fn volume_that_takes_no_changes_leaves_others_their_turn() {
    let (_scratch, foreign) = empty_volume();
    let (_other_scratch, other) = empty_volume();
    craft::edit_superblock(&foreign, |superblock| {
        let incompat = superblock.incompat() | Incompat::SIMPLE_QUOTA;
        superblock.incompat_flags = incompat.bits().into();
    })
    .unwrap();
    let args = [
        "mkdir".into(),
        location(&foreign, "a"),
        location(&foreign, "b"),
        location(&other, "c"),
    ];
    let said = fail(args, "it uses squota");
    let said = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(succeed(["ls".into(), location(&other, "")]), b"c\n");
}

#[test]
fn root_of_a_subvolume_is_its_own_parent() {
    let (_scratch, image) = empty_volume();
    succeed(["subvolume".into(), "create".into(), location(&image, "sub")]);
    succeed(["chmod".into(), "700".into(), location(&image, "sub")]);
    let words = ["ls", "-lan", "--subvol", "/sub"].map(OsString::from);
    let listed = succeed(words.into_iter().chain([image.into_os_string()]));
    let listed = String::from_utf8(listed).unwrap();
    let modes = listed.lines().map(|line| line.split(' ').next().unwrap());
    assert_eq!(
        modes.collect::<Vec<_>>(),
        ["total", "drwx------", "drwx------"],
        "{listed}"
    );
}
