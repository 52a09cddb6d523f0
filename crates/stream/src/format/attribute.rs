//! Attributes: the fields of commands.

use super::field::Field;
use super::numbered::numbered;
use super::{Fault, StreamVersion};

numbered! {
    /// An attribute, by its number.
    pub enum Attribute {
        Uuid = 1 "uuid",
        Ctransid = 2 "ctransid",
        Ino = 3 "ino",
        Size = 4 "size",
        Mode = 5 "mode",
        Uid = 6 "uid",
        Gid = 7 "gid",
        Rdev = 8 "rdev",
        Ctime = 9 "ctime",
        Mtime = 10 "mtime",
        Atime = 11 "atime",
        Otime = 12 "otime",
        XattrName = 13 "xattr_name",
        XattrData = 14 "xattr_data",
        Path = 15 "path",
        PathTo = 16 "path_to",
        PathLink = 17 "path_link",
        FileOffset = 18 "file_offset",
        Data = 19 "data",
        CloneUuid = 20 "clone_uuid",
        CloneCtransid = 21 "clone_ctransid",
        ClonePath = 22 "clone_path",
        CloneOffset = 23 "clone_offset",
        CloneLen = 24 "clone_len",
        FallocateMode = 25 "fallocate_mode",
        Fileattr = 26 "fileattr",
        UnencodedFileLen = 27 "unencoded_file_len",
        UnencodedLen = 28 "unencoded_len",
        UnencodedOffset = 29 "unencoded_offset",
        Compression = 30 "compression",
        Encryption = 31 "encryption",
        VerityAlgorithm = 32 "verity_algorithm",
        VerityBlockSize = 33 "verity_block_size",
        VeritySaltData = 34 "verity_salt_data",
        VeritySigData = 35 "verity_sig_data",
    }
}

impl Attribute {
    fn index(self) -> usize {
        usize::from(self.raw()) - 1
    }

    fn is_of_version_3(self) -> bool {
        self.raw() >= Attribute::VerityAlgorithm.raw()
    }

    /// Returns whether the attribute has any bytes, while others with a variable length are paths and names.
    pub(super) fn is_binary(self) -> bool {
        matches!(self, Attribute::XattrData | Attribute::Data)
    }

    /// Returns whether a command of this version can have the attribute.
    pub(super) fn is_known_in(self, version: StreamVersion) -> bool {
        self != Attribute::Otime || version >= StreamVersion::V2
    }

    /// Returns whether the attribute has no length and extends to the end of the command.
    pub(super) fn takes_rest(self, version: StreamVersion) -> bool {
        self == Attribute::Data && version >= StreamVersion::V2
    }
}

const COUNT: usize = Attribute::VeritySigData as usize;

/// A time of a file, in seconds since 1970.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Time {
    pub sec: i64,
    pub nsec: u32,
}

impl Time {
    pub(super) fn from_bytes([s0, s1, s2, s3, s4, s5, s6, s7, nsec @ ..]: [u8; 12]) -> Self {
        Time {
            sec: i64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
            nsec: u32::from_le_bytes(nsec),
        }
    }

    pub(super) fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.sec.to_le_bytes());
        bytes[8..].copy_from_slice(&self.nsec.to_le_bytes());
        bytes
    }
}

/// The attributes of one command. If an attribute is repeated, the last one counts.
#[derive(Debug)]
pub(super) struct Attributes<'a>([Option<&'a [u8]>; COUNT]);

impl<'a> Attributes<'a> {
    pub(super) fn parse(body: &'a [u8], version: StreamVersion) -> Result<Self, Fault> {
        let mut found = Self([None; COUNT]);
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

    /// Returns the value of an attribute, or `default` if it is missing. Without a default it is required.
    pub(super) fn field<F: Field<'a>>(
        &self,
        attribute: Attribute,
        default: Option<F>,
    ) -> Result<F, Fault> {
        match self.0[attribute.index()] {
            Some(bytes) => F::decode(attribute, bytes),
            None => default.ok_or(Fault::MissingAttribute(attribute)),
        }
    }
}

fn take_u16(rest: &mut &[u8]) -> Result<u16, Fault> {
    let bytes = rest.split_off(..2).ok_or(Fault::CutAttribute)?;
    Ok(u16::from_le_bytes(bytes.try_into().expect("2 bytes")))
}
