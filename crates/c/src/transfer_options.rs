//! Options for copying, unpacking and removing trees, and for receiving streams.

use std::ffi::{c_char, c_int};
use std::mem;

use ubtrfs::{
    COPY_OPTIONS, CopyOptions, ImportOptions, RECEIVE_OPTIONS, ReceiveOptions, RemoveOptions,
};

use crate::arguments::{handle_place, take_back, text};
use crate::failure::status;
use crate::options::{OptionLine, OptionRow, parse, refused, set};

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

static ENTER_SUBVOLUMES: OptionRow<ubtrfs_transfer_options> = OptionRow::new(
    "enter_subvolumes",
    "true or false",
    "Removes subvolumes like directories: first their contents, then the empty subvolume. By default a subvolume counts \
     as a problem.",
    |options, value| {
        options.remove = options.remove.enter_subvolumes(parse(value)?);
        Some(())
    },
);
const UMASK: &str = "umask";

/// Returns the lines of the header for the options of transfers and of receiving, in this order.
pub fn transfer_option_lines() -> [Vec<OptionLine>; 2] {
    let copy = COPY_OPTIONS.iter().map(OptionLine::of);
    [
        copy.chain([ENTER_SUBVOLUMES.line()]).collect(),
        RECEIVE_OPTIONS.iter().map(OptionLine::of).collect(),
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
    let change = |options: &mut ubtrfs_transfer_options| {
        // SAFETY: see the head of the header.
        let (name, value) = unsafe { (text(name)?, text(value)?) };
        if name == ENTER_SUBVOLUMES.name {
            return ENTER_SUBVOLUMES.apply(options, value);
        }
        let set = options.copy.clone().set(&name.to_string_lossy(), value);
        options.copy = set.map_err(refused)?;
        if name == UMASK
            && let Some(umask) = value
                .to_str()
                .and_then(|text| u32::from_str_radix(text, 8).ok())
        {
            options.import = mem::take(&mut options.import).umask(umask);
        }
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

/// Sets an option by its name. Values are texts. An unknown name or an invalid value is -EINVAL, and changes nothing.
///
/// {options of receiving}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_receive_options_set(
    options: *mut ubtrfs_receive_options,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    let change = |options: &mut ubtrfs_receive_options| {
        // SAFETY: see the head of the header.
        let (name, value) = unsafe { (text(name)?, text(value)?) };
        let set = options.options.set(&name.to_string_lossy(), value);
        options.options = set.map_err(refused)?;
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}
