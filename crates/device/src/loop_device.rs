//! Loop devices: finding the file behind one, finding one by its file, and attaching one to an image.

#![allow(unsafe_code)]

use std::ffi::{OsStr, c_void};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr;

use rustix::fs::{Advice, fadvise, major, makedev, minor};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl};

use crate::access::Access;
use crate::loop_status::{AttachedLoops, LoopInfo, has_sysfs, status};

const CONTROL: &str = "/dev/loop-control";
/// Maximum attempts to attach, because another program may take the free number first.
const TRIES: usize = 64;

const LOOP_CONFIGURE: Opcode = 0x4c0a;
const LOOP_CTL_GET_FREE: Opcode = 0x4c82;

const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// `struct loop_config` of Linux.
#[derive(Default)]
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}
const _: () = assert!(size_of::<LoopConfig>() == 304);

/// Requests the number of a free loop device.
struct GetFree;

// SAFETY: LOOP_CTL_GET_FREE has no argument and returns the number.
unsafe impl Ioctl for GetFree {
    type Output = IoctlOutput;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_CTL_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        ptr::null_mut()
    }

    unsafe fn output_from_ptr(
        number: IoctlOutput,
        _: *mut c_void,
    ) -> rustix::io::Result<Self::Output> {
        Ok(number)
    }
}

/// A loop device that the kernel detaches after its last close and unmount.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    _open: File,
}

impl LoopDevice {
    /// Attaches a loop device to an image.
    pub fn attach(image: &File, access: Access) -> io::Result<LoopDevice> {
        let mut options = OpenOptions::new();
        options.read(true).write(access == Access::Write);
        // Reopen the file: a shared descriptor would keep its lock until the loop device is detached.
        let image = options.open(format!("/proc/self/fd/{}", image.as_raw_fd()))?;
        let control = OpenOptions::new().read(true).write(true).open(CONTROL)?;
        for _ in 0..TRIES {
            // SAFETY: `GetFree` is implemented for the loop control device.
            let number = unsafe { ioctl(&control, GetFree) }?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = options.open(&path)?;
            match configure(&device, &image, access) {
                Err(Errno::BUSY) => {}
                outcome => {
                    outcome?;
                    return Ok(LoopDevice {
                        path,
                        _open: device,
                    });
                }
            }
        }
        Err(Errno::BUSY.into())
    }

    /// Returns the device path, such as `/dev/loop3`.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn configure(device: &File, image: &File, access: Access) -> rustix::io::Result<()> {
    let mut config = LoopConfig {
        fd: image.as_raw_fd().cast_unsigned(),
        ..LoopConfig::default()
    };
    config.info.flags = match access {
        Access::Read => LO_FLAGS_AUTOCLEAR | LO_FLAGS_READ_ONLY,
        Access::Write => LO_FLAGS_AUTOCLEAR,
    };
    // SAFETY: LOOP_CONFIGURE reads a loop_config and writes nothing. LoopConfig has the same layout.
    unsafe { ioctl(device, Setter::<LOOP_CONFIGURE, LoopConfig>::new(config)) }
}

/// Drops the kernel's page cache of a block device, after its backing file was written directly.
pub fn forget_pages(device: &Path) -> io::Result<()> {
    // BLKFLSBUF would block on a mount of the device, even during its unmount.
    let device = File::open(device)?;
    Ok(fadvise(&device, 0, None, Advice::DontNeed)?)
}

/// Finds the file that a loop device maps as a whole, by device number.
pub fn backing_file((major, minor): (u32, u32)) -> Option<PathBuf> {
    if !has_sysfs() {
        return AttachedLoops::find().backing_file(makedev(major, minor));
    }
    let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    match fs::read(folder.join("loop/offset")).ok()?.trim_ascii() {
        b"0" => backing_in(&folder),
        _ => None,
    }
}

pub(crate) fn backing_of(device: &Metadata) -> Option<PathBuf> {
    let device = device.rdev();
    backing_file((major(device), minor(device)))
}

/// Finds the backing file of the block device with this sysfs folder.
fn backing_in(folder: &Path) -> Option<PathBuf> {
    let path = fs::read(folder.join("loop/backing_file")).ok()?;
    let path = path.strip_suffix(b"\n").unwrap_or(&path);
    Some(OsStr::from_bytes(path).into())
}

/// Finds another loop device that maps an overlapping range of the same file.
pub(crate) fn sibling_of(device: &Metadata) -> Option<String> {
    let number = device.rdev();
    if !has_sysfs() {
        let loops = AttachedLoops::find();
        return Some(loops.sibling_of(number)?.path.display().to_string());
    }
    let own = PathBuf::from(format!(
        "/sys/dev/block/{}:{}",
        major(number),
        minor(number)
    ));
    let (file, shown) = (backing_metadata(&own)?, range_of(&own)?);
    let own = fs::canonicalize(&own).ok()?;
    let mut loops = fs::read_dir("/sys/block").ok()?.flatten();
    let found = loops.find(|entry| {
        let folder = entry.path();
        let is_other = || fs::canonicalize(&folder).is_ok_and(|folder| folder != own);
        let is_same_file = || {
            backing_metadata(&folder).is_some_and(|other| is_same(&other, &file))
                || shows(&Path::new("/dev").join(entry.file_name()), &file)
        };
        let overlaps = || {
            range_of(&folder)
                .is_some_and(|other| other.start < shown.end && shown.start < other.end)
        };
        entry.file_name().as_bytes().starts_with(b"loop")
            && is_same_file()
            && is_other()
            && overlaps()
    })?;
    Some(format!("/dev/{}", found.file_name().to_string_lossy()))
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Returns whether a loop device reports this backing file. False if its status is not available.
fn shows(device: &Path, file: &Metadata) -> bool {
    let status = File::open(device).map(|device| status(&device));
    matches!(status, Ok(Ok(info)) if info.shows(file))
}

fn backing_metadata(folder: &Path) -> Option<Metadata> {
    fs::metadata(backing_in(folder)?).ok()
}

/// Returns the range of the backing file that the loop device with this sysfs folder maps.
fn range_of(folder: &Path) -> Option<Range<u64>> {
    let number = |name: &str| -> Option<u64> {
        let text = fs::read_to_string(folder.join("loop").join(name)).ok()?;
        text.trim().parse().ok()
    };
    let (start, limit) = (number("offset")?, number("sizelimit")?);
    let end = match limit {
        0 => u64::MAX,
        _ => start.saturating_add(limit),
    };
    Some(start..end)
}

/// Finds a loop device that is backed by this file. If `access` is for reading, only a writable one counts.
///
/// A writer gets a warning if neither sysfs nor the loop devices provide the information.
pub(crate) fn loop_on(file: &Metadata, access: Access) -> Option<String> {
    if !has_sysfs() {
        let loops = AttachedLoops::find();
        let found = loops.on(file, access);
        if let (None, Some(device), Access::Write) = (found, &loops.unknown, access) {
            tracing::warn!(
                device = %device.display(),
                "cannot tell whether a loop device shows the image: /sys is not mounted, and the device does not answer"
            );
        }
        return Some(found?.path.display().to_string());
    }
    let entries = fs::read_dir("/sys/block").ok()?;
    let mut loops = entries.flatten().filter(|entry| {
        let name = entry.file_name();
        name.as_bytes().starts_with(b"loop")
    });
    let found = loops.find(|entry| {
        let folder = entry.path();
        let is_it = backing_in(&folder).is_some_and(|path| match fs::metadata(path) {
            Ok(other) if is_same(&other, file) => true,
            // The path may belong to another mount namespace, or lead to another file by now.
            _ => shows(&Path::new("/dev").join(entry.file_name()), file),
        });
        let is_read_only = || fs::read(folder.join("ro")).is_ok_and(|ro| ro.trim_ascii() == b"1");
        is_it && (access == Access::Write || !is_read_only())
    })?;
    Some(format!("/dev/{}", found.file_name().to_string_lossy()))
}
