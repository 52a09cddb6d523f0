//! Status of attached loop devices by ioctl, for systems without sysfs.
//!
//! Not here: the same from sysfs, which does not require permission to open the devices (`loop_device`).

#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::makedev;
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl};
use zerocopy::IntoBytes;

use crate::access::Access;

const LOOP_GET_STATUS64: Opcode = 0x4c05;
const LO_FLAGS_READ_ONLY: u32 = 1;

/// `struct loop_info64` of Linux.
#[derive(Default)]
#[repr(C)]
pub(crate) struct LoopInfo {
    /// Device, inode and rdevice, set by the kernel.
    of_file: [u64; 3],
    offset: u64,
    sizelimit: u64,
    number: u32,
    encryption: [u32; 2],
    pub(crate) flags: u32,
    /// Names of the file and of a cipher, each truncated to 63 bytes.
    names: [[u64; 8]; 2],
    key: [u64; 4],
    init: [u64; 2],
}
const _: () = assert!(size_of::<LoopInfo>() == 232);

/// An attached loop device.
pub(crate) struct AttachedLoop {
    pub(crate) path: PathBuf,
    rdev: u64,
    info: LoopInfo,
}

/// The attached loop devices, as far as their status is available.
#[derive(Default)]
pub(crate) struct AttachedLoops {
    loops: Vec<AttachedLoop>,
    /// A device that is or may be attached and whose status is not available.
    pub(crate) unknown: Option<PathBuf>,
}

/// Returns whether sysfs lists block devices.
pub(crate) fn has_sysfs() -> bool {
    fs::read_dir("/sys/block").is_ok_and(|mut entries| entries.next().is_some())
}

/// Returns the status of a loop device, including its backing file.
pub(crate) fn status(device: &File) -> rustix::io::Result<LoopInfo> {
    // SAFETY: LOOP_GET_STATUS64 writes a loop_info64. LoopInfo has the same layout.
    unsafe { ioctl(device, Getter::<LOOP_GET_STATUS64, LoopInfo>::new()) }
}

impl LoopInfo {
    pub(crate) fn shows(&self, file: &Metadata) -> bool {
        let [device, inode, _] = self.of_file;
        (device, inode) == (file.dev(), file.ino())
    }

    fn range(&self) -> Range<u64> {
        let end = match self.sizelimit {
            0 => u64::MAX,
            limit => self.offset.saturating_add(limit),
        };
        self.offset..end
    }

    /// Returns the backing file if it is mapped as a whole and its known name still leads to it.
    fn file(&self) -> Option<PathBuf> {
        let name = self.names[0].as_bytes();
        let name = &name[..name.iter().position(|&byte| byte == 0)?];
        let path = PathBuf::from(OsStr::from_bytes(name));
        let is_it = fs::metadata(&path).is_ok_and(|file| self.shows(&file));
        (is_it && self.offset == 0).then_some(path)
    }
}

impl AttachedLoops {
    /// Reads the status of all loop devices that the kernel lists, or of all in `/dev` if it lists none.
    pub(crate) fn find() -> AttachedLoops {
        let mut found = AttachedLoops::default();
        let listed = fs::read_to_string("/proc/partitions").ok();
        let nodes: Vec<(PathBuf, Option<u64>)> = match &listed {
            Some(partitions) => partitions.lines().filter_map(parse_loop).collect(),
            None => loop_nodes().map(|node| (node, None)).collect(),
        };
        if listed.is_none() && nodes.is_empty() {
            found.unknown = Some(PathBuf::from("/dev/loop*"));
        }
        for (path, wanted) in nodes {
            match ask(&path, wanted) {
                Ok(device) => found.loops.push(device),
                Err(Errno::NXIO) => {}
                Err(_) => found.unknown = Some(path),
            }
        }
        found
    }

    /// Finds a loop device that is backed by this file. If `access` is for reading, only a writable one counts.
    pub(crate) fn on(&self, file: &Metadata, access: Access) -> Option<&AttachedLoop> {
        self.loops.iter().find(|device| {
            let is_read_only = device.info.flags & LO_FLAGS_READ_ONLY != 0;
            device.info.shows(file) && (access == Access::Write || !is_read_only)
        })
    }

    /// Finds another loop device that maps an overlapping range of the same file as device `rdev`.
    pub(crate) fn sibling_of(&self, rdev: u64) -> Option<&AttachedLoop> {
        let own = self.of_number(rdev)?;
        let shown = own.info.range();
        self.loops.iter().find(|other| {
            let range = other.info.range();
            other.rdev != rdev
                && other.info.of_file[..2] == own.info.of_file[..2]
                && range.start < shown.end
                && shown.start < range.end
        })
    }

    /// Finds the file that loop device `rdev` maps as a whole.
    pub(crate) fn backing_file(&self, rdev: u64) -> Option<PathBuf> {
        self.of_number(rdev)?.info.file()
    }

    fn of_number(&self, rdev: u64) -> Option<&AttachedLoop> {
        self.loops.iter().find(|device| device.rdev == rdev)
    }
}

/// Reads the status of the loop device at a path, which must have the wanted number.
fn ask(path: &Path, wanted: Option<u64>) -> rustix::io::Result<AttachedLoop> {
    let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let device = File::open(path).map_err(errno)?;
    let metadata = device.metadata().map_err(errno)?;
    let is_wanted = wanted.is_none_or(|wanted| metadata.rdev() == wanted);
    if !metadata.file_type().is_block_device() || !is_wanted {
        return Err(Errno::NODEV);
    }
    Ok(AttachedLoop {
        path: path.to_owned(),
        rdev: metadata.rdev(),
        info: status(&device)?,
    })
}

/// Parses a line of /proc/partitions such as `   7        0     204800 loop0`, if it is a whole loop device.
fn parse_loop(line: &str) -> Option<(PathBuf, Option<u64>)> {
    let mut fields = line.split_whitespace();
    let (major, minor) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let name = fields.nth(1).filter(|name| is_loop(name))?;
    Some((Path::new("/dev").join(name), Some(makedev(major, minor))))
}

fn loop_nodes() -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten();
    let is_node = |entry: &fs::DirEntry| entry.file_name().to_str().is_some_and(is_loop);
    entries.filter(is_node).map(|entry| entry.path())
}

fn is_loop(name: &str) -> bool {
    let number = name.strip_prefix("loop").unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_loop_devices_are_read_from_the_list_of_partitions() {
        let whole = parse_loop("   7        3     204800 loop3");
        assert_eq!(
            whole,
            Some((PathBuf::from("/dev/loop3"), Some(makedev(7, 3))))
        );
        for line in [
            "",
            "major minor  #blocks  name",
            " 259  0  1024 loop3p1",
            " 8 0 1024 sda",
        ] {
            assert_eq!(parse_loop(line), None, "{line}");
        }
    }
}
