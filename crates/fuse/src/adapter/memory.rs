//! Test only: a tree in memory in place of a volume.
//!
//! Tests mount subvolume 5. Contents of files are generated from their offsets.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_format::item::InodeFlags;
use ubtrfs_fuse_server::request::{Attr, DeviceNr, Errno, FileKind, Result, StatFs, Time};

use super::source::{Child, FileId, Inode, Source};

pub(crate) const TOP: FileId = file(5, 256);

pub(crate) const fn file(root: u64, inode: u64) -> FileId {
    FileId {
        root: RootId(root),
        ino: InodeNr(inode),
    }
}

/// Returns the empty directory that replaces, in a directory, subvolumes that were not copied.
pub(crate) const fn empty_subvolume_dir_in(dir: FileId) -> FileId {
    file(dir.root.0, dir.ino.0 | 1 << 63)
}

/// Returns the byte at an offset of a file with contents. Neighbours and far bytes differ.
pub(crate) fn content_byte(offset: u64) -> u8 {
    (offset ^ offset >> 8 ^ offset >> 20).wrapping_mul(31) as u8
}

#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) inode: Inode,
    pub(crate) children: BTreeMap<u64, (Vec<u8>, FileId)>,
    pub(crate) parent: FileId,
    pub(crate) target: Vec<u8>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) files: BTreeMap<FileId, File>,
    /// Files whose inodes cannot be read.
    pub(crate) broken: Vec<FileId>,
    /// Files whose reads would block.
    pub(crate) slow: Vec<FileId>,
    /// Files whose reads panic.
    pub(crate) cursed: Vec<FileId>,
}

impl Memory {
    /// Creates a volume with an empty root directory.
    pub(crate) fn new() -> Self {
        let mut memory = Self::default();
        memory.insert(TOP, FileKind::Directory, TOP);
        memory
    }

    fn insert(&mut self, id: FileId, kind: FileKind, parent: FileId) {
        let time = |nanos| Time {
            secs: 1_700_000_000,
            nanos,
        };
        let attr = Attr {
            ino: id.ino.0,
            kind,
            permissions: if kind == FileKind::Directory {
                0o755
            } else {
                0o644
            },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: DeviceNr::default(),
            size_bytes: 0,
            blocks: 0,
            block_bytes: 4096,
            atime: time(1),
            mtime: time(2),
            ctime: time(3),
            btime: time(4),
        };
        let file = File {
            inode: Inode {
                attr,
                generation: 7,
                flags: InodeFlags::empty(),
            },
            children: BTreeMap::new(),
            parent,
            target: Vec::new(),
            xattrs: BTreeMap::new(),
        };
        self.files.entry(id).or_insert(file);
    }

    /// Adds a directory that is its own parent.
    pub(crate) fn add_top(&mut self, id: FileId) {
        self.insert(id, FileKind::Directory, id);
    }

    /// Adds a name to a directory, and creates the file unless it exists.
    pub(crate) fn add(&mut self, dir: FileId, name: &str, id: FileId, kind: FileKind) -> &mut File {
        self.insert(id, kind, dir);
        let children = &mut self
            .files
            .get_mut(&dir)
            .expect("the directory is there")
            .children;
        let index = children.last_key_value().map_or(2, |(last, _)| last + 1);
        children.insert(index, (name.into(), id));
        self.files.get_mut(&id).expect("just inserted")
    }

    fn get(&self, id: FileId) -> Result<&File> {
        if self.broken.contains(&id) {
            return Err(Errno::IO);
        }
        if self.slow.contains(&id) {
            return Err(Errno::WOULD_BLOCK);
        }
        self.files.get(&id).ok_or(Errno::UCLEAN)
    }
}

impl Source for Memory {
    fn lookup(&self, dir: FileId, name: &[u8]) -> Result<Option<FileId>> {
        let children = &self.get(dir)?.children;
        let found = children.values().find(|(child, _)| child == name);
        Ok(found.map(|(_, id)| *id))
    }

    fn inode(&self, id: FileId) -> Result<Inode> {
        Ok(self.get(id)?.inode)
    }

    fn readdir(
        &self,
        dir: FileId,
        from: u64,
        each: &mut dyn FnMut(Child<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        for (&index, (name, id)) in self.get(dir)?.children.range(from..) {
            let child = Child {
                index,
                name,
                kind: self.files[id].inode.attr.kind,
                id: *id,
            };
            if each(child).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn parent(&self, dir: FileId) -> Result<FileId> {
        Ok(self.get(dir)?.parent)
    }

    fn readlink(&self, id: FileId) -> Result<Vec<u8>> {
        Ok(self.get(id)?.target.clone())
    }

    fn xattr(&self, id: FileId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.get(id)?.xattrs.get(name).cloned())
    }

    fn xattr_names(&self, id: FileId) -> Result<Vec<Vec<u8>>> {
        Ok(self.get(id)?.xattrs.keys().cloned().collect())
    }

    fn read(&self, id: FileId, offset: u64, out: &mut [u8]) -> Result<usize> {
        assert!(!self.cursed.contains(&id), "as the test wants it");
        let size = self.get(id)?.inode.attr.size_bytes;
        let len = size.saturating_sub(offset).min(out.len() as u64) as usize;
        for (at, byte) in out[..len].iter_mut().enumerate() {
            *byte = content_byte(offset + at as u64);
        }
        Ok(len)
    }

    fn seek_data(&self, id: FileId, offset: u64) -> Result<Option<u64>> {
        let size = self.get(id)?.inode.attr.size_bytes;
        Ok((offset < size).then_some(offset))
    }

    fn seek_hole(&self, id: FileId, offset: u64) -> Result<Option<u64>> {
        let size = self.get(id)?.inode.attr.size_bytes;
        Ok((offset < size).then_some(size))
    }

    fn statfs(&self) -> Result<StatFs> {
        Ok(StatFs {
            block_bytes: 4096,
            blocks: 1000,
            blocks_free: 600,
            blocks_available: 500,
            name_max: 255,
        })
    }
}
