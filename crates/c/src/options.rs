//! Options for creating, opening and checking volumes. They are handles, so that later releases can add options.

use std::ffi::{c_char, c_int, c_void};
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use ubtrfs::{Access, Builder, Checker, Compress, CsumType, Mkfs, MkfsOptions, Profile, Uuid};

use crate::arguments::{handle_alone, handle_place, optional_text, path, take_back, text};
use crate::failure::{Failure, Result, status};
use crate::progress::{Listener, ubtrfs_progress_callback};

/// Options for opening a volume. The defaults are the same as for ubtrfs_volume_open with write access.
#[derive(Debug, Default)]
pub struct ubtrfs_open_options {
    builder: Builder,
    scan: Vec<PathBuf>,
    memory_bytes: Option<u64>,
    is_read_only: bool,
    is_as_committed: bool,
    keeps_free_space: bool,
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
        let mut builder = self.builder.clone().scan(&self.scan);
        if let Some(bytes) = self.memory_bytes {
            builder = builder.limit_memory(bytes);
        }
        if self.is_read_only {
            builder = builder.read_only();
        }
        if self.is_as_committed {
            builder = builder.as_committed();
        }
        if self.keeps_free_space {
            builder = builder.no_discard();
        }
        builder
    }

    pub(crate) fn reads_only(&self) -> bool {
        self.is_read_only || self.is_as_committed
    }

    fn change(&mut self, change: impl FnOnce(Builder) -> Builder) {
        self.builder = change(mem::take(&mut self.builder));
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

/// Parses the name of a value.
///
/// # Safety
///
/// See [`text`].
pub(crate) unsafe fn named<T>(
    name: *const c_char,
    what: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<T> {
    // SAFETY: guaranteed by the caller.
    let name = unsafe { text(name)? };
    let value = name.to_str().and_then(read);
    value.ok_or_else(|| Failure::invalid(&format!("unknown {what} {}", name.display())))
}

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

/// Opens the volume read-only. Other processes may also open it read-only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_open_options_set_read_only(
    options: *mut ubtrfs_open_options,
    read_only: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_open_options| {
        options.is_read_only = read_only;
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Opens the volume read-only, as of the last commit. Use this to read a volume whose log of fsyncs is damaged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_open_options_set_as_committed(
    options: *mut ubtrfs_open_options,
    as_committed: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_open_options| {
        options.is_as_committed = as_committed;
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Allows missing devices, as far as the profiles permit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_open_options_set_degraded(
    options: *mut ubtrfs_open_options,
    degraded: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_open_options| {
        options.change(|builder| builder.degraded(degraded));
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Adds a file or a folder to the search for other devices of the volume. A folder is searched without its subfolders;
/// "/dev" means all block devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_open_options_add_scan(
    options: *mut ubtrfs_open_options,
    place: *const c_char,
) -> c_int {
    let change = |options: &mut ubtrfs_open_options| {
        // SAFETY: see the head of the header.
        options.scan.push(unsafe { path(place)? }.to_owned());
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Sets the compression of files without a setting of their own: "none", "lzo", "zlib" or "zstd". The last two may have
/// a level, such as "zstd:3". Also applies to the initial contents of a new volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_open_options_set_compression(
    options: *mut ubtrfs_open_options,
    compression: *const c_char,
) -> c_int {
    let change = |options: &mut ubtrfs_open_options| {
        // SAFETY: see the head of the header.
        let compress = unsafe { named(compression, "compression", Compress::from_name)? };
        options.change(|builder| builder.compress(compress));
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Limits all caches and buffers to their shares of this amount of memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_open_options_set_memory(
    options: *mut ubtrfs_open_options,
    size_bytes: u64,
) -> c_int {
    let change = |options: &mut ubtrfs_open_options| {
        options.memory_bytes = Some(size_bytes);
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Sets the size of the cache of tree blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_open_options_set_cache(
    options: *mut ubtrfs_open_options,
    size_bytes: u64,
) -> c_int {
    let change = |options: &mut ubtrfs_open_options| {
        options.change(|builder| builder.cache_bytes(size_bytes));
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Sets how long a change may stay uncommitted. The default is 30 seconds. With 0, commits happen only on request and
/// under memory pressure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_open_options_set_commit_interval(
    options: *mut ubtrfs_open_options,
    seconds: u32,
) -> c_int {
    let change = |options: &mut ubtrfs_open_options| {
        let interval = Some(Duration::from_secs(seconds.into()));
        let interval = interval.filter(|interval| !interval.is_zero());
        options.change(|builder| builder.commit_interval(interval));
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Sets whether freed space is discarded on the devices, which shrinks an image file. The default is true.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_open_options_set_discard(
    options: *mut ubtrfs_open_options,
    discard: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_open_options| {
        options.keeps_free_space = !discard;
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

/// Sets the label, of at most 255 bytes. NULL means no label.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_label(
    options: *mut ubtrfs_mkfs_options,
    label: *const c_char,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        // SAFETY: see the head of the header.
        let label = unsafe { optional_text(label) };
        options.options.label = label.unwrap_or_default().as_bytes().to_vec();
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Sets the UUID of the volume, which must be unique. The default is a random UUID.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_uuid(
    options: *mut ubtrfs_mkfs_options,
    uuid: *const [u8; 16],
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        // SAFETY: see the head of the header.
        let uuid = unsafe { uuid.as_ref() };
        let uuid = uuid.ok_or_else(|| Failure::invalid("the UUID is NULL"))?;
        options.uuid = Some(Uuid(*uuid));
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Sets the profile of data: "single", "dup", "raid0", "raid1", "raid1c3", "raid1c4", "raid10", "raid5" or "raid6". The
/// default depends on the number of devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_data_profile(
    options: *mut ubtrfs_mkfs_options,
    profile: *const c_char,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        // SAFETY: see the head of the header.
        let profile = unsafe { named(profile, "profile", Profile::from_name)? };
        options.options.data = Some(profile);
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Sets the profile of metadata, with the names of ubtrfs_mkfs_options_set_data_profile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_metadata_profile(
    options: *mut ubtrfs_mkfs_options,
    profile: *const c_char,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        // SAFETY: see the head of the header.
        let profile = unsafe { named(profile, "profile", Profile::from_name)? };
        options.options.metadata = Some(profile);
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Sets the checksum algorithm: "crc32c" (the default), "xxhash", "sha256" or "blake2".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_checksum(
    options: *mut ubtrfs_mkfs_options,
    checksum: *const c_char,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        // SAFETY: see the head of the header.
        let csum_type = unsafe { named(checksum, "checksum", CsumType::from_name)? };
        options.options.csum_type = csum_type;
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Sets the size of a tree block. The default is 16 KiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_node_size(
    options: *mut ubtrfs_mkfs_options,
    size_bytes: u32,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        options.options.nodesize = Some(size_bytes);
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Sets the size of a data block. The default is 4 KiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_sector_size(
    options: *mut ubtrfs_mkfs_options,
    size_bytes: u32,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        options.options.sectorsize = size_bytes;
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Sets and clears features with a list as in `mkfs.btrfs -O`: "^no-holes,mixed-bg" clears the first and sets the
/// second.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_features(
    options: *mut ubtrfs_mkfs_options,
    list: *const c_char,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        // SAFETY: see the head of the header.
        let list = unsafe { text(list)? };
        let list = list.to_str();
        let list = list.ok_or_else(|| Failure::invalid("the features are no UTF-8"))?;
        // A list with an error changes nothing.
        let mut features = options.options.features;
        features.apply_list(list)?;
        options.options.features = features;
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Fills the volume with the contents of a folder of the host, or of a tar archive, compressed or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_rootdir(
    options: *mut ubtrfs_mkfs_options,
    contents: *const c_char,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        // SAFETY: see the head of the header.
        options.contents = Some(unsafe { path(contents)? }.to_owned());
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Uses this time, in seconds since 1970, as the current time: then the same options and files produce the same volume,
/// byte for byte. No file has a later time. An empty volume also needs a UUID for that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_source_date_epoch(
    options: *mut ubtrfs_mkfs_options,
    seconds: u32,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        options.source_date_epoch = Some(seconds.into());
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Turns a directory of the initial contents into a subvolume. The path is relative to the contents.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_add_subvolume(
    options: *mut ubtrfs_mkfs_options,
    dir: *const c_char,
    read_only: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        let access = if read_only {
            Access::ReadOnly
        } else {
            Access::Writable
        };
        // SAFETY: see the head of the header.
        let dir = unsafe { path(dir)? };
        options.subvolumes.push((dir.to_owned(), access));
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Sets the owner of the root directory of a volume without initial contents. The default is user and group 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_root_owner(
    options: *mut ubtrfs_mkfs_options,
    uid: u32,
    gid: u32,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        options.options.root_owner = (uid, gid);
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Truncates a filled volume to the minimum size at which it is still writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_shrink(
    options: *mut ubtrfs_mkfs_options,
    shrink: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        options.shrink = shrink;
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Discards the contents of devices before creating a volume on them, as mkfs.btrfs does. The default is false.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_discard(
    options: *mut ubtrfs_mkfs_options,
    discard: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        options.discard = discard;
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Allows ubtrfs_volume_format to overwrite existing data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_force(
    options: *mut ubtrfs_mkfs_options,
    force: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        options.force = force;
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

/// Reads all data of every mirror as well, and verifies its checksums.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_check_options_set_read_data(
    options: *mut ubtrfs_check_options,
    read_data: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_check_options| {
        options.change(|checker| checker.read_data(read_data));
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Sets the memory limit for the records of a check. Further records go to a temporary file. The default is 256 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_check_options_set_memory(
    options: *mut ubtrfs_check_options,
    size_bytes: u64,
) -> c_int {
    let change = |options: &mut ubtrfs_check_options| {
        options.change(|checker| checker.memory_bytes(size_bytes));
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Sets the number of issues that are passed to the callback. The default is 1000. All issues are counted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_check_options_set_max_issues(
    options: *mut ubtrfs_check_options,
    max_issues: usize,
) -> c_int {
    let change = |options: &mut ubtrfs_check_options| {
        options.change(|checker| checker.max_issues(max_issues));
        Ok(())
    };
    // SAFETY: see the head of the header.
    unsafe { set(options, change) }
}

/// Adds a file or a folder to the search for other devices, as ubtrfs_open_options_add_scan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_check_options_add_scan(
    options: *mut ubtrfs_check_options,
    place: *const c_char,
) -> c_int {
    let change = |options: &mut ubtrfs_check_options| {
        // SAFETY: see the head of the header.
        options.scan.push(unsafe { path(place)? }.to_owned());
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
