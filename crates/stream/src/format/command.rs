//! Commands: the operations in a stream.

use ubtrfs_format::ids::{InodeNr, Transid};
use ubtrfs_format::uuid::Uuid;

use super::attribute::{Attribute, Attributes, Time};
use super::writer::Body;
use super::{Fault, StreamVersion, WriteError};

/// The numbers of commands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u16)]
pub enum CommandKind {
    Subvol = 1,
    Snapshot,
    Mkfile,
    Mkdir,
    Mknod,
    Mkfifo,
    Mksock,
    Symlink,
    Rename,
    Link,
    Unlink,
    Rmdir,
    SetXattr,
    RemoveXattr,
    Write,
    Clone,
    Truncate,
    Chmod,
    Chown,
    Utimes,
    End,
    UpdateExtent,
    Fallocate,
    Fileattr,
    EncodedWrite,
    /// Only its name is known, because it requires version 3.
    EnableVerity,
}

/// Ordered by number, starting at 1. The names are the same as in `btrfs receive --dump`.
const NAMES: [(CommandKind, &str); 26] = [
    (CommandKind::Subvol, "subvol"),
    (CommandKind::Snapshot, "snapshot"),
    (CommandKind::Mkfile, "mkfile"),
    (CommandKind::Mkdir, "mkdir"),
    (CommandKind::Mknod, "mknod"),
    (CommandKind::Mkfifo, "mkfifo"),
    (CommandKind::Mksock, "mksock"),
    (CommandKind::Symlink, "symlink"),
    (CommandKind::Rename, "rename"),
    (CommandKind::Link, "link"),
    (CommandKind::Unlink, "unlink"),
    (CommandKind::Rmdir, "rmdir"),
    (CommandKind::SetXattr, "set_xattr"),
    (CommandKind::RemoveXattr, "remove_xattr"),
    (CommandKind::Write, "write"),
    (CommandKind::Clone, "clone"),
    (CommandKind::Truncate, "truncate"),
    (CommandKind::Chmod, "chmod"),
    (CommandKind::Chown, "chown"),
    (CommandKind::Utimes, "utimes"),
    (CommandKind::End, "end"),
    (CommandKind::UpdateExtent, "update_extent"),
    (CommandKind::Fallocate, "fallocate"),
    (CommandKind::Fileattr, "fileattr"),
    (CommandKind::EncodedWrite, "encoded_write"),
    (CommandKind::EnableVerity, "enable_verity"),
];

impl CommandKind {
    pub fn from_raw(raw: u16) -> Option<Self> {
        let at = usize::from(raw).checked_sub(1)?;
        NAMES.get(at).map(|&(kind, _)| kind)
    }

    pub fn raw(self) -> u16 {
        self as u16
    }

    pub fn name(self) -> &'static str {
        NAMES[usize::from(self.raw()) - 1].1
    }

    pub(super) fn needs_version_2(self) -> bool {
        self.raw() >= CommandKind::Fallocate.raw()
    }
}

/// One command. Paths are bytes, relative to the subvolume, and only checked for NULs.
///
/// Fields are in the order used by the kernel. Numbers are as in the stream: offsets and lengths in bytes, modes as
/// in stat(2), devices in the kernel's 32-bit encoding.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Command<'a> {
    Subvol {
        path: &'a [u8],
        uuid: Uuid,
        ctransid: Transid,
    },
    /// Starts with a snapshot of another subvolume instead of an empty one.
    Snapshot {
        path: &'a [u8],
        uuid: Uuid,
        ctransid: Transid,
        clone_uuid: Uuid,
        clone_ctransid: Transid,
    },
    Mkfile {
        path: &'a [u8],
        ino: InodeNr,
    },
    Mkdir {
        path: &'a [u8],
        ino: InodeNr,
    },
    Mknod(NewNode<'a>),
    Mkfifo(NewNode<'a>),
    Mksock(NewNode<'a>),
    Symlink {
        path: &'a [u8],
        ino: InodeNr,
        target: &'a [u8],
    },
    Rename {
        path: &'a [u8],
        to: &'a [u8],
    },
    /// Adds the name `path` to the file at `existing`.
    Link {
        path: &'a [u8],
        existing: &'a [u8],
    },
    Unlink {
        path: &'a [u8],
    },
    Rmdir {
        path: &'a [u8],
    },
    SetXattr {
        path: &'a [u8],
        name: &'a [u8],
        value: &'a [u8],
    },
    RemoveXattr {
        path: &'a [u8],
        name: &'a [u8],
    },
    Write {
        path: &'a [u8],
        offset: u64,
        data: &'a [u8],
    },
    /// Shares the extents of a range in another file with a range of `path`.
    Clone {
        offset: u64,
        len: u64,
        path: &'a [u8],
        clone_uuid: Uuid,
        clone_ctransid: Transid,
        clone_path: &'a [u8],
        clone_offset: u64,
    },
    Truncate {
        path: &'a [u8],
        size: u64,
    },
    Chmod {
        path: &'a [u8],
        mode: u64,
    },
    Chown {
        path: &'a [u8],
        uid: u64,
        gid: u64,
    },
    Utimes {
        path: &'a [u8],
        atime: Time,
        mtime: Time,
        ctime: Time,
        /// Omitted when writing version 1.
        otime: Option<Time>,
    },
    End,
    /// A range with changed data, in a stream without data.
    UpdateExtent {
        path: &'a [u8],
        offset: u64,
        len: u64,
    },
    Fallocate {
        path: &'a [u8],
        mode: u32,
        offset: u64,
        len: u64,
    },
    /// The flags of the inode item.
    Fileattr {
        path: &'a [u8],
        flags: u64,
    },
    /// Data in its on-disk form. The part at `unencoded_offset`, with `unencoded_file_len` bytes, belongs at `offset`
    /// of the file.
    EncodedWrite {
        path: &'a [u8],
        offset: u64,
        unencoded_file_len: u64,
        unencoded_len: u64,
        unencoded_offset: u64,
        compression: u32,
        /// The kernel omits it for inline extents.
        encryption: Option<u32>,
        data: &'a [u8],
    },
    /// A command with an unknown number. btrfs-progs ignores it.
    Unknown {
        number: u16,
    },
}

/// A device, pipe or socket to create.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NewNode<'a> {
    pub path: &'a [u8],
    pub ino: InodeNr,
    /// The device number; zero for a pipe or a socket.
    pub rdev: u64,
    /// Includes the file type bits.
    pub mode: u64,
}

impl<'a> NewNode<'a> {
    fn decode(from: &Attributes<'a>) -> Result<Self, Fault> {
        Ok(Self {
            path: from.text(Attribute::Path)?,
            ino: from.ino()?,
            rdev: from.u64(Attribute::Rdev)?,
            mode: from.u64(Attribute::Mode)?,
        })
    }

    /// Decodes a pipe or a socket, whose type is known from the command.
    fn decode_typed(from: &Attributes<'a>) -> Result<Self, Fault> {
        let rdev = from.optional(Attribute::Rdev, Attributes::u64)?;
        let mode = from.optional(Attribute::Mode, Attributes::u64)?;
        Ok(Self {
            path: from.text(Attribute::Path)?,
            ino: from.ino()?,
            rdev: rdev.unwrap_or(0),
            mode: mode.unwrap_or(0),
        })
    }

    fn encode(&self, body: &mut Body<'_>) -> Result<(), WriteError> {
        body.text(Attribute::Path, self.path)?;
        body.u64(Attribute::Ino, self.ino.0)?;
        body.u64(Attribute::Rdev, self.rdev)?;
        body.u64(Attribute::Mode, self.mode)
    }
}

impl<'a> Command<'a> {
    /// Returns the kind of the command, or None if it is unknown.
    pub fn kind(&self) -> Option<CommandKind> {
        Some(match self {
            Command::Subvol { .. } => CommandKind::Subvol,
            Command::Snapshot { .. } => CommandKind::Snapshot,
            Command::Mkfile { .. } => CommandKind::Mkfile,
            Command::Mkdir { .. } => CommandKind::Mkdir,
            Command::Mknod(_) => CommandKind::Mknod,
            Command::Mkfifo(_) => CommandKind::Mkfifo,
            Command::Mksock(_) => CommandKind::Mksock,
            Command::Symlink { .. } => CommandKind::Symlink,
            Command::Rename { .. } => CommandKind::Rename,
            Command::Link { .. } => CommandKind::Link,
            Command::Unlink { .. } => CommandKind::Unlink,
            Command::Rmdir { .. } => CommandKind::Rmdir,
            Command::SetXattr { .. } => CommandKind::SetXattr,
            Command::RemoveXattr { .. } => CommandKind::RemoveXattr,
            Command::Write { .. } => CommandKind::Write,
            Command::Clone { .. } => CommandKind::Clone,
            Command::Truncate { .. } => CommandKind::Truncate,
            Command::Chmod { .. } => CommandKind::Chmod,
            Command::Chown { .. } => CommandKind::Chown,
            Command::Utimes { .. } => CommandKind::Utimes,
            Command::End => CommandKind::End,
            Command::UpdateExtent { .. } => CommandKind::UpdateExtent,
            Command::Fallocate { .. } => CommandKind::Fallocate,
            Command::Fileattr { .. } => CommandKind::Fileattr,
            Command::EncodedWrite { .. } => CommandKind::EncodedWrite,
            Command::Unknown { number } => return CommandKind::from_raw(*number),
        })
    }

    /// Returns the path of the command's file, or the name of the subvolume.
    pub fn path(&self) -> Option<&'a [u8]> {
        Some(match *self {
            Command::Subvol { path, .. }
            | Command::Snapshot { path, .. }
            | Command::Mkfile { path, .. }
            | Command::Mkdir { path, .. }
            | Command::Symlink { path, .. }
            | Command::Rename { path, .. }
            | Command::Link { path, .. }
            | Command::Unlink { path }
            | Command::Rmdir { path }
            | Command::SetXattr { path, .. }
            | Command::RemoveXattr { path, .. }
            | Command::Write { path, .. }
            | Command::Clone { path, .. }
            | Command::Truncate { path, .. }
            | Command::Chmod { path, .. }
            | Command::Chown { path, .. }
            | Command::Utimes { path, .. }
            | Command::UpdateExtent { path, .. }
            | Command::Fallocate { path, .. }
            | Command::Fileattr { path, .. }
            | Command::EncodedWrite { path, .. } => path,
            Command::Mknod(new) | Command::Mkfifo(new) | Command::Mksock(new) => new.path,
            Command::End | Command::Unknown { .. } => return None,
        })
    }

    pub(super) fn decode(kind: CommandKind, from: &Attributes<'a>) -> Result<Self, Fault> {
        let path = || from.text(Attribute::Path);
        Ok(match kind {
            CommandKind::Subvol => Command::Subvol {
                path: path()?,
                uuid: from.uuid(Attribute::Uuid)?,
                ctransid: from.transid(Attribute::Ctransid)?,
            },
            CommandKind::Snapshot => Command::Snapshot {
                path: path()?,
                uuid: from.uuid(Attribute::Uuid)?,
                ctransid: from.transid(Attribute::Ctransid)?,
                clone_uuid: from.uuid(Attribute::CloneUuid)?,
                clone_ctransid: from.transid(Attribute::CloneCtransid)?,
            },
            CommandKind::Mkfile => Command::Mkfile {
                path: path()?,
                ino: from.ino()?,
            },
            CommandKind::Mkdir => Command::Mkdir {
                path: path()?,
                ino: from.ino()?,
            },
            CommandKind::Mknod => Command::Mknod(NewNode::decode(from)?),
            CommandKind::Mkfifo => Command::Mkfifo(NewNode::decode_typed(from)?),
            CommandKind::Mksock => Command::Mksock(NewNode::decode_typed(from)?),
            CommandKind::Symlink => Command::Symlink {
                path: path()?,
                ino: from.ino()?,
                target: from.text(Attribute::PathLink)?,
            },
            CommandKind::Rename => Command::Rename {
                path: path()?,
                to: from.text(Attribute::PathTo)?,
            },
            CommandKind::Link => Command::Link {
                path: path()?,
                existing: from.text(Attribute::PathLink)?,
            },
            CommandKind::Unlink => Command::Unlink { path: path()? },
            CommandKind::Rmdir => Command::Rmdir { path: path()? },
            CommandKind::SetXattr => Command::SetXattr {
                path: path()?,
                name: from.text(Attribute::XattrName)?,
                value: from.bytes(Attribute::XattrData)?,
            },
            CommandKind::RemoveXattr => Command::RemoveXattr {
                path: path()?,
                name: from.text(Attribute::XattrName)?,
            },
            CommandKind::Write => Command::Write {
                path: path()?,
                offset: from.u64(Attribute::FileOffset)?,
                data: from.bytes(Attribute::Data)?,
            },
            CommandKind::Clone => Command::Clone {
                offset: from.u64(Attribute::FileOffset)?,
                len: from.u64(Attribute::CloneLen)?,
                path: path()?,
                clone_uuid: from.uuid(Attribute::CloneUuid)?,
                clone_ctransid: from.transid(Attribute::CloneCtransid)?,
                clone_path: from.text(Attribute::ClonePath)?,
                clone_offset: from.u64(Attribute::CloneOffset)?,
            },
            CommandKind::Truncate => Command::Truncate {
                path: path()?,
                size: from.u64(Attribute::Size)?,
            },
            CommandKind::Chmod => Command::Chmod {
                path: path()?,
                mode: from.u64(Attribute::Mode)?,
            },
            CommandKind::Chown => Command::Chown {
                path: path()?,
                uid: from.u64(Attribute::Uid)?,
                gid: from.u64(Attribute::Gid)?,
            },
            CommandKind::Utimes => Command::Utimes {
                path: path()?,
                atime: from.time(Attribute::Atime)?,
                mtime: from.time(Attribute::Mtime)?,
                ctime: from.time(Attribute::Ctime)?,
                otime: from.optional(Attribute::Otime, Attributes::time)?,
            },
            CommandKind::End => Command::End,
            CommandKind::UpdateExtent => Command::UpdateExtent {
                path: path()?,
                offset: from.u64(Attribute::FileOffset)?,
                len: from.u64(Attribute::Size)?,
            },
            CommandKind::Fallocate => Command::Fallocate {
                path: path()?,
                mode: from.u32(Attribute::FallocateMode)?,
                offset: from.u64(Attribute::FileOffset)?,
                len: from.u64(Attribute::Size)?,
            },
            CommandKind::Fileattr => Command::Fileattr {
                path: path()?,
                flags: from.u64(Attribute::Fileattr)?,
            },
            CommandKind::EncodedWrite => Command::EncodedWrite {
                path: path()?,
                offset: from.u64(Attribute::FileOffset)?,
                unencoded_file_len: from.u64(Attribute::UnencodedFileLen)?,
                unencoded_len: from.u64(Attribute::UnencodedLen)?,
                unencoded_offset: from.u64(Attribute::UnencodedOffset)?,
                compression: from
                    .optional(Attribute::Compression, Attributes::u32)?
                    .unwrap_or(0),
                encryption: from.optional(Attribute::Encryption, Attributes::u32)?,
                data: from.bytes(Attribute::Data)?,
            },
            CommandKind::EnableVerity => return Err(Fault::NewerCommand(kind)),
        })
    }

    pub(super) fn encode(&self, body: &mut Body<'_>) -> Result<(), WriteError> {
        match *self {
            Command::Subvol {
                path,
                uuid,
                ctransid,
            } => {
                body.text(Attribute::Path, path)?;
                body.bytes(Attribute::Uuid, &uuid.0)?;
                body.u64(Attribute::Ctransid, ctransid.0)
            }
            Command::Snapshot {
                path,
                uuid,
                ctransid,
                clone_uuid,
                clone_ctransid,
            } => {
                body.text(Attribute::Path, path)?;
                body.bytes(Attribute::Uuid, &uuid.0)?;
                body.u64(Attribute::Ctransid, ctransid.0)?;
                body.bytes(Attribute::CloneUuid, &clone_uuid.0)?;
                body.u64(Attribute::CloneCtransid, clone_ctransid.0)
            }
            Command::Mkfile { path, ino } | Command::Mkdir { path, ino } => {
                body.text(Attribute::Path, path)?;
                body.u64(Attribute::Ino, ino.0)
            }
            Command::Mknod(node) | Command::Mkfifo(node) | Command::Mksock(node) => {
                node.encode(body)
            }
            Command::Symlink { path, ino, target } => {
                body.text(Attribute::Path, path)?;
                body.u64(Attribute::Ino, ino.0)?;
                body.text(Attribute::PathLink, target)
            }
            Command::Rename { path, to } => {
                body.text(Attribute::Path, path)?;
                body.text(Attribute::PathTo, to)
            }
            Command::Link { path, existing } => {
                body.text(Attribute::Path, path)?;
                body.text(Attribute::PathLink, existing)
            }
            Command::Unlink { path } | Command::Rmdir { path } => body.text(Attribute::Path, path),
            Command::SetXattr { path, name, value } => {
                body.text(Attribute::Path, path)?;
                body.text(Attribute::XattrName, name)?;
                body.bytes(Attribute::XattrData, value)
            }
            Command::RemoveXattr { path, name } => {
                body.text(Attribute::Path, path)?;
                body.text(Attribute::XattrName, name)
            }
            Command::Write { path, offset, data } => {
                body.text(Attribute::Path, path)?;
                body.u64(Attribute::FileOffset, offset)?;
                body.bytes(Attribute::Data, data)
            }
            Command::Clone {
                offset,
                len,
                path,
                clone_uuid,
                clone_ctransid,
                clone_path,
                clone_offset,
            } => {
                body.u64(Attribute::FileOffset, offset)?;
                body.u64(Attribute::CloneLen, len)?;
                body.text(Attribute::Path, path)?;
                body.bytes(Attribute::CloneUuid, &clone_uuid.0)?;
                body.u64(Attribute::CloneCtransid, clone_ctransid.0)?;
                body.text(Attribute::ClonePath, clone_path)?;
                body.u64(Attribute::CloneOffset, clone_offset)
            }
            Command::Truncate { path, size } => {
                body.text(Attribute::Path, path)?;
                body.u64(Attribute::Size, size)
            }
            Command::Chmod { path, mode } => {
                body.text(Attribute::Path, path)?;
                body.u64(Attribute::Mode, mode)
            }
            Command::Chown { path, uid, gid } => {
                body.text(Attribute::Path, path)?;
                body.u64(Attribute::Uid, uid)?;
                body.u64(Attribute::Gid, gid)
            }
            Command::Utimes {
                path,
                atime,
                mtime,
                ctime,
                otime,
            } => {
                body.text(Attribute::Path, path)?;
                body.time(Attribute::Atime, atime)?;
                body.time(Attribute::Mtime, mtime)?;
                body.time(Attribute::Ctime, ctime)?;
                match otime.filter(|_| body.version() >= StreamVersion::V2) {
                    Some(otime) => body.time(Attribute::Otime, otime),
                    None => Ok(()),
                }
            }
            Command::End => Ok(()),
            Command::UpdateExtent { path, offset, len } => {
                body.text(Attribute::Path, path)?;
                body.u64(Attribute::FileOffset, offset)?;
                body.u64(Attribute::Size, len)
            }
            Command::Fallocate {
                path,
                mode,
                offset,
                len,
            } => {
                body.text(Attribute::Path, path)?;
                body.u32(Attribute::FallocateMode, mode)?;
                body.u64(Attribute::FileOffset, offset)?;
                body.u64(Attribute::Size, len)
            }
            Command::Fileattr { path, flags } => {
                body.text(Attribute::Path, path)?;
                body.u64(Attribute::Fileattr, flags)
            }
            Command::EncodedWrite {
                path,
                offset,
                unencoded_file_len,
                unencoded_len,
                unencoded_offset,
                compression,
                encryption,
                data,
            } => {
                body.text(Attribute::Path, path)?;
                body.u64(Attribute::FileOffset, offset)?;
                body.u64(Attribute::UnencodedFileLen, unencoded_file_len)?;
                body.u64(Attribute::UnencodedLen, unencoded_len)?;
                body.u64(Attribute::UnencodedOffset, unencoded_offset)?;
                body.u32(Attribute::Compression, compression)?;
                if let Some(encryption) = encryption {
                    body.u32(Attribute::Encryption, encryption)?;
                }
                body.bytes(Attribute::Data, data)
            }
            Command::Unknown { number } => Err(WriteError::Unknown(number)),
        }
    }
}
