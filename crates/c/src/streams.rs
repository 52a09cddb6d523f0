//! Snapshots sent and received as streams, and compared.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::{ptr, slice};

use ubtrfs::{ChangeKind, SendOptions, Snapshot};

use crate::arguments::{file_of, handle, path, text_of};
use crate::failure::{Failure, Result, number, status};
use crate::progress::{Listener, Meter, ReceiveMeter, ubtrfs_progress_callback};
use crate::subvolume::ubtrfs_subvolume;
use crate::transfer_options::ubtrfs_receive_options;

/// Sends compressed data as it is, in a stream of version 2.
pub const UBTRFS_SEND_COMPRESSED: c_uint = 1;
/// Says which ranges of files changed, and sends no data.
pub const UBTRFS_SEND_NO_DATA: c_uint = 2;

/// A name is gone.
pub const UBTRFS_REMOVED: c_uint = 0;
/// A name is new.
pub const UBTRFS_ADDED: c_uint = 1;
/// A name's file had another name before.
pub const UBTRFS_RENAMED: c_uint = 2;
/// A name is as it was, and its file is not.
pub const UBTRFS_CHANGED: c_uint = 3;

/// How a snapshot is sent. All zeros: the whole, as a stream of version 1.
#[derive(Debug)]
#[repr(C)]
pub struct ubtrfs_send_options {
    /// The difference from this read-only subvolume is sent, which the receiver has. May be NULL.
    pub parent: *const ubtrfs_subvolume,
    /// Data shared with these read-only subvolumes is sent as clones. The receiver has them.
    pub clone_sources: *const *const ubtrfs_subvolume,
    pub clone_source_count: usize,
    /// UBTRFS_SEND_COMPRESSED and UBTRFS_SEND_NO_DATA.
    pub flags: c_uint,
    /// Hears of the progress. May be NULL.
    pub progress: ubtrfs_progress_callback,
    /// The argument that `progress` is called with.
    pub progress_data: *mut c_void,
}

/// A change of a name between two snapshots.
#[derive(Debug)]
#[repr(C)]
pub struct ubtrfs_change {
    /// UBTRFS_REMOVED, UBTRFS_ADDED, UBTRFS_RENAMED or UBTRFS_CHANGED.
    pub kind: c_uint,
    /// From the root of the snapshot, without a slash before it; empty for the root.
    pub path: *const c_char,
    /// The path before a rename, else NULL.
    pub renamed_from: *const c_char,
}

/// Takes the name of a subvolume that was received; `data` is the caller's. The text is gone afterwards. Another result
/// than 0 ends the list.
pub type ubtrfs_name_callback =
    Option<unsafe extern "C" fn(name: *const c_char, data: *mut c_void) -> c_int>;

/// Takes a change of a list; `data` is the caller's. The data behind `change` is gone afterwards. Another result than 0
/// ends the list.
pub type ubtrfs_change_callback =
    Option<unsafe extern "C" fn(change: *const ubtrfs_change, data: *mut c_void) -> c_int>;

/// The end of a stream that is sent, with its progress.
struct Watched {
    out: File,
    meter: Meter,
}

impl Write for Watched {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let len = match self.meter.is_ended() {
            true => 0,
            false => self.out.write(buf)?,
        };
        match self.meter.advance(len as u64) {
            true => Ok(len),
            false => Err(io::Error::other("cancelled")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Returns the handles of an array.
///
/// # Safety
///
/// The pointer is of so many handles, or there are none.
unsafe fn handles<'a>(
    subvolumes: *const *const ubtrfs_subvolume,
    count: usize,
) -> Result<Vec<&'a ubtrfs_subvolume>> {
    let subvolumes = match (count, subvolumes.is_null()) {
        (0, _) => return Ok(Vec::new()),
        (_, true) => return Err(Failure::invalid("the clone sources are NULL")),
        // SAFETY: it is not null, and the rest is the caller's.
        (_, false) => unsafe { slice::from_raw_parts(subvolumes, count) },
    };
    // SAFETY: the caller's.
    let handles = subvolumes
        .iter()
        .map(|&subvolume| unsafe { handle(subvolume) });
    handles.collect()
}

/// Writes a read-only subvolume to a file descriptor, as a stream that ubtrfs_receive and btrfs receive take. Commits
/// before. The options may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_send(
    subvolume: *const ubtrfs_subvolume,
    options: *const ubtrfs_send_options,
    fd: c_int,
) -> c_int {
    status(|| {
        // SAFETY: the head of the header.
        let (of, out) = unsafe { (handle(subvolume)?, file_of(fd)?) };
        let all = ubtrfs_send_options {
            parent: ptr::null(),
            clone_sources: ptr::null(),
            clone_source_count: 0,
            flags: 0,
            progress: None,
            progress_data: ptr::null_mut(),
        };
        // SAFETY: the head of the header.
        let wanted = unsafe { options.as_ref() }.unwrap_or(&all);
        if wanted.flags & !(UBTRFS_SEND_COMPRESSED | UBTRFS_SEND_NO_DATA) != 0 {
            return Err(Failure::invalid("unknown flags"));
        }
        // SAFETY: the head of the header.
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
        // SAFETY: the caller's function gets what its type says.
        let listener = unsafe { Listener::new(wanted.progress, wanted.progress_data) };
        let mut out = Watched {
            out,
            meter: Meter::new(listener),
        };
        let sent = snapshot.send_with(&options, &mut out);
        out.meter.outcome(sent)
    })
}

/// Makes the subvolumes of a stream in a directory, from a file descriptor. Nothing outside them is changed, whatever
/// the stream says. The callback, which may be NULL, hears of the name of each. If it ends the list, its result is
/// returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_receive(
    subvolume: *const ubtrfs_subvolume,
    dir: *const c_char,
    fd: c_int,
    callback: ubtrfs_name_callback,
    data: *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY: the head of the header.
        unsafe { receive(subvolume, dir, fd, None, callback, data) }
    })
}

/// Makes the subvolumes of streams in a directory, as ubtrfs_receive, in the way that the options say. They may be NULL. If
/// the progress ends the call, the subvolume that it was in stays, and is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_receive_with(
    subvolume: *const ubtrfs_subvolume,
    dir: *const c_char,
    fd: c_int,
    options: *const ubtrfs_receive_options,
    callback: ubtrfs_name_callback,
    data: *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY: the head of the header.
        unsafe { receive(subvolume, dir, fd, options.as_ref(), callback, data) }
    })
}

/// Receives, and tells the callback of the names.
///
/// # Safety
///
/// The rules of the header.
unsafe fn receive(
    subvolume: *const ubtrfs_subvolume,
    dir: *const c_char,
    fd: c_int,
    options: Option<&ubtrfs_receive_options>,
    callback: ubtrfs_name_callback,
    data: *mut c_void,
) -> Result<c_int> {
    // SAFETY: the head of the header.
    let (of, dir, stream) = unsafe { (handle(subvolume)?, path(dir)?, file_of(fd)?) };
    let (how, listener) = options
        .map(|of| (of.options, of.listener))
        .unwrap_or_default();
    let mut meter = ReceiveMeter {
        meter: Meter::new(listener),
        names: Vec::new(),
    };
    let received = of.subvolume.receive_with(dir, stream, &how, &mut meter);
    meter.meter.outcome(received)?;
    let Some(callback) = callback else {
        return Ok(0);
    };
    for name in meter.names {
        let name = text_of(name.as_os_str().as_bytes());
        // SAFETY: the caller's function gets what its type says.
        let result = unsafe { callback(name.as_ptr(), data) };
        if result != 0 {
            return Ok(result);
        }
    }
    Ok(0)
}

/// Tells what changed from one read-only subvolume to another, in the order of paths. Commits before. If the callback
/// ends the list, its result is returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_changes(
    old: *const ubtrfs_subvolume,
    new: *const ubtrfs_subvolume,
    callback: ubtrfs_change_callback,
    data: *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY: the head of the header.
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
            // SAFETY: the caller's function gets what its type says.
            let result = unsafe { callback(&raw const change, data) };
            if result != 0 {
                return Ok(result);
            }
        }
        Ok(0)
    })
}
