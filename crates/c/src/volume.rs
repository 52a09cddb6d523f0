//! Volumes: creating, opening, committing and closing.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use ubtrfs::{Builder, MkfsOptions, Volume};

use crate::arguments::{
    buffer, copy_whole, handle, handle_place, optional_text, path, paths, place, take_back, text,
};
use crate::failure::{Failure, Result, number, size, status};
use crate::metadata::ubtrfs_timespec;
use crate::options::{ubtrfs_mkfs_options, ubtrfs_open_options};
use crate::progress::{Listener, Meter};

/// Open read-only. Other processes may also open the volume read-only.
pub const UBTRFS_READ_ONLY: c_uint = 1;

/// An open volume.
#[derive(Debug)]
pub struct ubtrfs_volume {
    pub(crate) volume: Volume,
}

/// Properties of a subvolume.
#[derive(Debug)]
#[repr(C)]
pub struct ubtrfs_subvolume_info {
    /// The id within the volume. The top level has 5.
    pub id: u64,
    /// The path from the top level, without a leading slash; empty for the top level. NULL while it is being deleted.
    pub path: *const c_char,
    pub uuid: [u8; 16],
    /// The UUID of the subvolume that it is a snapshot of, otherwise zeros.
    pub parent_uuid: [u8; 16],
    /// The UUID of the sent subvolume, if this one was received, otherwise zeros.
    pub received_uuid: [u8; 16],
    /// The transaction that last changed it.
    pub generation: u64,
    /// The transaction that created it.
    pub created_generation: u64,
    pub created: ubtrfs_timespec,
    /// The time of the last change to one of its files.
    pub changed: ubtrfs_timespec,
    pub is_read_only: bool,
    /// Whether it is deleted, but its space is not all free yet.
    pub is_deleted: bool,
}

/// Called for each subvolume of a list, with the caller's `data`. `info` is valid only during the callback. A result
/// other than 0 ends the list.
pub type ubtrfs_subvolume_callback =
    Option<unsafe extern "C" fn(info: *const ubtrfs_subvolume_info, data: *mut c_void) -> c_int>;

/// Returns the version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn ubtrfs_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Creates a volume in a file that must not exist, and opens it for writing. The file is sparse. The label may be NULL,
/// which means no label.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_volume_create(
    image: *const c_char,
    size_bytes: u64,
    label: *const c_char,
    volume: *mut *mut ubtrfs_volume,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (made, image, label) =
            unsafe { (handle_place(volume)?, path(image)?, optional_text(label)) };
        let options = MkfsOptions {
            label: label.unwrap_or_default().as_bytes().to_vec(),
            ..MkfsOptions::default()
        };
        let volume = Volume::builder()
            .mkfs(options)
            .create(&[image], size_bytes)?;
        made.give(ubtrfs_volume { volume });
        Ok(())
    })
}

/// Opens the volume in a file or on a device. Opening for writing is exclusive; UBTRFS_READ_ONLY is the only flag.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_volume_open(
    image: *const c_char,
    flags: c_uint,
    volume: *mut *mut ubtrfs_volume,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (opened, image) = unsafe { (handle_place(volume)?, path(image)?) };
        let volume = match flags {
            0 => Volume::open(image)?,
            UBTRFS_READ_ONLY => Volume::open_read_only(image)?,
            _ => return Err(Failure::invalid("unknown flags")),
        };
        opened.give(ubtrfs_volume { volume });
        Ok(())
    })
}

fn new_volume(
    mkfs: Option<&ubtrfs_mkfs_options>,
    open: Option<&ubtrfs_open_options>,
    make: impl FnOnce(Builder) -> ubtrfs::Result<Volume>,
) -> Result<ubtrfs_volume> {
    if open.is_some_and(ubtrfs_open_options::reads_only) {
        return Err(Failure::invalid("a new volume is for writing"));
    }
    let listener = mkfs.map_or_else(Listener::default, |mkfs| mkfs.listener);
    let meter = Arc::new(Mutex::new(Meter::new(listener)));
    let mkfs = mkfs.map(ubtrfs_mkfs_options::mkfs).unwrap_or_default();
    let builder = open.map_or_else(Volume::builder, ubtrfs_open_options::builder);
    let made = make(builder.mkfs(mkfs.observe(meter.clone())));
    let meter = meter.lock().unwrap_or_else(PoisonError::into_inner);
    let volume = meter.outcome(made)?;
    Ok(ubtrfs_volume { volume })
}

/// Creates a volume of `image_count` files that must not exist, each of this size, and opens it for writing. NULL
/// options have the defaults of ubtrfs_volume_create and ubtrfs_volume_open. Opening a new volume read-only fails with
/// -EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_volume_create_with(
    images: *const *const c_char,
    image_count: usize,
    size_bytes: u64,
    mkfs_options: *const ubtrfs_mkfs_options,
    open_options: *const ubtrfs_open_options,
    volume: *mut *mut ubtrfs_volume,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (made, images) = unsafe { (handle_place(volume)?, paths(images, image_count)?) };
        // SAFETY: see the head of the header.
        let (mkfs, open) = unsafe { (mkfs_options.as_ref(), open_options.as_ref()) };
        let make = |builder: Builder| builder.create(&images, size_bytes);
        made.give(new_volume(mkfs, open, make)?);
        Ok(())
    })
}

/// Creates a volume on existing files and block devices, which keep their sizes, and opens it for writing. Their
/// contents are lost. Otherwise the same as ubtrfs_volume_create_with.
///
/// The error is -EEXIST if one contains a file system, a partition table or similar, unless
/// the option "force" allows it. The error is -EBUSY if one is in use. Nothing is written in both cases.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_volume_format(
    devices: *const *const c_char,
    device_count: usize,
    mkfs_options: *const ubtrfs_mkfs_options,
    open_options: *const ubtrfs_open_options,
    volume: *mut *mut ubtrfs_volume,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (made, devices) = unsafe { (handle_place(volume)?, paths(devices, device_count)?) };
        // SAFETY: see the head of the header.
        let (mkfs, open) = unsafe { (mkfs_options.as_ref(), open_options.as_ref()) };
        let force = mkfs.is_some_and(|mkfs| mkfs.force);
        let make = |builder: Builder| builder.force(force).format(&devices);
        made.give(new_volume(mkfs, open, make)?);
        Ok(())
    })
}

/// Opens the volume on all of the given files or devices. Its other devices are searched as set in the options, which
/// may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_volume_open_with(
    images: *const *const c_char,
    image_count: usize,
    options: *const ubtrfs_open_options,
    volume: *mut *mut ubtrfs_volume,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (opened, images) = unsafe { (handle_place(volume)?, paths(images, image_count)?) };
        // SAFETY: see the head of the header.
        let options = unsafe { options.as_ref() };
        let builder = options.map_or_else(Volume::builder, ubtrfs_open_options::builder);
        let volume = builder.open(&images)?;
        opened.give(ubtrfs_volume { volume });
        Ok(())
    })
}

/// Commits everything and closes the volume. An error means that the last changes are not durable; the handle is freed
/// nevertheless. NULL is allowed.
///
/// Handles of its subvolumes, files and directories must still be freed. They can still read, and changes and syncs
/// return -EROFS. The file of the volume stays in use until the last of them is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_volume_close(volume: *mut ubtrfs_volume) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let closed = match unsafe { take_back(volume) } {
            Some(handle) if handle.volume.is_read_only() => return Ok(()),
            Some(handle) => handle.volume.close(),
            None => return Ok(()),
        };
        Ok(closed?)
    })
}

/// Writes all buffered data and commits all earlier changes. Returns when they are durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_volume_sync(volume: *const ubtrfs_volume) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let handle = unsafe { handle(volume)? };
        Ok(handle.volume.sync()?)
    })
}

/// Copies the UUID of the volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_volume_uuid(
    volume: *const ubtrfs_volume,
    uuid: *mut [u8; 16],
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (handle, mut uuid) = unsafe { (handle(volume)?, place(uuid)?) };
        uuid.put(handle.volume.uuid().0);
        Ok(())
    })
}

/// Copies the label as of the last commit, without a NUL, and returns its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_volume_label(
    volume: *const ubtrfs_volume,
    buf: *mut c_void,
    buf_size: usize,
) -> i64 {
    size(|| {
        // SAFETY: see the head of the header.
        let (handle, buf) = unsafe { (handle(volume)?, buffer(buf, buf_size)?) };
        copy_whole(handle.volume.label().as_bytes(), buf)
    })
}

/// Sets the label, of at most 255 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_volume_set_label(
    volume: *const ubtrfs_volume,
    label: *const c_char,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (handle, label) = unsafe { (handle(volume)?, text(label)?) };
        Ok(handle.volume.set_label(label)?)
    })
}

/// Lists all subvolumes by ascending id, the top level first. Deleted subvolumes are listed until their space is free.
/// If the callback ends the list, its result is returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_volume_subvolumes(
    volume: *const ubtrfs_volume,
    callback: ubtrfs_subvolume_callback,
    data: *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY: see the head of the header.
        let handle = unsafe { handle(volume)? };
        let callback = callback.ok_or_else(|| Failure::invalid("the callback is NULL"))?;
        for of in handle.volume.subvolumes()? {
            let path = of.path.map(|path| {
                let mut bytes = path.into_os_string().into_encoded_bytes();
                bytes.push(0);
                bytes
            });
            let info = ubtrfs_subvolume_info {
                id: of.id,
                path: path
                    .as_ref()
                    .map_or(ptr::null(), |path| path.as_ptr().cast()),
                uuid: of.uuid.0,
                parent_uuid: of.parent_uuid.unwrap_or_default().0,
                received_uuid: of.received_uuid.unwrap_or_default().0,
                generation: of.generation,
                created_generation: of.created_generation,
                created: of.created.into(),
                changed: of.changed.into(),
                is_read_only: of.is_read_only,
                is_deleted: of.is_deleted,
            };
            // SAFETY: the callback receives arguments of its declared type.
            let result = unsafe { callback(&raw const info, data) };
            if result != 0 {
                return Ok(result);
            }
        }
        Ok(0)
    })
}
