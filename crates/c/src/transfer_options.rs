//! Options for copying, unpacking and removing trees, and for receiving streams.

use std::ffi::{c_char, c_int};
use std::mem;

use ubtrfs::{CopyOptions, ImportOptions, ReceiveOptions, Reflink, RemoveOptions, Sparse};

use crate::arguments::{handle_place, take_back};
use crate::failure::status;
use crate::options::{named, set};

/// Options for copying, unpacking or removing a tree. The defaults are the same as for the functions without options.
#[derive(Debug, Default)]
pub struct ubtrfs_transfer_options {
    pub(crate) copy: CopyOptions,
    pub(crate) import: ImportOptions,
    pub(crate) remove: RemoveOptions,
}

/// Options for receiving a stream. The defaults are the same as for ubtrfs_receive.
#[derive(Debug, Default)]
pub struct ubtrfs_receive_options {
    pub(crate) options: ReceiveOptions,
}

impl ubtrfs_transfer_options {
    fn change(&mut self, change: impl FnOnce(CopyOptions) -> CopyOptions) {
        self.copy = change(mem::take(&mut self.copy));
    }
}

/// Creates options for transfers of trees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_transfer_options_new(
    options: *mut *mut ubtrfs_transfer_options,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        unsafe { handle_place(options)? }.give(ubtrfs_transfer_options::default());
        Ok(())
    })
}

/// Frees options. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_transfer_options_free(options: *mut ubtrfs_transfer_options) {
    // SAFETY: see the head of the header.
    drop(unsafe { take_back(options) });
}

/// Sets whether copies preserve owners, modes, times, extended attributes and hard links. The default is true. With
/// false an existing file is overwritten, and keeps its owner and mode.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_transfer_options_set_preserve(
    options: *mut ubtrfs_transfer_options,
    preserve: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_transfer_options| {
        options.change(|copy| copy.preserve(preserve));
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Copies the target of a symbolic link if the source path is one. Symbolic links below it are always copied as links.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_transfer_options_set_follow(
    options: *mut ubtrfs_transfer_options,
    follow: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_transfer_options| {
        options.change(|copy| copy.follow(follow));
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Copies the contents of a directory into an existing one. The error is -ENOTDIR if either is not a directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_transfer_options_set_contents(
    options: *mut ubtrfs_transfer_options,
    contents: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_transfer_options| {
        options.change(|copy| copy.contents(contents));
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Sets the permission bits to clear in new files of a volume if modes are not preserved. They are also cleared in
/// directories that an archive implies but does not contain. The default is 0.
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
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Sets whether copies share the data of their originals: "auto" (where possible), "always" or "never".
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
        // SAFETY: see the head of the header.
        let reflink = unsafe { named(reflink, "reflink", read)? };
        options.change(|copy| copy.reflink(reflink));
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Sets the treatment of holes: "auto" keeps them, "always" also turns blocks of zeros into holes, and "never" fills
/// them.
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
        // SAFETY: see the head of the header.
        let sparse = unsafe { named(sparse, "sparse", read)? };
        options.change(|copy| copy.sparse(sparse));
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Removes subvolumes like directories: first their contents, then the empty subvolume. By default a subvolume counts
/// as a problem.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_transfer_options_set_enter_subvolumes(
    options: *mut ubtrfs_transfer_options,
    enter_subvolumes: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_transfer_options| {
        options.remove = options.remove.enter_subvolumes(enter_subvolumes);
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Creates options for receiving streams.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_receive_options_new(
    options: *mut *mut ubtrfs_receive_options,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        unsafe { handle_place(options)? }.give(ubtrfs_receive_options::default());
        Ok(())
    })
}

/// Frees options. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_receive_options_free(options: *mut ubtrfs_receive_options) {
    // SAFETY: see the head of the header.
    drop(unsafe { take_back(options) });
}

/// Decompresses data that is compressed in the stream, and stores it like other data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_receive_options_set_force_decompress(
    options: *mut ubtrfs_receive_options,
    force_decompress: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_receive_options| {
        options.options = options.options.force_decompress(force_decompress);
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Receives all concatenated streams. By default nothing after the first stream is read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_receive_options_set_all_streams(
    options: *mut ubtrfs_receive_options,
    all_streams: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_receive_options| {
        options.options = options.options.all_streams(all_streams);
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}
