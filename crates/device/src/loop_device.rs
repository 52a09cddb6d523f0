//! Loop devices: which file one shows, which one shows a file, and attaching one to an image.

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
/// Tries to get a free number, which another program may take first.
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

/// Asks for a number that no file is attached to.
struct GetFree;

// SAFETY: LOOP_CTL_GET_FREE takes no argument, and its result is the number.
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
        // Opened anew: a lock would go with the last of the device's references to the file that has it.
        let image = options.open(format!("/proc/self/fd/{}", image.as_raw_fd()))?;
        let control = OpenOptions::new().read(true).write(true).open(CONTROL)?;
        for _ in 0..TRIES {
            // SAFETY: the implementation of Ioctl is for this kind of file.
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

    /// Returns its path, such as `/dev/loop3`.
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
    // SAFETY: the opcode is of LOOP_CONFIGURE, which reads a loop_config, of which LoopConfig has the layout, and
    // writes nothing.
    unsafe { ioctl(device, Setter::<LOOP_CONFIGURE, LoopConfig>::new(config)) }
}

/// Has the kernel forget what it has read through a block device: the file behind it was written to by other ways.
pub fn forget_pages(device: &Path) -> io::Result<()> {
    // BLKFLSBUF would wait for a mount of it, even while that mount ends.
    let device = File::open(device)?;
    Ok(fadvise(&device, 0, None, Advice::DontNeed)?)
}

/// Finds the file that a loop device shows as a whole, by the device's number.
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

/// Finds the file behind the block device that has this folder in sysfs.
fn backing_in(folder: &Path) -> Option<PathBuf> {
    let path = fs::read(folder.join("loop/backing_file")).ok()?;
    let path = path.strip_suffix(b"\n").unwrap_or(&path);
    Some(OsStr::from_bytes(path).into())
}

/// Finds another loop device that shows bytes which this one shows, too.
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

/// Returns whether a loop device itself says that it shows a file. False where it cannot be asked.
fn shows(device: &Path, file: &Metadata) -> bool {
    let status = File::open(device).map(|device| status(&device));
    matches!(status, Ok(Ok(info)) if info.shows(file))
}

fn backing_metadata(folder: &Path) -> Option<Metadata> {
    fs::metadata(backing_in(folder)?).ok()
}

/// Returns which bytes of its file the loop device with this folder in sysfs shows.
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

/// Finds the loop device that shows this file, if any, and, if `access` is for reading, may write to it.
///
/// Where neither sysfs nor the loop devices can be asked, a writer is warned.
pub(crate) fn loop_on(file: &Metadata, access: Access) -> Option<String> {
    if !has_sysfs() {
        let loops = AttachedLoops::find();
        let found = loops.on(file, access);
        if let (None, Some(device), Access::Write) = (found, &loops.unknown, access) {
            tracing::warn!(
                device = %device.display(),
                "cannot tell whether a loop device shows the image: /sys is not mounted, and the device cannot be asked"
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
            // The path is one of another mount namespace, or leads to another file by now.
            _ => shows(&Path::new("/dev").join(entry.file_name()), file),
        });
        let is_read_only = || fs::read(folder.join("ro")).is_ok_and(|ro| ro.trim_ascii() == b"1");
        is_it && (access == Access::Write || !is_read_only())
    })?;
    Some(format!("/dev/{}", found.file_name().to_string_lossy()))
}
