//! The ioctls that create, delete and change subvolumes.

use ubtrfs_format::ids::{RootId, Transid};
use ubtrfs_format::item::RootItemFlags;
use ubtrfs_format::uuid::Uuid;
use ubtrfs_fs::{Error, FileId, FileKind, FileTime, NewInode, ReceivedFrom, Volume};
use ubtrfs_fuse_server::request::{Errno, Result};

use super::super::errno::errno;
use super::super::source::Source;
use super::args::{self, Received};
use super::{Call, Refused, refused};

impl<S: Source> Call<'_, S> {
    /// Checks that the caller may create a subvolume of this name in the directory.
    fn place_for(&self, name: &[u8]) -> Result<()> {
        self.must_be_dir()?;
        self.writing()?;
        self.must_have_room_for_news()?;
        match self.find(self.file, name)? {
            Some(_) => Err(Errno::EXIST),
            None => self.rights().add_to(self.file).map_err(refused),
        }
    }

    /// Checks that the notification queue has room, since each changed name adds a notification.
    fn must_have_room_for_news(&self) -> Result<()> {
        if self.adapter.changes.has_room_for_names() {
            Ok(())
        } else {
            Err(Errno::BUSY)
        }
    }

    /// Looks up a name that the caller has the right to look up.
    fn find(&self, dir: FileId, name: &[u8]) -> Result<Option<FileId>> {
        self.rights().search(dir).map_err(refused)?;
        Volume::lookup(self.volume, dir, name).map_err(errno)
    }

    fn entry_changed(&self, dir: FileId, name: &[u8]) -> Result<()> {
        let changes = &self.adapter.changes;
        changes.entry(dir, name);
        // Delivering it takes the directory's lock: a listing from before the change is cached by then, and dropped.
        changes.drain();
        // Also drops the cached listing: it may lack a name that the kernel has never seen.
        changes.contents(dir);
        changes.drain();
        self.adapter.sync_names(self.volume, dir)
    }

    pub(super) fn create(&self, name: &[u8]) -> Result<usize> {
        self.place_for(name)?;
        let root = NewInode {
            umask: self.caller.umask,
            uid: self.caller.uid,
            gid: self.caller.gid,
            ..NewInode::directory(0o777)
        };
        let made = self.volume.create_subvolume(self.file, name, &root);
        made.map_err(errno)?;
        self.entry_changed(self.file, name)?;
        Ok(0)
    }

    pub(super) fn snapshot(&self, name: &[u8], source: i64, read_only: bool) -> Result<usize> {
        self.must_be_dir()?;
        self.writing()?;
        let source = self.file_of(source)?;
        // The source may have been deleted while it was open.
        self.rights().own(source).map_err(refused)?;
        // As in the kernel, the open directory of a deleted subvolume still exists, but the subvolume does not.
        let absent = |error| match error {
            Error::NoSuchSubvolume(_) => Errno::NOENT,
            error => errno(error),
        };
        if self.volume.root_dir(source.root).map_err(absent)? != source {
            return Err(Errno::INVAL);
        }
        self.place_for(name)?;
        self.adapter.write_back(Some(source.root))?;
        let made = self
            .volume
            .snapshot(source.root, self.file, name, read_only);
        made.map_err(absent)?;
        self.entry_changed(self.file, name)?;
        Ok(0)
    }

    pub(super) fn destroy(&self, name: &[u8]) -> Result<usize> {
        self.must_be_dir()?;
        self.writing()?;
        let (dir, rights) = (self.file, self.rights());
        rights.search(dir).map_err(refused)?;
        self.must_have_room_for_news()?;
        let deleted = self
            .volume
            .delete_subvolume_if(dir, name, |root| rights.delete_subvolume(dir, root));
        match deleted {
            Ok(root) => self.destroyed(dir, name, root),
            Err(Refused::Volume(Error::NotASubvolume | Error::NoSuchSubvolume(_))) => {
                Err(self.is_no_subvolume(dir, name)?)
            }
            Err(error) => Err(refused(error)),
        }
    }

    /// Returns the reason why the file with this name is not deleted.
    fn is_no_subvolume(&self, dir: FileId, name: &[u8]) -> Result<Errno> {
        let rights = self.rights();
        // Users do not learn the kind of the file.
        if !self.caller.is_administrator() {
            rights.delete_subvolumes().map_err(refused)?;
            return Ok(Errno::INVAL);
        }
        let found = self.find(dir, name)?.ok_or(Errno::NOENT)?;
        rights.delete_subvolume(dir, found).map_err(refused)?;
        match self.volume.attr(found).map_err(errno)?.kind {
            FileKind::Directory => Ok(Errno::INVAL),
            _ => Ok(Errno::NOTDIR),
        }
    }

    pub(super) fn destroy_by_id(&self, id: u64) -> Result<usize> {
        self.must_be_dir()?;
        self.writing()?;
        let id = RootId(id);
        if !id.is_subvolume() || id == RootId::FS_TREE {
            return Err(Errno::INVAL);
        }
        let root = match self.volume.root_dir(id) {
            Ok(root) if root == self.adapter.root => return Err(Errno::BUSY),
            Ok(root) => root,
            Err(Error::NoSuchSubvolume(_)) => return Err(Errno::NOENT),
            Err(error) => return Err(errno(error)),
        };
        self.must_have_room_for_news()?;
        let rights = self.rights();
        let deleted = self.volume.delete_subvolume_by_id(id, |dir, root| {
            rights.search(dir)?;
            rights.delete_subvolume(dir, root)
        });
        match deleted {
            Ok(place) => self.destroyed(place.dir, &place.name, root),
            Err(Refused::Volume(Error::NoSuchSubvolume(_))) => Err(Errno::NOENT),
            Err(error) => Err(refused(error)),
        }
    }

    /// Notifies the kernel that the subvolume with this root directory no longer exists.
    fn destroyed(&self, dir: FileId, name: &[u8], root: FileId) -> Result<usize> {
        self.adapter.changes.removed(dir, name, root);
        self.entry_changed(dir, name)?;
        Ok(0)
    }

    fn is_read_only(&self) -> Result<bool> {
        let tree = self.volume.subvolume_tree(self.file.root).map_err(errno)?;
        Ok(tree.item().flags().contains(RootItemFlags::RDONLY))
    }

    pub(super) fn flags(&self) -> Result<u64> {
        self.must_be_root_dir()?;
        Ok(if self.is_read_only()? {
            args::RDONLY
        } else {
            0
        })
    }

    pub(super) fn set_flags(&self, flags: u64) -> Result<usize> {
        self.rights().own(self.file).map_err(refused)?;
        self.writing()?;
        self.must_be_root_dir()?;
        if flags & !args::RDONLY != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let read_only = flags != 0;
        if read_only != self.is_read_only()? {
            if read_only {
                self.adapter.write_back(Some(self.file.root))?;
            }
            let set = self.volume.set_read_only(self.file.root, read_only);
            set.map_err(errno)?;
        }
        Ok(0)
    }

    pub(super) fn set_default(&self, id: u64) -> Result<usize> {
        self.administer()?;
        self.writing()?;
        let id = match id {
            0 => RootId::FS_TREE,
            id => RootId(id),
        };
        match self.volume.set_default(id) {
            Ok(()) => Ok(0),
            Err(Error::NoSuchSubvolume(_) | Error::NoSuchTree(_)) => Err(Errno::NOENT),
            Err(error) => Err(errno(error)),
        }
    }

    pub(super) fn set_received(&self, mut args: Received) -> Result<Received> {
        self.rights().own(self.file).map_err(refused)?;
        self.writing()?;
        self.must_be_root_dir()?;
        let from = ReceivedFrom {
            uuid: Uuid(args.uuid),
            transid: Transid(args.stransid.get()),
            time: FileTime {
                sec: args.stime.sec.get() as i64,
                nsec: args.stime.nsec.get(),
            },
        };
        let noted = self.volume.set_received(self.file.root, &from);
        let (transid, time) = noted.map_err(errno)?;
        args.rtransid.set(transid.0);
        args.rtime.sec.set(time.sec as u64);
        args.rtime.nsec.set(time.nsec);
        Ok(args)
    }
}
