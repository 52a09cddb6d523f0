//! Subvolumes that are deleted or made writable during a send, and unreadable data.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_device::BlockDevice;
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{Error, NewInode, OpenOptions, Snapshot, Volume};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::new_volume;
use ubtrfs_stream::{
    Command, CommandSink, SendError, Sender, StreamVersion, StreamWriter, WriteError,
};

use ubtrfs_sim::kernel::available_or_skip;

use crate::fixture::{Source, V1};

const FILES: u64 = 300;

/// A stream with an interruption at one of its commands.
struct Interrupted<'i> {
    writer: StreamWriter<Vec<u8>>,
    /// Number of commands before the interruption.
    left: usize,
    interrupt: &'i dyn Fn(),
}

impl CommandSink for Interrupted<'_> {
    fn write(&mut self, command: &Command<'_>) -> Result<(), WriteError> {
        if self.left == 0 {
            (self.interrupt)();
        }
        self.left = self.left.wrapping_sub(1);
        self.writer.write(command)
    }
}

fn send(
    old: Option<&Snapshot>,
    new: &Snapshot,
    at: usize,
    interrupt: &dyn Fn(),
) -> Result<Vec<u8>, SendError> {
    let mut out = Interrupted {
        writer: StreamWriter::new(Vec::new(), StreamVersion::V1).unwrap(),
        left: at,
        interrupt,
    };
    let mut sender = Sender::new(new, V1);
    if let Some(old) = old {
        sender = sender.parent(old);
    }
    sender.send(&mut out)?;
    Ok(out.writer.into_inner())
}

fn volume() -> (Arc<Volume>, [RootId; 2]) {
    let device: Arc<dyn BlockDevice> = Arc::new(new_volume(&MkfsOptions::default(), 512 << 20));
    let options = OpenOptions::new().writable(true).commit_interval(None);
    let volume = Volume::from_devices(vec![(PathBuf::from("memory"), device)], &options).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let fill = |prefix: &str, name: &str| {
        for number in 0..FILES {
            let file = format!("{prefix} {number}");
            let file = volume
                .create(top, file.as_bytes(), &NewInode::file(0o644))
                .unwrap();
            volume.write(file, 0, &[number as u8; 10_000]).unwrap();
        }
        volume
            .snapshot(RootId::FS_TREE, top, name.as_bytes(), true)
            .unwrap()
    };
    let ids = [fill("first", "old"), fill("second", "new")];
    (volume, ids)
}

/// Deletes everything, and reuses its space.
fn delete_all(volume: &Volume) {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    for name in ["old", "new"] {
        volume.delete_subvolume(top, name.as_bytes()).unwrap();
    }
    for prefix in ["first", "second"] {
        for number in 0..FILES {
            let name = format!("{prefix} {number}");
            volume.unlink(top, name.as_bytes()).unwrap();
        }
        volume.sync().unwrap();
    }
    for number in 0..FILES {
        let name = format!("after {number}");
        let file = volume
            .create(top, name.as_bytes(), &NewInode::file(0o644))
            .unwrap();
        volume.write(file, 0, &[0xff; 20_000]).unwrap();
        if number % 50 == 0 {
            volume.sync().unwrap();
        }
    }
    volume.sync().unwrap();
}

#[test]
fn snapshots_that_are_deleted_meanwhile_are_sent_whole() {
    for with_parent in [false, true] {
        for at in [0, 1, 400] {
            let (volume, [old, new]) = volume();
            let new = Snapshot::open(&volume, new).unwrap();
            let old = with_parent.then(|| Snapshot::open(&volume, old).unwrap());
            let wanted = send(old.as_ref(), &new, usize::MAX, &|| ()).unwrap();
            let sent = send(old.as_ref(), &new, at, &|| delete_all(&volume)).unwrap();
            assert!(sent == wanted, "{with_parent}, {at}");
        }
    }
}

#[test]
fn snapshots_that_are_sent_cannot_be_made_writable() {
    let (volume, ids) = volume();
    let [old, new] = ids.map(|id| Snapshot::open(&volume, id).unwrap());
    let wanted = send(Some(&old), &new, usize::MAX, &|| ()).unwrap();
    let sent = send(Some(&old), &new, 100, &|| {
        for id in ids {
            let refused = volume.set_read_only(id, false).unwrap_err();
            assert!(matches!(refused, Error::HeldSubvolume(held) if held == id));
        }
    });
    assert!(sent.unwrap() == wanted);
    drop((old, new));
    for id in ids {
        volume.set_read_only(id, false).unwrap();
    }
}

#[test]
fn data_that_cannot_be_read_is_named() {
    if !available_or_skip() {
        return;
    }
    let mut source = Source::new("");
    let pattern = *b"a pattern that stands nowhere else";
    for (name, bytes) in [("a", [1; 34]), ("b", pattern), ("c", [2; 34])] {
        fs::write(source.live().join(name), bytes.repeat(1000)).unwrap();
    }
    source.snapshot("s");
    let files = source.close();
    let device = &files.devices()[0];
    let bytes = fs::read(device).unwrap();
    let at = bytes.windows(pattern.len()).position(|at| at == pattern);
    let writer = File::options().write(true).open(device).unwrap();
    writer.write_all_at(b"A", at.unwrap() as u64).unwrap();
    drop(writer);
    let volume = Volume::open(files.devices(), &OpenOptions::new()).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let id = volume.resolve(top, b"s").unwrap().root;
    let snapshot = Snapshot::open(&volume, id).unwrap();
    let error = send(None, &snapshot, usize::MAX, &|| ()).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("\"b\"") || error.contains("inode 258"),
        "{error}"
    );
}
