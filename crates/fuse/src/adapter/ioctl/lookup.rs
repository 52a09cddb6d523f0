//! The ioctls that look up names of inodes and subvolumes, and subvolume attributes.

use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_format::item::{RootRef, Timespec};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_fs::{Error, FileId};
use ubtrfs_fuse_server::request::{Errno, Result};
use zerocopy::FromZeros;

use super::super::errno::errno;
use super::super::source::Source;
use super::args::{self, InoLookup, InoLookupUser, Rootref, SubvolInfo, SubvolRootref};
use super::{Call, put, refused};

impl<S: Source> Call<'_, S> {
    /// Returns the path of an inode from the root of its subvolume, with a slash at its end.
    pub(super) fn ino_lookup(&self, mut args: InoLookup) -> Result<InoLookup> {
        let is_root_dir = args.objectid.get() == InodeNr::FIRST_FREE.0;
        if !is_root_dir {
            self.administer()?;
        }
        if args.treeid.get() == 0 {
            args.treeid.set(self.file.root.0);
        }
        if is_root_dir {
            put(&mut args.name, b"")?;
            return Ok(args);
        }
        let file = FileId::new(RootId(args.treeid.get()), InodeNr(args.objectid.get()));
        let mut path = match self.volume.inode_paths(file) {
            Ok(paths) => paths.into_iter().next().ok_or(Errno::NOENT)?,
            Err(Error::NoSuchSubvolume(_) | Error::NoSuchInode(_) | Error::NoSuchTree(_)) => {
                return Err(Errno::NOENT);
            }
            Err(error) => return Err(errno(error)),
        };
        path.push(b'/');
        put(&mut args.name, &path)?;
        Ok(args)
    }

    /// Returns the name of a subvolume and the path of its parent directory, relative to the directory of the ioctl.
    /// The caller must be able to read all directories above that parent.
    pub(super) fn ino_lookup_user(&self, mut args: InoLookupUser) -> Result<InoLookupUser> {
        let dir = FileId::new(self.file.root, InodeNr(args.dirid.get()));
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut at = dir;
        while at != self.file {
            // The top is above every directory that a caller can name.
            if self.volume.root_dir(at.root).map_err(errno)? == at {
                return Err(Errno::ACCES);
            }
            let (parent, name) = match self.volume.directory_name(at) {
                Err(Error::NoSuchInode(_) | Error::Corrupt { .. }) => return Err(Errno::NOENT),
                found => found.map_err(errno)?,
            };
            self.rights().read_and_search(parent).map_err(refused)?;
            names.push(name);
            at = parent;
            if names.len() > args.path.len() {
                return Err(Errno::NAMETOOLONG);
            }
        }
        let mut path = Vec::new();
        for name in names.iter().rev() {
            path.extend_from_slice(name);
            path.push(b'/');
        }
        put(&mut args.path, &path)?;
        let place = match self.volume.subvolume_place(RootId(args.treeid.get())) {
            Err(Error::NoSuchSubvolume(_)) => return Err(Errno::NOENT),
            place => place.map_err(errno)?.ok_or(Errno::NOENT)?,
        };
        if place.dir != dir {
            return Err(Errno::NOENT);
        }
        put(&mut args.name, &place.name)?;
        Ok(args)
    }

    pub(super) fn subvol_info(&self) -> Result<SubvolInfo> {
        let id = self.file.root;
        let tree = self.volume.subvolume_tree(id).map_err(errno)?;
        let item = tree.item();
        let mut info = SubvolInfo::new_zeroed();
        info.treeid.set(id.0);
        if let Some(place) = self.volume.subvolume_place(id).map_err(errno)? {
            put(&mut info.name, &place.name)?;
            info.parent_id.set(place.dir.root.0);
            info.dirid.set(place.dir.ino.0);
        }
        info.generation.set(item.generation.get());
        info.flags.set(item.flags.get());
        info.uuid = item.uuid.0;
        info.parent_uuid = item.parent_uuid.0;
        info.received_uuid = item.received_uuid.0;
        info.ctransid.set(item.ctransid.get());
        info.otransid.set(item.otransid.get());
        info.stransid.set(item.stransid.get());
        info.rtransid.set(item.rtransid.get());
        info.ctime = timespec(&item.ctime);
        info.otime = timespec(&item.otime);
        info.stime = timespec(&item.stime);
        info.rtime = timespec(&item.rtime);
        Ok(info)
    }

    /// Lists the subvolumes right below the file's subvolume, from an id on. Returns whether the list is complete.
    pub(super) fn subvol_rootref(&self, mut args: SubvolRootref) -> Result<(SubvolRootref, bool)> {
        let failed = |error| errno(Error::Tree(error));
        let (id, from) = (self.file.root.0, args.min_treeid.get());
        let roots = self.volume.root_tree();
        let mut cursor = roots.cursor();
        let key = Key::new(id, KeyType::ROOT_REF, from);
        let mut is_there = cursor.seek(&key).map_err(failed)?;
        let (mut found, mut is_all) = (0, true);
        while is_there && let Some((key, bytes)) = cursor.current() {
            if key.objectid != id || key.item_type != KeyType::ROOT_REF {
                break;
            }
            let Some(slot) = args.rootref.get_mut(found) else {
                is_all = false;
                break;
            };
            let dirid = RootRef::decode(bytes).ok_or(Errno::UCLEAN)?.dirid;
            *slot = Rootref {
                treeid: key.offset.into(),
                dirid: dirid.into(),
            };
            args.min_treeid.set(key.offset.saturating_add(1));
            found += 1;
            is_there = cursor.advance().map_err(failed)?;
        }
        args.num_items = found as u8;
        Ok((args, is_all))
    }
}

fn timespec(time: &Timespec) -> args::Timespec {
    args::Timespec {
        sec: (time.sec.get() as u64).into(),
        nsec: time.nsec.get().into(),
        padding: 0.into(),
    }
}
