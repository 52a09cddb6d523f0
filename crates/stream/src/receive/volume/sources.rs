//! Subvolumes and files that a stream may go on from and copy from, for a caller with fewer rights.
//!
//! The kernel has a receiver open what it clones from, and lets it snapshot its own subvolumes alone.
//!
//! - SOURCES-1: a subvolume that the caller cannot use is as if it was not there: no error tells of it.
//!
//! Not here: rights to the directory that is received into, which are asked before.

use ubtrfs_engine::rights::{Caller, Refused, Rights};
use ubtrfs_engine::{Error, FileId, SubvolumeInfo, Volume};
use ubtrfs_format::ids::RootId;

use crate::receive::parent::{find_sent, is_meant};
use crate::receive::path::TreePath;
use crate::receive::target::{Sent, TargetError};

use super::files::Files;

/// The user for whom sources are read.
#[derive(Debug)]
pub(super) enum Reader {
    /// Any read-only subvolume may be used.
    Anything,
    Caller {
        caller: Caller,
        /// The directory in which paths of the caller begin.
        top: FileId,
        /// The file that the caller was last found to be allowed to read. Clones from one file follow each other.
        readable: Option<Readable>,
    },
}

/// A file that a caller may read, and the path that led to it.
#[derive(Debug)]
pub(super) struct Readable {
    subvolume: RootId,
    path: Vec<u8>,
    file: FileId,
}

impl Reader {
    pub(super) fn new(caller: &Caller, top: FileId) -> Reader {
        match caller.is_administrator() {
            true => Reader::Anything,
            false => Reader::Caller {
                caller: caller.clone(),
                top,
                readable: None,
            },
        }
    }

    /// Forgets what was found to be allowed.
    pub(super) fn forget(&mut self) {
        if let Reader::Caller { readable, .. } = self {
            *readable = None;
        }
    }

    /// Finds the subvolume that a snapshot is made of.
    pub(super) fn find_parent(
        &self,
        volume: &Volume,
        subvolumes: &[SubvolumeInfo],
        sent: &Sent,
    ) -> Result<Option<RootId>, TargetError> {
        self.find(volume, subvolumes, sent, |rights, root| {
            rights.read(root)?;
            rights.own(root)
        })
    }

    /// Finds the subvolume that files are cloned from.
    pub(super) fn find_source(
        &self,
        volume: &Volume,
        subvolumes: &[SubvolumeInfo],
        sent: &Sent,
    ) -> Result<Option<RootId>, TargetError> {
        // Its files are opened by path, for which no directory need be readable.
        self.find(volume, subvolumes, sent, |rights, root| rights.search(root))
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

    /// Finds a file of a source, and checks that the caller could open it.
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
        // Before anything tells whether the path is there.
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

/// Returns the root directory of a subvolume that the caller can get to.
fn reach_subvolume(rights: &Rights<'_>, id: RootId, top: FileId) -> Result<FileId, Refused> {
    let root = rights.volume.root_dir(id)?;
    rights.reach_up(root, top)?;
    Ok(root)
}

/// Returns whether a subvolume is not there for the caller. It may also have been deleted meanwhile.
fn hides(refused: &Refused) -> bool {
    match refused {
        Refused::Access | Refused::Permission | Refused::ReadOnly => true,
        Refused::Volume(error) => matches!(
            error,
            Error::NotFound | Error::NoSuchInode(_) | Error::NoSuchSubvolume(_)
        ),
    }
}
