//! Comparisons of random scripts, checked against a naive comparison that reads both snapshots completely.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use ubtrfs_device::BlockDevice;
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{
    Attr, FileId, FileKind, NewInode, OpenOptions, RenameMode, SetAttr, Snapshot, Volume, XattrMode,
};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::{Rng, new_volume};

use super::*;

const DEVICE_BYTES: u64 = 256 << 20;
const MEMORY_BYTES: usize = 1 << 20;

fn volume() -> Arc<Volume> {
    let device = new_volume(&MkfsOptions::default(), DEVICE_BYTES);
    open(&(Arc::new(device) as Arc<dyn BlockDevice>))
}

fn open(device: &Arc<dyn BlockDevice>) -> Arc<Volume> {
    let device = Arc::clone(device);
    let options = OpenOptions::new().writable(true).commit_interval(None);
    Volume::from_devices(vec![(PathBuf::from("memory"), device)], &options).unwrap()
}

fn top(volume: &Volume) -> FileId {
    volume.root_dir(RootId::FS_TREE).unwrap()
}

fn snapshot(volume: &Arc<Volume>, name: &str) -> Snapshot {
    let made = volume.snapshot(RootId::FS_TREE, top(volume), name.as_bytes(), true);
    Snapshot::open(volume, made.unwrap()).unwrap()
}

fn entries_with(old: &Snapshot, new: &Snapshot, memory_bytes: usize) -> Vec<Change> {
    let mut diff = Diff::new(old, new, memory_bytes).unwrap();
    std::iter::from_fn(|| diff.next_change().unwrap()).collect()
}

type Name = (u64, Vec<u8>);
type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// The complete contents of a snapshot.
#[derive(Default)]
struct Tree {
    names: BTreeMap<Name, u64>,
    paths: BTreeMap<Name, Vec<u8>>,
    inodes: BTreeMap<u64, (Attr, Xattrs, Vec<u8>)>,
}

impl Tree {
    fn read(snapshot: &Snapshot) -> Tree {
        let volume = snapshot.volume();
        let mut tree = Tree::default();
        let mut dirs = vec![(snapshot.root_dir(), Vec::new())];
        while let Some((dir, path)) = dirs.pop() {
            let mut listed = Vec::new();
            let each = &mut |entry| {
                listed.push(entry);
                ControlFlow::Continue(())
            };
            volume.readdir(dir, 0, each).unwrap();
            for entry in listed
                .into_iter()
                .filter(|entry| !entry.id.is_empty_subvolume_dir())
            {
                let name = (dir.ino.0, entry.name.clone());
                let at = if path.is_empty() {
                    entry.name
                } else {
                    [&path[..], b"/", &entry.name].concat()
                };
                let attr = volume.attr(entry.id).unwrap();
                let mut data = Vec::new();
                match attr.kind {
                    FileKind::Regular => {
                        data = vec![0; attr.size as usize];
                        volume.read(entry.id, 0, &mut data).unwrap();
                    }
                    FileKind::Directory => dirs.push((entry.id, at.clone())),
                    _ => {}
                }
                let xattrs = volume.xattrs(entry.id).unwrap();
                tree.inodes.insert(entry.id.ino.0, (attr, xattrs, data));
                tree.names.insert(name.clone(), entry.id.ino.0);
                tree.paths.insert(name, at);
            }
        }
        tree
    }

    fn paths_of(&self, inode: u64) -> BTreeSet<&[u8]> {
        let names = self.names.iter().filter(|(_, ino)| **ino == inode);
        names.map(|(name, _)| &self.paths[name][..]).collect()
    }
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

/// Asserts that entries equal the result of a comparison of whole trees.
fn assert_tells(entries: &[Change], old: &Tree, new: &Tree) {
    let has = |tree: &Tree, name: &Name, inode| tree.names.get(name) == Some(&inode);
    let is_kept = |inode| match (old.inodes.get(&inode), new.inodes.get(&inode)) {
        (Some(old), Some(new)) => old.0.generation == new.0.generation,
        _ => false,
    };
    let unlike = |names: &Tree, other: &Tree| -> BTreeSet<(Vec<u8>, u64)> {
        let names_only = names
            .names
            .iter()
            .filter(|(name, inode)| !has(other, name, **inode) || !is_kept(**inode));
        names_only
            .map(|(name, inode)| (names.paths[name].clone(), *inode))
            .collect()
    };
    let paths_of = |kind, path: fn(&Change) -> Option<&PathBuf>| -> BTreeSet<(Vec<u8>, u64)> {
        let of_kind = entries
            .iter()
            .filter(|entry| entry.kind == kind || entry.kind == ChangeKind::Renamed);
        of_kind
            .map(|entry| (bytes(path(entry).unwrap()), entry.ino.unwrap()))
            .collect()
    };
    let gone: BTreeSet<_> = entries
        .iter()
        .filter(|entry| matches!(entry.kind, ChangeKind::Removed | ChangeKind::Renamed))
        .map(|entry| {
            (
                bytes(entry.renamed_from.as_ref().unwrap_or(&entry.path)),
                entry.ino.unwrap(),
            )
        })
        .collect();
    assert_eq!(gone, unlike(old, new), "names that are gone");
    let come = paths_of(ChangeKind::Added, |entry| Some(&entry.path));
    assert_eq!(come, unlike(new, old), "names that came");
    for (inode, (attr, xattrs, data)) in &new.inodes {
        if !is_kept(*inode) {
            continue;
        }
        let (old_attr, old_xattrs, old_data) = &old.inodes[inode];
        let detailed: Vec<_> = entries
            .iter()
            .filter(|entry| entry.ino == Some(*inode))
            .filter(|entry| matches!(entry.kind, ChangeKind::Changed | ChangeKind::Renamed))
            .collect();
        let what = format!("inode {inode}: {detailed:?}");
        assert!(
            detailed.iter().all(|e| new
                .paths_of(*inode)
                .contains(&e.path.as_os_str().as_bytes())),
            "{what}"
        );
        let mtime = (
            attr.mtime, attr.ctime, attr.mode, attr.uid, attr.nlink, attr.size,
        );
        let old_mtime = (
            old_attr.mtime,
            old_attr.ctime,
            old_attr.mode,
            old_attr.uid,
            old_attr.nlink,
            old_attr.size,
        );
        let Some(entry) = detailed.first() else {
            assert_eq!(
                (mtime, xattrs, data),
                (old_mtime, old_xattrs, old_data),
                "{what}"
            );
            continue;
        };
        let shown = entry.new.unwrap();
        assert_eq!(
            (shown.mode, shown.uid, shown.nlink),
            (attr.mode & 0o7777, attr.uid, attr.nlink)
        );
        assert_eq!(shown.modified, SystemTime::from(attr.mtime), "{what}");
        let names = |xattrs: &[(Vec<u8>, Vec<u8>)]| -> BTreeMap<Vec<u8>, Vec<u8>> {
            xattrs.iter().cloned().collect()
        };
        let (before, after) = (names(old_xattrs), names(xattrs));
        let all: BTreeSet<_> = before.keys().chain(after.keys()).collect();
        let differing = all
            .into_iter()
            .filter(|name| before.get(*name) != after.get(*name));
        let xattrs_listed: BTreeSet<_> = detailed
            .iter()
            .flat_map(|e| &e.xattrs)
            .map(|x| x.name.as_bytes().to_vec())
            .collect();
        assert_eq!(xattrs_listed, differing.cloned().collect(), "{what}");
        let is_listed = |at: u64| {
            let mut ranges = detailed.iter().flat_map(|entry| &entry.data);
            ranges.any(|range| range.contains(&at))
        };
        for (at, byte) in data.iter().enumerate() {
            let is_same = old_data.get(at).copied().unwrap_or(0) == *byte;
            assert!(is_same || is_listed(at as u64), "byte {at} differs: {what}");
        }
    }
    assert!(entries.is_sorted_by(|a, b| a.path <= b.path), "path order");
}

/// Makes a random change. A failing operation has no effect.
fn change(volume: &Volume, rng: &mut Rng) {
    let top = top(volume);
    let dirs = [&b""[..], b"d0", b"d1", b"d2", b"d0/d1", b"d1/d0"];
    let dir = |rng: &mut Rng| {
        let path = dirs[rng.below(dirs.len() as u64) as usize];
        volume.resolve(top, path).unwrap_or(top)
    };
    let (a, b) = (dir(rng), dir(rng));
    let name = |rng: &mut Rng| {
        if rng.one_in(3) {
            format!("d{}", rng.below(3))
        } else {
            format!("f{}", rng.below(12))
        }
    };
    let (from, to) = (name(rng), name(rng));
    let (from, to) = (from.as_bytes(), to.as_bytes());
    let found = volume.lookup(a, from).ok().flatten();
    let len = 1 + rng.below(9000);
    let _ = match (rng.below(12), found) {
        (0, _) => volume
            .create(a, from, &NewInode::directory(0o755))
            .map(drop),
        (1 | 2, _) => volume.create(a, from, &NewInode::file(0o644)).map(drop),
        (3, _) => volume.rename(a, from, (b, to), RenameMode::Replace),
        (4, _) => volume.rename(a, from, (b, to), RenameMode::Exchange),
        (5, Some(file)) => volume.link(file, b, to),
        (6, _) => volume.unlink(a, from).or_else(|_| volume.rmdir(a, from)),
        (7, Some(file)) => volume.truncate(file, rng.below(40_000)),
        (8, Some(file)) => {
            let value = rng.next_u64().to_le_bytes();
            volume.set_xattr(file, b"user.x", &value, XattrMode::Any)
        }
        (9, Some(file)) => {
            let set = SetAttr {
                mode: Some(rng.below(0o1000) as u32),
                uid: Some(rng.below(4) as u32),
                ..SetAttr::default()
            };
            volume.set_attr(file, &set)
        }
        (_, Some(file)) => {
            let mut bytes = vec![0; len as usize];
            rng.fill(&mut bytes);
            volume.write(file, rng.below(50_000), &bytes)
        }
        _ => Ok(()),
    };
}

#[test]
fn it_tells_what_a_naive_comparison_tells() {
    let seed = ubtrfs_sim::seed("it_tells_what_a_naive_comparison_tells");
    let mut rng = Rng::new(seed);
    let scripts = if std::env::var_os("UBTRFS_SOAK").is_some() {
        300
    } else {
        12
    };
    let mut count = 0;
    for _ in 0..scripts {
        let volume = volume();
        for _ in 0..150 {
            change(&volume, &mut rng);
        }
        let old = snapshot(&volume, "old");
        for _ in 0..5 + rng.below(60) {
            change(&volume, &mut rng);
        }
        let new = snapshot(&volume, "new");
        let entries = entries_with(&old, &new, MEMORY_BYTES);
        let of_files: Vec<_> = entries
            .iter()
            .filter(|entry| entry.ino.is_some() && *entry.path != *"")
            .cloned()
            .collect();
        assert_tells(&of_files, &Tree::read(&old), &Tree::read(&new));
        // DIFF-1, DIFFSORT-2: a spill to a file does not change the results or their order.
        assert_eq!(entries_with(&old, &new, 300), entries);
        assert_eq!(entries_with(&old, &old, MEMORY_BYTES), []);
        count += entries.len();
    }
    assert!(count > 100, "{count} changes");
}

#[test]
fn moving_a_directory_is_one_change() {
    let volume = volume();
    let top = top(&volume);
    let dir = volume
        .create(top, b"dir", &NewInode::directory(0o755))
        .unwrap();
    for number in 0..50 {
        let name = format!("{number}");
        volume
            .create(dir, name.as_bytes(), &NewInode::file(0o644))
            .unwrap();
    }
    let old = snapshot(&volume, "old");
    volume
        .rename(top, b"dir", (top, b"moved"), RenameMode::Replace)
        .unwrap();
    let new = snapshot(&volume, "new");
    let entries = entries_with(&old, &new, MEMORY_BYTES);
    let shown: Vec<_> = entries
        .iter()
        .map(|e| (e.path.as_path(), e.kind, e.renamed_from.as_deref()))
        .collect();
    let wanted = [
        (Path::new(""), ChangeKind::Changed, None),
        (
            Path::new("moved"),
            ChangeKind::Renamed,
            Some(Path::new("dir")),
        ),
        (Path::new("old"), ChangeKind::Added, None),
    ];
    assert_eq!(shown, wanted);
}

#[test]
fn data_ranges_are_what_was_written() {
    let volume = volume();
    let file = volume
        .create(top(&volume), b"file", &NewInode::file(0o644))
        .unwrap();
    volume.write(file, 0, &vec![1; 1 << 20]).unwrap();
    let old = snapshot(&volume, "old");
    volume.write(file, 8192, &[2; 4096]).unwrap();
    volume.write(file, 1 << 20, &[2; 100]).unwrap();
    let new = snapshot(&volume, "new");
    let entries = entries_with(&old, &new, MEMORY_BYTES);
    let entry = entries
        .iter()
        .find(|entry| entry.path == Path::new("file"))
        .unwrap();
    assert_eq!(entry.data, [8192..12_288, 1 << 20..(1 << 20) + 100]);
    assert!(!entry.data_is_coarse);
}

/// Lists kind, path and former path of entries, without the root directory and subvolumes.
fn shown(entries: &[Change]) -> Vec<(ChangeKind, &str, Option<&str>)> {
    entries
        .iter()
        .filter(|entry| *entry.path != *"" && entry.ino.is_some())
        .map(|entry| {
            let from = entry.renamed_from.as_deref();
            (
                entry.kind,
                entry.path.to_str().unwrap(),
                from.map(|from| from.to_str().unwrap()),
            )
        })
        .collect()
}

#[test]
fn files_move_to_a_directory_with_the_number_of_the_first() {
    let device: Arc<dyn BlockDevice> = Arc::new(new_volume(&MkfsOptions::default(), DEVICE_BYTES));
    let first = open(&device);
    let at = top(&first);
    first.create(at, b"file", &NewInode::file(0o644)).unwrap();
    let dir = first
        .create(at, b"before", &NewInode::directory(0o755))
        .unwrap();
    let moves = |volume: &Volume, from, to| {
        volume
            .rename(from, b"file", (to, b"file"), RenameMode::Replace)
            .unwrap();
    };
    moves(&first, at, dir);
    drop(snapshot(&first, "old"));
    moves(&first, dir, at);
    first.rmdir(at, b"before").unwrap();
    first.sync().unwrap();
    drop(first);
    // After a remount, numbers above the highest existing inode are reused.
    let second = open(&device);
    let again = second
        .create(at, b"after", &NewInode::directory(0o755))
        .unwrap();
    assert_eq!(again.ino, dir.ino);
    moves(&second, at, again);
    let new = snapshot(&second, "new");
    let old = second.resolve(at, b"old").unwrap().root;
    let old = Snapshot::open(&second, old).unwrap();
    let entries = entries_with(&old, &new, MEMORY_BYTES);
    let wanted = [
        (ChangeKind::Added, "after", None),
        (ChangeKind::Renamed, "after/file", Some("before/file")),
        (ChangeKind::Removed, "before", None),
    ];
    assert_eq!(shown(&entries), wanted);
}

#[test]
fn root_directories_of_other_origin_are_compared() {
    let volume = volume();
    let roots = [0o700, 0o755].map(|mode| {
        let name = format!("{mode:o}");
        let root = NewInode::directory(mode);
        let id = volume
            .create_subvolume(top(&volume), name.as_bytes(), &root)
            .unwrap();
        volume.sync().unwrap();
        volume.set_read_only(id, true).unwrap();
        Snapshot::open(&volume, id).unwrap()
    });
    let entries = entries_with(&roots[0], &roots[1], MEMORY_BYTES);
    let [entry] = &entries[..] else {
        panic!("{entries:?}");
    };
    let modes = [&entry.old, &entry.new].map(|side| side.as_ref().unwrap().mode);
    assert_eq!((entry.kind, modes), (ChangeKind::Changed, [0o700, 0o755]));
}
