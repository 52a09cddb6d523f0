//! Options of volumes that are made, opened and checked. They are handles, so that a later release can have more of them.

use std::ffi::{c_char, c_int, c_void};
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use ubtrfs::{Access, Builder, Checker, Compress, CsumType, Mkfs, MkfsOptions, Profile, Uuid};

use crate::arguments::{handle_alone, handle_place, optional_text, path, take_back, text};
use crate::failure::{Failure, Result, status};
use crate::progress::{Listener, ubtrfs_progress_callback};

/// How a volume is opened. New ones are those of ubtrfs_volume_open for writing.
#[derive(Debug, Default)]
pub struct ubtrfs_open_options {
    builder: Builder,
    scan: Vec<PathBuf>,
    memory_bytes: Option<u64>,
    is_read_only: bool,
    is_as_committed: bool,
    keeps_free_space: bool,
}

/// How a volume is made. New ones are those of ubtrfs_volume_create.
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

/// How a volume is checked. New ones are those of ubtrfs_check without flags.
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
/// As [`handle_alone`].
pub(crate) unsafe fn set<T>(options: *mut T, change: impl FnOnce(&mut T) -> Result<()>) -> c_int {
    status(|| {
        // SAFETY: the caller's.
        change(unsafe { handle_alone(options)? })
    })
}

/// Reads the value that a name stands for.
///
/// # Safety
///
/// As [`text`].
pub(crate) unsafe fn named<T>(
    name: *const c_char,
    what: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<T> {
    // SAFETY: the caller's.
    let name = unsafe { text(name)? };
    let value = name.to_str().and_then(read);
    value.ok_or_else(|| Failure::invalid(&format!("unknown {what} {}", name.display())))
}

/// Makes options of opening.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_open_options_new(options: *mut *mut ubtrfs_open_options) -> c_int {
    status(|| {
        // SAFETY: the head of the header.
        unsafe { handle_place(options)? }.give(ubtrfs_open_options::default());
        Ok(())
    })
}

/// Frees options. NULL is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_open_options_free(options: *mut ubtrfs_open_options) {
    // SAFETY: the head of the header.
    drop(unsafe { take_back(options) });
}

/// Opens for reading: others may do the same meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_open_options_set_read_only(
    options: *mut ubtrfs_open_options,
    read_only: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_open_options| {
        options.is_read_only = read_only;
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Opens for reading, and as of the last commit: so a volume can be read whose log of syncs is damaged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_open_options_set_as_committed(
    options: *mut ubtrfs_open_options,
    as_committed: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_open_options| {
        options.is_as_committed = as_committed;
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Opens although devices are missing, as far as the profiles allow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_open_options_set_degraded(
    options: *mut ubtrfs_open_options,
    degraded: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_open_options| {
        options.change(|builder| builder.degraded(degraded));
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Adds a place where other devices of the volume are looked for: a file or a folder. In a folder it is what is directly in
/// it; in "/dev" all block devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_open_options_add_scan(
    options: *mut ubtrfs_open_options,
    place: *const c_char,
) -> c_int {
    let change = |options: &mut ubtrfs_open_options| {
        // SAFETY: the head of the header.
        options.scan.push(unsafe { path(place)? }.to_owned());
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Sets how files are compressed that do not say it themselves: "none", "lzo", "zlib" or "zstd". The last two may have a
/// level, as "zstd:3". A new volume's contents are compressed so as well.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_open_options_set_compression(
    options: *mut ubtrfs_open_options,
    compression: *const c_char,
) -> c_int {
    let change = |options: &mut ubtrfs_open_options| {
        // SAFETY: the head of the header.
        let compress = unsafe { named(compression, "compression", Compress::from_name)? };
        options.change(|builder| builder.compress(compress));
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Lowers all caches and budgets to their shares of so much memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_open_options_set_memory(
    options: *mut ubtrfs_open_options,
    size_bytes: u64,
) -> c_int {
    let change = |options: &mut ubtrfs_open_options| {
        options.memory_bytes = Some(size_bytes);
        Ok(())
    };
    // SAFETY: the head of the header.
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
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Sets how long a change may stay uncommitted: 30 seconds unless it is set. With 0 a commit comes on request and under
/// pressure of memory only.
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
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Says whether devices are told of freed space, which makes an image smaller. They are unless it is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_open_options_set_discard(
    options: *mut ubtrfs_open_options,
    discard: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_open_options| {
        options.keeps_free_space = !discard;
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Makes options of new volumes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_new(options: *mut *mut ubtrfs_mkfs_options) -> c_int {
    status(|| {
        // SAFETY: the head of the header.
        unsafe { handle_place(options)? }.give(ubtrfs_mkfs_options::default());
        Ok(())
    })
}

/// Frees options. NULL is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_free(options: *mut ubtrfs_mkfs_options) {
    // SAFETY: the head of the header.
    drop(unsafe { take_back(options) });
}

/// Sets the label, of at most 255 bytes. NULL is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_label(
    options: *mut ubtrfs_mkfs_options,
    label: *const c_char,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        // SAFETY: the head of the header.
        let label = unsafe { optional_text(label) };
        options.options.label = label.unwrap_or_default().as_bytes().to_vec();
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Sets the UUID of the volume, which no other may have. It is random unless it is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_uuid(
    options: *mut ubtrfs_mkfs_options,
    uuid: *const [u8; 16],
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        // SAFETY: the head of the header.
        let uuid = unsafe { uuid.as_ref() };
        let uuid = uuid.ok_or_else(|| Failure::invalid("the UUID is NULL"))?;
        options.uuid = Some(Uuid(*uuid));
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Sets the profile of data: "single", "dup", "raid0", "raid1", "raid1c3", "raid1c4", "raid10", "raid5" or "raid6". It
/// follows from the number of devices unless it is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_data_profile(
    options: *mut ubtrfs_mkfs_options,
    profile: *const c_char,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        // SAFETY: the head of the header.
        let profile = unsafe { named(profile, "profile", Profile::from_name)? };
        options.options.data = Some(profile);
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Sets the profile of trees, as ubtrfs_mkfs_options_set_data_profile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_metadata_profile(
    options: *mut ubtrfs_mkfs_options,
    profile: *const c_char,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        // SAFETY: the head of the header.
        let profile = unsafe { named(profile, "profile", Profile::from_name)? };
        options.options.metadata = Some(profile);
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Sets the algorithm of the checksums: "crc32c", which is the default, "xxhash", "sha256" or "blake2".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_checksum(
    options: *mut ubtrfs_mkfs_options,
    checksum: *const c_char,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        // SAFETY: the head of the header.
        let csum_type = unsafe { named(checksum, "checksum", CsumType::from_name)? };
        options.options.csum_type = csum_type;
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Sets the size of a tree block. It is 16 KiB unless it is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_node_size(
    options: *mut ubtrfs_mkfs_options,
    size_bytes: u32,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        options.options.nodesize = Some(size_bytes);
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Sets the size of a block of data. It is 4 KiB unless it is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_sector_size(
    options: *mut ubtrfs_mkfs_options,
    size_bytes: u32,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        options.options.sectorsize = size_bytes;
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Sets and clears features by a list, as of `mkfs.btrfs -O`: "^no-holes,mixed-bg" clears the first and sets the second.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_features(
    options: *mut ubtrfs_mkfs_options,
    list: *const c_char,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        // SAFETY: the head of the header.
        let list = unsafe { text(list)? };
        let list = list.to_str();
        let list = list.ok_or_else(|| Failure::invalid("the features are no UTF-8"))?;
        // A list that is refused changes nothing.
        let mut features = options.options.features;
        features.apply_list(list)?;
        options.options.features = features;
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Fills the volume with what is in a folder of this machine, or in a tar archive, compressed or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_rootdir(
    options: *mut ubtrfs_mkfs_options,
    contents: *const c_char,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        // SAFETY: the head of the header.
        options.contents = Some(unsafe { path(contents)? }.to_owned());
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Takes a time, in seconds since 1970, for the present: then the same options and files make the same volume, byte for
/// byte. No file has a later time. An empty volume needs a UUID for that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_source_date_epoch(
    options: *mut ubtrfs_mkfs_options,
    seconds: u32,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        options.source_date_epoch = Some(seconds.into());
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Makes a directory of what the volume is filled with a subvolume. The path is that within it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_add_subvolume(
    options: *mut ubtrfs_mkfs_options,
    dir: *const c_char,
    read_only: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        let access = match read_only {
            true => Access::ReadOnly,
            false => Access::Writable,
        };
        // SAFETY: the head of the header.
        let dir = unsafe { path(dir)? };
        options.subvolumes.push((dir.to_owned(), access));
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Sets the owner of the root directory of a volume that is not filled. It is user and group 0 unless it is set.
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
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Cuts a volume that is filled to the least size at which it can still be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_shrink(
    options: *mut ubtrfs_mkfs_options,
    shrink: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        options.shrink = shrink;
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Discards what devices hold before a volume is made on them, as mkfs.btrfs does. It is not done unless it is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_discard(
    options: *mut ubtrfs_mkfs_options,
    discard: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        options.discard = discard;
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Has ubtrfs_volume_format overwrite what files and devices hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_force(
    options: *mut ubtrfs_mkfs_options,
    force: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        options.force = force;
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Has a callback hear how each volume is filled that is made with the options. NULL is none. `data` is kept until the
/// options are freed. If the callback ends a filling, there is no volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_mkfs_options_set_progress(
    options: *mut ubtrfs_mkfs_options,
    callback: ubtrfs_progress_callback,
    data: *mut c_void,
) -> c_int {
    let change = |options: &mut ubtrfs_mkfs_options| {
        // SAFETY: the head of the header.
        options.listener = unsafe { Listener::new(callback, data) };
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Makes options of checks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_check_options_new(
    options: *mut *mut ubtrfs_check_options,
) -> c_int {
    status(|| {
        // SAFETY: the head of the header.
        unsafe { handle_place(options)? }.give(ubtrfs_check_options::default());
        Ok(())
    })
}

/// Frees options. NULL is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_check_options_free(options: *mut ubtrfs_check_options) {
    // SAFETY: the head of the header.
    drop(unsafe { take_back(options) });
}

/// Reads all data of every mirror as well, and compares it with its checksums.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_check_options_set_read_data(
    options: *mut ubtrfs_check_options,
    read_data: bool,
) -> c_int {
    let change = |options: &mut ubtrfs_check_options| {
        options.change(|checker| checker.read_data(read_data));
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Sets how much memory the records of a check take. Those beyond go to a temporary file. It is 256 MiB unless it is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_check_options_set_memory(
    options: *mut ubtrfs_check_options,
    size_bytes: u64,
) -> c_int {
    let change = |options: &mut ubtrfs_check_options| {
        options.change(|checker| checker.memory_bytes(size_bytes));
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Sets of how many issues the callback hears: the first 1000 unless it is set. All are counted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_check_options_set_max_issues(
    options: *mut ubtrfs_check_options,
    max_issues: usize,
) -> c_int {
    let change = |options: &mut ubtrfs_check_options| {
        options.change(|checker| checker.max_issues(max_issues));
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Adds a place where other devices are looked for, as ubtrfs_open_options_add_scan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_check_options_add_scan(
    options: *mut ubtrfs_check_options,
    place: *const c_char,
) -> c_int {
    let change = |options: &mut ubtrfs_check_options| {
        // SAFETY: the head of the header.
        options.scan.push(unsafe { path(place)? }.to_owned());
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}

/// Has a callback hear of the progress of each check that takes the options. NULL is none. `data` is kept until the
/// options are freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ubtrfs_check_options_set_progress(
    options: *mut ubtrfs_check_options,
    callback: ubtrfs_progress_callback,
    data: *mut c_void,
) -> c_int {
    let change = |options: &mut ubtrfs_check_options| {
        // SAFETY: the head of the header.
        options.listener = unsafe { Listener::new(callback, data) };
        Ok(())
    };
    // SAFETY: the head of the header.
    unsafe { set(options, change) }
}
