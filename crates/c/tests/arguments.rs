//! Invalid arguments are errors, and results are complete or refused.

// The functions have raw pointers.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use ubtrfs_c::*;
use ubtrfs_sim::Scratch;

/// An open volume with its top level.
struct Opened {
    volume: *mut ubtrfs_volume,
    root: *mut ubtrfs_subvolume,
    _scratch: Scratch,
}

impl Opened {
    fn new() -> Opened {
        let scratch = Scratch::new().unwrap();
        let image = scratch.path().join("image").into_os_string();
        let image = CString::new(image.into_encoded_bytes()).unwrap();
        let mut volume = ptr::null_mut();
        let mut root = ptr::null_mut();
        // SAFETY: as the header requires.
        unsafe {
            let created = ubtrfs_volume_create(image.as_ptr(), 256 << 20, ptr::null(), &mut volume);
            assert_eq!(created, 0, "{}", message());
            assert_eq!(ubtrfs_volume_root(volume, &mut root), 0);
        }
        Opened {
            volume,
            root,
            _scratch: scratch,
        }
    }

    fn open(&self, name: &CStr, flags: c_int) -> Result<*mut ubtrfs_file, c_int> {
        let mut file = ptr::dangling_mut();
        // SAFETY: as the header requires.
        match unsafe { ubtrfs_open(self.root, name.as_ptr(), flags, 0o600, &mut file) } {
            0 => Ok(file),
            errno => {
                assert!(file.is_null());
                Err(errno)
            }
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: both are open, and not used again.
        unsafe {
            ubtrfs_subvolume_free(self.root);
            ubtrfs_volume_close(self.volume);
        }
    }
}

fn message() -> String {
    // SAFETY: the text is copied before another call.
    let message = unsafe { CStr::from_ptr(ubtrfs_error_message()) };
    message.to_str().unwrap().to_owned()
}

#[test]
fn null_is_an_error() {
    let opened = Opened::new();
    let path = c"/x".as_ptr();
    // SAFETY: null is allowed for all of these.
    unsafe {
        assert_eq!(ubtrfs_mkdir(ptr::null(), path, 0o755), -libc::EINVAL);
        assert_eq!(ubtrfs_mkdir(opened.root, ptr::null(), 0), -libc::EINVAL);
        assert_eq!(message(), "invalid argument: a text is NULL");
        let no_place = ptr::null_mut();
        assert_eq!(ubtrfs_volume_open(path, 0, no_place), -libc::EINVAL);
        assert_eq!(
            ubtrfs_stat(opened.root, path, ptr::null_mut()),
            -libc::EINVAL
        );
        let read = ubtrfs_pread(ptr::null(), ptr::null_mut(), 0, 0);
        assert_eq!(read, i64::from(-libc::EINVAL));
        let listed = ubtrfs_volume_subvolumes(opened.volume, None, ptr::null_mut());
        assert_eq!(listed, -libc::EINVAL);
        assert_eq!(ubtrfs_volume_close(ptr::null_mut()), 0);
        ubtrfs_close(ptr::null_mut());
        ubtrfs_closedir(ptr::null_mut());
        ubtrfs_subvolume_free(ptr::null_mut());
    }
}

#[test]
fn failure_has_errno_and_message_of_its_thread() {
    let opened = Opened::new();
    assert_eq!(opened.open(c"/none", libc::O_RDONLY), Err(-libc::ENOENT));
    assert!(
        message().starts_with("cannot open '/none': "),
        "{}",
        message()
    );
    std::thread::spawn(|| assert_eq!(message(), ""))
        .join()
        .unwrap();
    // SAFETY: as the header requires.
    let removed = unsafe { ubtrfs_rmdir(opened.root, c"/".as_ptr()) };
    assert_eq!(removed, -libc::EBUSY);
    // Bytes that are not UTF-8 are a valid path.
    let name = c"/\xff\xfe";
    assert_eq!(opened.open(name, libc::O_RDONLY), Err(-libc::ENOENT));
    let made = opened.open(name, libc::O_WRONLY | libc::O_CREAT).unwrap();
    // SAFETY: it is open.
    unsafe { ubtrfs_close(made) };
}

#[test]
fn unknown_flags_are_refused() {
    let opened = Opened::new();
    for flags in [
        libc::O_DIRECTORY,
        libc::O_ACCMODE,
        libc::O_CREAT,
        libc::O_APPEND,
    ] {
        assert_eq!(opened.open(c"/x", flags), Err(-libc::EINVAL), "{flags:o}");
    }
    // SAFETY: as the header requires.
    unsafe {
        let x = c"/x".as_ptr();
        assert_eq!(ubtrfs_rename(opened.root, x, x, 3), -libc::EINVAL);
        assert_eq!(ubtrfs_removexattr(opened.root, x, x, 2), -libc::EINVAL);
    }
}

#[test]
fn values_are_copied_whole_or_not_at_all() {
    let opened = Opened::new();
    let mut buf = [0_u8; 8];
    let data: *mut c_void = buf.as_mut_ptr().cast();
    // SAFETY: as the header requires.
    unsafe {
        assert_eq!(
            ubtrfs_symlink(opened.root, c"target".as_ptr(), c"/l".as_ptr()),
            0
        );
        let readlink = |size| ubtrfs_readlink(opened.root, c"/l".as_ptr(), data, size);
        assert_eq!(readlink(0), 6);
        assert_eq!(readlink(5), i64::from(-libc::ERANGE));
        assert_eq!(readlink(8), 6);
        let (l, note) = (c"/l".as_ptr(), c"user.a".as_ptr());
        assert_eq!(
            ubtrfs_getxattr(opened.root, l, note, data, 8, UBTRFS_NOFOLLOW),
            i64::from(-libc::ENODATA)
        );
        assert_eq!(
            ubtrfs_setxattr(opened.root, c"/".as_ptr(), note, c"v".as_ptr().cast(), 1, 0),
            0
        );
        assert_eq!(ubtrfs_listxattr(opened.root, c"/".as_ptr(), data, 8, 0), 7);
    }
    assert_eq!(&buf, b"user.a\0\0");
}

#[test]
fn attributes_of_a_link_itself_are_made_and_replaced() {
    let opened = Opened::new();
    let (link, name) = (c"/l".as_ptr(), c"trusted.a".as_ptr());
    let set = |flags| {
        let value = c"v".as_ptr().cast();
        // SAFETY: as the header requires.
        unsafe { ubtrfs_setxattr(opened.root, link, name, value, 1, UBTRFS_NOFOLLOW | flags) }
    };
    // SAFETY: as the header requires.
    let linked = unsafe { ubtrfs_symlink(opened.root, c"nowhere".as_ptr(), link) };
    assert_eq!(linked, 0);
    assert_eq!(set(UBTRFS_XATTR_REPLACE), -libc::ENODATA);
    assert_eq!(set(UBTRFS_XATTR_CREATE), 0);
    assert_eq!(set(UBTRFS_XATTR_CREATE), -libc::EEXIST);
    assert_eq!(set(UBTRFS_XATTR_REPLACE), 0);
    assert_eq!(
        set(UBTRFS_XATTR_CREATE | UBTRFS_XATTR_REPLACE),
        -libc::EINVAL
    );
    assert_eq!(set(8), -libc::EINVAL);
}

#[test]
fn files_are_read_and_written_with_times_and_sizes() {
    let opened = Opened::new();
    let both = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    let file = opened.open(c"/f", both).unwrap();
    let mut buf = [0_u8; 16];
    let mut stat = MaybeUninit::<ubtrfs_stat>::uninit();
    let early = ubtrfs_timespec {
        sec: -2,
        nsec: 500_000_000,
    };
    let wrong = ubtrfs_timespec {
        sec: 0,
        nsec: 1_000_000_000,
    };
    // SAFETY: as the header requires.
    let stat = unsafe {
        assert_eq!(ubtrfs_pwrite(file, c"content".as_ptr().cast(), 7, 3), 7);
        assert_eq!(ubtrfs_pread(file, buf.as_mut_ptr().cast(), 16, 3), 7);
        assert_eq!(ubtrfs_truncate(file, 9), 0);
        assert_eq!(ubtrfs_fsync(file), 0);
        ubtrfs_close(file);
        let (f, none) = (c"/f".as_ptr(), ptr::null());
        assert_eq!(ubtrfs_utimens(opened.root, f, none, &early, 0), 0);
        assert_eq!(
            ubtrfs_utimens(opened.root, f, none, &wrong, 0),
            -libc::EINVAL
        );
        let special = |nsec: i64| ubtrfs_timespec {
            sec: 7,
            nsec: u32::try_from(nsec).unwrap(),
        };
        let (now, omit) = (special(libc::UTIME_NOW), special(libc::UTIME_OMIT));
        assert_eq!(ubtrfs_utimens(opened.root, f, &now, &omit, 0), 0);
        assert_eq!(ubtrfs_utimens(opened.root, f, none, &omit, 0), 0);
        assert_eq!(ubtrfs_stat(opened.root, f, stat.as_mut_ptr()), 0);
        stat.assume_init()
    };
    assert_eq!(&buf[..8], b"content\0");
    assert_eq!(
        (stat.size, stat.mode, stat.nlink),
        (9, libc::S_IFREG | 0o600, 1)
    );
    assert_eq!((stat.mtime.sec, stat.mtime.nsec), (-2, 500_000_000));
    let of = |time: ubtrfs_timespec| (time.sec, time.nsec);
    assert_eq!(of(stat.atime), of(stat.ctime), "both are of one change");
    assert_eq!(opened.open(c"/f", both), Err(-libc::EEXIST));
}

#[test]
fn streams_and_trees_refuse_what_is_none() {
    let opened = Opened::new();
    let root = opened.root;
    let (nobody, data) = (None, ptr::null_mut());
    // SAFETY: as the header requires.
    unsafe {
        assert_eq!(ubtrfs_send(root, ptr::null(), -1), -libc::EBADF);
        let refused = ubtrfs_receive(root, c"/".as_ptr(), -1, ptr::null(), nobody, data);
        assert_eq!(refused, -libc::EBADF);
        assert_eq!(ubtrfs_send(root, ptr::null(), 2), -libc::EPERM);
        let options = ubtrfs_send_options {
            parent: ptr::null(),
            clone_sources: ptr::null(),
            clone_source_count: 0,
            flags: 1 << 9,
            progress: None,
            progress_data: ptr::null_mut(),
        };
        assert_eq!(ubtrfs_send(root, &raw const options, 2), -libc::EINVAL);
        assert_eq!(message(), "invalid argument: unknown flags");
        let options = ubtrfs_send_options {
            clone_source_count: 1,
            flags: 0,
            ..options
        };
        assert_eq!(ubtrfs_send(root, &raw const options, 2), -libc::EINVAL);
        assert_eq!(ubtrfs_changes(root, root, None, data), -libc::EINVAL);
        let (none, to) = (c"/none".as_ptr(), c"/to".as_ptr());
        let copied = ubtrfs_copy_tree(root, none, root, to, ptr::null(), None, data);
        assert_eq!(copied, -i64::from(libc::ENOENT));
        assert_eq!(
            ubtrfs_export_tar(root, to, -1, None, data),
            -i64::from(libc::EBADF)
        );
        let mut report = MaybeUninit::uninit();
        let checked = ubtrfs_check(none, 0, None, data, report.as_mut_ptr());
        assert_eq!(checked, -libc::ENOENT);
        let checked = ubtrfs_check(none, 2, None, data, report.as_mut_ptr());
        assert_eq!(checked, -libc::EINVAL);
    }
}

/// The input of a group's work.
struct Work {
    root: *const ubtrfs_subvolume,
    volume: *const ubtrfs_volume,
    result: c_int,
}

unsafe extern "C" fn work(data: *mut c_void) -> c_int {
    // SAFETY: the test passes it.
    let work = unsafe { &*data.cast::<Work>() };
    // SAFETY: both are open.
    unsafe {
        assert_eq!(ubtrfs_mkdir_all(work.root, c"/dir".as_ptr()), 0);
        assert_eq!(ubtrfs_volume_sync(work.volume), -libc::EDQUOT);
    }
    work.result
}

#[test]
fn group_returns_what_its_work_does() {
    let opened = Opened::new();
    let commits = || {
        let mut statistics = MaybeUninit::uninit();
        // SAFETY: as the header requires; the place is filled unless there is an error.
        unsafe {
            let status = ubtrfs_volume_statistics(opened.volume, statistics.as_mut_ptr());
            assert_eq!(status, 0);
            statistics.assume_init().commits
        }
    };
    let before = commits();
    for (result, made) in [(7, 0), (-libc::ENOENT, 0), (0, 1)] {
        let mut given = Work {
            root: opened.root,
            volume: opened.volume,
            result,
        };
        let data = (&raw mut given).cast();
        // SAFETY: the callback receives arguments of its declared type.
        let returned = unsafe { ubtrfs_volume_group(opened.volume, Some(work), data) };
        assert_eq!(returned, result);
        assert_eq!(commits(), before + made);
    }
    // SAFETY: null is an error.
    let refused = unsafe { ubtrfs_volume_group(opened.volume, None, ptr::null_mut()) };
    assert_eq!(refused, -libc::EINVAL);
}

unsafe extern "C" fn sum_metadata(groups: *const ubtrfs_block_groups, data: *mut c_void) -> c_int {
    // SAFETY: the library passes the first, and the test the second.
    let (groups, sum) = unsafe { (&*groups, &mut *data.cast::<u64>()) };
    if groups.kind == UBTRFS_METADATA {
        // SAFETY: the profiles of a new volume are known.
        let profile = unsafe { CStr::from_ptr(groups.profile) };
        assert_eq!(profile, c"DUP");
        *sum += groups.total_bytes;
    }
    0
}

#[test]
fn space_is_told_by_kind() {
    let opened = Opened::new();
    let mut space = MaybeUninit::uninit();
    let mut metadata_bytes = 0u64;
    // SAFETY: as the header requires; the place is filled unless there is an error.
    let space = unsafe {
        assert_eq!(ubtrfs_volume_space(opened.volume, space.as_mut_ptr()), 0);
        let sum = (&raw mut metadata_bytes).cast();
        let listed = ubtrfs_volume_block_groups(opened.volume, Some(sum_metadata), sum);
        assert_eq!(listed, 0);
        space.assume_init()
    };
    assert_eq!(space.total_bytes, 256 << 20);
    assert!(space.available_bytes <= space.free_bytes);
    assert!(metadata_bytes > 0 && metadata_bytes < space.total_bytes);
}
