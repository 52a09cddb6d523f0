//! Adjacent commands that are executed together.

use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use ubtrfs_device::progress::{Event, Progress};
use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_fs::{FileTime, Volume};
use ubtrfs_stream::{
    Command, ReceiveOptions, Receiver, StreamReader, StreamVersion, StreamWriter, VolumeTarget,
};

use crate::fixture::{MIB, SUBVOL, assert_sound, new_device, open, receive};

fn stream_of(commands: &[Command<'_>]) -> Vec<u8> {
    let mut stream = StreamWriter::new(Vec::new(), StreamVersion::V1).unwrap();
    stream.write(&SUBVOL).unwrap();
    for command in commands {
        stream.write(command).unwrap();
    }
    stream.into_inner()
}

fn mkfile(path: &[u8], number: u64) -> Command<'_> {
    let ino = InodeNr(number);
    Command::Mkfile { path, ino }
}

fn chown(path: &[u8], uid: u64) -> Command<'_> {
    let gid = uid + 1;
    Command::Chown { path, uid, gid }
}

fn chmod(path: &[u8], mode: u64) -> Command<'_> {
    Command::Chmod { path, mode }
}

fn utimes(path: &[u8], sec: i64) -> Command<'_> {
    let time = |sec| FileTime { sec, nsec: 5 };
    Command::Utimes {
        path,
        atime: time(sec),
        mtime: time(sec + 1),
        ctime: time(sec + 2),
        otime: None,
    }
}

/// Returns user, group, permissions, and the seconds of the times.
fn attributes(volume: &Volume, path: &[u8]) -> (u32, u32, u32, i64, i64) {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let file = volume.resolve(top, path).unwrap();
    let attr = volume.attr(file).unwrap();
    let (FileTime { sec: atime, .. }, FileTime { sec: mtime, .. }) = (attr.atime, attr.mtime);
    (attr.uid, attr.gid, attr.mode & 0o7777, atime, mtime)
}

#[test]
fn last_command_about_an_attribute_counts() {
    let stream = stream_of(&[
        mkfile(b"a", 257),
        mkfile(b"b", 258),
        chown(b"a", 10),
        chmod(b"a", 0o4711),
        utimes(b"a", 100),
        chown(b"b", 20),
        chown(b"b", 30),
        utimes(b"b", 200),
        chmod(b"b", 0o640),
        chown(b"a", 40),
        utimes(b"b", 300),
        Command::End,
    ]);
    let volume = open(new_device(256 * MIB));
    receive(&volume, &stream, ReceiveOptions::default()).unwrap();
    assert_eq!(attributes(&volume, b"s/a"), (40, 41, 0o4711, 100, 101));
    assert_eq!(attributes(&volume, b"s/b"), (30, 31, 0o640, 300, 301));
}

/// The name, the offset and the file of each failed command.
#[derive(Default)]
struct Failures(Vec<(String, u64, Vec<u8>)>);

impl Progress for Failures {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        if let Event::Problem(problem) = event {
            let (name, _) = problem.message.split_once(' ').unwrap();
            let path = problem.path.strip_prefix("s").unwrap();
            let path = path.as_os_str().as_bytes().to_vec();
            let offset = problem.stream_offset.unwrap();
            self.0.push((name.to_owned(), offset, path));
        }
        ControlFlow::Continue(())
    }
}

/// Receives a stream without an end, with any number of errors.
fn receive_all(stream: &[u8]) -> (Arc<Volume>, Failures) {
    let volume = open(new_device(256 * MIB));
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let mut target = VolumeTarget::new(&volume, top);
    let mut observer = Failures::default();
    let options = ReceiveOptions {
        max_errors: 0,
        ..ReceiveOptions::default()
    };
    let mut receiver = Receiver::new(&mut target, &mut observer, options);
    let received = receiver.receive(&mut StreamReader::open(stream).unwrap());
    received.unwrap_err();
    (volume, observer)
}

#[test]
fn each_command_that_fails_is_named() {
    // DEFERRED-2
    let commands = [
        mkfile(b"a", 257),
        chown(b"gone", 10),
        chmod(b"gone", 0o600),
        utimes(b"gone", 100),
        chown(b"a", 10),
        chmod(b"a", 0o600),
        utimes(b"lost", 100),
    ];
    let stream = stream_of(&commands);
    let offset = |at: usize| stream_of(&commands[..at]).len() as u64;
    // DEFERRED-1: all commands are executed, although the stream has no end.
    let (volume, failures) = receive_all(&stream);
    let wanted = [
        ("chown".to_owned(), offset(1), b"gone".to_vec()),
        ("chmod".to_owned(), offset(2), b"gone".to_vec()),
        ("utimes".to_owned(), offset(3), b"gone".to_vec()),
        ("utimes".to_owned(), offset(6), b"lost".to_vec()),
    ];
    assert_eq!(failures.0, wanted);
    let (uid, gid, mode, ..) = attributes(&volume, b"s/a");
    assert_eq!((uid, gid, mode), (10, 11, 0o600));
}

#[test]
fn first_command_that_fails_ends_it() {
    let stream = stream_of(&[
        chown(b"gone", 10),
        chmod(b"gone", 0o600),
        mkfile(b"a", 257),
        Command::End,
    ]);
    let volume = open(new_device(256 * MIB));
    let error = receive(&volume, &stream, ReceiveOptions::default()).unwrap_err();
    assert!(
        error.to_string().starts_with("chown 'gone' failed"),
        "{error}"
    );
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    assert!(volume.resolve(top, b"s/a").is_err());
}

fn mkdir(path: &[u8], number: u64) -> Command<'_> {
    let ino = InodeNr(number);
    Command::Mkdir { path, ino }
}

fn rename<'c>(path: &'c [u8], to: &'c [u8]) -> Command<'c> {
    Command::Rename { path, to }
}

fn write<'c>(path: &'c [u8], data: &'c [u8]) -> Command<'c> {
    let offset = 0;
    Command::Write { path, offset, data }
}

#[test]
fn files_that_are_made_and_renamed_have_the_second_name() {
    let stream = stream_of(&[
        mkdir(b"o257-1-0", 257),
        rename(b"o257-1-0", b"d"),
        mkfile(b"o258-1-0", 258),
        rename(b"o258-1-0", b"d/f"),
        write(b"d/f", b"first"),
        // Replaces the previous file.
        mkfile(b"o259-1-0", 259),
        rename(b"o259-1-0", b"d/f"),
        write(b"d/f", b"second one"),
        // Another file is renamed.
        mkfile(b"new", 260),
        rename(b"d/f", b"d/g"),
        mkdir(b"e", 261),
        Command::End,
    ]);
    let volume = open(new_device(256 * MIB));
    receive(&volume, &stream, ReceiveOptions::default()).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let size = |path: &[u8]| {
        let found = volume.resolve(top, path).ok()?;
        Some(volume.attr(found).unwrap().size)
    };
    assert_eq!(size(b"s/d/g"), Some(10));
    assert_eq!(size(b"s/new"), Some(0));
    assert!(size(b"s/e").is_some());
    for gone in [&b"s/o257-1-0"[..], b"s/o258-1-0", b"s/o259-1-0", b"s/d/f"] {
        assert_eq!(size(gone), None);
    }
}

#[test]
fn files_take_over_what_their_first_directory_hands_on() {
    let compression = (&b"btrfs.compression"[..], &b"zstd"[..]);
    let stream = stream_of(&[
        mkdir(b"d", 257),
        mkdir(b"plain", 258),
        chown(b"d", 70),
        mkfile(b"a", 259),
        // Already known.
        rename(b"a", b"d/a"),
        chmod(b"d", 0o2755),
        mkfile(b"b", 260),
        rename(b"b", b"d/b"),
        mkfile(b"d/c", 261),
        rename(b"d/c", b"c"),
        Command::SetXattr {
            path: b"plain",
            name: compression.0,
            value: compression.1,
        },
        mkfile(b"f", 262),
        rename(b"f", b"plain/f"),
        Command::End,
    ]);
    let volume = open(new_device(256 * MIB));
    receive(&volume, &stream, ReceiveOptions::default()).unwrap();
    let group = |path| attributes(&volume, path).1;
    assert_eq!(
        [group(b"s/d/a"), group(b"s/d/b"), group(b"s/c")],
        [0, 0, 71]
    );
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let file = volume.resolve(top, b"s/plain/f").unwrap();
    assert!(volume.xattr(file, compression.0).unwrap().is_none());
}

#[test]
fn each_of_two_failures_is_named() {
    // DEFERRED-2
    let commands = [
        mkfile(b"a", 257),
        mkfile(b"a", 258),
        rename(b"a", b"gone/a"),
        mkfile(b"gone/b", 259),
        rename(b"gone/b", b"b"),
        mkdir(b"c", 260),
    ];
    let stream = stream_of(&commands);
    let offset = |at: usize| stream_of(&commands[..at]).len() as u64;
    let (volume, failures) = receive_all(&stream);
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let wanted = [
        ("mkfile".to_owned(), offset(1), b"a".to_vec()),
        ("rename".to_owned(), offset(2), b"a".to_vec()),
        ("mkfile".to_owned(), offset(3), b"gone/b".to_vec()),
        ("rename".to_owned(), offset(4), b"gone/b".to_vec()),
    ];
    assert_eq!(failures.0, wanted);
    // DEFERRED-1
    assert!(volume.resolve(top, b"s/c").is_ok());
}

#[test]
fn small_files_have_what_follows_them() {
    let large = vec![b'l'; 5000];
    let stream = stream_of(&[
        mkfile(b"o257-1-0", 257),
        rename(b"o257-1-0", b"a"),
        write(b"a", b"small"),
        chown(b"a", 10),
        chmod(b"a", 0o4640),
        utimes(b"a", 100),
        mkfile(b"b", 258),
        write(b"b", b"head"),
        Command::Write {
            path: b"b",
            offset: 4,
            data: b" and tail",
        },
        mkfile(b"c", 259),
        write(b"c", &large),
        chmod(b"c", 0o600),
        mkfile(b"d", 260),
        chmod(b"d", 0o444),
        // The name is in use.
        mkfile(b"o261-1-0", 261),
        rename(b"o261-1-0", b"d"),
        write(b"d", b"another"),
        chown(b"d", 20),
        // No command for this file follows.
        mkfile(b"e", 262),
        chown(b"a", 30),
        Command::End,
    ]);
    let device = new_device(256 * MIB);
    let volume = open(Arc::clone(&device) as _);
    receive(&volume, &stream, ReceiveOptions::default()).unwrap();
    volume.close().unwrap();
    drop(volume);
    assert_sound(&device);
    let volume = open(device);
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let content = |path: &[u8]| {
        let file = volume.resolve(top, path).unwrap();
        let mut bytes = vec![0; volume.attr(file).unwrap().size as usize];
        assert_eq!(volume.read(file, 0, &mut bytes).unwrap(), bytes.len());
        bytes
    };
    assert_eq!(content(b"s/a"), b"small");
    assert_eq!(content(b"s/b"), b"head and tail");
    assert_eq!(content(b"s/c"), large);
    assert_eq!(content(b"s/d"), b"another");
    assert_eq!(content(b"s/e"), b"");
    assert_eq!(attributes(&volume, b"s/a"), (30, 31, 0o4640, 100, 101));
    let (uid, gid, mode, ..) = attributes(&volume, b"s/d");
    assert_eq!((uid, gid, mode), (20, 21, 0o600));
}

#[test]
fn each_command_of_a_file_that_cannot_be_made_is_named() {
    // DEFERRED-2
    let commands = [
        mkfile(b"a", 257),
        mkfile(b"gone/b", 258),
        write(b"gone/b", b"data"),
        chown(b"gone/b", 10),
        utimes(b"gone/b", 100),
        mkfile(b"c", 259),
        rename(b"c", b"gone/c"),
        write(b"gone/c", b"data"),
        chmod(b"c", 0o640),
    ];
    let stream = stream_of(&commands);
    let offset = |at: usize| stream_of(&commands[..at]).len() as u64;
    let (volume, failures) = receive_all(&stream);
    let wanted = [
        ("mkfile".to_owned(), offset(1), b"gone/b".to_vec()),
        ("write".to_owned(), offset(2), b"gone/b".to_vec()),
        ("chown".to_owned(), offset(3), b"gone/b".to_vec()),
        ("utimes".to_owned(), offset(4), b"gone/b".to_vec()),
        ("rename".to_owned(), offset(6), b"c".to_vec()),
        ("write".to_owned(), offset(7), b"gone/c".to_vec()),
    ];
    assert_eq!(failures.0, wanted);
    assert_eq!(attributes(&volume, b"s/c").2, 0o640);
}
