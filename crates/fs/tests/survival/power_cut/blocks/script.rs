//! Random operations that change the contents of files or their form on disk, with commits that leave
//! buffered data behind.

use std::sync::Arc;

use ubtrfs_format::compress::{Compression, compress};
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_fs::{EncodedData, Error, Fallocate, FileId, NewInode, Volume, XattrMode};
use ubtrfs_sim::Rng;
use ubtrfs_sim::oracle::Mark;
use ubtrfs_sim::record::Recorder;

use super::versions::{Versions, grown, with_bytes};

/// In marks, a file's number serves as the thread number, as each file may be synced alone.
pub(super) const NAMES: [&[u8]; 5] = [b"in place", b"small", b"small as well", b"long", b"other"];
/// The file without copy on write.
pub(super) const IN_PLACE: usize = 0;
/// The files that usually have inline data.
const SMALL: [usize; 2] = [1, 2];
const SECTOR: u64 = 4096;
/// No operation begins beyond this offset.
const FILE_BYTES: u64 = 160_000;
/// The largest part of a small file that an operation changes.
const SMALL_BYTES: u64 = 6_000;
const LONG_BYTES: u64 = 60_000;

/// A script in progress.
pub(super) struct Script<'a> {
    volume: &'a Arc<Volume>,
    recorder: &'a Recorder,
    top: FileId,
    files: [FileId; NAMES.len()],
    pub(super) versions: [Versions; NAMES.len()],
    rng: Rng,
    ops: usize,
}

/// Commits without writing back buffered data.
pub(super) fn commit_without_data(volume: &Volume, name: &[u8]) {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    match volume.resolve(top, name) {
        Ok(_) => volume.delete_subvolume(top, name).unwrap(),
        Err(_) => {
            let new = NewInode::directory(0o755);
            volume.create_subvolume(top, name, &new).map(drop).unwrap();
        }
    }
}

impl<'a> Script<'a> {
    /// Creates the files, durable and empty.
    pub(super) fn begin(volume: &'a Arc<Volume>, recorder: &'a Recorder, seed: u64) -> Script<'a> {
        let top = volume.root_dir(RootId::FS_TREE).unwrap();
        let files = NAMES.map(|name| volume.create(top, name, &NewInode::file(0o600)).unwrap());
        let flags = InodeFlags::NODATACOW;
        volume.set_inode_flags(files[IN_PLACE], flags).unwrap();
        volume.sync().unwrap();
        for thread in 0..NAMES.len() as u8 {
            recorder.mark(Mark::Durable { thread, ops: 0 });
        }
        Script {
            volume,
            recorder,
            top,
            files,
            versions: std::array::from_fn(|_| Versions::new()),
            rng: Rng::new(seed),
            ops: 0,
        }
    }

    /// Runs one operation, usually followed by a commit.
    pub(super) fn step(&mut self) {
        self.ops += 1;
        for thread in 0..NAMES.len() as u8 {
            let ops = self.ops;
            self.recorder.mark(Mark::Started { thread, ops });
        }
        let file = self.any_file();
        match self.rng.below(24) {
            0..4 => self.write(file),
            4 => self.make_small(),
            5..7 => self.write_direct(file),
            7 => self.write_encoded(file),
            8..10 => self.truncate(file),
            10..13 => self.fallocate(file),
            13..17 => self.clone_range(file),
            17 => self.copy_range(file),
            18 => self.dedupe(file),
            19 => self.set_property(file),
            20..23 => self.sync(file),
            _ => self.snapshot(),
        }
        if !self.rng.one_in(3) {
            commit_without_data(self.volume, b"commit");
        }
    }

    fn any_file(&mut self) -> usize {
        self.rng.below(NAMES.len() as u64) as usize
    }

    fn size(&self, file: usize) -> u64 {
        self.versions[file].latest().len() as u64
    }

    /// Returns an offset in the file or slightly beyond its end.
    fn offset(&mut self, file: usize) -> u64 {
        let size = self.size(file);
        let offset = match self.rng.below(4) {
            0 => 0,
            1 => size,
            2 => self.rng.below(size + 1),
            _ => self.rng.below(size + 2 * SECTOR),
        };
        offset
            % if is_small(file) {
                SMALL_BYTES
            } else {
                FILE_BYTES
            }
    }

    /// Returns the source of a clone: usually a small file, because it has inline data.
    fn any_source(&mut self) -> usize {
        if self.rng.one_in(3) {
            return self.any_file();
        }
        SMALL[self.rng.below(2) as usize]
    }

    fn len(&mut self, file: usize) -> u64 {
        let most = if is_small(file) {
            SMALL_BYTES
        } else {
            LONG_BYTES
        };
        match self.rng.below(4) {
            0 => 1 + self.rng.below(100),
            1 => 1 + self.rng.below(SMALL_BYTES),
            2 => SECTOR * (1 + self.rng.below(4)),
            _ => 1 + self.rng.below(most),
        }
    }

    /// Returns bytes that no other operation writes, compressible or not.
    fn bytes(&mut self, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        if self.rng.one_in(3) {
            self.rng.fill(&mut bytes);
            return bytes;
        }
        let pattern = self.rng.next_u64().to_le_bytes();
        let pattern = pattern.iter().cycle();
        bytes
            .iter_mut()
            .zip(pattern)
            .for_each(|(to, from)| *to = *from);
        bytes
    }

    fn push(&mut self, file: usize, made_by: impl Into<String>, contents: Vec<u8>) {
        self.versions[file].push(self.ops, made_by, contents);
    }

    /// Adds the version with `bytes` at `offset`. An operation may first extend the file to `offset`.
    fn note_bytes(&mut self, file: usize, made_by: &str, offset: u64, bytes: &[u8]) {
        let before = Arc::clone(self.versions[file].latest());
        if offset as usize > before.len() {
            self.push(file, made_by, grown(&before, offset as usize));
        }
        let made_by = format!("{made_by} of {} bytes at {offset}", bytes.len());
        self.push(file, made_by, with_bytes(&before, offset as usize, bytes));
    }

    /// Makes a file short enough for inline data.
    fn make_small(&mut self) {
        let file = SMALL[self.rng.below(2) as usize];
        let len = 1 + self.rng.below(SECTOR);
        let bytes = self.bytes(len);
        self.push(file, "truncate", Vec::new());
        self.note_bytes(file, "write", 0, &bytes);
        let id = self.files[file];
        self.volume.truncate(id, 0).unwrap();
        self.volume.write(id, 0, &bytes).unwrap();
    }

    fn write(&mut self, file: usize) {
        let (offset, len) = (self.offset(file), self.len(file));
        let bytes = self.bytes(len);
        self.note_bytes(file, "write", offset, &bytes);
        self.volume.write(self.files[file], offset, &bytes).unwrap();
    }

    fn write_direct(&mut self, file: usize) {
        let offset = self.offset(file) / SECTOR * SECTOR;
        let len = self.len(file).next_multiple_of(SECTOR);
        let bytes = self.bytes(len);
        self.note_bytes(file, "direct write", offset, &bytes);
        let id = self.files[file];
        self.volume.write_direct(id, offset, &bytes).unwrap();
    }

    fn write_encoded(&mut self, file: usize) {
        let offset = self.offset(file) / SECTOR * SECTOR;
        let len = self.len(file);
        let bytes = vec![self.rng.next_u64() as u8; len as usize];
        let kinds = [Compression::Zlib, Compression::Lzo, Compression::Zstd];
        let compression = kinds[self.rng.below(3) as usize];
        let mut stored = Vec::new();
        let sector = SECTOR as usize;
        if !compress(compression, 0, &bytes, &mut stored, sector, false).unwrap() {
            return;
        }
        let data = EncodedData {
            compression,
            bytes: &stored,
            ram_bytes: len,
            part: 0..len,
        };
        let before = self.versions[file].clone();
        self.note_bytes(file, "encoded write", offset, &bytes);
        let id = self.files[file];
        if !self.volume.write_encoded(id, offset, &data).unwrap() {
            self.versions[file] = before;
        }
    }

    fn truncate(&mut self, file: usize) {
        let size = match self.rng.below(4) {
            0 => self.rng.below(SMALL_BYTES),
            1 => self.size(file) + self.rng.below(2 * SECTOR),
            _ => self.rng.below(self.size(file) + 1),
        };
        let mut contents = self.versions[file].latest().to_vec();
        contents.resize(size as usize, 0);
        self.push(file, "truncate", contents);
        self.volume.truncate(self.files[file], size).unwrap();
    }

    fn fallocate(&mut self, file: usize) {
        let (offset, len) = (self.offset(file), self.len(file));
        let keep_size = self.rng.one_in(2);
        let mode = match self.rng.below(4) {
            0 => Fallocate::Reserve { keep_size },
            1 => Fallocate::ZeroRange { keep_size },
            _ => Fallocate::PunchHole,
        };
        let mut contents = self.versions[file].latest().to_vec();
        let old_end = contents.len();
        let range = (offset as usize).min(old_end)..((offset + len) as usize).min(old_end);
        if !matches!(mode, Fallocate::Reserve { .. }) {
            contents[range].fill(0);
            self.push(file, format!("{mode:?} at {offset}"), contents.clone());
        }
        if mode != Fallocate::PunchHole && !keep_size {
            let contents = grown(&contents, (offset + len) as usize);
            self.push(file, format!("{mode:?}"), contents);
        }
        let id = self.files[file];
        self.volume.fallocate(id, mode, offset, len).unwrap();
    }

    /// Returns a range of a file in whole sectors, or one that ends with the file. Returns None if the file
    /// is empty.
    fn part_to_share(&mut self, file: usize) -> Option<(u64, u64)> {
        let size = self.size(file);
        let from = if self.rng.one_in(2) {
            0
        } else {
            self.rng.below(size + 1) / SECTOR * SECTOR
        };
        let sectors = (size - from) / SECTOR;
        let len = if self.rng.one_in(2) || sectors == 0 {
            size - from
        } else {
            SECTOR * (1 + self.rng.below(sectors))
        };
        (len > 0).then_some((from, len))
    }

    fn clone_range(&mut self, dst: usize) {
        let src = self.any_source();
        let Some((from, len)) = self.part_to_share(src) else {
            return;
        };
        let to = self.offset(dst) / SECTOR * SECTOR;
        let bytes = self.versions[src].latest()[from as usize..][..len as usize].to_vec();
        let before = self.versions[dst].clone();
        self.note_bytes(dst, "clone", to, &bytes);
        let ids = (self.files[src], self.files[dst]);
        match self.volume.clone_range(ids.0, from, len, ids.1, to) {
            Ok(cloned) => assert_eq!(cloned, len),
            Err(error) => {
                assert!(cannot_share(&error), "{error}");
                self.versions[dst] = before;
            }
        }
    }

    fn copy_range(&mut self, dst: usize) {
        let src = self.any_source();
        let (from, to) = (self.offset(src), self.offset(dst));
        let len = self.len(src).min(self.size(src).saturating_sub(from));
        let bytes = match self.versions[src].latest().get(from as usize..) {
            Some(bytes) if len > 0 => bytes[..len as usize].to_vec(),
            _ => return,
        };
        let before = self.versions[dst].clone();
        self.note_bytes(dst, "copy", to, &bytes);
        let ids = (self.files[src], self.files[dst]);
        match self.volume.copy_range(ids.0, from, len, ids.1, to) {
            Ok(copied) => assert_eq!(copied, len),
            Err(error) => {
                assert!(cannot_share(&error), "{error}");
                self.versions[dst] = before;
            }
        }
    }

    /// Copies a range of a file by writing it, and then deduplicates it.
    fn dedupe(&mut self, dst: usize) {
        let src = self.any_source();
        let Some((from, len)) = self.part_to_share(src) else {
            return;
        };
        let to = self.offset(dst) / SECTOR * SECTOR;
        let bytes = self.versions[src].latest()[from as usize..][..len as usize].to_vec();
        self.note_bytes(dst, "dedupe", to, &bytes);
        let (src, dst) = (self.files[src], self.files[dst]);
        self.volume.write(dst, to, &bytes).unwrap();
        if self.rng.one_in(2) {
            commit_without_data(self.volume, b"commit");
        }
        match self.volume.dedupe_range(src, from, len, dst, to) {
            Ok(_) => {}
            // The copy may have overwritten its own source, which then ends elsewhere.
            Err(error) => assert!(cannot_share(&error), "{error}"),
        }
    }

    fn set_property(&mut self, file: usize) {
        if file == IN_PLACE {
            return;
        }
        let values: [&[u8]; 5] = [b"zlib", b"lzo", b"zstd", b"none", b""];
        let value = values[self.rng.below(5) as usize];
        let (id, name) = (self.files[file], b"btrfs.compression");
        let any = XattrMode::Any;
        self.volume.set_xattr(id, name, value, any).unwrap();
    }

    fn sync(&mut self, file: usize) {
        let durable = |file: usize| {
            let (thread, ops) = (file as u8, self.ops);
            self.recorder.mark(Mark::Durable { thread, ops });
        };
        if self.rng.one_in(3) {
            self.volume.sync().unwrap();
            (0..NAMES.len()).for_each(durable);
            return;
        }
        if self.rng.one_in(2) {
            self.volume.fsync(self.files[file]).unwrap();
        } else {
            self.volume.fdatasync(self.files[file]).unwrap();
        }
        let (thread, ops) = (file as u8, self.ops);
        self.recorder.mark(Mark::Durable { thread, ops });
    }

    fn snapshot(&mut self) {
        let name = b"snapshot";
        if self.volume.resolve(self.top, name).is_ok() {
            self.volume.delete_subvolume(self.top, name).unwrap();
        }
        self.volume
            .snapshot(RootId::FS_TREE, self.top, name, true)
            .unwrap();
    }
}

fn is_small(file: usize) -> bool {
    SMALL.contains(&file)
}

/// Returns whether two ranges cannot share extents, by the kernel's rules.
fn cannot_share(error: &Error) -> bool {
    matches!(
        error,
        Error::CsumsDiffer | Error::Invalid(_) | Error::Unaligned
    )
}
