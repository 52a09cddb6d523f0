//! Creating, opening and checking volumes with the options of a C program.

// The functions have raw pointers.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::path::Path;
use std::ptr;

use ubtrfs::{Profile, Volume};
use ubtrfs_c::*;
use ubtrfs_sim::{MdArray, Scratch};

fn message() -> String {
    // SAFETY: the text is copied before another call.
    let message = unsafe { CStr::from_ptr(ubtrfs_error_message()) };
    message.to_str().unwrap().to_owned()
}

fn text(path: impl AsRef<Path>) -> CString {
    CString::new(path.as_ref().as_os_str().as_encoded_bytes()).unwrap()
}

/// Texts as a C array.
struct Texts {
    pointers: Vec<*const c_char>,
    _texts: Vec<CString>,
}

fn texts(paths: &[impl AsRef<Path>]) -> Texts {
    let texts: Vec<CString> = paths.iter().map(text).collect();
    let pointers = texts.iter().map(|text| text.as_ptr()).collect();
    Texts {
        pointers,
        _texts: texts,
    }
}

/// Options, which are freed at the end.
struct Options<T>(*mut T, unsafe extern "C" fn(*mut T));

impl<T> Options<T> {
    fn new(
        make: unsafe extern "C" fn(*mut *mut T) -> c_int,
        free: unsafe extern "C" fn(*mut T),
    ) -> Options<T> {
        let mut options = ptr::null_mut();
        // SAFETY: as the header requires.
        assert_eq!(unsafe { make(&mut options) }, 0);
        Options(options, free)
    }
}

impl<T> Drop for Options<T> {
    fn drop(&mut self) {
        // SAFETY: the options are not used again.
        unsafe { (self.1)(self.0) }
    }
}

fn of_mkfs() -> Options<ubtrfs_mkfs_options> {
    Options::new(ubtrfs_mkfs_options_new, ubtrfs_mkfs_options_free)
}

fn of_open() -> Options<ubtrfs_open_options> {
    Options::new(ubtrfs_open_options_new, ubtrfs_open_options_free)
}

/// Sets an option for opening.
fn set_open(options: &Options<ubtrfs_open_options>, name: &CStr, value: &CStr) -> c_int {
    // SAFETY: as the header requires.
    unsafe { ubtrfs_open_options_set(options.0, name.as_ptr(), value.as_ptr()) }
}

/// Sets an option of a new volume.
fn set_mkfs(options: &Options<ubtrfs_mkfs_options>, name: &CStr, value: &CStr) -> c_int {
    // SAFETY: as the header requires.
    unsafe { ubtrfs_mkfs_options_set(options.0, name.as_ptr(), value.as_ptr()) }
}

fn create(
    paths: &[impl AsRef<Path>],
    mkfs: &Options<ubtrfs_mkfs_options>,
    open: *const ubtrfs_open_options,
) -> c_int {
    let (images, mut volume) = (texts(paths), ptr::null_mut());
    let (first, count) = (images.pointers.as_ptr(), images.pointers.len());
    // SAFETY: as the header requires.
    match unsafe { ubtrfs_volume_create_with(first, count, 512 << 20, mkfs.0, open, &mut volume) } {
        // SAFETY: the volume is open.
        0 => unsafe { ubtrfs_volume_close(volume) },
        errno => errno,
    }
}

unsafe extern "C" fn list_device(device: *const ubtrfs_device, data: *mut c_void) -> c_int {
    // SAFETY: it points to the list of the test.
    let (device, listed) = unsafe { (&*device, &mut *data.cast::<Vec<(u64, bool, u64)>>()) };
    listed.push((device.id, device.path.is_null(), device.total_bytes));
    0
}

#[test]
fn devices_are_listed_and_told_of_free_space() {
    let scratch = Scratch::new().unwrap();
    let paths = [scratch.path().join("one"), scratch.path().join("two")];
    assert_eq!(create(&paths, &of_mkfs(), ptr::null()), 0, "{}", message());
    let (images, mut volume) = (texts(&paths), ptr::null_mut());
    let mut listed: Vec<(u64, bool, u64)> = Vec::new();
    // SAFETY: as the header requires.
    unsafe {
        let images = images.pointers.as_ptr();
        let opened = ubtrfs_volume_open_with(images, 2, ptr::null(), &mut volume);
        assert_eq!(opened, 0, "{}", message());
        let data = (&raw mut listed).cast();
        assert_eq!(ubtrfs_volume_devices(volume, Some(list_device), data), 0);
        assert_eq!(ubtrfs_volume_devices(volume, None, data), -libc::EINVAL);
        assert!(
            ubtrfs_volume_trim(volume, 0, u64::MAX, 0, None, ptr::null_mut()) > 0,
            "{}",
            message()
        );
        assert_eq!(ubtrfs_volume_close(volume), 0);
    }
    let size = 512 << 20;
    assert_eq!(listed, [(1, false, size), (2, false, size)]);
}

/// Opens a volume and closes it again.
fn open(paths: &[impl AsRef<Path>], options: *const ubtrfs_open_options) -> c_int {
    let (images, mut volume) = (texts(paths), ptr::null_mut());
    let (first, count) = (images.pointers.as_ptr(), images.pointers.len());
    // SAFETY: as the header requires.
    match unsafe { ubtrfs_volume_open_with(first, count, options, &mut volume) } {
        // SAFETY: the volume is open.
        0 => unsafe { ubtrfs_volume_close(volume) },
        errno => errno,
    }
}

#[test]
fn volume_of_two_devices_is_made_found_and_opened_degraded() {
    let scratch = Scratch::new().unwrap();
    let paths = [scratch.path().join("one"), scratch.path().join("two")];
    let (mkfs, writing) = (of_mkfs(), of_open());
    let uuid = [7; 16];
    for (name, value) in [
        (c"label", c"pair"),
        (c"uuid", c"07070707-0707-0707-0707-070707070707"),
        (c"data", c"raid1"),
        (c"metadata", c"RAID1"),
        (c"checksum", c"xxhash"),
        (c"node_size", c"32768"),
        (c"sector_size", c"4096"),
        (c"features", c"^no-holes"),
    ] {
        assert_eq!(set_mkfs(&mkfs, name, value), 0, "{}", message());
    }
    for (name, value) in [
        (c"compress", c"zstd:3"),
        (c"cache_bytes", c"16m"),
        (c"memory_bytes", c"64m"),
        (c"commit_interval", c"never"),
        (c"discard", c"false"),
    ] {
        assert_eq!(set_open(&writing, name, value), 0, "{}", message());
    }
    assert_eq!(create(&paths, &mkfs, writing.0), 0, "{}", message());
    assert_eq!(create(&paths, &mkfs, ptr::null()), -libc::EEXIST);
    let volume = Volume::builder().open(&paths).unwrap();
    assert_eq!((volume.label(), volume.uuid().0), ("pair".into(), uuid));
    let groups = volume.space().unwrap().block_groups;
    assert!(groups.iter().all(|of| of.profile == Some(Profile::Raid1)));
    volume.close().unwrap();

    assert_eq!(open(&paths, ptr::null()), 0, "{}", message());
    assert_eq!(open(&paths[..1], ptr::null()), -libc::ENOENT);
    let reading = of_open();
    let folder = text(scratch.path());
    assert_eq!(set_open(&reading, c"read_only", c"true"), 0);
    assert_eq!(set_open(&reading, c"scan", &folder), 0);
    assert_eq!(open(&paths[..1], reading.0), 0, "{}", message());
    fs::remove_file(&paths[1]).unwrap();
    assert_eq!(open(&paths[..1], reading.0), -libc::ENOENT);
    assert_eq!(set_open(&reading, c"degraded", c"true"), 0);
    assert_eq!(open(&paths[..1], reading.0), 0, "{}", message());
    assert_eq!(set_open(&reading, c"as_committed", c"true"), 0);
    assert_eq!(open(&paths[..1], reading.0), 0, "{}", message());
}

#[test]
fn disks_of_an_array_are_opened_like_devices() {
    let scratch = Scratch::new().unwrap();
    let base = scratch.path().join("base");
    let mkfs = of_mkfs();
    assert_eq!(set_mkfs(&mkfs, c"label", c"data"), 0);
    assert_eq!(create(&[&base], &mkfs, ptr::null()), 0, "{}", message());
    let paths = [0, 1].map(|number| scratch.path().join(format!("disk{number}")));
    let members = MdArray::new(1, 0, 2).write(&fs::read(&base).unwrap());
    for (path, member) in paths.iter().zip(members) {
        fs::write(path, member).unwrap();
    }
    let reading = of_open();
    assert_eq!(open(&paths, reading.0), -libc::EROFS);
    assert_eq!(set_open(&reading, c"read_only", c"true"), 0);
    assert_eq!(open(&paths, reading.0), 0, "{}", message());
    assert_eq!(open(&paths[1..], reading.0), 0, "{}", message());
    assert_eq!(set_open(&reading, c"volume", c"data"), 0);
    assert_eq!(open(&paths, reading.0), 0, "{}", message());
    assert_eq!(set_open(&reading, c"volume", c"other"), 0);
    assert_eq!(open(&paths, reading.0), -libc::ENOENT);
}

unsafe extern "C" fn count(_: *const ubtrfs_issue, data: *mut c_void) -> c_int {
    // SAFETY: it points to the counter of the test.
    unsafe { *data.cast::<u64>() += 1 };
    0
}

#[test]
fn image_is_made_of_a_folder_again_and_checked() {
    let scratch = Scratch::new().unwrap();
    let folder = scratch.path().join("folder");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("file"), vec![b'x'; 100_000]).unwrap();
    let mkfs = of_mkfs();
    let contents = text(&folder);
    assert_eq!(set_mkfs(&mkfs, c"rootdir", &contents), 0);
    assert_eq!(set_mkfs(&mkfs, c"source_date_epoch", c"1000000000"), 0);
    let paths = ["one", "two"].map(|name| scratch.path().join(name));
    for path in &paths {
        assert_eq!(create(&[path], &mkfs, ptr::null()), 0, "{}", message());
    }
    let open = |path| Volume::open_read_only(path).unwrap();
    let (one, two) = (open(&paths[0]), open(&paths[1]));
    assert_eq!(one.root().read("/file").unwrap(), vec![b'x'; 100_000]);
    assert_eq!(one.uuid(), two.uuid());
    drop((one, two));

    let check = Options::new(ubtrfs_check_options_new, ubtrfs_check_options_free);
    let mut report = ubtrfs_check_report {
        errors: 9,
        warnings: 9,
        notes: 9,
    };
    let mut heard = 0_u64;
    let images = texts(&paths[..1]);
    // SAFETY: as the header requires.
    unsafe {
        for (name, value) in [
            (c"read_data", c"true"),
            (c"memory_bytes", c"16777216"),
            (c"max_issues", c"5"),
            (c"scan", contents.as_c_str()),
            // It has an effect only on disks with layers.
            (c"volume", c"data"),
        ] {
            let set = ubtrfs_check_options_set(check.0, name.as_ptr(), value.as_ptr());
            assert_eq!(set, 0, "{}", message());
        }
        let data = (&raw mut heard).cast();
        let images = images.pointers.as_ptr();
        let checked = ubtrfs_check_with(images, 1, check.0, Some(count), data, &mut report);
        assert_eq!(checked, 0, "{}", message());
    }
    assert_eq!((report.errors, report.warnings, heard), (0, 0, 0));
}

#[test]
fn wrong_options_are_refused() {
    let scratch = Scratch::new().unwrap();
    let (mkfs, reading) = (of_mkfs(), of_open());
    for (name, value) in [
        (c"checksum", c"md5"),
        (c"data", c"raid7"),
        (c"features", c"no-such"),
        (c"uuid", c"7"),
        (c"root_owner", c"1000"),
        (c"shrink", c"yes"),
        (c"lable", c"pair"),
    ] {
        assert_eq!(set_mkfs(&mkfs, name, value), -libc::EINVAL);
    }
    assert_eq!(message(), "invalid argument: unknown option 'lable'");
    assert_eq!(set_mkfs(&mkfs, c"checksum", c"md5"), -libc::EINVAL);
    let expected = "option 'checksum': bad value 'md5', expected crc32c, xxhash, sha256 or blake2";
    assert_eq!(message(), format!("invalid argument: {expected}"));
    assert_eq!(set_open(&reading, c"compress", c"zstd:99"), -libc::EINVAL);
    let expected =
        "option 'compress': bad value 'zstd:99', expected none, lzo, zlib[:1-9] or zstd[:1-15]";
    assert_eq!(message(), format!("invalid argument: {expected}"));
    // SAFETY: as the header requires.
    unsafe {
        let (name, null) = (c"label".as_ptr(), ptr::null());
        assert_eq!(ubtrfs_mkfs_options_set(mkfs.0, name, null), -libc::EINVAL);
        assert_eq!(ubtrfs_mkfs_options_set(mkfs.0, null, name), -libc::EINVAL);
        let set = ubtrfs_mkfs_options_set(ptr::null_mut(), name, name);
        assert_eq!(set, -libc::EINVAL);
        ubtrfs_open_options_free(ptr::null_mut());
    }
    assert_eq!(set_open(&reading, c"read_only", c"true"), 0);
    let path = scratch.path().join("image");
    let none: [&Path; 0] = [];
    assert_eq!(create(&[&path], &mkfs, reading.0), -libc::EINVAL);
    assert_eq!(create(&none, &mkfs, ptr::null()), -libc::EINVAL);
    assert_eq!(open(&none, ptr::null()), -libc::EINVAL);
    assert!(!path.exists());
}
