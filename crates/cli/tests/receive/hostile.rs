//! Streams that no kernel sends: only the new subvolume is changed, and the error names the command and its
//! offset.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use ubtrfs_format::ids::{InodeNr, Transid};
use ubtrfs_format::item::FileTime;
use ubtrfs_format::uuid::Uuid;
use ubtrfs_sim::Scratch;
use ubtrfs_stream::{Command, StreamVersion, StreamWriter};

use crate::source::{OURS, empty_image, run};

pub(crate) const UUID: Uuid = Uuid([7; 16]);
const SUBVOL: Command<'_> = Command::Subvol {
    path: b"s",
    uuid: UUID,
    ctransid: Transid(3),
};

pub(crate) fn stream(commands: &[Command<'_>]) -> Vec<u8> {
    let mut writer = StreamWriter::new(Vec::new(), StreamVersion::V2).unwrap();
    for command in commands {
        writer.write(command).unwrap();
    }
    writer.into_inner()
}

pub(crate) fn subvol(path: &[u8]) -> Command<'_> {
    Command::Subvol {
        path,
        uuid: UUID,
        ctransid: Transid(3),
    }
}

pub(crate) fn snapshot_of(clone_uuid: Uuid) -> Command<'static> {
    Command::Snapshot {
        path: b"t",
        uuid: Uuid([8; 16]),
        ctransid: Transid(4),
        clone_uuid,
        clone_ctransid: Transid(3),
    }
}

pub(crate) fn mkfile(path: &[u8]) -> Command<'_> {
    let ino = InodeNr(300);
    Command::Mkfile { path, ino }
}

pub(crate) fn mkdir(path: &[u8]) -> Command<'_> {
    let ino = InodeNr(301);
    Command::Mkdir { path, ino }
}

fn symlink<'a>(path: &'a [u8], target: &'a [u8]) -> Command<'a> {
    let ino = InodeNr(302);
    Command::Symlink { path, ino, target }
}

pub(crate) fn write<'a>(path: &'a [u8], offset: u64, data: &'a [u8]) -> Command<'a> {
    Command::Write { path, offset, data }
}

fn clone_of<'a>(path: &'a [u8], clone_path: &'a [u8], clone_uuid: Uuid) -> Command<'a> {
    Command::Clone {
        offset: 0,
        len: 4096,
        path,
        clone_uuid,
        clone_ctransid: Transid(3),
        clone_path,
        clone_offset: 0,
    }
}

fn encoded<'a>(compression: u32, unencoded_len: u64, data: &'a [u8]) -> Command<'a> {
    Command::EncodedWrite {
        path: b"f",
        offset: 0,
        unencoded_file_len: unencoded_len,
        unencoded_len,
        unencoded_offset: 0,
        compression,
        encryption: None,
        data,
    }
}

/// A volume with a directory for subvolumes. The streams try to write outside of it.
struct Rig {
    scratch: Scratch,
    image: PathBuf,
}

impl Rig {
    fn new() -> Rig {
        let scratch = Scratch::new().unwrap();
        let image = scratch.path().join("v.img");
        empty_image(&image);
        let rig = Rig { scratch, image };
        for name in ["dir", "outside"] {
            rig.succeed(&["mkdir", "VOLUME"], name);
        }
        rig
    }

    fn at(&self, path: &str) -> OsString {
        let mut location = self.image.as_os_str().to_owned();
        location.push(":/");
        location.push(path);
        location
    }

    /// Runs the program. Replaces VOLUME in the arguments by a path in the volume.
    fn run(&self, args: &[&str], path: &str) -> Output {
        let at = self.at(path);
        let args = args.iter().map(|&arg| match arg {
            "VOLUME" => at.as_os_str(),
            arg => arg.as_ref(),
        });
        run(OURS, &args.collect::<Vec<_>>())
    }

    fn succeed(&self, args: &[&str], path: &str) -> String {
        let output = self.run(args, path);
        assert!(output.status.success(), "{args:?} {path}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn receive(&self, stream: &[u8], options: &[&str]) -> Output {
        let file = self.scratch.path().join("stream");
        fs::write(&file, stream).unwrap();
        let file = file.to_str().unwrap();
        let args = [&["receive", "-f", file], options, &["VOLUME"]].concat();
        self.run(&args, "dir")
    }

    /// Receives a stream that is refused, and returns the error output.
    #[track_caller]
    fn refused(&self, stream: &[u8], options: &[&str], message: &str) -> String {
        let output = self.receive(stream, options);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(message), "{message:?} is not in {stderr}");
        stderr
    }

    fn delete(&self, name: &str) {
        self.succeed(&["subvolume", "delete", "VOLUME"], &format!("dir/{name}"));
    }

    fn is_read_only(&self, name: &str) -> bool {
        let shown = self.succeed(&["property", "get", "VOLUME", "ro"], &format!("dir/{name}"));
        shown.trim() == "ro=true"
    }
}

fn assert_sound(image: &Path) {
    let output = run(OURS, &["check".as_ref(), image.as_os_str()]);
    assert!(output.status.success(), "{output:?}");
}

/// Returns streams whose last command fails.
pub(crate) fn refused_commands() -> Vec<(Vec<Command<'static>>, &'static str)> {
    let far = FileTime {
        sec: 0,
        nsec: 1_000_000_000,
    };
    let node = |rdev, mode| {
        let (path, ino) = (&b"n"[..], InodeNr(9));
        Command::Mknod {
            path,
            ino,
            rdev,
            mode,
        }
    };
    let chown = |uid, gid| Command::Chown {
        path: b"f",
        uid,
        gid,
    };
    let fallocate = |mode, offset, len| Command::Fallocate {
        path: b"f",
        mode,
        offset,
        len,
    };
    vec![
        (
            vec![mkfile(b"../outside/f")],
            "mkfile '../outside/f' failed: path has a name",
        ),
        (vec![mkfile(b"a/../../f")], "'.' or '..'"),
        (vec![mkfile(b"./f")], "'.' or '..'"),
        (vec![mkfile(b"a//f")], "empty name"),
        (vec![mkfile(b"")], "path is the subvolume itself"),
        (vec![mkfile(&[b'n'; 256])], "name of 256 bytes"),
        (vec![mkfile(&[b'n'; 4096])], "path of 4096 bytes"),
        (
            vec![symlink(b"l", b"../../outside"), mkfile(b"l/f")],
            "not a directory",
        ),
        (
            vec![symlink(b"l", b"/outside"), write(b"l", 0, b"x")],
            "write 'l' failed",
        ),
        (vec![mkfile(b"f"), mkfile(b"f/g")], "not a directory"),
        (vec![mkfile(b"f"), mkfile(b"f")], "file exists"),
        (
            vec![Command::Rename {
                path: b"a",
                to: b"b",
            }],
            "no such file",
        ),
        (
            vec![
                mkdir(b"d"),
                Command::Rename {
                    path: b"d",
                    to: b"../d",
                },
            ],
            "'.' or '..'",
        ),
        (
            vec![
                mkdir(b"d"),
                Command::Rename {
                    path: b"d",
                    to: b"d/d",
                },
            ],
            "rename 'd' failed",
        ),
        (
            vec![mkdir(b"d"), Command::Unlink { path: b"d" }],
            "unlink 'd' failed",
        ),
        (
            vec![mkfile(b"f"), Command::Rmdir { path: b"f" }],
            "rmdir 'f' failed",
        ),
        (
            vec![Command::Link {
                path: b"l",
                existing: b"../../outside",
            }],
            "'.' or '..'",
        ),
        (
            vec![mkfile(b"f"), write(b"f", u64::MAX, b"x")],
            "beyond the largest file",
        ),
        (
            vec![mkfile(b"f"), write(b"f", i64::MAX as u64, b"x")],
            "beyond the largest file",
        ),
        (
            vec![
                mkfile(b"f"),
                Command::Truncate {
                    path: b"f",
                    size: 1 << 63,
                },
            ],
            "beyond the largest file",
        ),
        (
            vec![mkfile(b"f"), fallocate(3, u64::MAX, 2)],
            "beyond the largest file",
        ),
        (
            vec![mkfile(b"f"), fallocate(0x20, 0, 4096)],
            "fallocate mode 0x20",
        ),
        (vec![mkfile(b"f"), chown(1 << 32, 0)], "invalid owner"),
        (
            vec![mkfile(b"f"), chown(0, u64::from(u32::MAX))],
            "invalid owner",
        ),
        (
            vec![
                mkfile(b"f"),
                Command::Chmod {
                    path: b"f",
                    mode: 1 << 20,
                },
            ],
            "invalid mode",
        ),
        (vec![node(1 << 40, 0o020_000)], "invalid device number"),
        (vec![node(1, 0o100_000)], "invalid type of a device"),
        (vec![symlink(b"l", b"")], "the target of a link"),
        (
            vec![
                mkfile(b"f"),
                Command::Utimes {
                    path: b"f",
                    atime: far,
                    mtime: far,
                    ctime: far,
                    otime: None,
                },
            ],
            "invalid time",
        ),
        (
            vec![
                mkfile(b"f"),
                Command::SetXattr {
                    path: b"f",
                    name: b"odd.name",
                    value: b"",
                },
            ],
            "set_xattr 'f' failed",
        ),
        (
            vec![
                mkfile(b"f"),
                Command::RemoveXattr {
                    path: b"f",
                    name: b"user.a",
                },
            ],
            "remove_xattr 'f' failed",
        ),
        (
            vec![mkfile(b"f"), clone_of(b"f", b"../../x", UUID)],
            "'.' or '..'",
        ),
        (
            vec![mkfile(b"f"), clone_of(b"f", b"f", Uuid([9; 16]))],
            "cannot find clone source",
        ),
        (
            vec![mkfile(b"f"), clone_of(b"f", b"f", Uuid::NIL)],
            "cannot find clone source",
        ),
        (
            vec![mkfile(b"f"), clone_of(b"f", b"f", UUID)],
            "clone 'f' failed",
        ),
        (
            vec![mkfile(b"f"), encoded(9, 8192, b"x")],
            "compression 9 is unknown",
        ),
        (
            vec![mkfile(b"f"), encoded(1, 1 << 40, b"x")],
            "is too large",
        ),
        (
            vec![mkfile(b"f"), encoded(1, 8192, &[1; 4096])],
            "cannot be decompressed",
        ),
        (
            vec![mkfile(b"f"), encoded(2, 8192, &[1; 4096])],
            "cannot be decompressed",
        ),
        (
            vec![mkfile(b"f"), encoded(3, 8192, &[1; 4096])],
            "cannot be decompressed",
        ),
    ]
}

#[test]
fn commands_that_lead_outside_or_beyond_are_refused() {
    let rig = Rig::new();
    for (commands, message) in refused_commands() {
        let before = stream(&[&[SUBVOL], &commands[..commands.len() - 1]].concat());
        let commands = [&[SUBVOL][..], &commands, &[Command::End]].concat();
        let stderr = rig.refused(&stream(&commands), &[], message);
        let place = format!("at byte {} of the stream", before.len());
        assert!(stderr.contains(&place), "{place}: {stderr}");
        assert!(stderr.contains("subvolume 's' is not finished"), "{stderr}");
        assert!(!rig.is_read_only("s"), "{message}");
        rig.delete("s");
        assert_eq!(rig.succeed(&["ls", "VOLUME"], "outside"), "");
        assert_eq!(rig.succeed(&["ls", "VOLUME"], "dir"), "");
    }
    assert_sound(&rig.image);
}

#[test]
fn subvolumes_are_begun_in_order_and_by_name() {
    let rig = Rig::new();
    let end = Command::End;
    rig.refused(
        &stream(&[mkfile(b"f"), end]),
        &[],
        "no subvolume was begun before",
    );
    for (name, message) in [
        (&b"a/b"[..], "name has a slash"),
        (b"..", "'.' or '..'"),
        (b"/", "name has a slash"),
        (b"", "empty name"),
    ] {
        rig.refused(&stream(&[subvol(name), end]), &[], message);
    }
    let missing = stream(&[snapshot_of(UUID), end]);
    rig.refused(&missing, &[], "cannot find parent subvolume");
    let output = rig.receive(&stream(&[SUBVOL, mkfile(b"f"), end]), &[]);
    assert!(output.status.success(), "{output:?}");
    assert!(rig.is_read_only("s"));
    rig.refused(&stream(&[SUBVOL, end]), &[], "file exists");
    // A parent that may have changed in the meantime.
    rig.succeed(&["property", "set", "-f", "VOLUME", "ro", "false"], "dir/s");
    rig.refused(&missing, &[], "cannot find parent subvolume");
    assert_eq!(rig.succeed(&["ls", "VOLUME"], "dir"), "s\n");
    assert_sound(&rig.image);
}

#[test]
fn streams_that_are_cut_leave_the_subvolume_writable() {
    let rig = Rig::new();
    let commands = [
        SUBVOL,
        mkdir(b"d"),
        mkfile(b"d/f"),
        write(b"d/f", 0, &[5; 9000]),
        Command::End,
    ];
    let whole = stream(&commands);
    let mut damaged = whole.clone();
    damaged[whole.len() - 100] ^= 1;
    let begun = stream(&commands[..1]).len();
    let cuts = [
        begun,
        begun + 1,
        begun + 9,
        begun + 12,
        whole.len() - 1,
        whole.len() - 10,
    ];
    let cut = cuts.map(|len| (whole[..len].to_vec(), "of the stream"));
    for (bytes, message) in cut.into_iter().chain([(damaged, "crc32 mismatch")]) {
        let stderr = rig.refused(&bytes, &[], message);
        assert!(stderr.contains("subvolume 's' is not finished"), "{stderr}");
        assert!(!rig.is_read_only("s"), "{stderr}");
        rig.delete("s");
    }
    for (bytes, message) in [
        (&whole[..0], "empty stream is not considered valid"),
        (&whole[..16], "short read from stream"),
        (b"another kind of file", "unexpected header"),
    ] {
        rig.refused(bytes, &[], message);
    }
    // The stream itself is complete.
    let junk = [&whole[..], b"junk"].concat();
    rig.refused(&junk, &[], "short read from stream");
    assert!(rig.is_read_only("s"));
    assert_sound(&rig.image);
}

/// With -e, reading ends at the end of the stream: the bytes that follow in a pipe are for the next reader.
#[test]
fn bytes_behind_the_end_are_left_to_others() {
    let rig = Rig::new();
    let file = rig.scratch.path().join("streams");
    let streams = [b"s", b"t"].map(|name| stream(&[subvol(name), mkfile(b"f"), Command::End]));
    fs::write(&file, streams.concat()).unwrap();
    let (file, dir) = (file.display(), rig.at("dir"));
    let one = format!("{OURS} receive -e {}", dir.display());
    let script = format!("cat {file} | ({one}; {one}; wc -c)");
    let output = run("bash", &["-ec".as_ref(), script.as_ref()]);
    assert_eq!(output.stdout, b"0\n", "{output:?}");
    assert_eq!(rig.succeed(&["ls", "VOLUME"], "dir"), "s\nt\n");
}

#[test]
fn errors_may_be_passed_over() {
    let rig = Rig::new();
    let commands = [
        SUBVOL,
        mkfile(b"f"),
        mkfile(b"f"),
        Command::Unlink { path: b"x" },
        mkfile(b"g"),
        Command::End,
    ];
    let stream = stream(&commands);
    let stderr = rig.refused(&stream, &["-E", "2"], "unlink 'x' failed");
    assert!(stderr.contains("mkfile 'f' failed"), "{stderr}");
    assert_eq!(rig.succeed(&["ls", "VOLUME"], "dir/s"), "f\n");
    rig.delete("s");
    let stderr = rig.refused(&stream, &["--max-errors", "0"], "2 commands failed");
    assert_eq!(stderr.lines().count(), 4, "{stderr}");
    assert_eq!(rig.succeed(&["ls", "VOLUME"], "dir/s"), "f\ng\n");
    assert!(!rig.is_read_only("s"));
    assert_sound(&rig.image);
}
