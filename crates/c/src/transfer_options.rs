//! Options of trees that are copied or archived, and of streams that are received.

use std::ffi::{c_char, c_int, c_void};
use std::mem;

use ubtrfs::{CopyOptions, ImportOptions, ReceiveOptions, Reflink, RemoveOptions, Sparse};

use crate::arguments::{handle_place, take_back};
use crate::failure::status;
use crate::options::{named, set};
use crate::progress::{Listener, ubtrfs_progress_callback};

/// How a tree is copied, archived or removed. New ones are those of ubtrfs_copy_tree and its like.
#[derive(Debug, Default)]
pub struct ubtrfs_transfer_options {
    pub(crate) copy: CopyOptions,
    pub(crate) import: ImportOptions,
    pub(crate) remove: RemoveOptions,
    pub(crate) listener: Listener,
}

/// How a stream is received. New ones are those of ubtrfs_receive.
#[derive(Debug, Default)]
pub struct ubtrfs_receive_options {
    pub(crate) options: ReceiveOptions,
    pub(crate) listener: Listener,
}

impl ubtrfs_transfer_options {
    fn change(&mut self, change: impl FnOnce(CopyOptions) -> CopyOptions) {
        self.copy = change(mem::take(&mut self.copy));
    }
}

/// Makes options of transfers of trees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_transfer_options_new(
    options: *mut *mut ubtrfs_transfer_options,
) -> c_int {
    status(|| {
        // SAFETY: the head of the header.
        unsafe { handle_place(options)? }.give(ubtrfs_transfer_options::default());
        Ok(())
    })
}

/// Frees options. NULL is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_transfer_options_free(options: *mut ubtrfs_transfer_options) {
    // SAFETY: the head of the header.
    drop(unsafe { take_back(options) });
}

/// Has a callback hear of the progress of each call that takes the options. NULL is none. `data` is kept until the options
/// are freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_transfer_options_set_progress(
    options: *mut ubtrfs_transfer_options,
    callback: ubtrfs_progress_callback,
    data: *mut c_void,
) -> c_int {
    let change = |options: &mut ubtrfs_transfer_options| {
        // SAFETY: the head of the header.
        options.listener = unsafe { Listener::new(callback, data) };
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Says whether copies keep owners, modes, times, extended attributes and hard links. They do unless it is set. Without it
/// a file that exists is overwritten, and keeps its owner and mode.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_transfer_options_set_preserve(
    options: *mut ubtrfs_transfer_options,
    preserve: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_transfer_options| {
        options.change(|copy| copy.preserve(preserve));
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Copies what a link leads to, if the path of the original is one. Links below are copied as links in any case.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_transfer_options_set_follow(
    options: *mut ubtrfs_transfer_options,
    follow: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_transfer_options| {
        options.change(|copy| copy.follow(follow));
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Copies what is in a directory into one that exists. -ENOTDIR if one of the two is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_transfer_options_set_contents(
    options: *mut ubtrfs_transfer_options,
    contents: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_transfer_options| {
        options.change(|copy| copy.contents(contents));
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Sets the permission bits that files in a volume go without if their modes are not kept, and directories of which an
/// archive says nothing. It is 0 unless it is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_transfer_options_set_umask(
    options: *mut ubtrfs_transfer_options,
    umask: u32,
) -> c_int {
    let change = |options: &mut ubtrfs_transfer_options| {
        options.change(|copy| copy.umask(umask));
        options.import = mem::take(&mut options.import).umask(umask);
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Sets when copies share the data of their originals: "auto", which is where they can, "always" or "never".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_transfer_options_set_reflink(
    options: *mut ubtrfs_transfer_options,
    reflink: *const c_char,
) -> c_int {
    let change = |options: &mut ubtrfs_transfer_options| {
        let read = |word: &str| match word {
            "auto" => Some(Reflink::Auto),
            "always" => Some(Reflink::Always),
            "never" => Some(Reflink::Never),
            _ => None,
        };
        // SAFETY: the head of the header.
        let reflink = unsafe { named(reflink, "reflink", read)? };
        options.change(|copy| copy.reflink(reflink));
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Sets the treatment of holes: "auto", which keeps them, "always", which makes them of blocks of zeros as well, or
/// "never".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_transfer_options_set_sparse(
    options: *mut ubtrfs_transfer_options,
    sparse: *const c_char,
) -> c_int {
    let change = |options: &mut ubtrfs_transfer_options| {
        let read = |word: &str| match word {
            "auto" => Some(Sparse::Auto),
            "always" => Some(Sparse::Always),
            "never" => Some(Sparse::Never),
            _ => None,
        };
        // SAFETY: the head of the header.
        let sparse = unsafe { named(sparse, "sparse", read)? };
        options.change(|copy| copy.sparse(sparse));
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Removes subvolumes as other directories: all that is in them, then the empty subvolume. They are a problem unless it is
/// set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_transfer_options_set_enter_subvolumes(
    options: *mut ubtrfs_transfer_options,
    enter_subvolumes: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_transfer_options| {
        options.remove = options.remove.enter_subvolumes(enter_subvolumes);
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Makes options of receiving.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_receive_options_new(
    options: *mut *mut ubtrfs_receive_options,
) -> c_int {
    status(|| {
        // SAFETY: the head of the header.
        unsafe { handle_place(options)? }.give(ubtrfs_receive_options::default());
        Ok(())
    })
}

/// Frees options. NULL is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_receive_options_free(options: *mut ubtrfs_receive_options) {
    // SAFETY: the head of the header.
    drop(unsafe { take_back(options) });
}

/// Has a callback hear of the progress of each call that takes the options. NULL is none. `data` is kept until the options
/// are freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_receive_options_set_progress(
    options: *mut ubtrfs_receive_options,
    callback: ubtrfs_progress_callback,
    data: *mut c_void,
) -> c_int {
    let change = |options: &mut ubtrfs_receive_options| {
        // SAFETY: the head of the header.
        options.listener = unsafe { Listener::new(callback, data) };
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Decompresses data that is compressed in the stream, and stores it as other data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_receive_options_set_force_decompress(
    options: *mut ubtrfs_receive_options,
    force_decompress: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_receive_options| {
        options.options = options.options.force_decompress(force_decompress);
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Receives all streams that are behind each other. Without it, nothing behind the end of the first is read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_receive_options_set_all_streams(
    options: *mut ubtrfs_receive_options,
    all_streams: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_receive_options| {
        options.options = options.options.all_streams(all_streams);
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}
