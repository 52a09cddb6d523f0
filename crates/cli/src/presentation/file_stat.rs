//! The attributes of a listed file, read once for any layout.

use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use rustix::fs::{major, minor};
use serde::ser::{Serialize, SerializeMap, Serializer};
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

    pub(crate) fn to_json<'a>(&'a self, path: &'a [u8]) -> FileJson<'a> {
        FileJson { stat: self, path }
    }
}

/// A file in a JSON listing. Times are RFC 3339, sizes bytes.
#[derive(Debug)]
pub(crate) struct FileJson<'a> {
    stat: &'a FileStat,
    path: &'a [u8],
}

impl Serialize for FileJson<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let file = &self.stat.metadata;
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("path", &json::text(self.path))?;
        // The path's bytes, if it is not UTF-8.
        if let Some(hex) = json::hex_if_lossy(self.path) {
            map.serialize_entry("path_hex", &hex)?;
        }
        map.serialize_entry("type", permissions::kind_name(file.file_type()))?;
        map.serialize_entry("mode", &format!("{:04o}", file.mode() & 0o7777))?;
        map.serialize_entry("nlink", &file.nlink())?;
        map.serialize_entry("uid", &file.uid())?;
        map.serialize_entry("gid", &file.gid())?;
        map.serialize_entry("size", &file.len())?;
        map.serialize_entry("bytes_used", &file.bytes_used())?;
        map.serialize_entry("subvolume", &file.subvolume_id())?;
        map.serialize_entry("inode", &file.ino())?;
        map.serialize_entry("generation", &file.generation())?;
        map.serialize_entry("transid", &file.changed_generation())?;
        map.serialize_entry("atime", &clock::rfc3339(file.accessed()))?;
        map.serialize_entry("mtime", &clock::rfc3339(file.modified()))?;
        map.serialize_entry("ctime", &clock::rfc3339(file.changed()))?;
        map.serialize_entry("btime", &clock::rfc3339(file.created()))?;
        if let Some((major, minor)) = self.stat.device_number() {
            map.serialize_entry("major", &major)?;
            map.serialize_entry("minor", &minor)?;
        }
        if let Some(target) = &self.stat.target {
            map.serialize_entry("target", &json::text(target))?;
            if let Some(hex) = json::hex_if_lossy(target) {
                map.serialize_entry("target_hex", &hex)?;
            }
        }
        map.end()
    }
}
