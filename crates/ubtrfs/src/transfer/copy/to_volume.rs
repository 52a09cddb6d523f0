//! A volume as the destination of copies.
//!
//! A copy without preserved attributes belongs to root, with the permissions of the original less the umask.
//!
//! Invariants
//! - TO-VOLUME-1: a copy with preserved attributes has exactly the original's ACLs, regardless of the ACLs that it
//!   would inherit from its directory.

use ubtrfs_format::item::acl;
use ubtrfs_format::maker::Marks;
use ubtrfs_fs::{Error, FileId, FileKind, NewInode, SetAttr, SetTime, Volume, XattrMode};
use ubtrfs_stream::LeftOut;

use super::CopyError;
use super::attributes::Attributes;
use super::dest::DestError;
use super::destination::Destination;
use super::options::CopyOptions;
use crate::escaped::Escaped;
use crate::transfer::walk::is_component;

#[cfg(test)]
mod tests;

const PERMISSIONS: u32 = 0o777;
/// The mode until the final mode is set. No other process sees the volume until then, but a copy may be interrupted.
const PRIVATE: u32 = 0o700;

/// A volume as the destination of copies.
#[derive(Debug)]
pub(crate) struct ToVolume<'v> {
    volume: &'v Volume,
    options: CopyOptions,
    /// Attributes of NAS makers.
    left_out: LeftOut,
}

impl<'v> ToVolume<'v> {
    pub(crate) fn new(volume: &'v Volume, options: CopyOptions) -> ToVolume<'v> {
        ToVolume {
            volume,
            options,
            left_out: LeftOut::default(),
        }
    }

    fn make(&self, dir: FileId, name: &[u8], new: &NewInode<'_>) -> Result<FileId, CopyError> {
        self.volume.create(dir, name, new).map_err(CopyError::Make)
    }

    /// Drafts a new inode of the kind of the original.
    fn new_inode<'a>(&self, attributes: &Attributes) -> NewInode<'a> {
        let format = attributes.file.mode & !0o7777;
        let permissions = if self.options.preserve {
            attributes.file.mode & PRIVATE
        } else {
            attributes.file.mode & PERMISSIONS
        };
        NewInode {
            umask: self.options.umask,
            rdev: attributes.file.device.to_inode(),
            ..NewInode::with_mode(format | permissions)
        }
    }

    /// Removes an existing file other than a directory.
    fn clear(&self, dir: FileId, name: &[u8]) -> Result<(), CopyError> {
        match self.existing(dir, name)? {
            None => Ok(()),
            Some((_, FileKind::Directory)) => Err(DestError::ReplacesDirectory.into()),
            Some(_) => self.volume.unlink(dir, name).map_err(CopyError::Make),
        }
    }

    fn existing(&self, dir: FileId, name: &[u8]) -> Result<Option<(FileId, FileKind)>, CopyError> {
        if !is_component(name) {
            return Err(DestError::Name.into());
        }
        match self.volume.lookup(dir, name)? {
            Some(id) => Ok(Some((id, self.volume.attr(id)?.kind))),
            None => Ok(None),
        }
    }

    fn keep_all(&mut self, id: FileId, attributes: &Attributes) -> Vec<CopyError> {
        let mut problems = Vec::new();
        if !self.options.preserve {
            return problems;
        }
        let mut owner = SetAttr {
            uid: Some(attributes.file.uid),
            gid: Some(attributes.file.gid),
            ..SetAttr::default()
        };
        if attributes.kind != FileKind::Symlink {
            owner.mode = Some(attributes.file.mode & 0o7777);
        }
        let times = SetAttr {
            atime: Some(SetTime::At(attributes.file.times.access)),
            mtime: Some(SetTime::At(attributes.file.times.modification)),
            ..SetAttr::default()
        };
        let mut kept = |what: &str, done: Result<(), Error>| {
            if let Err(error) = done {
                let (what, source) = (what.to_owned(), Box::new(error));
                problems.push(CopyError::Keep { what, source });
            }
        };
        // TO-VOLUME-1
        for acl in [acl::ACCESS, acl::DEFAULT] {
            if !attributes.xattrs.iter().any(|(name, _)| name == acl) {
                kept("ACL", self.without_acl(id, acl));
            }
        }
        kept("owner and mode", self.volume.set_attr(id, &owner));
        for (name, value) in &attributes.xattrs {
            match self.volume.set_xattr(id, name, value, XattrMode::Any) {
                Err(Error::XattrNamespace) if !Marks::of_xattr(name).is_empty() => {
                    if self.options.strict_attributes {
                        kept(
                            &format!("attribute {}", Escaped(name)),
                            Err(Error::XattrNamespace),
                        );
                    } else {
                        self.left_out.add(name);
                    }
                }
                // Other file systems have namespaces of their own.
                Err(Error::XattrNamespace) => {
                    tracing::debug!(name = %Escaped(name), "attribute left out: of no kind of btrfs");
                }
                done => kept(&format!("attribute {}", Escaped(name)), done),
            }
        }
        kept("times", self.volume.set_attr(id, &times));
        problems
    }

    fn without_acl(&self, id: FileId, name: &[u8]) -> Result<(), Error> {
        match self.volume.xattr(id, name)? {
            Some(_) => self.volume.remove_xattr(id, name),
            None => Ok(()),
        }
    }
}

impl Drop for ToVolume<'_> {
    fn drop(&mut self) {
        self.left_out.warn();
    }
}

impl Destination for ToVolume<'_> {
    type Dir = FileId;
    type File = FileId;
    type Link = FileId;

    fn directory(
        &mut self,
        parent: &FileId,
        name: &[u8],
        attributes: &Attributes,
    ) -> Result<(FileId, bool), CopyError> {
        match self.existing(*parent, name)? {
            Some((id, FileKind::Directory)) => Ok((id, false)),
            Some(_) => Err(DestError::ReplacedByDirectory.into()),
            None => Ok((self.make(*parent, name, &self.new_inode(attributes))?, true)),
        }
    }

    fn file(
        &mut self,
        parent: &FileId,
        name: &[u8],
        attributes: &Attributes,
        of: Option<(&Volume, FileId)>,
    ) -> Result<FileId, CopyError> {
        match self.existing(*parent, name)? {
            Some((id, _)) if of.is_some_and(|of| is_file(of, self.volume, id)) => {
                Err(CopyError::SameFile)
            }
            // Like a shell's redirection: owner, mode and names stay.
            Some((id, FileKind::Regular)) if !self.options.preserve => {
                self.volume.truncate(id, 0).map_err(CopyError::Make)?;
                Ok(id)
            }
            _ => {
                self.clear(*parent, name)?;
                self.make(*parent, name, &self.new_inode(attributes))
            }
        }
    }

    fn write(&mut self, file: &FileId, at: u64, bytes: &[u8]) -> Result<(), CopyError> {
        self.volume.write(*file, at, bytes).map_err(CopyError::Make)
    }

    fn set_size(&mut self, file: &FileId, size: u64) -> Result<(), CopyError> {
        if self.volume.attr(*file)?.size == size {
            return Ok(());
        }
        self.volume.truncate(*file, size).map_err(CopyError::Make)
    }

    fn share(&mut self, file: &FileId, of: (&Volume, FileId)) -> Result<bool, CopyError> {
        let (volume, from) = of;
        if !std::ptr::eq(volume, self.volume) {
            return Ok(false);
        }
        match volume.clone_range(from, 0, 0, *file, 0) {
            Ok(_) => Ok(true),
            Err(Error::CsumsDiffer | Error::Unaligned | Error::Invalid(_)) => Ok(false),
            Err(error) => Err(CopyError::Make(error)),
        }
    }

    fn symlink(
        &mut self,
        parent: &FileId,
        name: &[u8],
        target: &[u8],
    ) -> Result<FileId, CopyError> {
        self.clear(*parent, name)?;
        self.make(*parent, name, &NewInode::symlink(target))
    }

    fn node(
        &mut self,
        parent: &FileId,
        name: &[u8],
        attributes: &Attributes,
    ) -> Result<FileId, CopyError> {
        self.clear(*parent, name)?;
        self.make(*parent, name, &self.new_inode(attributes))
    }

    fn link_to(&self, _: Vec<u8>, _: &[u8], file: &FileId) -> FileId {
        *file
    }

    fn link(
        &mut self,
        _: &FileId,
        first: &FileId,
        parent: &FileId,
        name: &[u8],
    ) -> Result<(), CopyError> {
        if self
            .existing(*parent, name)?
            .is_some_and(|(id, _)| id == *first)
        {
            return Ok(());
        }
        self.clear(*parent, name)?;
        let linked = self.volume.link(*first, *parent, name);
        linked.map_err(CopyError::Make)
    }

    fn keep(&mut self, file: &FileId, attributes: &Attributes) -> Vec<CopyError> {
        self.keep_all(*file, attributes)
    }

    fn keep_directory(&mut self, dir: &FileId, attributes: &Attributes) -> Vec<CopyError> {
        self.keep_all(*dir, attributes)
    }
}

fn is_file(of: (&Volume, FileId), volume: &Volume, id: FileId) -> bool {
    std::ptr::eq(of.0, volume) && of.1 == id
}
