//! The kernel's table of mounts, `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use ubtrfs_device::backing_file;

/// The type of our mounts: the kernel's `fuse` with our subtype.
pub const FS_TYPE: &str = "fuse.ubtrfs";
/// The type of mounts that root makes of block devices, and of images through loop devices.
pub const BLOCK_FS_TYPE: &str = "fuseblk.ubtrfs";

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// The unique id of the mount, as in `statx`.
    pub id: u64,
    /// The id of the parent mount.
    pub parent: u64,
    /// Major and minor number of the file system's device, as in `st_dev`.
    pub device: (u32, u32),
    /// The visible directory of the file system: "/", except for bind mounts.
    pub root: PathBuf,
    pub mountpoint: PathBuf,
    /// The options of this mount alone, separated by commas.
    pub mount_options: String,
    pub fs_type: String,
    pub source: PathBuf,
    /// The options of the file system, separated by commas.
    pub options: String,
}

impl TableEntry {
    /// Returns whether this program serves it.
    pub fn is_ours(&self) -> bool {
        matches!(self.fs_type.as_str(), FS_TYPE | BLOCK_FS_TYPE)
    }

    /// Returns the path of its volume: the source, or the image behind a loop device.
    pub fn volume_path(&self) -> PathBuf {
        let image = match self.fs_type.as_str() {
            BLOCK_FS_TYPE => backing_file(self.device),
            _ => None,
        };
        image.unwrap_or_else(|| self.source.clone())
    }

    /// Returns whether it is a mount of the image or device `place`.
    pub(crate) fn is_of(&self, place: &Path) -> bool {
        self.source == place || self.volume_path() == place
    }

    /// Returns whether the file system is read-only in all its mounts.
    pub fn is_read_only(&self) -> bool {
        has(&self.options, "ro")
    }

    /// Returns whether this mount is read-only.
    pub fn refuses_writes(&self) -> bool {
        has(&self.mount_options, "ro") || self.is_read_only()
    }

    /// Returns whether this mount maps users and groups.
    pub(crate) fn is_idmapped(&self) -> bool {
        has(&self.mount_options, "idmapped")
    }

    /// Returns whether this is the same mount, even if it was moved. Each number may be reused, but not both while its
    /// connection lives.
    pub(crate) fn is_same(&self, other: &TableEntry) -> bool {
        (self.id, self.device) == (other.id, other.device)
    }

    /// Returns whether another mount covers it: then its path belongs to that one.
    pub(crate) fn is_covered(&self, table: &[TableEntry]) -> bool {
        let covers =
            |over: &TableEntry| over.parent == self.id && over.mountpoint == self.mountpoint;
        table.iter().any(covers)
    }

    /// Returns the user that mounted a FUSE file system.
    pub fn owner(&self) -> Option<u32> {
        let mut options = self.options.split(',');
        options.find_map(|option| option.strip_prefix("user_id=")?.parse().ok())
    }
}

pub(crate) fn has(options: &str, wanted: &str) -> bool {
    options.split(',').any(|option| option == wanted)
}

/// Returns all mounts that this process sees, in the order of their creation.
pub fn mount_table() -> io::Result<Vec<TableEntry>> {
    table_of(Path::new("/proc/self"))
}

/// Returns whether the file system with this device number is mounted read-only, as far as this process sees.
pub fn is_read_only(device: (u32, u32)) -> bool {
    mount_table().is_ok_and(|table| {
        let mut mounts = table.iter().filter(|entry| entry.device == device);
        mounts.any(TableEntry::is_read_only)
    })
}

/// Returns whether a process sees the file system with this device number only through read-only mounts.
pub fn is_read_only_to(pid: u32, device: (u32, u32)) -> bool {
    let mut table = mount_table_of(pid).unwrap_or_default();
    table.retain(|entry| entry.device == device);
    !table.is_empty() && table.iter().all(TableEntry::refuses_writes)
}

/// Returns all mounts that another process sees.
pub(crate) fn mount_table_of(pid: u32) -> io::Result<Vec<TableEntry>> {
    table_of(Path::new(&format!("/proc/{pid}")))
}

/// Returns all mounts that the process with this folder below `/proc` sees.
pub(crate) fn table_of(process: &Path) -> io::Result<Vec<TableEntry>> {
    let text = std::fs::read(process.join("mountinfo"))?;
    Ok(text
        .split(|&byte| byte == b'\n')
        .filter_map(parse_line)
        .collect())
}

/// Returns the mount that is visible at `path`, if `path` is a mount point.
pub(crate) fn mount_at(path: &Path) -> io::Result<Option<TableEntry>> {
    let mut table = mount_table()?;
    let found = table.iter().rposition(|entry| entry.mountpoint == path);
    Ok(found.map(|index| table.swap_remove(index)))
}

/// Parses a line such as `36 35 98:0 / /mnt rw,noatime shared:1 - fuse.ubtrfs /images/a.img ro,user_id=0`.
fn parse_line(line: &[u8]) -> Option<TableEntry> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?;
    let parent = std::str::from_utf8(fields.next()?).ok()?;
    let device = std::str::from_utf8(fields.next()?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let root = fields.next()?;
    let mountpoint = fields.next()?;
    let mount_options = fields.next()?;
    // Optional fields end at a lone hyphen.
    fields.find(|field| *field == b"-")?;
    let fs_type = fields.next()?;
    let source = fields.next()?;
    let options = fields.next().unwrap_or_default();
    Some(TableEntry {
        id: id.parse().ok()?,
        parent: parent.parse().ok()?,
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: unescape(root).into(),
        mountpoint: unescape(mountpoint).into(),
        mount_options: String::from_utf8_lossy(mount_options).into_owned(),
        fs_type: String::from_utf8_lossy(fs_type).into_owned(),
        source: unescape(source).into(),
        options: String::from_utf8_lossy(options).into_owned(),
    })
}

/// Decodes octal escapes. The kernel writes blanks, newlines and backslashes as a backslash and three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = (byte == b'\\')
            .then(|| after.get(..3))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match escaped {
            Some(byte) => {
                plain.push(byte);
                rest = &after[3..];
            }
            None => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    OsString::from_vec(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_optional_fields_and_escapes_is_read() {
        let line =
            br"36 35 0:52 /sub /mnt/a\040b ro shared:1 master:2 - fuse.ubtrfs /i\134x.img ro,user_id=7";
        let entry = parse_line(line).unwrap();
        assert_eq!(entry.owner(), Some(7));
        assert!(entry.refuses_writes());
        assert_eq!(
            entry,
            TableEntry {
                id: 36,
                parent: 35,
                device: (0, 52),
                root: "/sub".into(),
                mountpoint: "/mnt/a b".into(),
                mount_options: "ro".into(),
                fs_type: "fuse.ubtrfs".into(),
                source: r"/i\x.img".into(),
                options: "ro,user_id=7".into(),
            }
        );
    }

    #[test]
    fn a_mount_is_covered_by_one_that_was_made_at_its_root() {
        let lines = [
            "30 1 0:30 / /mnt rw - fuse.ubtrfs /a.img rw",
            "31 30 0:31 / /mnt/below rw - tmpfs none rw",
            "32 30 0:32 / /mnt rw - tmpfs none rw",
        ];
        let table: Vec<_> = lines
            .iter()
            .filter_map(|line| parse_line(line.as_bytes()))
            .collect();
        let covered = table.iter().map(|entry| entry.is_covered(&table));
        assert_eq!(covered.collect::<Vec<_>>(), [true, false, false]);
    }

    #[test]
    fn lines_cut_short_are_skipped() {
        assert_eq!(parse_line(b""), None);
        assert_eq!(parse_line(b"36 35 0:52 / /mnt ro"), None);
        assert_eq!(parse_line(b"36 35 zero / /mnt ro - fuse x ro"), None);
    }

    #[test]
    fn a_backslash_without_digits_is_itself() {
        assert_eq!(unescape(br"a\04"), OsString::from(r"a\04"));
        assert_eq!(unescape(br"\9zz"), OsString::from(r"\9zz"));
    }

    #[test]
    fn the_root_is_in_the_table() {
        let table = mount_table().unwrap();
        assert!(table.iter().any(|entry| entry.mountpoint == Path::new("/")));
    }
}
