//! Compares `receive --dump` with `btrfs receive --dump`, on streams of the kernel: the text is the same. Our
//! writer also reproduces the kernel's streams byte for byte.
//!
//! Needs root, the kernel's btrfs and btrfs-progs; without them the tests print that and pass.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::source::{CHANGES, FILES, OURS, btrfs, has_progs_or_skip, ready, shell, snapshot};
use ubtrfs_format::item::FileTime;
use ubtrfs_sim::fill::{self, Scale};
use ubtrfs_sim::kernel::{KernelVolume, MkfsSpec};
use ubtrfs_stream::{
    Command as StreamCommand, CommandKind, StreamReader, StreamVersion, StreamWriter,
};

fn dump(program: &str, stream: &Path) -> Output {
    let mut command = Command::new(program);
    command.args(["receive", "--dump", "-f"]).arg(stream);
    command.env("TZ", "Asia/Kolkata").env("LC_ALL", "C");
    command.output().unwrap()
}

/// Compares the output of both programs, and returns it.
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

/// Parses a stream's commands, and returns them written again.
fn rewritten(stream: &[u8]) -> Vec<u8> {
    let mut reader = StreamReader::open(stream).unwrap();
    let mut writer = StreamWriter::new(Vec::new(), reader.version()).unwrap();
    while let Some(command) = reader.next_command().unwrap() {
        writer.write(&command).unwrap();
    }
    writer.into_inner()
}

/// Sends the same snapshots: fully and incrementally, in each version, and without data.
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
        // assert_eq would print both, and they are large.
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

/// The streams contain commands that no kernel sends, but that the text can represent.
#[test]
fn odd_streams_are_dumped_as_btrfs_progs_does() {
    let test = "dumps of odd streams";
    if !has_progs_or_skip() {
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
        let time = FileTime { sec, nsec: 5 };
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
