//! `receive --dump` against `btrfs receive --dump`, on streams of the kernel: the same text. The kernel's streams are
//! also written anew: the same bytes.
//!
//! Needs root, the kernel's btrfs and btrfs-progs; without them the tests say so and pass.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ubtrfs_sim::fill::{self, Scale};
use ubtrfs_sim::kernel::{self, KernelVolume, MkfsSpec};
use ubtrfs_stream::{
    Command as StreamCommand, CommandKind, StreamReader, StreamVersion, StreamWriter, Time,
};

/// The layout is that of this version.
const PROGS_VERSION: &[u8] = b"btrfs-progs v6.14";
const OURS: &str = env!("CARGO_BIN_EXE_ubtrfs");

fn has_progs() -> bool {
    let version = Command::new("btrfs").arg("--version").output();
    version.is_ok_and(|version| version.stdout.starts_with(PROGS_VERSION))
}

fn ready(test: &str) -> bool {
    if !kernel::or_skip(test) {
        return false;
    }
    let has_progs = has_progs();
    if !has_progs {
        eprintln!("SKIPPED {test}: not {}", PROGS_VERSION.escape_ascii());
    }
    has_progs
}

fn btrfs<const N: usize>(args: [&OsStr; N]) {
    let output = Command::new("btrfs").arg("-q").args(args).output().unwrap();
    assert!(output.status.success(), "btrfs {args:?}: {output:?}");
}

fn shell(dir: &Path, script: &str) {
    let mut command = Command::new("bash");
    command.args(["-euc", script]).current_dir(dir);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
}

fn snapshot(of: &Path, to: &Path) {
    let command = ["subvolume".as_ref(), "snapshot".as_ref(), "-r".as_ref()];
    btrfs([command[0], command[1], command[2], of.as_ref(), to.as_ref()]);
}

fn dump(program: &str, stream: &Path) -> Output {
    let mut command = Command::new(program);
    command.args(["receive", "--dump", "-f"]).arg(stream);
    command.env("TZ", "Asia/Kolkata").env("LC_ALL", "C");
    command.output().unwrap()
}

/// Compares the text of both programs, and gives it.
fn compare(what: &str, stream: &Path) -> Vec<u8> {
    let (wanted, found) = (dump("btrfs", stream), dump(OURS, stream));
    let text = found.stdout.clone();
    assert!(wanted.status.success(), "{what}: {wanted:?}");
    assert!(found.status.success(), "{what}: {found:?}");
    assert!(wanted.stdout.len() > 100, "{what}");
    let wanted = wanted.stdout.split(|&byte| byte == b'\n');
    let found = found.stdout.split(|&byte| byte == b'\n');
    assert_eq!(wanted.clone().count(), found.clone().count(), "{what}");
    for (number, (wanted, found)) in wanted.zip(found).enumerate() {
        assert_eq!(
            wanted.escape_ascii().to_string(),
            found.escape_ascii().to_string(),
            "{what}, line {}",
            number + 1
        );
    }
    text
}

/// The commands of a stream, written anew.
fn rewritten(stream: &[u8]) -> Vec<u8> {
    let mut reader = StreamReader::open(stream).unwrap();
    let mut writer = StreamWriter::new(Vec::new(), reader.version()).unwrap();
    while let Some(command) = reader.next_command().unwrap() {
        writer.write(&command).unwrap();
    }
    writer.into_inner()
}

/// Names, kinds, attributes, holes and sharing that the text shows.
const FILES: &str = r#"
mkdir 'd 1'; echo hi > f; chown 5:6 f; chmod 4755 f
printf x > $'odd\t\n\\ \x01\xff\xc3\xa9\e\a\x7f name'
ln -s $'tar get\n' $'sym\nlink'; mkfifo p; mknod b b 259 1000; mknod c c 1 3
setfattr -n user.a -v $'va l\n\x01' f; setfattr -n $'user.o dd\x02' f; setfacl -m u:7:r f
ln f 'd 1/hard ln'
head -c 300000 /dev/urandom > big; cp --reflink=always big $'big cl\tone'
fallocate -l 1M pre; truncate -s 5G sparse
touch compressed; btrfs property set compressed compression zstd
head -c 400000 /dev/zero | tr '\0' a > compressed; touch -d '1901-02-03 04:05:06' f
touch -d '2400-02-29 04:05:06' pre; sync .
"#;
const CHANGES: &str = r#"
mv f 'f moved'; setfattr -x user.a 'f moved'; rm p; rm -r 'd 1'
fallocate -p -o 4096 -l 8192 big; cp --reflink=always big big2; fallocate -l 8192 -o 16384 big
truncate -s 1000 compressed; chattr +A pre; mkdir d2; mv c d2; sync .
"#;

/// Streams of the same snapshots: whole and of the difference, in each version, and without data.
fn send(top: &Path, dir: &Path) -> Vec<(String, PathBuf)> {
    let mut streams = Vec::new();
    for options in [
        "--proto 1",
        "--proto 2",
        "--proto 2 --compressed-data",
        "--no-data",
    ] {
        for subvolumes in ["before", "-p before after"] {
            let what = format!("{options} {subvolumes}");
            let stream = dir.join(format!("stream-{}", streams.len()));
            let shown = stream.display();
            shell(top, &format!("btrfs -q send {what} > {shown}"));
            streams.push((what, stream));
        }
    }
    streams
}

#[test]
fn streams_of_the_kernel_are_dumped_as_btrfs_progs_does() {
    let test = "dumps of streams";
    if !ready(test) {
        return;
    }
    let spec = MkfsSpec::new().device_bytes(1 << 30);
    let volume = KernelVolume::make(&spec).unwrap();
    let mount = volume.mount("").unwrap();
    let top = mount.path();
    let work = top.join("work");
    btrfs(["subvolume".as_ref(), "create".as_ref(), work.as_ref()]);
    fill::hard_cases(&work, &Scale::tiny(), ubtrfs_sim::seed(test)).unwrap();
    shell(&work, FILES);
    snapshot(&work, &top.join("before"));
    shell(&work, CHANGES);
    snapshot(&work, &top.join("after"));
    let streams = send(top, volume.dir());
    mount.unmount().unwrap();
    let mut text = Vec::new();
    for (what, stream) in streams {
        text.extend(compare(&what, &stream));
        let bytes = fs::read(&stream).unwrap();
        let rewritten = rewritten(&bytes);
        // Not assert_eq: they are large.
        assert!(rewritten == bytes, "{what} is written otherwise");
        fs::remove_file(&stream).unwrap();
    }
    let lines = text.split(|&byte| byte == b'\n');
    let shown: HashSet<&[u8]> = lines
        .filter_map(|line| line.split(|&b| b == b' ').next())
        .collect();
    for kind in (1..=25).filter_map(CommandKind::from_raw) {
        let name = kind.name();
        let is_shown = shown.contains(name.as_bytes());
        assert_eq!(is_shown, kind != CommandKind::End, "{name}");
    }
}

fn stream(commands: &[StreamCommand<'_>]) -> Vec<u8> {
    let mut writer = StreamWriter::new(Vec::new(), StreamVersion::V2).unwrap();
    for command in commands {
        writer.write(command).unwrap();
    }
    writer.into_inner()
}

/// What no kernel sends, but the text can show.
#[test]
fn odd_streams_are_dumped_as_btrfs_progs_does() {
    let test = "dumps of odd streams";
    if !has_progs() {
        eprintln!("SKIPPED {test}: not {}", PROGS_VERSION.escape_ascii());
        return;
    }
    let every_byte: Vec<u8> = (1..=255).collect();
    let all_bytes: Vec<u8> = (0..=255).collect();
    let long = [b'y'; 40];
    let mut commands = vec![StreamCommand::Unlink {
        path: b"before any",
    }];
    commands.push(StreamCommand::SetXattr {
        path: &every_byte,
        name: &every_byte,
        value: &all_bytes,
    });
    for len in 20..long.len() {
        let path = &long[..len];
        commands.push(StreamCommand::Chmod { path, mode: 0 });
        commands.push(StreamCommand::Rmdir { path });
    }
    for path in [&b"/"[..], b"//", b"/a", b"a/", b"/a//"] {
        commands.push(StreamCommand::Rename { path, to: path });
        commands.push(StreamCommand::Link {
            path,
            existing: path,
        });
    }
    for sec in [0, -1, 1 << 33, 1 << 35, -30_000_000_000] {
        let time = Time { sec, nsec: 5 };
        commands.push(StreamCommand::Utimes {
            path: b"t",
            atime: time,
            mtime: time,
            ctime: time,
            otime: Some(time),
        });
    }
    commands.push(StreamCommand::Fallocate {
        path: b"a",
        mode: u32::MAX,
        offset: u64::MAX,
        len: u64::MAX,
    });
    commands.push(StreamCommand::Fileattr {
        path: b"a",
        flags: u64::MAX,
    });
    commands.push(StreamCommand::End);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stream");
    let mut bytes = stream(&commands);
    bytes.extend_from_slice(b"what is behind the end");
    fs::write(&path, bytes).unwrap();
    compare(test, &path);
}

#[test]
fn streams_that_are_cut_or_damaged_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stream");
    let sound = stream(&[StreamCommand::Unlink { path: b"a" }, StreamCommand::End]);
    let mut damaged = sound.clone();
    damaged[31] ^= 1;
    let mut version_3 = sound.clone();
    version_3[13] = 3;
    let text = b"unlink          ./a\n";
    for (bytes, stdout, message) in [
        (
            &sound[..0],
            &b""[..],
            "empty stream is not considered valid",
        ),
        (b"not a stream at all", b"", "unexpected header"),
        (
            &sound[..20],
            b"",
            "short read from stream: expected 10 read 3",
        ),
        (
            &sound[..sound.len() - 10],
            text,
            "unexpected EOF in stream (at byte 32 of the stream)",
        ),
        (&damaged, b"", "crc32 mismatch in command"),
        (&version_3, b"", "stream version 3 not supported"),
    ] {
        fs::write(&path, bytes).unwrap();
        let output = dump(OURS, &path);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert_eq!(output.stdout, stdout, "{stderr}");
        let wanted = format!("ERROR: failed to dump the send stream: {message}");
        assert!(stderr.starts_with(&wanted), "{stderr}");
    }
    let output = dump(OURS, &dir.path().join("absent"));
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.starts_with(b"ERROR: cannot open "));
}

#[test]
fn a_stream_may_come_from_standard_input() {
    let mut command = Command::new(OURS);
    command.args(["receive", "--dump"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let bytes = stream(&[StreamCommand::Unlink { path: b"a" }, StreamCommand::End]);
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdout, b"unlink          ./a\n");
}

#[test]
fn receiving_is_refused() {
    for args in [&["receive", "/"][..], &["receive", "-e", "-E", "0", "/"]] {
        let stdin = File::open("/dev/null").unwrap();
        let output = Command::new(OURS).args(args).stdin(stdin).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let wanted = b"ERROR: 'receive' is not supported by ubtrfs, except 'receive --dump'\n";
        assert_eq!(output.stderr, wanted);
    }
}
