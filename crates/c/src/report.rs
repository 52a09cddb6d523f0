//! Space, counts and consistency of a volume.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};

use ubtrfs::{BlockGroupKind, Checker, OpenCheck, Severity, TrimOptions};

use crate::arguments::{Place, handle, path, paths, place, text_of};
use crate::failure::{Failure, Result, number, size, status};
use crate::options::ubtrfs_check_options;
use crate::progress::{Listener, Meter, ubtrfs_progress_callback};
use crate::volume::ubtrfs_volume;

/// Block groups of data.
pub const UBTRFS_DATA: c_uint = 0;
/// Block groups of metadata.
pub const UBTRFS_METADATA: c_uint = 1;
/// Block groups of the chunk tree.
pub const UBTRFS_SYSTEM: c_uint = 2;
/// Block groups of data and metadata.
pub const UBTRFS_MIXED: c_uint = 3;

/// Also read all data of every mirror, and verify its checksums.
pub const UBTRFS_CHECK_DATA: c_uint = 1;

/// A harmless leftover of normal operation, such as of a power cut.
pub const UBTRFS_NOTE: c_uint = 0;
/// The kernel tolerates it.
pub const UBTRFS_WARNING: c_uint = 1;
/// The volume is not consistent.
pub const UBTRFS_ERROR: c_uint = 2;

/// The space of a volume, in bytes, as the kernel's btrfs reports it for the same volume.
#[derive(Debug)]
#[repr(C)]
pub struct ubtrfs_space {
    /// The size as in df: the sum of the devices, divided by the number of copies of data.
    pub total_bytes: u64,
    /// The number of unused bytes, divided by the number of copies of data.
    pub free_bytes: u64,
    /// The number of bytes that data can be written to.
    pub available_bytes: u64,
    /// The number of bytes reserved for deleting files on a full volume.
    pub reserve_bytes: u64,
}

/// The block groups of one kind and profile.
#[derive(Debug)]
#[repr(C)]
pub struct ubtrfs_block_groups {
    /// UBTRFS_DATA, UBTRFS_METADATA, UBTRFS_SYSTEM or UBTRFS_MIXED.
    pub kind: c_uint,
    /// The profile, such as "RAID1" or "single"; NULL if it is unknown.
    pub profile: *const c_char,
    /// The capacity of their content in bytes.
    pub total_bytes: u64,
    /// The number of used bytes.
    pub used_bytes: u64,
}

/// A device of a volume.
#[derive(Debug)]
#[repr(C)]
pub struct ubtrfs_device {
    /// The id within the volume.
    pub id: u64,
    pub uuid: [u8; 16],
    /// The path of the device; NULL if it is missing.
    pub path: *const c_char,
    /// The number of bytes of the device that the volume uses.
    pub total_bytes: u64,
    /// The number of bytes that are allocated to block groups.
    pub allocated_bytes: u64,
}

/// The error counters of a device, as in `btrfs device stats`. They include errors that the kernel's btrfs has counted.
#[derive(Debug)]
#[repr(C)]
pub struct ubtrfs_device_errors {
    /// The id within the volume.
    pub id: u64,
    /// The number of failed writes.
    pub write_errors: u64,
    /// The number of failed reads.
    pub read_errors: u64,
    /// The number of failed flushes.
    pub flush_errors: u64,
    /// The number of blocks with a wrong checksum.
    pub corruption_errors: u64,
    /// The number of tree blocks with a wrong transaction id.
    pub generation_errors: u64,
}

/// Counts since a volume was opened for writing.
#[derive(Debug)]
#[repr(C)]
pub struct ubtrfs_statistics {
    pub commits: u64,
    /// The number of fsyncs that wrote a log in place of a commit.
    pub logs: u64,
    /// The number of fsyncs after overwriting data in place that needed neither a log nor a commit, only a flush of the
    /// devices.
    pub data_flushes: u64,
    /// Written data in bytes, counting one copy.
    pub data_bytes: u64,
    /// Tree blocks written by commits in bytes, counting one copy.
    pub metadata_bytes: u64,
    /// Tree blocks written for logs in bytes, counting one copy.
    pub log_bytes: u64,
}

/// The numbers of issues that a check found.
#[derive(Debug)]
#[repr(C)]
pub struct ubtrfs_check_report {
    /// The volume is consistent if this is 0.
    pub errors: u64,
    pub warnings: u64,
    pub notes: u64,
}

/// An issue that a check found.
#[derive(Debug)]
#[repr(C)]
pub struct ubtrfs_issue {
    /// UBTRFS_NOTE, UBTRFS_WARNING or UBTRFS_ERROR.
    pub severity: c_uint,
    /// The number of the kind of issue, which is stable across releases.
    pub number: u16,
    /// The problem and its location, for display.
    pub message: *const c_char,
}

/// Called for each kind and profile of block groups, with the caller's `data`. `groups` is valid only during the
/// callback. A result other than 0 ends the list.
pub type ubtrfs_block_groups_callback =
    Option<unsafe extern "C" fn(groups: *const ubtrfs_block_groups, data: *mut c_void) -> c_int>;

/// Called for each device of a list, with the caller's `data`. `device` is valid only during the callback. A result
/// other than 0 ends the list.
pub type ubtrfs_device_callback =
    Option<unsafe extern "C" fn(device: *const ubtrfs_device, data: *mut c_void) -> c_int>;

/// Called for the error counters of each device, with the caller's `data`. `errors` is valid only during the callback.
/// A result other than 0 ends the list.
pub type ubtrfs_device_errors_callback =
    Option<unsafe extern "C" fn(errors: *const ubtrfs_device_errors, data: *mut c_void) -> c_int>;

/// Called for each issue of a list, with the caller's `data`. `issue` is valid only during the callback. A result other
/// than 0 ends the list.
pub type ubtrfs_issue_callback =
    Option<unsafe extern "C" fn(issue: *const ubtrfs_issue, data: *mut c_void) -> c_int>;

/// Reads the space of a volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_volume_space(
    volume: *const ubtrfs_volume,
    space: *mut ubtrfs_space,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (handle, mut place) = unsafe { (handle(volume)?, place(space)?) };
        let space = handle.volume.space()?;
        place.put(ubtrfs_space {
            total_bytes: space.total_bytes,
            free_bytes: space.free_bytes,
            available_bytes: space.available_bytes,
            reserve_bytes: space.reserve_bytes,
        });
        Ok(())
    })
}

/// Lists the sizes of block groups, by kind and profile. If the callback ends the list, its result is returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_volume_block_groups(
    volume: *const ubtrfs_volume,
    callback: ubtrfs_block_groups_callback,
    data: *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY: see the head of the header.
        let handle = unsafe { handle(volume)? };
        let callback = callback.ok_or_else(|| Failure::invalid("the callback is NULL"))?;
        for of in handle.volume.space()?.block_groups {
            let profile = of.profile.map(|profile| text_of(profile.name()));
            let groups = ubtrfs_block_groups {
                kind: match of.kind {
                    BlockGroupKind::Data => UBTRFS_DATA,
                    BlockGroupKind::Metadata => UBTRFS_METADATA,
                    BlockGroupKind::System => UBTRFS_SYSTEM,
                    BlockGroupKind::Mixed => UBTRFS_MIXED,
                },
                profile: profile
                    .as_ref()
                    .map_or(std::ptr::null(), |name| name.as_ptr()),
                total_bytes: of.total_bytes,
                used_bytes: of.used_bytes,
            };
            // SAFETY: the callback receives arguments of its declared type.
            let result = unsafe { callback(&raw const groups, data) };
            if result != 0 {
                return Ok(result);
            }
        }
        Ok(0)
    })
}

/// Lists the devices by ascending id, including missing ones. If the callback ends the list, its result is returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_volume_devices(
    volume: *const ubtrfs_volume,
    callback: ubtrfs_device_callback,
    data: *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY: see the head of the header.
        let handle = unsafe { handle(volume)? };
        let callback = callback.ok_or_else(|| Failure::invalid("the callback is NULL"))?;
        for of in handle.volume.devices() {
            let path = of
                .path
                .map(|path| text_of(path.into_os_string().into_encoded_bytes()));
            let device = ubtrfs_device {
                id: of.id,
                uuid: of.uuid.0,
                path: path.as_ref().map_or(std::ptr::null(), |path| path.as_ptr()),
                total_bytes: of.total_bytes,
                allocated_bytes: of.allocated_bytes,
            };
            // SAFETY: the callback receives arguments of its declared type.
            let result = unsafe { callback(&raw const device, data) };
            if result != 0 {
                return Ok(result);
            }
        }
        Ok(0)
    })
}

/// Lists the error counters of the devices by ascending id. If the callback ends the list, its result is returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_volume_device_errors(
    volume: *const ubtrfs_volume,
    callback: ubtrfs_device_errors_callback,
    data: *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY: see the head of the header.
        let handle = unsafe { handle(volume)? };
        let callback = callback.ok_or_else(|| Failure::invalid("the callback is NULL"))?;
        for of in handle.volume.device_errors()? {
            let errors = ubtrfs_device_errors {
                id: of.device_id,
                write_errors: of.write_errors,
                read_errors: of.read_errors,
                flush_errors: of.flush_errors,
                corruption_errors: of.corruption_errors,
                generation_errors: of.generation_errors,
            };
            // SAFETY: the callback receives arguments of its declared type.
            let result = unsafe { callback(&raw const errors, data) };
            if result != 0 {
                return Ok(result);
            }
        }
        Ok(0)
    })
}

/// Discards unused space on the devices, which shrinks an image file. Commits first. Returns the number of discarded
/// bytes. The range begins at the address `start` within the volume and has `len` bytes: 0 and UINT64_MAX are the whole
/// volume. Free extents below `min_bytes` are skipped. Unallocated space has no address, and is always trimmed. The
/// callback may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_volume_trim(
    volume: *const ubtrfs_volume,
    start: u64,
    len: u64,
    min_bytes: u64,
    progress: ubtrfs_progress_callback,
    data: *mut c_void,
) -> i64 {
    size(|| {
        // SAFETY: see the head of the header.
        let handle = unsafe { handle(volume)? };
        // SAFETY: the callback receives arguments of its declared type.
        let mut meter = Meter::new(unsafe { Listener::new(progress, data) });
        let options = TrimOptions::new().start(start).len(len);
        let options = options.min_bytes(min_bytes);
        let trimmed = handle.volume.trim(&options, &mut meter);
        let trimmed = meter.outcome(trimmed)?;
        Ok(usize::try_from(trimmed).unwrap_or(usize::MAX))
    })
}

/// Reads the counts since the volume was opened; zeros if it was opened read-only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_volume_statistics(
    volume: *const ubtrfs_volume,
    statistics: *mut ubtrfs_statistics,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (handle, mut place) = unsafe { (handle(volume)?, place(statistics)?) };
        let of = handle.volume.statistics();
        place.put(ubtrfs_statistics {
            commits: of.commits,
            logs: of.logs,
            data_flushes: of.data_flushes,
            data_bytes: of.data_bytes,
            metadata_bytes: of.metadata_bytes,
            log_bytes: of.log_bytes,
        });
        Ok(())
    })
}

/// Checks a volume that no program writes to. The check only reads. Above single trees it shares no code with the
/// writer. `flags` is 0 or UBTRFS_CHECK_DATA. The callback may be NULL; it receives the first 1000 issues. If it ends
/// the list, its result is returned. A damaged volume is not an error of the function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_check(
    image: *const c_char,
    flags: c_uint,
    callback: ubtrfs_issue_callback,
    data: *mut c_void,
    report: *mut ubtrfs_check_report,
) -> c_int {
    number(|| {
        // SAFETY: see the head of the header.
        let (image, mut place) = unsafe { (path(image)?, place(report)?) };
        let reads_data = match flags {
            0 => false,
            UBTRFS_CHECK_DATA => true,
            _ => return Err(Failure::invalid("unknown flags")),
        };
        let check = Checker::new().read_data(reads_data).open(&[image])?;
        // SAFETY: see the head of the header.
        unsafe { run_check(check, Listener::default(), callback, data, &mut place) }
    })
}

/// Checks the volume on all of the given files or devices, as ubtrfs_check, with options, which may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_check_with(
    images: *const *const c_char,
    image_count: usize,
    options: *const ubtrfs_check_options,
    callback: ubtrfs_issue_callback,
    data: *mut c_void,
    report: *mut ubtrfs_check_report,
) -> c_int {
    number(|| {
        // SAFETY: see the head of the header.
        let (images, mut place) = unsafe { (paths(images, image_count)?, place(report)?) };
        // SAFETY: see the head of the header.
        let options = unsafe { options.as_ref() };
        let checker = options.map(ubtrfs_check_options::checker);
        let listener = options.map_or_else(Listener::default, |options| options.listener);
        let check = checker.unwrap_or_default().open(&images)?;
        // SAFETY: see the head of the header.
        unsafe { run_check(check, listener, callback, data, &mut place) }
    })
}

/// Runs a check, passes its issues to the callback, and returns the callback's result.
///
/// # Safety
///
/// The callback accepts arguments of its declared type.
unsafe fn run_check(
    check: OpenCheck,
    listener: Listener,
    callback: ubtrfs_issue_callback,
    data: *mut c_void,
    report: &mut Place<'_, ubtrfs_check_report>,
) -> Result<c_int> {
    let mut meter = Meter::new(listener);
    let found = check.run(&mut meter);
    let found = meter.outcome(found)?;
    report.put(ubtrfs_check_report {
        errors: found.errors,
        warnings: found.warnings,
        notes: found.notes,
    });
    let Some(callback) = callback else {
        return Ok(0);
    };
    for of in found.issues {
        let message: CString = text_of(of.to_string());
        let issue = ubtrfs_issue {
            severity: match of.severity() {
                Severity::Note => UBTRFS_NOTE,
                Severity::Warning => UBTRFS_WARNING,
                Severity::Error => UBTRFS_ERROR,
            },
            number: of.fault.number(),
            message: message.as_ptr(),
        };
        // SAFETY: guaranteed by the caller.
        let result = unsafe { callback(&raw const issue, data) };
        if result != 0 {
            return Ok(result);
        }
    }
    Ok(0)
}
