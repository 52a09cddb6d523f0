//! Differences between two unrelated subvolumes made by mkfs.

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::Timespec;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_fs::{FileId, FileKind, FileTime, OpenOptions, Snapshot, Volume};
use ubtrfs_mkfs::{
    FillOptions, Identity, Input, MkfsOptions, Scratch as MkfsScratch, SubvolumeRequest, TimeRule,
    fill,
};
use ubtrfs_sim::{Scratch, new_volume};
use ubtrfs_spill::ScratchDir;
use ubtrfs_stream::{
    Command, ReceiveOptions, Receiver, Sender, StreamReader, StreamVersion, StreamWriter,
    VolumeTarget,
};

use crate::fixture::V1;

const DEVICE_BYTES: u64 = 256 << 20;
/// The time of all files.
const SECONDS: i64 = 1_000_000_000;

/// Directories end with a slash. Names at the same index have equal lengths.
type Files = &'static [(&'static str, &'static str)];

fn volume(device: MemDevice, options: &OpenOptions) -> Arc<Volume> {
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    Volume::from_devices(vec![(PathBuf::from("memory"), device)], options).unwrap()
}

fn make_files(top: &Path, files: Files) {
    fs::create_dir(top).unwrap();
    for (path, content) in files {
        if path.ends_with('/') {
            fs::create_dir(top.join(path)).unwrap()
        } else {
            fs::write(top.join(path), content).unwrap()
        }
    }
    let time = UNIX_EPOCH + Duration::from_secs(SECONDS as u64);
    let times = FileTimes::new().set_modified(time).set_accessed(time);
    for path in files.iter().map(|(path, _)| *path).chain([""]) {
        File::open(top.join(path))
            .unwrap()
            .set_times(times)
            .unwrap();
    }
}

/// Creates a volume with read-only subvolumes `a` and `b`.
fn filled(a: Files, b: Files) -> Arc<Volume> {
    let scratch = Scratch::new().unwrap();
    let source = scratch.path().join("source");
    fs::create_dir(&source).unwrap();
    make_files(&source.join("a"), a);
    make_files(&source.join("b"), b);
    let created = Timespec {
        sec: SECONDS.into(),
        nsec: 0.into(),
    };
    let subvolume = |path: &str| SubvolumeRequest {
        path: path.into(),
        is_read_only: true,
        is_default: false,
    };
    let options = FillOptions {
        subvolumes: vec![subvolume("a"), subvolume("b")],
        times: TimeRule::Clamp(SECONDS),
        scratch: MkfsScratch::new(ScratchDir::named(scratch.path())),
        ..FillOptions::default()
    };
    let device = MemDevice::new(DEVICE_BYTES);
    let made = fill(
        &MkfsOptions::default(),
        &Identity::random(1, created),
        &[(&device, DEVICE_BYTES)],
        Input::Folder(source),
        &options,
        &mut (),
    );
    made.unwrap();
    volume(device, &OpenOptions::new())
}

fn subvolume(volume: &Volume, name: &str) -> FileId {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    volume.resolve(top, name.as_bytes()).unwrap()
}

fn snapshot(volume: &Arc<Volume>, name: &str) -> Snapshot {
    Snapshot::open(volume, subvolume(volume, name).root).unwrap()
}

fn send(snapshot: &Snapshot, parent: Option<&Snapshot>) -> Vec<u8> {
    let mut out = StreamWriter::new(Vec::new(), StreamVersion::V1).unwrap();
    let mut sender = Sender::new(snapshot, V1);
    if let Some(parent) = parent {
        sender = sender.parent(parent);
    }
    sender.send(&mut out).unwrap();
    out.write(&Command::End).unwrap();
    out.into_inner()
}

fn receive(target: &Arc<Volume>, stream: &[u8]) {
    let top = target.root_dir(RootId::FS_TREE).unwrap();
    let mut target = VolumeTarget::new(target, top);
    let mut observer = ();
    let mut receiver = Receiver::new(&mut target, &mut observer, ReceiveOptions::default());
    receiver
        .receive(&mut StreamReader::open(stream).unwrap())
        .unwrap();
}

type Shown = (u32, FileTime, FileTime, Vec<u8>);

/// Returns mode, access and modification times, and contents of each path.
fn shown(volume: &Volume, name: &str) -> BTreeMap<String, Shown> {
    let mut shown = BTreeMap::new();
    let mut left = vec![(String::new(), subvolume(volume, name))];
    while let Some((path, file)) = left.pop() {
        let attr = volume.attr(file).unwrap();
        let mut content = vec![0; attr.size as usize];
        if attr.kind == FileKind::Directory {
            content.clear();
            let each = &mut |entry: ubtrfs_fs::DirEntry| {
                let name = String::from_utf8(entry.name).unwrap();
                left.push((format!("{path}/{name}"), entry.id));
                ControlFlow::Continue(())
            };
            volume.readdir(file, 0, each).unwrap();
        } else {
            volume.read(file, 0, &mut content).unwrap();
        }
        shown.insert(path, (attr.mode, attr.atime, attr.mtime, content));
    }
    shown
}

/// Sends each subvolume as the difference from the other one.
#[track_caller]
fn check(source: &Arc<Volume>) {
    for (old_name, new_name) in [("a", "b"), ("b", "a")] {
        let (old, new) = (snapshot(source, old_name), snapshot(source, new_name));
        let device = new_volume(&MkfsOptions::default(), DEVICE_BYTES);
        let target = volume(device, &OpenOptions::new().writable(true));
        receive(&target, &send(&old, None));
        receive(&target, &send(&new, Some(&old)));
        for name in [old_name, new_name] {
            let (wanted, received) = (shown(source, name), shown(&target, name));
            assert_eq!(received, wanted, "{name} of {old_name} and {new_name}");
        }
    }
}

fn inode_item(of: &Snapshot, ino: u64) -> Vec<u8> {
    let key = Key::new(ino, KeyType::INODE_ITEM, 0);
    of.view().get(&key).unwrap().unwrap().to_vec()
}

#[test]
fn entries_of_directories_whose_inode_items_are_alike_are_sent() {
    let source = filled(
        &[
            ("dir/", ""),
            ("dir/x1", "first"),
            ("dir/x2", "same"),
            ("dir/within/", ""),
            ("one", "top"),
        ],
        &[
            ("dir/", ""),
            ("dir/y1", "other"),
            ("dir/y2", "same"),
            ("dir/beyond/", ""),
            ("two", "top"),
        ],
    );
    let (a, b) = (snapshot(&source, "a"), snapshot(&source, "b"));
    let dir = subvolume(&source, "a/dir").ino;
    assert_eq!(dir, subvolume(&source, "b/dir").ino);
    for ino in [a.root_dir().ino.0, dir.0] {
        assert_eq!(inode_item(&a, ino), inode_item(&b, ino));
    }
    check(&source);
}

#[test]
fn entries_that_only_one_directory_has_are_sent() {
    let source = filled(
        &[
            ("dir/", ""),
            ("dir/file", "a"),
            ("none/", ""),
            ("none/gone", "b"),
        ],
        &[("dir/", ""), ("none/", ""), ("none/gone", "b")],
    );
    check(&source);
    let source = filled(&[], &[("dir/", ""), ("dir/file", "a")]);
    check(&source);
}

/// The names of two directories' contents are exchanged.
#[test]
fn names_that_change_places_are_sent() {
    let source = filled(
        &[("d1/", ""), ("d1/f", "1"), ("d2/", ""), ("d2/g", "2")],
        &[("d1/", ""), ("d1/g", "1"), ("d2/", ""), ("d2/f", "2")],
    );
    check(&source);
}
