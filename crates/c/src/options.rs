//! Options for creating, opening and checking volumes. They are handles, so that later releases can add options.

use std::ffi::{OsStr, c_char, c_int, c_void};
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use ubtrfs::{Access, Builder, Checker, CsumType, Mkfs, MkfsOptions, OPEN_OPTIONS, Profile, Uuid};

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
    options: MkfsOptions,
    uuid: Option<Uuid>,
    contents: Option<PathBuf>,
    source_date_epoch: Option<u64>,
    subvolumes: Vec<(PathBuf, Access)>,
    discard: bool,
    shrink: bool,
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
        let mut mkfs = Mkfs::new(self.options.clone());
        if let Some(uuid) = self.uuid {
            mkfs = mkfs.uuid(uuid);
        }
        if let Some(contents) = &self.contents {
            mkfs = mkfs.fill_from(contents);
        }
        if let Some(seconds) = self.source_date_epoch {
            mkfs = mkfs.repeatable(UNIX_EPOCH + Duration::from_secs(seconds));
        }
        for (path, access) in &self.subvolumes {
            mkfs = mkfs.make_subvolume(path, *access);
        }
        mkfs.discard(self.discard).shrink(self.shrink)
    }
}

impl ubtrfs_check_options {
    pub(crate) fn checker(&self) -> Checker {
        self.checker.clone().scan(&self.scan)
    }

    fn change(&mut self, change: impl FnOnce(Checker) -> Checker) {
        self.checker = change(mem::take(&mut self.checker));
    }
}

/// An option of a handle, by name.
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

    pub(crate) fn line(&self) -> OptionLine {
        OptionLine {
            name: self.name,
            syntax: self.syntax,
            help: self.help.into(),
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
    [
        open.collect(),
        MKFS_OPTIONS.iter().map(OptionRow::line).collect(),
        CHECK_OPTIONS.iter().map(OptionRow::line).collect(),
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

/// Sets an option of a handle by its name in a table.
///
/// # Safety
///
/// See [`handle_alone`] and [`text`].
pub(crate) unsafe fn set_by_name<T>(
    rows: &[OptionRow<T>],
    options: *mut T,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    let change = |options: &mut T| {
        // SAFETY: guaranteed by the caller.
        let (name, value) = unsafe { (text(name)?, text(value)?) };
        let row = rows.iter().find(|row| name == row.name);
        let row =
            row.ok_or_else(|| Failure::invalid(&format!("unknown option '{}'", name.display())))?;
        (row.set)(options, value).ok_or_else(|| {
            let (name, syntax) = (row.name, row.syntax);
            let value = value.display();
            Failure::invalid(&format!(
                "option '{name}': bad value '{value}', expected {syntax}"
            ))
        })
    };
    // SAFETY: guaranteed by the caller.
    unsafe { set(options, change) }
}

/// Parses a value.
pub(crate) fn parse<T: std::str::FromStr>(value: &OsStr) -> Option<T> {
    value.to_str()?.parse().ok()
}

const FLAG: &str = "true or false";
const PROFILE: &str = "single, dup, raid0, raid1, raid1c3, raid1c4, raid10, raid5 or raid6";

static MKFS_OPTIONS: &[OptionRow<ubtrfs_mkfs_options>] = &[
    OptionRow::new(
        "label",
        "a text",
        "Sets the label, of at most 255 bytes.",
        |mkfs, value| {
            mkfs.options.label = value.as_bytes().to_vec();
            Some(())
        },
    ),
    OptionRow::new(
        "uuid",
        "a UUID",
        "Sets the UUID of the volume, which must be unique. The default is a random UUID.",
        |mkfs, value| {
            mkfs.uuid = Some(Uuid::parse(value.to_str()?)?);
            Some(())
        },
    ),
    OptionRow::new(
        "data",
        PROFILE,
        "Sets the profile of data. The default depends on the number of devices.",
        |mkfs, value| {
            mkfs.options.data = Some(Profile::from_name(value.to_str()?)?);
            Some(())
        },
    ),
    OptionRow::new(
        "metadata",
        PROFILE,
        "Sets the profile of metadata.",
        |mkfs, value| {
            mkfs.options.metadata = Some(Profile::from_name(value.to_str()?)?);
            Some(())
        },
    ),
    OptionRow::new(
        "checksum",
        "crc32c, xxhash, sha256 or blake2",
        "Sets the checksum algorithm. The default is crc32c.",
        |mkfs, value| {
            mkfs.options.csum_type = CsumType::from_name(value.to_str()?)?;
            Some(())
        },
    ),
    OptionRow::new(
        "node_size",
        "a number of bytes",
        "Sets the size of a tree block. The default is 16 KiB.",
        |mkfs, value| {
            mkfs.options.nodesize = Some(parse(value)?);
            Some(())
        },
    ),
    OptionRow::new(
        "sector_size",
        "a number of bytes",
        "Sets the size of a data block. The default is 4 KiB.",
        |mkfs, value| {
            mkfs.options.sectorsize = parse(value)?;
            Some(())
        },
    ),
    OptionRow::new(
        "features",
        "a list as in mkfs.btrfs -O",
        "Sets and clears features: \"^no-holes,mixed-bg\" clears the first and sets the second.",
        |mkfs, value| {
            // A list with an error changes nothing.
            let mut features = mkfs.options.features;
            features.apply_list(value.to_str()?).ok()?;
            mkfs.options.features = features;
            Some(())
        },
    ),
    OptionRow::new(
        "rootdir",
        "a path",
        "Fills the volume with the contents of a folder of the host, or of a tar archive, compressed or not.",
        |mkfs, value| {
            mkfs.contents = Some(value.into());
            Some(())
        },
    ),
    OptionRow::new(
        "source_date_epoch",
        "seconds since 1970",
        "Uses this time as the current time: then the same options and files produce the same volume, byte for byte. \
         No file has a later time. An empty volume also needs a UUID for that.",
        |mkfs, value| {
            mkfs.source_date_epoch = Some(parse::<u32>(value)?.into());
            Some(())
        },
    ),
    OptionRow::new(
        "subvolumes",
        "a path",
        "Turns a directory of the initial contents into a subvolume. The path is relative to the contents. Each call \
         adds one.",
        |mkfs, value| {
            mkfs.subvolumes.push((value.into(), Access::Writable));
            Some(())
        },
    ),
    OptionRow::new(
        "read_only_subvolumes",
        "a path",
        "Turns a directory of the initial contents into a read-only subvolume. Each call adds one.",
        |mkfs, value| {
            mkfs.subvolumes.push((value.into(), Access::ReadOnly));
            Some(())
        },
    ),
    OptionRow::new(
        "root_owner",
        "UID:GID",
        "Sets the owner of the root directory of a volume without initial contents. The default is 0:0.",
        |mkfs, value| {
            let (uid, gid) = value.to_str()?.split_once(':')?;
            mkfs.options.root_owner = (uid.parse().ok()?, gid.parse().ok()?);
            Some(())
        },
    ),
    OptionRow::new(
        "shrink",
        FLAG,
        "Truncates a filled volume to the minimum size at which it is still writable.",
        |mkfs, value| {
            mkfs.shrink = parse(value)?;
            Some(())
        },
    ),
    OptionRow::new(
        "discard_before",
        FLAG,
        "Discards the contents of devices before creating a volume on them, as mkfs.btrfs does. The default is false.",
        |mkfs, value| {
            mkfs.discard = parse(value)?;
            Some(())
        },
    ),
    OptionRow::new(
        "force",
        FLAG,
        "Allows ubtrfs_volume_format to overwrite existing data.",
        |mkfs, value| {
            mkfs.force = parse(value)?;
            Some(())
        },
    ),
];

static CHECK_OPTIONS: &[OptionRow<ubtrfs_check_options>] = &[
    OptionRow::new(
        "read_data",
        FLAG,
        "Reads all data of every mirror as well, and verifies its checksums.",
        |check, value| {
            let read_data = parse(value)?;
            check.change(|checker| checker.read_data(read_data));
            Some(())
        },
    ),
    OptionRow::new(
        "memory_bytes",
        "a number of bytes",
        "Sets the memory limit for the records of a check. Further records go to a temporary file. The default is \
         256 MiB.",
        |check, value| {
            let bytes = parse(value)?;
            check.change(|checker| checker.memory_bytes(bytes));
            Some(())
        },
    ),
    OptionRow::new(
        "max_issues",
        "a number",
        "Sets the number of issues that are passed to the callback. The default is 1000. All issues are counted.",
        |check, value| {
            let max_issues = parse(value)?;
            check.change(|checker| checker.max_issues(max_issues));
            Some(())
        },
    ),
    OptionRow::new(
        "scan",
        "a path",
        "Adds a file or a folder to the search for other devices, as for opening.",
        |check, value| {
            check.scan.push(value.into());
            Some(())
        },
    ),
];

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
        options.builder = set.map_err(|error| Failure::invalid(&error.reason().to_string()))?;
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
    // SAFETY: see the head of the header.
    unsafe { set_by_name(MKFS_OPTIONS, options, name, value) }
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
    // SAFETY: see the head of the header.
    unsafe { set_by_name(CHECK_OPTIONS, options, name, value) }
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
