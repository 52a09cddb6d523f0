//! Attributes: the fields of commands.

use ubtrfs_format::ids::{InodeNr, Transid};
use ubtrfs_format::uuid::Uuid;

use super::{Fault, StreamVersion};

/// An attribute, by its number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u16)]
pub enum Attribute {
    Uuid = 1,
    Ctransid,
    Ino,
    Size,
    Mode,
    Uid,
    Gid,
    Rdev,
    Ctime,
    Mtime,
    Atime,
    Otime,
    XattrName,
    XattrData,
    Path,
    PathTo,
    PathLink,
    FileOffset,
    Data,
    CloneUuid,
    CloneCtransid,
    ClonePath,
    CloneOffset,
    CloneLen,
    FallocateMode,
    Fileattr,
    UnencodedFileLen,
    UnencodedLen,
    UnencodedOffset,
    Compression,
    Encryption,
    VerityAlgorithm,
    VerityBlockSize,
    VeritySaltData,
    VeritySigData,
}

/// Ordered by number, starting at 1.
const NAMES: [(Attribute, &str); 35] = [
    (Attribute::Uuid, "uuid"),
    (Attribute::Ctransid, "ctransid"),
    (Attribute::Ino, "ino"),
    (Attribute::Size, "size"),
    (Attribute::Mode, "mode"),
    (Attribute::Uid, "uid"),
    (Attribute::Gid, "gid"),
    (Attribute::Rdev, "rdev"),
    (Attribute::Ctime, "ctime"),
    (Attribute::Mtime, "mtime"),
    (Attribute::Atime, "atime"),
    (Attribute::Otime, "otime"),
    (Attribute::XattrName, "xattr_name"),
    (Attribute::XattrData, "xattr_data"),
    (Attribute::Path, "path"),
    (Attribute::PathTo, "path_to"),
    (Attribute::PathLink, "path_link"),
    (Attribute::FileOffset, "file_offset"),
    (Attribute::Data, "data"),
    (Attribute::CloneUuid, "clone_uuid"),
    (Attribute::CloneCtransid, "clone_ctransid"),
    (Attribute::ClonePath, "clone_path"),
    (Attribute::CloneOffset, "clone_offset"),
    (Attribute::CloneLen, "clone_len"),
    (Attribute::FallocateMode, "fallocate_mode"),
    (Attribute::Fileattr, "fileattr"),
    (Attribute::UnencodedFileLen, "unencoded_file_len"),
    (Attribute::UnencodedLen, "unencoded_len"),
    (Attribute::UnencodedOffset, "unencoded_offset"),
    (Attribute::Compression, "compression"),
    (Attribute::Encryption, "encryption"),
    (Attribute::VerityAlgorithm, "verity_algorithm"),
    (Attribute::VerityBlockSize, "verity_block_size"),
    (Attribute::VeritySaltData, "verity_salt_data"),
    (Attribute::VeritySigData, "verity_sig_data"),
];

impl Attribute {
    pub fn from_raw(raw: u16) -> Option<Self> {
        let at = usize::from(raw).checked_sub(1)?;
        NAMES.get(at).map(|&(attribute, _)| attribute)
    }

    pub fn raw(self) -> u16 {
        self as u16
    }

    pub fn name(self) -> &'static str {
        NAMES[self.index()].1
    }

    fn index(self) -> usize {
        usize::from(self.raw()) - 1
    }

    fn is_of_version_3(self) -> bool {
        self.raw() >= Attribute::VerityAlgorithm.raw()
    }

    /// Returns whether the attribute has no length and extends to the end of the command.
    pub(super) fn takes_rest(self, version: StreamVersion) -> bool {
        self == Attribute::Data && version >= StreamVersion::V2
    }
}

/// A time of a file, in seconds since 1970.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Time {
    pub sec: i64,
    pub nsec: u32,
}

/// The attributes of one command. If an attribute is repeated, the last one counts.
#[derive(Debug)]
pub(super) struct Attributes<'a>([Option<&'a [u8]>; NAMES.len()]);

impl<'a> Attributes<'a> {
    pub(super) fn parse(body: &'a [u8], version: StreamVersion) -> Result<Self, Fault> {
        let mut found = Self([None; NAMES.len()]);
        let mut rest = body;
        while !rest.is_empty() {
            let number = take_u16(&mut rest)?;
            let attribute = Attribute::from_raw(number).ok_or(Fault::UnknownAttribute(number))?;
            if attribute.is_of_version_3() {
                return Err(Fault::NewerAttribute(attribute));
            }
            let len = if attribute.takes_rest(version) {
                rest.len()
            } else {
                usize::from(take_u16(&mut rest)?)
            };
            // STREAM-3
            let value = rest.split_off(..len).ok_or(Fault::CutAttribute)?;
            found.0[attribute.index()] = Some(value);
        }
        Ok(found)
    }

    pub(super) fn bytes(&self, attribute: Attribute) -> Result<&'a [u8], Fault> {
        let value = self.0[attribute.index()];
        value.ok_or(Fault::MissingAttribute(attribute))
    }

    /// Returns a path, a name or a symlink target. It ends at the first NUL, as in `btrfs receive`: the kernel sends
    /// a NUL in targets that `mkfs.btrfs --rootdir` has stored with one.
    pub(super) fn text(&self, attribute: Attribute) -> Result<&'a [u8], Fault> {
        let bytes = self.bytes(attribute)?;
        let end = bytes.iter().position(|byte| *byte == 0);
        Ok(&bytes[..end.unwrap_or(bytes.len())])
    }

    fn array<const N: usize>(&self, attribute: Attribute) -> Result<[u8; N], Fault> {
        let bytes = self.bytes(attribute)?;
        bytes.try_into().map_err(|_| Fault::AttributeSize {
            attribute,
            expected: N,
            found: bytes.len(),
        })
    }

    pub(super) fn u32(&self, attribute: Attribute) -> Result<u32, Fault> {
        self.array(attribute).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&self, attribute: Attribute) -> Result<u64, Fault> {
        self.array(attribute).map(u64::from_le_bytes)
    }

    pub(super) fn ino(&self) -> Result<InodeNr, Fault> {
        self.u64(Attribute::Ino).map(InodeNr)
    }

    pub(super) fn transid(&self, attribute: Attribute) -> Result<Transid, Fault> {
        self.u64(attribute).map(Transid)
    }

    pub(super) fn uuid(&self, attribute: Attribute) -> Result<Uuid, Fault> {
        self.array(attribute).map(Uuid)
    }

    pub(super) fn time(&self, attribute: Attribute) -> Result<Time, Fault> {
        let bytes: [u8; 12] = self.array(attribute)?;
        let (sec, nsec) = bytes.split_at(8);
        Ok(Time {
            sec: i64::from_le_bytes(sec.try_into().expect("8 bytes")),
            nsec: u32::from_le_bytes(nsec.try_into().expect("4 bytes")),
        })
    }

    /// Returns the result of `get`, or None if the attribute is missing.
    pub(super) fn optional<T>(
        &self,
        attribute: Attribute,
        get: impl FnOnce(&Self, Attribute) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        match self.0[attribute.index()] {
            Some(_) => get(self, attribute).map(Some),
            None => Ok(None),
        }
    }
}

fn take_u16(rest: &mut &[u8]) -> Result<u16, Fault> {
    let bytes = rest.split_off(..2).ok_or(Fault::CutAttribute)?;
    Ok(u16::from_le_bytes(bytes.try_into().expect("2 bytes")))
}
