//! Our side: the library, on an image file.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{FileId, NewInode, OpenOptions, RenameMode, Volume, WriterStats};

use crate::Outcome;
use crate::side::{Name, Side};

pub(crate) struct Library {
    pub(crate) volume: Arc<Volume>,
    top: FileId,
}

/// Metadata is DUP on these single-device volumes.
const COPIES: u64 = 2;

impl Library {
    pub(crate) fn open(image: &Path, options: &OpenOptions) -> Outcome<Library> {
        let options = options.clone().writable(true);
        let volume = Volume::open(&[image.to_owned()], &options)?;
        let top = volume.root_dir(RootId::FS_TREE)?;
        Ok(Library { volume, top })
    }

    /// Returns the top directory, in the same form as `mkdir`.
    pub(crate) fn top(&self) -> FileId {
        self.top
    }

    pub(crate) fn stats(&self) -> WriterStats {
        self.volume.writer_stats().unwrap_or_default()
    }

    fn look_up(&self, dir: FileId, name: &[u8]) -> Outcome<FileId> {
        let found = self.volume.lookup(dir, name)?;
        found.ok_or_else(|| "not found".into())
    }
}

impl Side for Library {
    type Dir = FileId;
    type File = FileId;

    fn mkdir(&self, name: &Name) -> Outcome<FileId> {
        let new = NewInode::directory(0o755);
        Ok(self.volume.create(self.top, name.bytes(), &new)?)
    }

    fn rmdir(&self, name: &Name) -> Outcome {
        Ok(self.volume.rmdir(self.top, name.bytes())?)
    }

    fn create(&self, dir: &FileId, name: &Name) -> Outcome {
        let new = NewInode::file(0o644);
        self.volume.create(*dir, name.bytes(), &new)?;
        Ok(())
    }

    fn open(&self, dir: &FileId, name: &Name) -> Outcome<FileId> {
        self.look_up(*dir, name.bytes())
    }

    fn open_to_append(&self, dir: &FileId, name: &Name) -> Outcome<FileId> {
        self.open(dir, name)
    }

    fn find(&self, dir: &FileId, name: &Name) -> Outcome {
        self.look_up(*dir, name.bytes())?;
        Ok(())
    }

    fn stat_name(&self, dir: &FileId, name: &Name) -> Outcome {
        let id = self.look_up(*dir, name.bytes())?;
        self.volume.attr(id)?;
        Ok(())
    }

    fn stat(&self, file: &FileId) -> Outcome {
        self.volume.attr(*file)?;
        Ok(())
    }

    fn append(&self, file: &FileId, bytes: &[u8]) -> Outcome {
        self.volume.append(*file, bytes)?;
        Ok(())
    }

    fn write(&self, file: &FileId, offset: u64, bytes: &[u8]) -> Outcome {
        Ok(self.volume.write(*file, offset, bytes)?)
    }

    fn read(&self, file: &FileId, offset: u64, buf: &mut [u8]) -> Outcome {
        self.volume.read(*file, offset, buf)?;
        Ok(())
    }

    fn rename(&self, dir: &FileId, from: &Name, to: &Name) -> Outcome {
        let to = (*dir, to.bytes());
        Ok(self
            .volume
            .rename(*dir, from.bytes(), to, RenameMode::NoReplace)?)
    }

    fn unlink(&self, dir: &FileId, name: &Name) -> Outcome {
        Ok(self.volume.unlink(*dir, name.bytes())?)
    }

    fn list(&self, dir: &FileId, each: &mut dyn FnMut(&[u8])) -> Outcome {
        self.volume.readdir(*dir, 0, &mut |entry| {
            each(&entry.name);
            ControlFlow::Continue(())
        })?;
        Ok(())
    }

    fn sync(&self) -> Outcome {
        Ok(self.volume.sync()?)
    }

    fn written_bytes(&self) -> Outcome<u64> {
        let stats = self.stats();
        Ok(stats.node_bytes * COPIES + stats.data_bytes)
    }
}
