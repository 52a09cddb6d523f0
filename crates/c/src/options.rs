//! Options for creating, opening and checking volumes. They are handles, so that later releases can add options.

use std::ffi::{OsStr, c_char, c_int, c_void};
use std::mem;
use std::path::PathBuf;

use ubtrfs::{Builder, CHECK_OPTIONS, Checker, MKFS_OPTIONS, Mkfs, NamedOption, OPEN_OPTIONS};

use crate::arguments::{handle_alone, handle_place, take_back, text};
use crate::failure::{Failure, Result, status};
use crate::progress::{Listener, ubtrfs_progress_callback};

/// Options for opening a volume. The defaults are the same as for ubtrfs_volume_open with write access.
#[derive(Debug, Default)]
pub struct ubtrfs_open_options {
    builder: Builder,
}

/// Options for creating a volume. The defaults are the same as for ubtrfs_volume_create.
#[derive(Debug, Default)]
pub struct ubtrfs_mkfs_options {
    mkfs: Mkfs,
    pub(crate) force: bool,
    pub(crate) listener: Listener,
}

/// Options for checking a volume. The defaults are the same as for ubtrfs_check without flags.
#[derive(Debug, Default)]
pub struct ubtrfs_check_options {
    checker: Checker,
    scan: Vec<PathBuf>,
    pub(crate) listener: Listener,
}

impl ubtrfs_open_options {
    pub(crate) fn builder(&self) -> Builder {
        self.builder.clone()
    }

    pub(crate) fn reads_only(&self) -> bool {
        self.builder.is_read_only()
    }
}

impl ubtrfs_mkfs_options {
    pub(crate) fn mkfs(&self) -> Mkfs {
        self.mkfs.clone()
    }
}

impl ubtrfs_check_options {
    pub(crate) fn checker(&self) -> Checker {
        self.checker.clone().scan(&self.scan)
    }
}

/// An option of a handle that the library does not have.
#[derive(Debug)]
pub struct OptionRow<T: 'static> {
    pub name: &'static str,
    /// The accepted values, as the header and errors show them.
    pub syntax: &'static str,
    pub help: &'static str,
    /// Returns `None`, and changes nothing, if the value is not valid.
    set: fn(&mut T, &OsStr) -> Option<()>,
}

/// Describes an option for the header: its name, the accepted values, and its effect.
#[derive(Debug)]
pub struct OptionLine {
    pub name: &'static str,
    pub syntax: &'static str,
    pub help: String,
}

impl<T> OptionRow<T> {
    pub(crate) const fn new(
        name: &'static str,
        syntax: &'static str,
        help: &'static str,
        set: fn(&mut T, &OsStr) -> Option<()>,
    ) -> OptionRow<T> {
        OptionRow {
            name,
            syntax,
            help,
            set,
        }
    }

    pub(crate) fn apply(&self, options: &mut T, value: &OsStr) -> Result<()> {
        (self.set)(options, value).ok_or_else(|| {
            let (name, syntax) = (self.name, self.syntax);
            let value = value.display();
            Failure::invalid(&format!(
                "option '{name}': bad value '{value}', expected {syntax}"
            ))
        })
    }

    pub(crate) fn line(&self) -> OptionLine {
        OptionLine {
            name: self.name,
            syntax: self.syntax,
            help: self.help.into(),
        }
    }
}

impl OptionLine {
    pub(crate) fn of<T>(option: &NamedOption<T>) -> OptionLine {
        OptionLine {
            name: option.name(),
            syntax: option.syntax(),
            help: option.help(),
        }
    }
}

/// Returns the lines of the header for the options of opening, making and checking, in this order.
pub fn option_lines() -> [Vec<OptionLine>; 3] {
    let open = OPEN_OPTIONS.iter().map(|option| OptionLine {
        name: option.name(),
        syntax: option.kind().syntax(),
        help: format!("{} Default: {}.", option.help(), option.default_value()),
    });
    let mkfs = MKFS_OPTIONS.iter().map(OptionLine::of);
    let check = CHECK_OPTIONS.iter().map(OptionLine::of);
    [
        open.collect(),
        mkfs.chain([FORCE.line()]).collect(),
        check.chain([VOLUME.line(), SCAN.line()]).collect(),
    ]
}

/// Changes the options of a handle.
///
/// # Safety
///
/// See [`handle_alone`].
pub(crate) unsafe fn set<T>(options: *mut T, change: impl FnOnce(&mut T) -> Result<()>) -> c_int {
    status(|| {
        // SAFETY: guaranteed by the caller.
        change(unsafe { handle_alone(options)? })
    })
}

/// Returns the failure of an option that the library refuses.
pub(crate) fn refused(error: ubtrfs::Error) -> Failure {
    Failure::invalid(&error.reason().to_string())
}

/// Parses a value.
pub(crate) fn parse<T: std::str::FromStr>(value: &OsStr) -> Option<T> {
    value.to_str()?.parse().ok()
}

const FLAG: &str = "true or false";

/// The option of a new volume that [`Mkfs`] does not have.
static FORCE: OptionRow<ubtrfs_mkfs_options> = OptionRow::new(
    "force",
    FLAG,
    "Allows ubtrfs_volume_format to overwrite existing data.",
    |mkfs, value| {
        mkfs.force = parse(value)?;
        Some(())
    },
);

static VOLUME: OptionRow<ubtrfs_check_options> = OptionRow::new(
    "volume",
    "a text",
    "Chooses the volume if the disks hold several, as for opening.",
    |check, value| {
        let name = value.to_str()?;
        check.checker = mem::take(&mut check.checker).volume(name);
        Some(())
    },
);

static SCAN: OptionRow<ubtrfs_check_options> = OptionRow::new(
    "scan",
    "a path",
    "Adds a file or a folder to the search for other devices, as for opening.",
    |check, value| {
        check.scan.push(value.into());
        Some(())
    },
);

/// Creates options for opening a volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_open_options_new(options: *mut *mut ubtrfs_open_options) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        unsafe { handle_place(options)? }.give(ubtrfs_open_options::default());
        Ok(())
    })
}

/// Frees options. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_open_options_free(options: *mut ubtrfs_open_options) {
    // SAFETY: see the head of the header.
    drop(unsafe { take_back(options) });
}

/// Sets an option by its name. Values are texts. An unknown name or an invalid value is -EINVAL, and changes nothing.
///
/// {options of opening}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_open_options_set(
    options: *mut ubtrfs_open_options,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    let change = |options: &mut ubtrfs_open_options| {
        // SAFETY: see the head of the header.
        let (name, value) = unsafe { (text(name)?, text(value)?) };
        let builder = options.builder.clone();
        let set = builder.set(&name.to_string_lossy(), value);
        options.builder = set.map_err(refused)?;
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Creates options for new volumes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_new(options: *mut *mut ubtrfs_mkfs_options) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        unsafe { handle_place(options)? }.give(ubtrfs_mkfs_options::default());
        Ok(())
    })
}

/// Frees options. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_free(options: *mut ubtrfs_mkfs_options) {
    // SAFETY: see the head of the header.
    drop(unsafe { take_back(options) });
}

/// Sets an option by its name. Values are texts. An unknown name or an invalid value is -EINVAL, and changes nothing.
///
/// {options of making}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set(
    options: *mut ubtrfs_mkfs_options,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        // SAFETY: see the head of the header.
        let (name, value) = unsafe { (text(name)?, text(value)?) };
        if name == FORCE.name {
            return FORCE.apply(options, value);
        }
        let set = options.mkfs().set(&name.to_string_lossy(), value);
        options.mkfs = set.map_err(refused)?;
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Sets a callback for the progress of filling new volumes with these options. NULL removes it. `data` is kept until
/// the options are freed. If the callback ends the call, no volume is created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_progress(
    options: *mut ubtrfs_mkfs_options,
    callback: ubtrfs_progress_callback,
    data: *mut c_void,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        // SAFETY: see the head of the header.
        options.listener = unsafe { Listener::new(callback, data) };
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Creates options for checks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_check_options_new(
    options: *mut *mut ubtrfs_check_options,
) -> c_int {
    status(|| {
        // SAFETY: see the head of the header.
        unsafe { handle_place(options)? }.give(ubtrfs_check_options::default());
        Ok(())
    })
}

/// Frees options. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_check_options_free(options: *mut ubtrfs_check_options) {
    // SAFETY: see the head of the header.
    drop(unsafe { take_back(options) });
}

/// Sets an option by its name. Values are texts. An unknown name or an invalid value is -EINVAL, and changes nothing.
///
/// {options of checking}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_check_options_set(
    options: *mut ubtrfs_check_options,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    let change = |options: &mut ubtrfs_check_options| {
        // SAFETY: see the head of the header.
        let (name, value) = unsafe { (text(name)?, text(value)?) };
        if let Some(row) = [&VOLUME, &SCAN].into_iter().find(|row| name == row.name) {
            return row.apply(options, value);
        }
        let set = options.checker.clone().set(&name.to_string_lossy(), value);
        options.checker = set.map_err(refused)?;
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Sets a callback for the progress of checks with these options. NULL removes it. `data` is kept until the options are
/// freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_check_options_set_progress(
    options: *mut ubtrfs_check_options,
    callback: ubtrfs_progress_callback,
    data: *mut c_void,
) -> c_int {
    let change = |options: &mut ubtrfs_check_options| {
        // SAFETY: see the head of the header.
        options.listener = unsafe { Listener::new(callback, data) };
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}
