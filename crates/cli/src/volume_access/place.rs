//! A name in a directory of a volume, existing or not.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ubtrfs::{Dir, Metadata, Subvolume};

use crate::volume_access::reason::{Reason, Reasoned};

#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    #[error("it is not the name of a file")]
    NoName,
    #[error("not a directory")]
    NotADirectory,
    #[error("no such file or directory")]
    NotFound,
    #[error(transparent)]
    Library(#[from] Reason),
}

/// A name in an open directory.
#[derive(Clone, Debug)]
pub(crate) struct NameIn {
    pub(crate) dir: Dir,
    pub(crate) name: OsString,
    /// Whether the name exists.
    pub(crate) is_taken: bool,
}

impl NameIn {
    /// Looks up the last name of `path`, in the directory opened by `open`.
    pub(crate) fn of(
        path: &[u8],
        open: impl FnOnce(&Path) -> ubtrfs::Result<Dir>,
    ) -> Result<NameIn, PlaceError> {
        let (dir, name) = split(path).ok_or(PlaceError::NoName)?;
        let dir = open(Path::new(OsStr::from_bytes(dir))).reason()?;
        let (place, file) = NameIn::found(dir, name)?;
        match file {
            Some(file) if path.ends_with(b"/") && !file.is_dir() => Err(PlaceError::NotADirectory),
            _ => Ok(place),
        }
    }

    pub(crate) fn in_directory(dir: Dir, name: &[u8]) -> Result<NameIn, Reason> {
        NameIn::found(dir, name).map(|(place, _)| place)
    }

    /// Looks up a name and its file.
    fn found(dir: Dir, name: &[u8]) -> Result<(NameIn, Option<Metadata>), Reason> {
        let name = OsStr::from_bytes(name).to_owned();
        let file = match dir.symlink_metadata(&name).reason() {
            Err(error) if error.is_missing() => None,
            found => Some(found?),
        };
        let is_taken = file.is_some();
        Ok((
            NameIn {
                dir,
                name,
                is_taken,
            },
            file,
        ))
    }
}

/// A name for operations of the library.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    /// Without trailing slashes.
    pub(crate) path: PathBuf,
    /// The metadata of the file with this name. A link is not followed.
    pub(crate) existing: Option<Metadata>,
}

impl Named {
    /// Looks up the last name of `path`, following links before it.
    pub(crate) fn of(files: &Subvolume, path: &[u8]) -> Result<Named, PlaceError> {
        let (dir, name) = split(path).ok_or(PlaceError::NoName)?;
        let dir = Path::new(OsStr::from_bytes(dir));
        let named = Named::in_directory(files, dir, name)?;
        match &named.existing {
            Some(file) if path.ends_with(b"/") && !file.is_dir() => Err(PlaceError::NotADirectory),
            _ => Ok(named),
        }
    }

    /// Looks up a name in the directory at `dir`.
    pub(crate) fn in_directory(
        files: &Subvolume,
        dir: &Path,
        name: &[u8],
    ) -> Result<Named, PlaceError> {
        let path = dir.join(OsStr::from_bytes(name));
        let existing = match files.symlink_metadata(&path).reason() {
            Err(error) if error.is_missing() => {
                if files.metadata(dir).reason()?.is_dir() {
                    None
                } else {
                    return Err(PlaceError::NotADirectory);
                }
            }
            found => Some(found?),
        };
        Ok(Named { path, existing })
    }

    /// Returns the directory that contains the name.
    fn directory(&self, files: &Subvolume) -> Result<Metadata, Reason> {
        let dir = self.path.parent().unwrap_or(Path::new("/"));
        files.metadata(dir).reason()
    }

    /// Returns whether both are the same name in the same directory.
    pub(crate) fn is_same_name(&self, other: &Named, files: &Subvolume) -> Result<bool, Reason> {
        Ok(self.name() == other.name()
            && is_same(&self.directory(files)?, &other.directory(files)?))
    }

    pub(crate) fn name(&self) -> &[u8] {
        self.path.file_name().unwrap_or_default().as_bytes()
    }

    /// Returns whether the name leads to this file.
    pub(crate) fn is(&self, file: &Metadata) -> bool {
        self.existing
            .is_some_and(|existing| is_same(&existing, file))
    }
}

/// Returns whether two paths led to the same file.
pub(crate) fn is_same(a: &Metadata, b: &Metadata) -> bool {
    (a.subvolume_id(), a.ino()) == (b.subvolume_id(), b.ino())
}

/// Returns the directory of a path and the name in it, or None for the root, "." and "..".
pub(crate) fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let slashes = path.iter().rev().take_while(|byte| **byte == b'/').count();
    let path = &path[..path.len() - slashes];
    let at = path.iter().rposition(|&byte| byte == b'/');
    let (dir, name) = match at {
        Some(at) => path.split_at(at + 1),
        None => (&b"."[..], path),
    };
    (!matches!(name, b"" | b"." | b"..")).then_some((dir, name))
}

#[cfg(test)]
mod tests;
