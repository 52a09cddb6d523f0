//! Operations on damaged volumes with valid checksums. Nothing panics and every call returns. Files that were
//! readable before and were not changed stay readable.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;

use ubtrfs_check::{CheckOptions, Fault, Issue, Report, check_devices};
use ubtrfs_device::BlockDevice;
use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_format::item::{InodeFlags, InodeItem, InodeRefs};
use ubtrfs_format::key::KeyType;
use ubtrfs_format::node::Node;
use ubtrfs_fs::{
    CorruptItem, Error, Fallocate, FileId, FileKind, NewInode, OpenOptions, RenameMode, Result,
    SetAttr, Volume, XattrMode,
};
use ubtrfs_sim::craft::{Crafted, mutate};
use ubtrfs_sim::{Progress, Rng, images, seed};
use zerocopy::FromBytes;

use crate::devices::{Devices, named, open, quiet};
use crate::soak::count;
use crate::watchdog::in_time;

/// A damaged directory may contain itself.
const MOST_ENTRIES: usize = 4000;
const MOST_BYTES: u64 = 1 << 20;
const OPS: u64 = 60;

/// A name in a directory.
#[derive(Clone, Debug)]
struct Entry {
    dir: FileId,
    name: Vec<u8>,
    id: FileId,
    kind: FileKind,
}

/// Returns the entries that can be found from the top.
fn entries(volume: &Volume) -> Vec<Entry> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let mut pending: Vec<FileId> = volume.root_dir(RootId::FS_TREE).into_iter().collect();
    while let Some(dir) = pending.pop() {
        if !seen.insert(dir) || found.len() > MOST_ENTRIES {
            continue;
        }
        let mut names = Vec::new();
        let _ = volume.readdir(dir, 0, &mut |entry| {
            names.push((entry.name, entry.kind));
            ControlFlow::Continue(())
        });
        for (name, kind) in names {
            let Ok(Some(id)) = volume.lookup(dir, &name) else {
                continue;
            };
            if kind == FileKind::Directory {
                pending.push(id);
            }
            found.push(Entry {
                dir,
                name,
                id,
                kind,
            });
        }
    }
    found
}

/// Returns a fingerprint of the beginning of a file, and its size.
fn content(volume: &Volume, id: FileId) -> Result<(u64, u64)> {
    let size = volume.attr(id)?.size;
    let mut bytes = vec![0; size.min(MOST_BYTES) as usize];
    let read = volume.read(id, 0, &mut bytes)?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes[..read]);
    Ok((size, hasher.finish()))
}

/// Returns the readable regular files, each with its fingerprint and size.
fn contents(volume: &Volume, entries: &[Entry]) -> BTreeMap<FileId, (u64, u64)> {
    let files = entries
        .iter()
        .filter(|entry| entry.kind == FileKind::Regular);
    let read = |entry: &Entry| Some((entry.id, content(volume, entry.id).ok()?));
    files.filter_map(read).collect()
}

/// Random changes all over an existing volume.
struct Work<'v> {
    volume: &'v Arc<Volume>,
    entries: Vec<Entry>,
    rng: Rng,
    made: u64,
    touched: BTreeSet<FileId>,
    emptied: BTreeSet<RootId>,
}

impl Work<'_> {
    fn any(&mut self, kind: FileKind) -> Option<Entry> {
        for _ in 0..20 {
            let at = self.rng.below(self.entries.len().max(1) as u64) as usize;
            if let Some(entry) = self.entries.get(at).filter(|entry| entry.kind == kind) {
                return Some(entry.clone());
            }
        }
        None
    }

    fn file(&mut self) -> Option<FileId> {
        let id = self.any(FileKind::Regular)?.id;
        self.touched.insert(id);
        Some(id)
    }

    fn dir(&mut self) -> FileId {
        let top = self.volume.root_dir(RootId::FS_TREE);
        let top = top.unwrap_or(FileId::new(RootId::FS_TREE, InodeNr(256)));
        if self.rng.one_in(3) {
            top
        } else {
            self.any(FileKind::Directory).map_or(top, |entry| entry.id)
        }
    }

    fn name(&mut self) -> Vec<u8> {
        self.made += 1;
        format!("made-{}", self.made).into_bytes()
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = [100, 5000, 150_000][self.rng.below(3) as usize];
        let mut bytes = vec![0; 1 + self.rng.below(len) as usize];
        self.rng.fill(&mut bytes);
        bytes
    }

    /// Makes a random change. Its result does not matter.
    fn step(&mut self) -> Option<Result<()>> {
        let volume = Arc::clone(self.volume);
        let offset = self.rng.below(100_000);
        Some(match self.rng.below(20) {
            0..3 => {
                let (dir, name, bytes) = (self.dir(), self.name(), self.bytes());
                volume
                    .create(dir, &name, &NewInode::file(0o644))
                    .and_then(|id| volume.write(id, 0, &bytes))
            }
            3..6 => {
                let (id, bytes) = (self.file()?, self.bytes());
                volume.write(id, offset, &bytes)
            }
            6 => volume.truncate(self.file()?, offset),
            7..9 => {
                let entry = self.any(FileKind::Regular)?;
                self.touched.insert(entry.id);
                volume.unlink(entry.dir, &entry.name)
            }
            9 => {
                let entry = self.any(FileKind::Regular)?;
                let (dir, name) = (self.dir(), self.name());
                volume.rename(entry.dir, &entry.name, (dir, &name), RenameMode::Replace)
            }
            10 => {
                let entry = self.any(FileKind::Directory)?;
                let (dir, name) = (self.dir(), self.name());
                volume.rename(entry.dir, &entry.name, (dir, &name), RenameMode::Replace)
            }
            11 => {
                let (file, dir, name) = (self.any(FileKind::Regular)?, self.dir(), self.name());
                volume.link(file.id, dir, &name)
            }
            12 => {
                let (file, value) = (self.any(FileKind::Regular)?, self.bytes());
                volume.set_xattr(file.id, b"user.made", &value, XattrMode::Any)
            }
            13 => {
                let (from, to) = (self.any(FileKind::Regular)?.id, self.file()?);
                volume.clone_range(from, 0, 65_536, to, 0).map(drop)
            }
            14 => {
                let id = self.file()?;
                let mode = match self.rng.below(3) {
                    0 => Fallocate::PunchHole,
                    1 => Fallocate::Reserve { keep_size: true },
                    _ => Fallocate::ZeroRange { keep_size: false },
                };
                volume.fallocate(id, mode, offset, 70_000)
            }
            15 => {
                let (id, set) = (
                    self.dir(),
                    SetAttr {
                        mode: Some(0o700),
                        ..SetAttr::default()
                    },
                );
                volume.set_attr(id, &set)
            }
            16 => {
                let (source, dir, name) = (self.dir().root, self.dir(), self.name());
                volume.snapshot(source, dir, &name, false).map(drop)
            }
            17 => {
                let entry = self.any(FileKind::Directory)?;
                if entry.dir.root == entry.id.root {
                    return Some(volume.rmdir(entry.dir, &entry.name));
                }
                self.emptied.insert(entry.id.root);
                volume.delete_subvolume(entry.dir, &entry.name)
            }
            18 => {
                let (dir, name) = (self.dir(), self.name());
                let file = volume.create(dir, &name, &NewInode::file(0o600));
                let nocow = |id| {
                    volume
                        .set_inode_flags(id, InodeFlags::NODATACOW)
                        .map(|()| id)
                };
                let bytes = self.bytes();
                file.and_then(nocow)
                    .and_then(|id| volume.write(id, 0, &bytes))
            }
            _ => volume.sync(),
        })
    }
}

fn check(devices: &Devices) -> std::result::Result<Report, String> {
    let options = CheckOptions {
        memory_bytes: 4 << 20,
        max_issues: 200,
        data_csums: true,
        ..CheckOptions::default()
    };
    check_devices(named(devices), &options, &mut ()).map_err(|error| error.to_string())
}

/// Returns the numbers of the faults found, and of those that follow with the next commit.
fn numbers(report: &Report) -> BTreeSet<u16> {
    let follows = |fault: &Fault| match fault {
        // The superblock counts the sum of the block groups.
        Fault::BlockGroupUsed { .. } => Some(Fault::BytesUsed {
            superblock: 0,
            found: 0,
        }),
        // A new file may get the inode number of a lost inode, and the entries leading to it.
        Fault::EntryToNothing { .. } => Some(Fault::InodeRefMissing { inode: 0, index: 0 }),
        _ => None,
    };
    let issues = report.issues.iter();
    let following = issues.filter_map(|issue| Some(follows(&issue.fault)?.number()));
    report.numbers().into_iter().chain(following).collect()
}

/// Returns the addresses of file data without an extent item. This is free space. Once it is in use, the
/// fault has another number.
fn without_item(report: &Report) -> BTreeSet<u64> {
    let issues = report.issues.iter();
    let free = issues.filter(|issue| matches!(issue.fault, Fault::DataWithoutExtent { .. }));
    free.filter_map(|issue| issue.at.bytenr).collect()
}

/// Runs operations on a damaged volume. Returns the things that became worse.
fn trial(devices: &Devices, seed: u64) -> Vec<String> {
    let reading = OpenOptions::new();
    let Ok(volume) = open(devices, &reading) else {
        // Opening it for writing must return as well.
        drop(open(devices, &quiet()).map(|volume| volume.sync()));
        return Vec::new();
    };
    let entries = entries(&volume);
    let before = contents(&volume, &entries);
    drop(volume);
    let issues = check(devices);
    let (touched, emptied) = {
        let Ok(volume) = open(devices, &quiet()) else {
            return Vec::new();
        };
        let mut work = Work {
            volume: &volume,
            entries,
            rng: Rng::new(seed),
            made: 0,
            touched: BTreeSet::new(),
            emptied: BTreeSet::new(),
        };
        for _ in 0..OPS {
            drop(work.step());
        }
        let _ = volume.free_deleted_subvolumes();
        let _ = volume.sync();
        (work.touched, work.emptied)
    };
    let mut worse = Vec::new();
    let volume = match open(devices, &reading) {
        Ok(volume) => volume,
        Err(error) => return vec![format!("opens no more: {error}")],
    };
    for (id, was) in before {
        if touched.contains(&id) || emptied.contains(&id.root) {
            continue;
        }
        match content(&volume, id) {
            Ok(is) if is == was => {}
            Ok(is) => worse.push(format!("{id:?} was {was:?} and is {is:?}")),
            Err(error) => worse.push(format!("{id:?} was read: {error}")),
        }
    }
    drop(volume);
    // Faults that follow from lost blocks are reported only in part, and not the same part afterwards.
    let judged = issues.ok().filter(|report| report.suppressed == 0);
    let had = judged
        .as_ref()
        .map(|report| (numbers(report), without_item(report)));
    match check(devices) {
        Ok(report) => {
            let is_new = |issue: &&Issue| {
                had.as_ref().is_some_and(|(numbers, free)| {
                    !numbers.contains(&issue.fault.number())
                        && !issue.at.bytenr.is_some_and(|bytenr| free.contains(&bytenr))
                })
            };
            let new = report.issues.iter().filter(is_new);
            worse.extend(new.map(ToString::to_string));
        }
        Err(error) => worse.push(error),
    }
    // Continue with the resulting volume.
    if let Ok(volume) = open(devices, &quiet()) {
        let _ = volume.sync();
    }
    worse
}

/// Returns the addresses of all blocks, tree by tree.
fn blocks(volume: &Crafted) -> Vec<u64> {
    let trees = (1..12).chain(256..265).map(RootId);
    trees
        .flat_map(|tree| (0..3).flat_map(move |level| volume.blocks_of(tree, level)))
        .collect()
}

fn devices_of(volume: &Crafted) -> Devices {
    let devices = volume.devices().into_iter();
    devices
        .map(|(_, device)| device as Arc<dyn BlockDevice>)
        .collect()
}

#[test]
fn name_that_is_listed_elsewhere_is_not_half_removed() {
    let mut volume = Crafted::load(&images::image("crc32c-zstd").unwrap().devices);
    let mut found = None;
    volume.edit_leaves(RootId::FS_TREE, |items| {
        let mut is_file = false;
        for (key, bytes) in items.iter_mut() {
            if let (KeyType::INODE_ITEM, Ok(item)) =
                (key.item_type, InodeItem::ref_from_bytes(bytes))
            {
                is_file = FileKind::from_mode(item.mode.get()) == Some(FileKind::Regular);
            }
            if found.is_none() && is_file && key.item_type == KeyType::INODE_REF {
                let name = InodeRefs::new(bytes).next().unwrap().name.to_vec();
                found = Some((key.offset, name));
                bytes[..8].copy_from_slice(&(1u64 << 40).to_le_bytes());
                return true;
            }
        }
        false
    });
    let (dir, name) = found.expect("a file");
    let volume = open(&devices_of(&volume), &quiet()).unwrap();
    let dir = FileId::new(RootId::FS_TREE, InodeNr(dir));
    let refused = volume.unlink(dir, &name);
    let what = CorruptItem::NotListed;
    assert!(
        matches!(refused, Err(Error::Corrupt { what: found, .. }) if found == what),
        "{refused:?}"
    );
    assert!(volume.lookup(dir, &name).unwrap().is_some());
}

#[test]
fn volume_whose_device_extents_are_not_its_chunks_is_only_read() {
    let mut volume = Crafted::load(&images::image("crc32c-zstd").unwrap().devices);
    let changed = volume.edit_leaves(RootId::DEV_TREE, |items| {
        let extent = items
            .iter_mut()
            .rfind(|(key, _)| key.item_type == KeyType::DEV_EXTENT);
        extent.is_some_and(|(key, _)| {
            key.offset += 1 << 20;
            true
        })
    });
    assert!(changed > 0);
    let devices = devices_of(&volume);
    let refused = open(&devices, &quiet()).map(drop);
    assert!(matches!(refused, Err(Error::Unwritable(_))), "{refused:?}");
    open(&devices, &OpenOptions::new()).unwrap();
}

fn mutated_volumes_survive(name: &str, rounds: usize) {
    let seed = seed(&format!("damaged, {name}"));
    let sound = Crafted::load(&images::image(name).unwrap().devices);
    let blocks = blocks(&sound);
    let mut failures = String::new();
    let progress = Progress::new(format!("damaged, {name}"), rounds);
    for round in 0..rounds as u64 {
        let mut rng = Rng::new(seed.wrapping_add(round));
        let mut volume = sound.clone();
        let mut what = format!("{name}, UBTRFS_SEED={}:", seed.wrapping_add(round));
        for _ in 0..1 + rng.below(3) {
            let bytenr = blocks[rng.below(blocks.len() as u64) as usize];
            let mut block = volume.block(bytenr);
            mutate(&mut block, &mut rng);
            volume.put_block(bytenr, &mut block);
            let node = Node::new(&block).unwrap();
            what += &format!(
                " block {bytenr} of tree {} on level {}",
                node.owner(),
                node.level()
            );
        }
        let devices = devices_of(&volume);
        let seed = rng.next_u64();
        let worse = in_time(&what, move || trial(&devices, seed));
        if !worse.is_empty() {
            failures += &format!("{what}\n  {}\n", worse.join("\n  "));
        }
        progress.step(|| &what);
    }
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn mutated_blocks_of_one_device() {
    mutated_volumes_survive("crc32c-zstd", count(2, 1000));
}

#[test]
fn mutated_blocks_of_mirrors() {
    mutated_volumes_survive("raid1", count(2, 500));
}

#[test]
fn mutated_blocks_of_old_features() {
    mutated_volumes_survive("sha256-zlib-oldest", count(2, 1000));
}

#[test]
fn mutated_blocks_of_mixed_groups() {
    mutated_volumes_survive("xxhash-lzo-4k-mixed", count(2, 1000));
}
