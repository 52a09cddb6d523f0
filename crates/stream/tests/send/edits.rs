//! Random edits of a tree on a kernel mount.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    CWD, FallocateFlags, FileType, Mode, RenameFlags, fallocate, mknodat, renameat_with,
};
use ubtrfs_sim::Rng;

use crate::attributes::acl;
use crate::fixture::btrfs;

const SECTOR: u64 = 4096;

/// Edits below one directory. Errors are ignored: an edit that fails is skipped.
pub(crate) struct Editor<'r> {
    root: PathBuf,
    /// Open files without a name.
    held: Vec<File>,
    rng: &'r mut Rng,
}

impl<'r> Editor<'r> {
    pub(crate) fn new(root: &Path, rng: &'r mut Rng) -> Editor<'r> {
        Editor {
            root: root.to_owned(),
            held: Vec::new(),
            rng,
        }
    }

    pub(crate) fn edit(&mut self, count: u64) {
        for _ in 0..count {
            let _ = self.edit_once();
        }
    }

    fn paths(&self) -> Vec<PathBuf> {
        let mut found = vec![self.root.clone()];
        let mut at = 0;
        while at < found.len() {
            if let Ok(metadata) = found[at].symlink_metadata()
                && metadata.is_dir()
            {
                let entries = fs::read_dir(&found[at]).unwrap();
                let mut below: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
                below.sort();
                found.extend(below);
            }
            at += 1;
        }
        found
    }

    fn any(&mut self, wanted: impl Fn(&fs::Metadata) -> bool) -> Option<PathBuf> {
        let mut paths = self.paths();
        paths.retain(|path| path.symlink_metadata().is_ok_and(|found| wanted(&found)));
        match paths.len() {
            0 => None,
            len => Some(paths.swap_remove(self.rng.below(len as u64) as usize)),
        }
    }

    fn file(&mut self) -> Option<PathBuf> {
        self.any(fs::Metadata::is_file)
    }

    fn dir(&mut self) -> Option<PathBuf> {
        self.any(fs::Metadata::is_dir)
    }

    fn below_root(&mut self) -> Option<PathBuf> {
        let root = self.root.clone();
        let path = self.any(|_| true)?;
        (path != root).then_some(path)
    }

    /// Chooses a name in some directory. There are few names, so that they are reused.
    fn place(&mut self) -> Option<PathBuf> {
        let dir = self.dir()?;
        let name = b'a' + self.rng.below(6) as u8;
        let long = self.rng.one_in(30);
        let name = String::from(name as char).repeat(if long { 255 } else { 1 });
        Some(dir.join(name))
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        if self.rng.one_in(2) {
            self.rng.fill(&mut bytes)
        } else {
            bytes.fill(self.rng.next_u64() as u8)
        }
        bytes
    }

    fn len(&mut self) -> u64 {
        match self.rng.below(5) {
            0 => self.rng.below(100),
            1 => self.rng.below(5000),
            2 => self.rng.below(40) * SECTOR,
            _ => self.rng.below(300_000),
        }
    }

    fn edit_once(&mut self) -> Option<()> {
        match self.rng.below(44) {
            0..=4 => fs::create_dir(self.place()?).ok(),
            5..=8 => self.create(),
            9..=12 => self.write(),
            13..=18 => fs::rename(self.below_root()?, self.place()?).ok(),
            19..=20 => self.exchange(),
            21..=22 => fs::hard_link(self.file()?, self.place()?).ok(),
            23..=25 => self.remove(),
            26 => self.make_special(),
            27 => self.set_xattr(),
            28 => self.remove_xattr(),
            29 => self.set_mode(),
            30 => self.set_owner(),
            31 => self.truncate(),
            32..=33 => self.allocate(),
            34..=36 => self.reflink(),
            37 => self.nested(),
            38 => self.replace(),
            39 => self.remove_open(),
            40..=41 => self.set_xattr(),
            42 => self.remove_xattr(),
            _ => self.touch(),
        }
    }

    fn create(&mut self) -> Option<()> {
        let (place, len) = (self.place()?, self.len());
        let bytes = self.bytes(len);
        File::create_new(place).ok()?.write_all_at(&bytes, 0).ok()
    }

    fn write(&mut self) -> Option<()> {
        let file = OpenOptions::new().write(true).open(self.file()?).ok()?;
        let size = file.metadata().ok()?.len();
        let (offset, len) = (self.rng.below(size + 20_000), self.len());
        let bytes = self.bytes(len);
        file.write_all_at(&bytes, offset).ok()?;
        if self.rng.one_in(2) {
            file.sync_all().ok()
        } else {
            Some(())
        }
    }

    fn exchange(&mut self) -> Option<()> {
        let (a, b) = (self.below_root()?, self.below_root()?);
        renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).ok()
    }

    fn remove(&mut self) -> Option<()> {
        let path = self.below_root()?;
        if path.symlink_metadata().ok()?.is_dir() {
            fs::remove_dir_all(path).ok()
        } else {
            fs::remove_file(path).ok()
        }
    }

    /// Removes an open file. The snapshot then has an inode without a name.
    fn remove_open(&mut self) -> Option<()> {
        let path = self.file()?;
        let file = File::open(&path).ok()?;
        fs::remove_file(path).ok()?;
        self.held.push(file);
        Some(())
    }

    /// Replaces a file by a directory of the same name, or vice versa.
    fn replace(&mut self) -> Option<()> {
        let path = self.below_root()?;
        if path.symlink_metadata().ok()?.is_dir() {
            fs::remove_dir_all(&path).ok()?;
            fs::write(path, b"was a directory").ok()
        } else {
            fs::remove_file(&path).ok()?;
            fs::create_dir(path).ok()
        }
    }

    fn make_special(&mut self) -> Option<()> {
        let place = self.place()?;
        let mode = Mode::from(0o640);
        let (kind, device) = match self.rng.below(5) {
            0 => return symlink(OsStr::new("../some/target"), place).ok(),
            1 => (FileType::Fifo, 0),
            2 => (FileType::Socket, 0),
            3 => (FileType::CharacterDevice, rustix::fs::makedev(259, 1000)),
            _ => (FileType::BlockDevice, rustix::fs::makedev(8, 300)),
        };
        mknodat(CWD, &place, kind, mode, device).ok()
    }

    fn xattr_name(&mut self) -> &'static str {
        let names = [
            "user.a",
            "user.b",
            "trusted.c",
            "security.capability",
            "system.posix_acl_access",
            "system.posix_acl_default",
            "btrfs.compression",
        ];
        names[self.rng.below(names.len() as u64) as usize]
    }

    fn set_xattr(&mut self) -> Option<()> {
        let path = self.any(|found| found.is_file() || found.is_dir())?;
        let name = self.xattr_name();
        let value = match name {
            // Version 2, with some bits set.
            "security.capability" => [&[1, 0, 0, 2][..], &[self.rng.next_u64() as u8; 16]].concat(),
            "btrfs.compression" => {
                [&b"zlib"[..], b"lzo", b"zstd"][self.rng.below(3) as usize].into()
            }
            name if name.starts_with("system.") => {
                acl(self.rng.below(3) as u32, self.rng.below(8) as u16)
            }
            _ => {
                let len = self.rng.below(300);
                self.bytes(len)
            }
        };
        xattr::set(path, name, &value).ok()
    }

    fn remove_xattr(&mut self) -> Option<()> {
        let path = self.any(|found| found.is_file() || found.is_dir())?;
        let name = self.xattr_name();
        xattr::remove(path, name).ok()
    }

    fn set_mode(&mut self) -> Option<()> {
        let path = self.any(|found| !found.is_symlink())?;
        let mode = self.rng.below(0o10000) as u32;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).ok()
    }

    fn set_owner(&mut self) -> Option<()> {
        let path =
            self.any(|found| found.is_file() || found.is_dir() || found.file_type().is_fifo())?;
        let (uid, gid) = (self.rng.below(3) as u32, self.rng.below(3) as u32);
        chown(path, Some(uid), Some(gid)).ok()
    }

    fn truncate(&mut self) -> Option<()> {
        let file = OpenOptions::new().write(true).open(self.file()?).ok()?;
        let size = file.metadata().ok()?.size();
        file.set_len(self.rng.below(size + 10_000)).ok()
    }

    fn allocate(&mut self) -> Option<()> {
        let file = OpenOptions::new().write(true).open(self.file()?).ok()?;
        let size = file.metadata().ok()?.size();
        let flags = match self.rng.below(4) {
            0 => FallocateFlags::empty(),
            1 => FallocateFlags::KEEP_SIZE,
            2 => FallocateFlags::ZERO_RANGE,
            _ => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        };
        let offset = self.rng.below(size + 5000);
        fallocate(&file, flags, offset, 1 + self.len()).ok()
    }

    fn reflink(&mut self) -> Option<()> {
        let from = File::open(self.file()?).ok()?;
        let to = OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.file()?)
            .ok()?;
        let (from_size, to_size) = (from.metadata().ok()?.len(), to.metadata().ok()?.len());
        from.sync_all().ok()?;
        let sectors = |rng: &mut Rng, size: u64| rng.below(size / SECTOR + 1) * SECTOR;
        let source = sectors(self.rng, from_size);
        // To the end of the file, or some sectors.
        let length = if self.rng.one_in(2) {
            0
        } else {
            sectors(self.rng, from_size - source.min(from_size))
        };
        let range = clone_range(
            &from,
            &to,
            source,
            length,
            sectors(self.rng, to_size + 9000),
        );
        range.then_some(())
    }

    fn nested(&mut self) -> Option<()> {
        let place = self.place()?;
        if place.symlink_metadata().is_ok() {
            return None;
        }
        btrfs(&["subvolume", "create"], &[&place]);
        fs::write(place.join("inner"), b"inner").ok()
    }

    fn touch(&mut self) -> Option<()> {
        let file = File::open(self.any(|found| found.is_file() || found.is_dir())?).ok()?;
        let seconds = self.rng.below(2_000_000_000);
        let time = std::time::UNIX_EPOCH + std::time::Duration::new(seconds, 123_456_789);
        file.set_times(fs::FileTimes::new().set_modified(time).set_accessed(time))
            .ok()
    }
}

/// Clones a range with FICLONERANGE, and returns whether that succeeded.
pub(crate) fn clone_range(from: &File, to: &File, source: u64, length: u64, target: u64) -> bool {
    let mut argument = Vec::new();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&from.as_fd());
    argument.extend(i64::from(fd).to_ne_bytes());
    for number in [source, length, target] {
        argument.extend(number.to_ne_bytes());
    }
    ubtrfs_sim::raw_ioctl(to, 0x4020_940d, &mut argument).is_ok()
}
