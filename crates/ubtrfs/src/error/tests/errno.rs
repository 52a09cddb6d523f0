//! The errno of errors of a volume's operations.

use std::fs;

use rustix::io::Errno;

use crate::{Error, FileFlags, OpenOptions, Volume, XattrMode};

fn check<T>(outcome: Result<T, Error>, errno: Errno) {
    let error = outcome.err().expect("it fails");
    assert_eq!(error.errno(), errno.raw_os_error(), "{error}");
}

#[test]
fn paths_fail_with_the_errno_of_linux() {
    let volume = Volume::in_memory(256 << 20).unwrap();
    let root = volume.root();
    root.write("/file", b"content").unwrap();
    root.create_dir_all("/dir/below").unwrap();
    root.symlink("loop", "/loop").unwrap();
    let nested = root.create_subvolume("/nested").unwrap();
    nested.write("/file", b"content").unwrap();

    check(root.read("/none"), Errno::NOENT);
    check(root.read("/dir"), Errno::ISDIR);
    check(root.read("/file/below"), Errno::NOTDIR);
    check(root.read("/loop"), Errno::LOOP);
    check(root.create_dir("/file"), Errno::EXIST);
    check(root.create_dir("x".repeat(256)), Errno::NAMETOOLONG);
    check(root.remove_dir("/dir"), Errno::NOTEMPTY);
    check(root.remove_dir("/"), Errno::BUSY);
    check(root.rename("/file", "/nested/there"), Errno::XDEV);
    check(root.read_link("/file"), Errno::INVAL);
    check(root.remove_xattr("/file", "user.none"), Errno::NODATA);
    check(
        root.set_xattr("/file", "nowhere.x", b"", XattrMode::Any),
        Errno::OPNOTSUPP,
    );
    check(root.write("/large", vec![1; 300 << 20]), Errno::NOSPC);

    let immutable = FileFlags {
        immutable: true,
        ..FileFlags::default()
    };
    root.set_flags("/file", immutable).unwrap();
    check(root.remove_file("/file"), Errno::PERM);

    let options = OpenOptions::new().write(true);
    let file = nested.open_with("/file", &options).unwrap();
    check(file.clone_range(&file, 0, 4096, 0), Errno::BADF);
    nested.set_read_only(true).unwrap();
    check(nested.write("/file", b""), Errno::ROFS);
}

#[test]
fn commit_in_group_fails_with_its_own_errno() {
    let volume = Volume::in_memory(256 << 20).unwrap();
    let done = volume.group(|| {
        check(volume.sync(), Errno::DQUOT);
        Ok(())
    });
    done.unwrap();
}

#[test]
fn host_files_fail_with_their_own_errno() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    check(Volume::open(&image), Errno::NOENT);
    fs::write(&image, vec![0; 1 << 20]).unwrap();
    check(Volume::open(&image), Errno::INVAL);
    check(Volume::create(&image, 1 << 30), Errno::EXIST);
    fs::remove_file(&image).unwrap();
    let volume = Volume::create(&image, 256 << 20).unwrap();
    check(Volume::open(&image), Errno::BUSY);
    volume.close().unwrap();
}
