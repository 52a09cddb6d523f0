//! Sending and receiving snapshots as streams, and comparing them.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::{ptr, slice};

use ubtrfs::{ChangeKind, SendOptions, Snapshot};

use crate::arguments::{file_of, handle, path, text_of};
use crate::failure::{Failure, Result, number, status};
use crate::progress::{Listener, Meter, ubtrfs_progress_callback};
use crate::subvolume::ubtrfs_subvolume;
use crate::transfer_options::ubtrfs_receive_options;

/// Send compressed data without decompressing it, in a stream of version 2.
pub const UBTRFS_SEND_COMPRESSED: c_uint = 1;
/// Send only the changed ranges of files, without their data.
pub const UBTRFS_SEND_NO_DATA: c_uint = 2;

/// A name was removed.
pub const UBTRFS_REMOVED: c_uint = 0;
/// A name was added.
pub const UBTRFS_ADDED: c_uint = 1;
/// The file of a name had another name before.
pub const UBTRFS_RENAMED: c_uint = 2;
/// The file of an unchanged name was changed.
pub const UBTRFS_CHANGED: c_uint = 3;

/// Options for sending a snapshot. All zeros: the whole snapshot, as a stream of version 1.
#[derive(Debug)]
#[repr(C)]
pub struct ubtrfs_send_options {
    /// Send the difference from this read-only subvolume, which the receiver must have. May be NULL.
    pub parent: *const ubtrfs_subvolume,
    /// Send data that is shared with these read-only subvolumes as clones. The receiver must have them.
    pub clone_sources: *const *const ubtrfs_subvolume,
    pub clone_source_count: usize,
    /// UBTRFS_SEND_COMPRESSED and UBTRFS_SEND_NO_DATA.
    pub flags: c_uint,
    /// Receives the progress. May be NULL.
    pub progress: ubtrfs_progress_callback,
    /// The argument of `progress`.
    pub progress_data: *mut c_void,
}

/// A change of a name between two snapshots.
#[derive(Debug)]
#[repr(C)]
pub struct ubtrfs_change {
    /// UBTRFS_REMOVED, UBTRFS_ADDED, UBTRFS_RENAMED or UBTRFS_CHANGED.
    pub kind: c_uint,
    /// The path from the root of the snapshot, without a leading slash; empty for the root.
    pub path: *const c_char,
    /// The path before a rename, otherwise NULL.
    pub renamed_from: *const c_char,
}

/// Called for each change of a list, with the caller's `data`. `change` is valid only during the callback. A result
/// other than 0 ends the list.
pub type ubtrfs_change_callback =
    Option<unsafe extern "C" fn(change: *const ubtrfs_change, data: *mut c_void) -> c_int>;

/// Returns the handles of an array.
///
/// # Safety
///
/// The pointer is null, or points to `count` handles.
unsafe fn handles<'a>(
    subvolumes: *const *const ubtrfs_subvolume,
    count: usize,
) -> Result<Vec<&'a ubtrfs_subvolume>> {
    let subvolumes = match (count, subvolumes.is_null()) {
        (0, _) => return Ok(Vec::new()),
        (_, true) => return Err(Failure::invalid("the clone sources are NULL")),
        // SAFETY: it is not null, and the caller guarantees the rest.
        (_, false) => unsafe { slice::from_raw_parts(subvolumes, count) },
    };
    // SAFETY: guaranteed by the caller.
    let handles = subvolumes
        .iter()
        .map(|&subvolume| unsafe { handle(subvolume) });
    handles.collect()
}

/// Writes a read-only subvolume to a file descriptor, as a stream for ubtrfs_receive and btrfs receive. Commits first.
/// The options may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_send(
    subvolume: *const ubtrfs_subvolume,
    options: *const ubtrfs_send_options,
    fd: c_int,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (of, out) = unsafe { (handle(subvolume)?, file_of(fd)?) };
        let all = ubtrfs_send_options {
            parent: ptr::null(),
            clone_sources: ptr::null(),
            clone_source_count: 0,
            flags: 0,
            progress: None,
            progress_data: ptr::null_mut(),
        };
        // SAFETY: see the head of the header.
        let wanted = unsafe { options.as_ref() }.unwrap_or(&all);
        if wanted.flags & !(UBTRFS_SEND_COMPRESSED | UBTRFS_SEND_NO_DATA) != 0 {
            return Err(Failure::invalid("unknown flags"));
        }
        // SAFETY: see the head of the header.
        let (parent, sources) = unsafe {
            let sources = handles(wanted.clone_sources, wanted.clone_source_count)?;
            (wanted.parent.as_ref(), sources)
        };
        let open = |of: &ubtrfs_subvolume| Snapshot::open(&of.subvolume);
        let snapshot = open(of)?;
        let parent = parent.map(open).transpose()?;
        let sources = sources.into_iter().map(open);
        let sources = sources.collect::<ubtrfs::Result<Vec<_>>>()?;
        let mut options = SendOptions::new()
            .compressed(wanted.flags & UBTRFS_SEND_COMPRESSED != 0)
            .no_data(wanted.flags & UBTRFS_SEND_NO_DATA != 0);
        if let Some(parent) = &parent {
            options = options.parent(parent);
        }
        for source in &sources {
            options = options.clone_source(source);
        }
        // SAFETY: the callback receives arguments of its declared type.
        let listener = unsafe { Listener::new(wanted.progress, wanted.progress_data) };
        let mut meter = Meter::new(listener);
        let sent = snapshot.send(&options, out, &mut meter);
        meter.outcome(sent)
    })
}

/// Creates the subvolumes of a stream, read from a file descriptor, in a directory. Nothing outside of them is changed,
/// even by a malicious stream. The options and the progress callback may be NULL. The callback receives the name of each
/// subvolume with UBTRFS_EVENT_FINISHED. If it cancels the call, the incomplete subvolume is kept, and is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_receive(
    subvolume: *const ubtrfs_subvolume,
    dir: *const c_char,
    fd: c_int,
    options: *const ubtrfs_receive_options,
    progress: ubtrfs_progress_callback,
    data: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        let (of, dir, stream) = unsafe { (handle(subvolume)?, path(dir)?, file_of(fd)?) };
        // SAFETY: see the head of the header.
        let options = unsafe { options.as_ref() };
        let options = options.map(|of| of.options).unwrap_or_default();
        // SAFETY: the callback receives arguments of its declared type.
        let mut meter = Meter::new(unsafe { Listener::new(progress, data) });
        let received = of.subvolume.receive(dir, stream, &options, &mut meter);
        meter.outcome(received.map(drop))
    })
}

/// Lists the changes from one read-only subvolume to another, in the order of paths. Commits first. If the callback
/// ends the list, its result is returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_changes(
    old: *const ubtrfs_subvolume,
    new: *const ubtrfs_subvolume,
    callback: ubtrfs_change_callback,
    data: *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY: see the head of the header.
        let (old, new) = unsafe { (handle(old)?, handle(new)?) };
        let callback = callback.ok_or_else(|| Failure::invalid("the callback is NULL"))?;
        let (old, new) = (
            Snapshot::open(&old.subvolume)?,
            Snapshot::open(&new.subvolume)?,
        );
        for of in new.changes_since(&old)? {
            let of = of?;
            let path = text_of(of.path.as_os_str().as_bytes());
            let renamed_from = of.renamed_from.as_ref();
            let renamed_from = renamed_from.map(|path| text_of(path.as_os_str().as_bytes()));
            let change = ubtrfs_change {
                kind: match of.kind {
                    ChangeKind::Removed => UBTRFS_REMOVED,
                    ChangeKind::Added => UBTRFS_ADDED,
                    ChangeKind::Renamed => UBTRFS_RENAMED,
                    ChangeKind::Changed => UBTRFS_CHANGED,
                },
                path: path.as_ptr(),
                renamed_from: renamed_from
                    .as_ref()
                    .map_or(ptr::null(), |path| path.as_ptr()),
            };
            // SAFETY: the callback receives arguments of its declared type.
            let result = unsafe { callback(&raw const change, data) };
            if result != 0 {
                return Ok(result);
            }
        }
        Ok(0)
    })
}
