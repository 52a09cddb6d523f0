//! The attributes of a listed file, read once for any layout.

use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use rustix::fs::{major, minor};
use serde::Serialize;
use ubtrfs::{DirEntry, FileKind, Metadata, Subvolume};

use crate::presentation::{clock, json, permissions};

#[derive(Clone, Debug)]
pub(crate) struct FileStat {
    pub(crate) metadata: Metadata,
    /// The target of a symbolic link.
    pub(crate) target: Option<Vec<u8>>,
}

impl FileStat {
    /// Reads the attributes of the file at a path, without following links.
    pub(crate) fn at(files: &Subvolume, path: &Path) -> ubtrfs::Result<FileStat> {
        let metadata = files.symlink_metadata(path)?;
        let target = if metadata.is_symlink() {
            Some(files.read_link(path)?.into_os_string().into_vec())
        } else {
            None
        };
        Ok(FileStat { metadata, target })
    }

    /// Reads the attributes of a directory entry.
    pub(crate) fn of(entry: &DirEntry) -> ubtrfs::Result<FileStat> {
        let metadata = entry.metadata()?;
        let target = if metadata.is_symlink() {
            Some(entry.read_link()?.into_os_string().into_vec())
        } else {
            None
        };
        Ok(FileStat { metadata, target })
    }

    /// Returns the major and minor number of a device file.
    pub(crate) fn device_number(&self) -> Option<(u32, u32)> {
        match self.metadata.file_type() {
            FileKind::CharDevice | FileKind::BlockDevice => {
                let rdev = self.metadata.rdev();
                Some((major(rdev), minor(rdev)))
            }
            _ => None,
        }
    }

    pub(crate) fn to_json(&self, path: &[u8]) -> FileJson {
        let file = &self.metadata;
        let device = self.device_number();
        FileJson {
            path: json::text(path),
            path_hex: json::hex_if_lossy(path),
            kind: permissions::kind_name(file.file_type()),
            mode: format!("{:04o}", file.mode() & 0o7777),
            nlink: file.nlink(),
            uid: file.uid(),
            gid: file.gid(),
            size: file.len(),
            bytes_used: file.bytes_used(),
            subvolume: file.subvolume_id(),
            inode: file.ino(),
            generation: file.generation(),
            transid: file.changed_generation(),
            atime: clock::rfc3339(file.accessed()),
            mtime: clock::rfc3339(file.modified()),
            ctime: clock::rfc3339(file.changed()),
            btime: clock::rfc3339(file.created()),
            major: device.map(|(major, _)| major),
            minor: device.map(|(_, minor)| minor),
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
    nlink: u64,
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
