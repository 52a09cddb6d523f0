//! Parent and clone source selection for an unprivileged caller.
//!
//! The kernel makes a receiver open its clone sources, and only allows snapshots of its own subvolumes.
//!
//! - SOURCES-1: a subvolume that the caller cannot use appears to be missing: no error reveals it.
//!
//! Not here: permissions for the destination directory, which are checked before.

use ubtrfs_format::ids::RootId;
use ubtrfs_fs::rights::{Caller, Refused, Rights};
use ubtrfs_fs::{Error, FileId, SubvolumeInfo, Volume};

use crate::receive::parent::{find_sent, is_meant};
use crate::receive::path::TreePath;
use crate::receive::target::{Sent, TargetError};

use super::files::Files;

/// All subvolumes, read when they are first needed.
#[derive(Debug, Default)]
pub(super) struct All(Option<Vec<SubvolumeInfo>>);

impl All {
    fn read(&mut self, volume: &Volume) -> Result<&[SubvolumeInfo], Error> {
        let read = match self.0.take() {
            Some(read) => read,
            None => volume.subvolumes()?,
        };
        Ok(self.0.insert(read))
    }
}

/// The user on whose behalf sources are read.
#[derive(Debug)]
pub(super) enum Reader {
    /// Any read-only subvolume may be used.
    Anything,
    Caller {
        caller: Caller,
        /// The root directory of the caller's paths.
        top: FileId,
        /// The last file that the caller was allowed to read, because clones from one file are usually adjacent.
        readable: Option<Readable>,
    },
}

/// A file that a caller may read, and its path.
#[derive(Debug)]
pub(super) struct Readable {
    subvolume: RootId,
    path: Vec<u8>,
    file: FileId,
}

impl Reader {
    pub(super) fn new(caller: &Caller, top: FileId) -> Reader {
        if caller.is_administrator() {
            Reader::Anything
        } else {
            Reader::Caller {
                caller: caller.clone(),
                top,
                readable: None,
            }
        }
    }

    /// Forgets the cached permission.
    pub(super) fn forget(&mut self) {
        if let Reader::Caller { readable, .. } = self {
            *readable = None;
        }
    }

    /// Finds the parent subvolume of a snapshot.
    pub(super) fn find_parent(
        &self,
        volume: &Volume,
        subvolumes: &mut All,
        sent: &Sent,
    ) -> Result<Option<RootId>, TargetError> {
        self.find_in_either(volume, subvolumes, sent, |rights, root| {
            rights.read(root)?;
            rights.own(root)
        })
    }

    /// Finds the source subvolume of a clone.
    pub(super) fn find_source(
        &self,
        volume: &Volume,
        subvolumes: &mut All,
        sent: &Sent,
    ) -> Result<Option<RootId>, TargetError> {
        // Its files are opened by path, for which no directory need be readable.
        self.find_in_either(volume, subvolumes, sent, |rights, root| rights.search(root))
    }

    /// Finds a subvolume by the UUID tree, or among all if that leads to none that can be used.
    fn find_in_either(
        &self,
        volume: &Volume,
        subvolumes: &mut All,
        sent: &Sent,
        is_allowed: impl Fn(&Rights<'_>, FileId) -> Result<(), Refused>,
    ) -> Result<Option<RootId>, TargetError> {
        let of_uuid = volume.subvolumes_of_uuid(&sent.uuid)?;
        if let Ok(Some(id)) = self.find(volume, &of_uuid, sent, &is_allowed) {
            return Ok(Some(id));
        }
        self.find(volume, subvolumes.read(volume)?, sent, is_allowed)
    }

    fn find(
        &self,
        volume: &Volume,
        subvolumes: &[SubvolumeInfo],
        sent: &Sent,
        is_allowed: impl Fn(&Rights<'_>, FileId) -> Result<(), Refused>,
    ) -> Result<Option<RootId>, TargetError> {
        let Reader::Caller { caller, top, .. } = self else {
            return find_sent(subvolumes, sent, |_| true);
        };
        let rights = rights(caller, volume);
        // SOURCES-1
        let mut usable = Vec::new();
        for info in subvolumes.iter().filter(|info| is_meant(info, sent)) {
            let allowed =
                reach_subvolume(&rights, info.id, *top).and_then(|root| is_allowed(&rights, root));
            match allowed {
                Ok(()) => usable.push(info),
                Err(refused) if hides(&refused) => {}
                Err(refused) => return Err(refused.into()),
            }
        }
        find_sent(usable, sent, |_| true)
    }

    /// Finds a file of a clone source, and checks that the caller could open it.
    pub(super) fn file(
        &mut self,
        volume: &Volume,
        source: &mut Files,
        path: TreePath<'_>,
    ) -> Result<FileId, TargetError> {
        let Reader::Caller {
            caller, readable, ..
        } = self
        else {
            return source.file(volume, path);
        };
        let (subvolume, bytes) = (source.subvolume, path.as_bytes());
        let is_same = |known: &Readable| known.subvolume == subvolume && known.path == bytes;
        if let Some(known) = readable.take().filter(is_same)
            // The path may lead to another file by now.
            && source.file(volume, path).is_ok_and(|file| file == known.file)
        {
            let file = known.file;
            *readable = Some(known);
            return Ok(file);
        }
        let rights = rights(caller, volume);
        // Check before any error could reveal whether the path exists.
        rights.reach(volume.root_dir(subvolume)?, bytes)?;
        let file = source.file(volume, path)?;
        rights.read(file)?;
        *readable = Some(Readable {
            subvolume,
            path: bytes.to_vec(),
            file,
        });
        Ok(file)
    }
}

fn rights<'a>(caller: &'a Caller, volume: &'a Volume) -> Rights<'a> {
    Rights {
        caller,
        volume,
        user_subvol_rm_allowed: false,
    }
}

/// Returns the root directory of a subvolume if the caller can reach it.
fn reach_subvolume(rights: &Rights<'_>, id: RootId, top: FileId) -> Result<FileId, Refused> {
    let root = rights.volume.root_dir(id)?;
    rights.reach_up(root, top)?;
    Ok(root)
}

/// Returns whether an error makes a subvolume appear missing. It may also have been deleted concurrently.
fn hides(refused: &Refused) -> bool {
    match refused {
        Refused::Access | Refused::Permission | Refused::ReadOnly => true,
        Refused::Volume(error) => matches!(
            error,
            Error::NotFound | Error::NoSuchInode(_) | Error::NoSuchSubvolume(_)
        ),
    }
}
