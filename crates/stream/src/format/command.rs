//! Commands: the operations in a stream.
//!
//! One table declares them. The type, the encoding and the dump follow from it. A row has the kind, the fields with
//! their attributes, and the text after the path in a dump. A field with `or` is optional.
//!
//! Not here: numbers and names (`command_kind`), the layout of a line of a dump (`dump`).

use std::fmt::{self, Write as _};

use ubtrfs_format::ids::{InodeNr, Transid};
use ubtrfs_format::item::FileTime;
use ubtrfs_format::uuid::Uuid;

use super::attribute::Attribute;
use super::body::Body;
use super::command_kind::CommandKind;
use super::field::{Attributes, Field};
use super::{Fault, StreamVersion, WriteError};
use crate::escaped::Escaped;

/// Converts values whose text in a dump depends on more than the command.
pub(crate) trait DumpContext {
    /// Returns a path below the current subvolume, in escaped form.
    fn below(&self, path: &[u8]) -> String;
    fn local(&self, time: FileTime) -> String;
}

/// Every row has a field `path`.
macro_rules! commands {
    (
        |$dump:ident|
        $(
            $(#[$doc:meta])*
            $Kind:ident {
                $(
                    $(#[$field_doc:meta])*
                    $field:ident: $Type:ty = $attribute:ident $(or $default:expr)?
                ),+ $(,)?
            } $(=> $details:literal $(, $argument:expr)*)?;
        )*
    ) => {
        /// One command. Paths are bytes, relative to the subvolume, and only checked for NULs.
        ///
        /// Fields are in the order used by the kernel. Numbers are as in the stream: offsets and lengths in bytes,
        /// modes as in stat(2), devices in the kernel's 32-bit encoding.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Command<'a> {
            $($(#[$doc])* $Kind { $($(#[$field_doc])* $field: $Type),+ },)*
            End,
            /// Flags of the subvolume, which Synology's DSM sends.
            SubvolumeFlags {
                flags: u32,
            },
            /// A command with an unknown number. btrfs-progs ignores it.
            Unknown {
                number: u16,
            },
        }

        impl<'a> Command<'a> {
            /// Returns the kind of the command, or None if it is unknown.
            pub fn kind(&self) -> Option<CommandKind> {
                match self {
                    $(Command::$Kind { .. } => Some(CommandKind::$Kind),)*
                    Command::End => Some(CommandKind::End),
                    Command::SubvolumeFlags { .. } => None,
                    Command::Unknown { number } => CommandKind::from_raw(*number),
                }
            }

            /// Returns the path of the command's file, or the name of the subvolume.
            pub fn path(&self) -> Option<&'a [u8]> {
                match *self {
                    $(Command::$Kind { path, .. } => Some(path),)*
                    Command::End
                    | Command::SubvolumeFlags { .. }
                    | Command::Unknown { .. } => None,
                }
            }

            pub(super) fn decode(
                kind: CommandKind,
                body: &'a [u8],
                version: StreamVersion,
            ) -> Result<Self, Fault> {
                if kind == CommandKind::EnableVerity {
                    return Err(Fault::NewerCommand(kind));
                }
                let attributes = Attributes::parse(body, version)?;
                Ok(match kind {
                    $(CommandKind::$Kind => Command::$Kind {
                        $($field: attributes
                            .field(Attribute::$attribute, None$(.or(Some($default)))?)?,)+
                    },)*
                    CommandKind::End | CommandKind::EnableVerity => Command::End,
                })
            }

            pub(super) fn encode(&self, body: &mut Body<'_>) -> Result<(), WriteError> {
                match *self {
                    $(Command::$Kind { $($field),+ } => {
                        $($field.encode(Attribute::$attribute, body)?;)+
                    })*
                    Command::End => {}
                    // Its number is another command of mainline.
                    Command::SubvolumeFlags { .. } => return Err(WriteError::Unknown(23)),
                    Command::Unknown { number } => return Err(WriteError::Unknown(number)),
                }
                Ok(())
            }

            /// Writes the text after the path in a dump.
            #[expect(unused_variables, reason = "a dump does not display all fields")]
            pub(crate) fn write_details(
                &self,
                out: &mut String,
                $dump: &impl DumpContext,
            ) -> fmt::Result {
                match *self {
                    $(Command::$Kind { $($field),+ } => {
                        $(write!(out, $details $(, $argument)*)?;)?
                    })*
                    Command::End
                    | Command::SubvolumeFlags { .. }
                    | Command::Unknown { .. } => {}
                }
                Ok(())
            }

            /// Returns a command of each kind, except for `end`.
            #[cfg(test)]
            pub(super) fn samples(number: usize) -> Vec<Command<'static>> {
                use super::tests::Sample;
                vec![$(Command::$Kind { $($field: Sample::sample(number)),+ }),*]
            }
        }
    };
}

commands! {
    |dump|

    Subvol {
        path: &'a [u8] = Path,
        uuid: Uuid = Uuid,
        ctransid: Transid = Ctransid,
    } => "uuid={uuid} transid={ctransid}";

    /// Starts with a snapshot of another subvolume instead of an empty one.
    Snapshot {
        path: &'a [u8] = Path,
        uuid: Uuid = Uuid,
        ctransid: Transid = Ctransid,
        clone_uuid: Uuid = CloneUuid,
        clone_ctransid: Transid = CloneCtransid,
    } => "uuid={uuid} transid={ctransid} parent_uuid={clone_uuid} parent_transid={clone_ctransid}";

    Mkfile { path: &'a [u8] = Path, ino: InodeNr = Ino };
    Mkdir { path: &'a [u8] = Path, ino: InodeNr = Ino };

    /// Creates a device.
    Mknod {
        path: &'a [u8] = Path,
        ino: InodeNr = Ino,
        rdev: u64 = Rdev,
        /// Includes the file type bits.
        mode: u64 = Mode,
    } => "mode={mode:o} dev=0x{rdev:x}";

    /// Its type is known from the command.
    Mkfifo {
        path: &'a [u8] = Path, ino: InodeNr = Ino, rdev: u64 = Rdev or 0, mode: u64 = Mode or 0,
    };
    Mksock {
        path: &'a [u8] = Path, ino: InodeNr = Ino, rdev: u64 = Rdev or 0, mode: u64 = Mode or 0,
    };

    Symlink {
        path: &'a [u8] = Path,
        ino: InodeNr = Ino,
        target: &'a [u8] = PathLink,
    } => "dest={}", Escaped(target);

    Rename { path: &'a [u8] = Path, to: &'a [u8] = PathTo } => "dest={}", dump.below(to);

    /// Adds the name `path` to the file at `existing`.
    Link { path: &'a [u8] = Path, existing: &'a [u8] = PathLink } => "dest={}", Escaped(existing);

    Unlink { path: &'a [u8] = Path };
    Rmdir { path: &'a [u8] = Path };

    SetXattr {
        path: &'a [u8] = Path,
        name: &'a [u8] = XattrName,
        value: &'a [u8] = XattrData,
    } => "name={} {} len={}", Escaped(name), Escaped(value), value.len();

    RemoveXattr {
        path: &'a [u8] = Path,
        name: &'a [u8] = XattrName,
    } => "name={}", Escaped(name);

    Write {
        path: &'a [u8] = Path,
        offset: u64 = FileOffset,
        data: &'a [u8] = Data,
    } => "offset={offset} len={}", data.len();

    /// Shares the extents of a range in another file with a range of `path`.
    Clone {
        offset: u64 = FileOffset,
        len: u64 = CloneLen,
        path: &'a [u8] = Path,
        clone_uuid: Uuid = CloneUuid,
        clone_ctransid: Transid = CloneCtransid,
        clone_path: &'a [u8] = ClonePath,
        clone_offset: u64 = CloneOffset,
    } => "offset={offset} len={len} from={} clone_offset={clone_offset}", dump.below(clone_path);

    Truncate { path: &'a [u8] = Path, size: u64 = Size } => "size={size}";
    Chmod { path: &'a [u8] = Path, mode: u64 = Mode } => "mode={mode:o}";
    Chown { path: &'a [u8] = Path, uid: u64 = Uid, gid: u64 = Gid } => "gid={gid} uid={uid}";

    Utimes {
        path: &'a [u8] = Path,
        atime: FileTime = Atime,
        mtime: FileTime = Mtime,
        ctime: FileTime = Ctime,
        /// Omitted when writing version 1.
        otime: Option<FileTime> = Otime or None,
    } => "atime={} mtime={} ctime={}", dump.local(atime), dump.local(mtime), dump.local(ctime);

    /// A range with changed data, in a stream without data.
    UpdateExtent {
        path: &'a [u8] = Path,
        offset: u64 = FileOffset,
        len: u64 = Size,
    } => "offset={offset} len={len}";

    Fallocate {
        path: &'a [u8] = Path,
        mode: u32 = FallocateMode,
        offset: u64 = FileOffset,
        len: u64 = Size,
    } => "mode={} offset={offset} len={len}", mode.cast_signed();

    /// The flags of the inode item.
    Fileattr { path: &'a [u8] = Path, flags: u64 = Fileattr } => "fileattr=0x{flags}";

    /// Data in its on-disk form. The part at `unencoded_offset`, with `unencoded_file_len` bytes, belongs at `offset`
    /// of the file.
    EncodedWrite {
        path: &'a [u8] = Path,
        offset: u64 = FileOffset,
        unencoded_file_len: u64 = UnencodedFileLen,
        unencoded_len: u64 = UnencodedLen,
        unencoded_offset: u64 = UnencodedOffset,
        compression: u32 = Compression or 0,
        /// The kernel omits it for inline extents.
        encryption: Option<u32> = Encryption or None,
        data: &'a [u8] = Data,
    } => "offset={offset} len={} unencoded_file_len={unencoded_file_len} unencoded_len={unencoded_len} \
          unencoded_offset={unencoded_offset} compression={compression} encryption={}",
        data.len(), encryption.unwrap_or(0);
}
