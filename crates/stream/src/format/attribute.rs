//! Attributes: the fields of commands.

use super::StreamVersion;
use super::numbered::numbered;

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
    pub(super) const COUNT: usize = Attribute::VeritySigData as usize;

    /// Returns the position of the attribute among all.
    pub(super) fn index(self) -> usize {
        usize::from(self.raw()) - 1
    }

    pub(super) fn is_of_version_3(self) -> bool {
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
