//! Options for copying, unpacking and removing trees, and for receiving streams.

use std::ffi::{c_char, c_int};
use std::mem;

use ubtrfs::{CopyOptions, ImportOptions, ReceiveOptions, Reflink, RemoveOptions, Sparse};

use crate::arguments::{handle_place, take_back};
use crate::failure::status;
use crate::options::{OptionLine, OptionRow, parse, set_by_name};

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

static TRANSFER_OPTIONS: &[OptionRow<ubtrfs_transfer_options>] = &[
    OptionRow::new(
        "preserve",
        "true or false",
        "Sets whether copies preserve owners, modes, times, extended attributes and hard links. The default is true. \
         With false an existing file is overwritten, and keeps its owner and mode.",
        |options, value| {
            let preserve = parse(value)?;
            options.change(|copy| copy.preserve(preserve));
            Some(())
        },
    ),
    OptionRow::new(
        "strict_attributes",
        "true or false",
        "Reports each attribute that the destination cannot have as a problem. By default such attributes are left out.",
        |options, value| {
            let strict = parse(value)?;
            options.change(|copy| copy.strict_attributes(strict));
            Some(())
        },
    ),
    OptionRow::new(
        "follow",
        "true or false",
        "Copies the target of a symbolic link if the source path is one. Symbolic links below it are always copied as \
         links.",
        |options, value| {
            let follow = parse(value)?;
            options.change(|copy| copy.follow(follow));
            Some(())
        },
    ),
    OptionRow::new(
        "contents",
        "true or false",
        "Copies the contents of a directory into an existing one. The error is -ENOTDIR if either is not a directory.",
        |options, value| {
            let contents = parse(value)?;
            options.change(|copy| copy.contents(contents));
            Some(())
        },
    ),
    OptionRow::new(
        "umask",
        "an octal number",
        "Sets the permission bits to clear in new files of a volume if modes are not preserved. They are also cleared \
         in directories that an archive implies but does not contain. The default is 0.",
        |options, value| {
            let umask = u32::from_str_radix(value.to_str()?, 8).ok()?;
            options.change(|copy| copy.umask(umask));
            options.import = mem::take(&mut options.import).umask(umask);
            Some(())
        },
    ),
    OptionRow::new(
        "reflink",
        "auto, always or never",
        "Sets whether copies share the data of their originals. The default, auto, does where possible.",
        |options, value| {
            let reflink = match value.to_str()? {
                "auto" => Reflink::Auto,
                "always" => Reflink::Always,
                "never" => Reflink::Never,
                _ => return None,
            };
            options.change(|copy| copy.reflink(reflink));
            Some(())
        },
    ),
    OptionRow::new(
        "sparse",
        "auto, always or never",
        "Sets the treatment of holes: auto keeps them, always also turns blocks of zeros into holes, and never fills \
         them.",
        |options, value| {
            let sparse = match value.to_str()? {
                "auto" => Sparse::Auto,
                "always" => Sparse::Always,
                "never" => Sparse::Never,
                _ => return None,
            };
            options.change(|copy| copy.sparse(sparse));
            Some(())
        },
    ),
    OptionRow::new(
        "enter_subvolumes",
        "true or false",
        "Removes subvolumes like directories: first their contents, then the empty subvolume. By default a subvolume \
         counts as a problem.",
        |options, value| {
            options.remove = options.remove.enter_subvolumes(parse(value)?);
            Some(())
        },
    ),
];

static RECEIVE_OPTIONS: &[OptionRow<ubtrfs_receive_options>] = &[
    OptionRow::new(
        "force_decompress",
        "true or false",
        "Decompresses data that is compressed in the stream, and stores it like other data.",
        |options, value| {
            options.options = options.options.force_decompress(parse(value)?);
            Some(())
        },
    ),
    OptionRow::new(
        "strict_attributes",
        "true or false",
        "Fails at attributes of NAS makers, which no other system has. By default they are left out.",
        |options, value| {
            options.options = options.options.strict_attributes(parse(value)?);
            Some(())
        },
    ),
    OptionRow::new(
        "all_streams",
        "true or false",
        "Receives all concatenated streams. By default nothing after the first stream is read.",
        |options, value| {
            options.options = options.options.all_streams(parse(value)?);
            Some(())
        },
    ),
];

/// Returns the lines of the header for the options of transfers and of receiving, in this order.
pub fn transfer_option_lines() -> [Vec<OptionLine>; 2] {
    [
        TRANSFER_OPTIONS.iter().map(OptionRow::line).collect(),
        RECEIVE_OPTIONS.iter().map(OptionRow::line).collect(),
    ]
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

/// Sets an option by its name. Values are texts. An unknown name or an invalid value is -EINVAL, and changes nothing.
///
/// {options of transfers}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_transfer_options_set(
    options: *mut ubtrfs_transfer_options,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    // SAFETY: see the head of the header.
    unsafe { set_by_name(TRANSFER_OPTIONS, options, name, value) }
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

/// Sets an option by its name. Values are texts. An unknown name or an invalid value is -EINVAL, and changes nothing.
///
/// {options of receiving}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_receive_options_set(
    options: *mut ubtrfs_receive_options,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    // SAFETY: see the head of the header.
    unsafe { set_by_name(RECEIVE_OPTIONS, options, name, value) }
}
