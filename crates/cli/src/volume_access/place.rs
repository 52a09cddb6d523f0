//! A name in a directory of a volume, whether something has it yet or not.

use ubtrfs_engine::{Error, FileId, FileKind, LastName, Volume};

#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) dir: FileId,
    pub(crate) name: Vec<u8>,
    /// What has the name.
    pub(crate) existing: Option<FileId>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    #[error("it is not the name of a file")]
    NoName,
    #[error(transparent)]
    Engine(#[from] Error),
}

impl Place {
    /// Where the last name of `path` stands; links on the way are followed.
    ///
    /// Errors: the path ends with a slash, and the name is of no directory.
    pub(crate) fn of(volume: &Volume, root: FileId, path: &[u8]) -> Result<Place, PlaceError> {
        let (dir, name) = split(path).ok_or(PlaceError::NoName)?;
        let dir = volume.resolve_following(root, dir)?;
        let existing = volume.lookup(dir, name)?;
        if let Some(id) = existing
            && path.ends_with(b"/")
            && volume.attr(id)?.kind != FileKind::Directory
        {
            return Err(Error::NotADirectory(id).into());
        }
        Ok(Place {
            dir,
            name: name.to_vec(),
            existing,
        })
    }

    /// Where open(2) makes the file that `path` names and does not exist: at the end of links that lead nowhere.
    pub(crate) fn of_new_file(
        volume: &Volume,
        root: FileId,
        path: &[u8],
    ) -> Result<Place, PlaceError> {
        let end = volume.resolve_end(root, path, true)?;
        match end.last {
            LastName::Name(_) if end.has_slash => Err(Error::IsADirectory(end.dir).into()),
            LastName::Name(name) => Ok(Place {
                dir: end.dir,
                name,
                existing: end.id,
            }),
            _ => Err(PlaceError::NoName),
        }
    }
}

/// The path of the directory and the name in it; None for the root, and for "." and "..".
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
