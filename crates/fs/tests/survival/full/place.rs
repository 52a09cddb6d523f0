//! A volume to fill: shortcuts to create files, try all operations, and empty it.

use std::ops::ControlFlow;
use std::sync::Arc;

use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{
    Fallocate, FileId, FileKind, NewInode, RenameMode, Result, SetAttr, Volume, XattrMode,
};
use ubtrfs_sim::Rng;

pub(super) struct Place {
    pub(super) volume: Arc<Volume>,
    pub(super) top: FileId,
}

impl Place {
    pub(super) fn new(volume: Arc<Volume>) -> Place {
        let top = volume.root_dir(RootId::FS_TREE).unwrap();
        Place { volume, top }
    }

    /// Returns the inode at a path.
    pub(super) fn find(&self, path: &str) -> Result<FileId> {
        self.volume.resolve(self.top, path.as_bytes())
    }

    fn split<'p>(&self, path: &'p str) -> Result<(FileId, &'p [u8])> {
        match path.rsplit_once('/') {
            Some((dir, name)) => Ok((self.find(dir)?, name.as_bytes())),
            None => Ok((self.top, path.as_bytes())),
        }
    }

    fn make(&self, path: &str, new: &NewInode<'_>) -> Result<FileId> {
        let (dir, name) = self.split(path)?;
        match self.volume.lookup(dir, name)? {
            Some(id) => Ok(id),
            None => self.volume.create(dir, name, new),
        }
    }

    /// Returns the file at a path, created if necessary.
    pub(super) fn file(&self, path: &str) -> Result<FileId> {
        self.make(path, &NewInode::file(0o644))
    }

    /// Returns the directory at a path, created if necessary.
    pub(super) fn dir(&self, path: &str) -> Result<FileId> {
        self.make(path, &NewInode::directory(0o755))
    }

    pub(super) fn subvolume(&self, path: &str) -> Result<()> {
        let (dir, name) = self.split(path)?;
        let root = NewInode::directory(0o755);
        self.volume.create_subvolume(dir, name, &root).map(drop)
    }

    pub(super) fn snapshot(&self, from: &str, to: &str) -> Result<()> {
        let source = self.find(from)?.root;
        let (dir, name) = self.split(to)?;
        self.volume.snapshot(source, dir, name, false).map(drop)
    }

    pub(super) fn link(&self, from: &str, to: &str) -> Result<()> {
        let (dir, name) = self.split(to)?;
        self.volume.link(self.find(from)?, dir, name)
    }

    /// Writes random bytes.
    pub(super) fn write(&self, path: &str, offset: u64, len_bytes: usize) -> Result<()> {
        let bytes = noise(offset ^ len_bytes as u64, len_bytes);
        self.volume.write(self.file(path)?, offset, &bytes)
    }

    /// Appends random bytes to a file.
    pub(super) fn grow(&self, path: &str, len_bytes: usize) -> Result<()> {
        let id = self.file(path)?;
        let size = self.volume.attr(id)?.size;
        self.volume.append(id, &noise(size, len_bytes)).map(drop)
    }

    pub(super) fn attribute(&self, number: u64) -> Result<()> {
        let id = self.file(&format!("attributes-{}", number / 100))?;
        let name = format!("user.{}", number % 100);
        let value = noise(number, 2500);
        self.volume
            .set_xattr(id, name.as_bytes(), &value, XattrMode::Any)
    }

    pub(super) fn name(&self, number: u64) -> Result<()> {
        self.file(&format!("name-{number}")).map(drop)
    }

    /// Returns the bytes of data and metadata on the devices.
    pub(super) fn device_bytes(&self) -> u64 {
        let infos = self.volume.profile_usages().unwrap();
        let copies = |flags: BlockGroupFlags| flags.profile().map_or(1, |p| p.copies() as u64);
        infos
            .iter()
            .map(|info| info.used * copies(info.flags))
            .sum()
    }

    /// Tries operations of every kind. Each succeeds or fails with ENOSPC, and the volume can be synced.
    pub(super) fn try_everything(&self) {
        let (volume, top) = (&self.volume, self.top);
        let file = self
            .find("rest")
            .unwrap_or_else(|_| self.find("file-1").unwrap());
        let size = volume.attr(file).unwrap().size;
        let mode = SetAttr {
            mode: Some(0o600),
            ..SetAttr::default()
        };
        let root = NewInode::directory(0o755);
        let keep = Fallocate::Reserve { keep_size: true };
        let tried: [(&str, Result<()>); 15] = [
            (
                "create",
                volume.create(top, b"a", &NewInode::file(0o644)).map(drop),
            ),
            ("mkdir", volume.create(top, b"b", &root).map(drop)),
            (
                "symlink",
                volume
                    .create(top, b"c", &NewInode::symlink(b"to"))
                    .map(drop),
            ),
            ("link", volume.link(file, top, b"d")),
            (
                "rename",
                volume.rename(top, b"d", (top, b"moved"), RenameMode::Replace),
            ),
            ("set_attr", volume.set_attr(file, &mode)),
            (
                "set_xattr",
                volume.set_xattr(file, b"user.x", &[1; 100], XattrMode::Any),
            ),
            ("append", volume.append(file, &[2; 20_000]).map(drop)),
            ("overwrite", volume.write(file, 0, &noise(1, 20_000))),
            ("write far away", volume.write(file, 1 << 40, &[3; 5000])),
            ("grow", volume.truncate(file, (1 << 41) + 1)),
            ("fallocate", volume.fallocate(file, keep, 1 << 41, 1 << 30)),
            (
                "clone",
                volume
                    .clone_range(file, 0, 4096, file, size.next_multiple_of(4096))
                    .map(drop),
            ),
            (
                "subvolume",
                volume.create_subvolume(top, b"f", &root).map(drop),
            ),
            (
                "snapshot",
                volume.snapshot(RootId::FS_TREE, top, b"g", true).map(drop),
            ),
        ];
        for (what, outcome) in tried {
            match outcome {
                Err(error) if !error.is_no_space() => panic!("{what}: {error}"),
                _ => {}
            }
            volume.fsync(file).unwrap();
        }
    }

    /// Deletes everything, and waits until its space is free.
    pub(super) fn empty(&self) -> Result<()> {
        self.empty_dir(self.top)?;
        self.volume.free_deleted_subvolumes()?;
        self.volume.sync()?;
        // Free the space of the previous commit.
        self.volume.sync()
    }

    fn empty_dir(&self, dir: FileId) -> Result<()> {
        let mut entries = Vec::new();
        self.volume.readdir(dir, 0, &mut |entry| {
            entries.push(entry);
            ControlFlow::Continue(())
        })?;
        for entry in entries {
            if entry.id.root != dir.root {
                self.volume.delete_subvolume(dir, &entry.name)?;
            } else if entry.kind == FileKind::Directory {
                self.empty_dir(entry.id)?;
                self.volume.rmdir(dir, &entry.name)?;
            } else {
                self.volume.unlink(dir, &entry.name)?;
            }
        }
        Ok(())
    }
}

/// Returns incompressible bytes.
pub(super) fn noise(seed: u64, len_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; len_bytes];
    Rng::new(seed).fill(&mut bytes);
    bytes
}
