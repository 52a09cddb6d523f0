//! Facts that are listed of a file, read once and shown in any layout.

use serde::Serialize;
use ubtrfs::transfer::DeviceNumber;
use ubtrfs_engine::{Attr, FileId, FileKind, Result, Volume};
use ubtrfs_format::item::acl;

use crate::presentation::{clock, json, permissions};

/// `st_blocks` counts units of this size.
const STAT_BLOCK_BYTES: u64 = 512;

#[derive(Clone, Debug)]
pub(crate) struct FileFacts {
    pub(crate) id: FileId,
    pub(crate) attr: Attr,
    /// The target of a symbolic link.
    pub(crate) target: Option<Vec<u8>>,
    pub(crate) has_acl: bool,
    sectorsize: u64,
}

impl FileFacts {
    pub(crate) fn read(volume: &Volume, id: FileId) -> Result<FileFacts> {
        let attr = volume.attr(id)?;
        let target = match attr.kind {
            FileKind::Symlink => Some(volume.readlink(id)?),
            _ => None,
        };
        let has_acl = volume.xattr(id, acl::ACCESS)?.is_some()
            || (attr.kind == FileKind::Directory && volume.xattr(id, acl::DEFAULT)?.is_some());
        Ok(FileFacts {
            id,
            attr,
            target,
            has_acl,
            sectorsize: u64::from(volume.superblock().sectorsize.get()),
        })
    }

    /// `st_blocks` as a mount shows it.
    pub(crate) fn blocks(&self) -> u64 {
        let sectors = self.attr.nbytes.div_ceil(self.sectorsize);
        sectors.saturating_mul(self.sectorsize) / STAT_BLOCK_BYTES
    }

    pub(crate) fn device_number(&self) -> Option<DeviceNumber> {
        matches!(self.attr.kind, FileKind::CharDevice | FileKind::BlockDevice)
            .then(|| DeviceNumber::from_inode(self.attr.rdev))
    }

    pub(crate) fn to_json(&self, path: &[u8]) -> FileJson {
        let attr = &self.attr;
        let device = self.device_number();
        FileJson {
            path: json::text(path),
            path_hex: json::hex_if_lossy(path),
            kind: permissions::kind_name(attr.kind),
            mode: format!("{:04o}", attr.mode & 0o7777),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            bytes_used: attr.nbytes,
            subvolume: self.id.root.0,
            inode: attr.ino.0,
            generation: attr.generation,
            transid: attr.transid.0,
            atime: clock::rfc3339(attr.atime),
            mtime: clock::rfc3339(attr.mtime),
            ctime: clock::rfc3339(attr.ctime),
            btime: clock::rfc3339(attr.otime),
            major: device.map(|device| device.major),
            minor: device.map(|device| device.minor),
            target: self.target.as_deref().map(json::text),
            target_hex: self.target.as_deref().and_then(json::hex_if_lossy),
        }
    }
}

/// A file in a JSON listing. Times are RFC 3339, sizes bytes.
#[derive(Debug, Serialize)]
pub(crate) struct FileJson {
    path: String,
    /// The path's bytes, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    #[serde(rename = "type")]
    kind: &'static str,
    mode: String,
    nlink: u32,
    uid: u32,
    gid: u32,
    size: u64,
    bytes_used: u64,
    subvolume: u64,
    inode: u64,
    generation: u64,
    transid: u64,
    atime: String,
    mtime: String,
    ctime: String,
    btime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    major: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    minor: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_hex: Option<String>,
}
