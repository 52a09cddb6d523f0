//! Files as devices: rejected files, and users that exclude each other.

use super::*;
use std::os::unix::fs::symlink;

fn image(dir: &Path, len: u64) -> PathBuf {
    let path = dir.join("image");
    FileDevice::create_new(&path, len).unwrap();
    path
}

#[test]
fn a_path_that_is_no_device_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    for (path, wanted) in [
        (dir.path(), "a directory"),
        (Path::new("/dev/null"), "a character device"),
        (&fifo, "a pipe"),
    ] {
        match FileDevice::open(path, Access::Read) {
            Err(DeviceError::Kind { kind, .. }) => assert_eq!(kind, wanted),
            other => panic!("{other:?}"),
        }
    }
    let missing = FileDevice::open(&dir.path().join("none"), Access::Read);
    assert!(matches!(missing, Err(DeviceError::Open { .. })));
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), 1 << 20);
    let is_locked = |access| {
        matches!(
            FileDevice::open(&path, access),
            Err(DeviceError::InUse {
                holder: Holder::ThisProcess,
                ..
            })
        )
    };
    let first = FileDevice::open(&path, Access::Read).unwrap();
    assert!(!is_locked(Access::Read));
    assert!(is_locked(Access::Write));
    drop(first);
    let writer = FileDevice::open(&path, Access::Write).unwrap();
    assert!(is_locked(Access::Read));
    assert!(is_locked(Access::Write));
    assert!(
        FileDevice::create_new(&path, 5).is_err(),
        "an image in use is not emptied"
    );
    assert_eq!(writer.len_bytes(), 1 << 20);
    drop(writer);
    assert!(!is_locked(Access::Write));
}

#[test]
fn bytes_come_back_and_the_end_is_guarded() {
    let dir = tempfile::tempdir().unwrap();
    let device = FileDevice::create_new(&dir.path().join("image"), 1 << 20).unwrap();
    device.write_at(&[3; 5000], 4000).unwrap();
    device.flush().unwrap();
    let mut buf = [9; 5002];
    device.read_at(&mut buf, 3999).unwrap();
    assert_eq!((buf[0], buf[1], buf[5000], buf[5001]), (0, 3, 3, 0));
    let error = device.read_at(&mut buf, (1 << 20) - 5001).unwrap_err();
    assert!(error.get_ref().is_some_and(|inner| inner.is::<PastEnd>()));
    assert!(device.write_at(&buf, u64::MAX).is_err());
    device.discard(4096, 4096).unwrap();
    device.read_at(&mut buf, 4096).unwrap();
    assert_eq!(buf[..4096], [0; 4096]);
}

#[test]
fn image_cut_while_open_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), 1 << 20);
    let device = FileDevice::open(&path, Access::Read).unwrap();
    OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(1000)
        .unwrap();
    let error = device.read_at(&mut [0; 4096], 0).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn links_and_repeated_paths_have_one_identity() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), 4096);
    let link = dir.path().join("link");
    symlink(&path, &link).unwrap();
    assert_eq!(identity(&path).unwrap(), identity(&link).unwrap());
}

#[test]
fn image_grows_and_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let device = FileDevice::create_new(&dir.path().join("image"), 4096).unwrap();
    assert!(device.write_at(&[1; 10], 8192).is_err());
    device.resize(1 << 20).unwrap();
    device.write_at(&[1; 10], 8192).unwrap();
    device.resize(8195).unwrap();
    assert_eq!(device.len_bytes(), 8195);
    assert_eq!(std::fs::metadata(device.path()).unwrap().len(), 8195);
    assert!(device.read_at(&mut [0; 10], 8192).is_err());
}

#[test]
fn range_is_cloned_whole_or_not_at_all() {
    use std::os::fd::AsFd;
    let dir = tempfile::tempdir().unwrap();
    let device = FileDevice::create_new(&dir.path().join("image"), 1 << 20).unwrap();
    let source = dir.path().join("source");
    std::fs::write(&source, [7; 65536]).unwrap();
    let source = File::open(source).unwrap();
    assert!(
        device
            .clone_range(source.as_fd(), 0, 4096, 1 << 20)
            .is_err()
    );
    // The file system may not support reflinks.
    let cloned = device
        .clone_range(source.as_fd(), 4096, 8192, 65536)
        .is_ok();
    let mut buf = [1; 8192];
    device.read_at(&mut buf, 65536).unwrap();
    assert_eq!(buf, [if cloned { 7 } else { 0 }; 8192]);
}

#[test]
fn blocks_that_are_not_cached_would_have_to_be_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), 1 << 20);
    std::fs::write(&path, vec![5; 1 << 20]).unwrap();
    let device = FileDevice::open(&path, Access::Read).unwrap();
    device.flush().unwrap();
    let file = &device.file;
    rustix::fs::fadvise(&**file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut buf = vec![0; 8192];
    let cold = nonblocking::scope(|| device.read_at(&mut buf, 4096));
    assert_eq!(cold.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    device.read_at(&mut buf, 4096).unwrap();
    buf.fill(0);
    let warm = nonblocking::scope(|| device.read_at(&mut buf, 4096));
    match warm {
        Ok(()) => assert!(buf.iter().all(|&byte| byte == 5)),
        // Some file systems do not support RWF_NOWAIT.
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            assert!(!device.tells_cached.load(Ordering::Relaxed));
        }
    }
}

#[test]
fn holes_that_are_filled_have_space_and_data_stays() {
    let dir = tempfile::tempdir().unwrap();
    let device = FileDevice::create_new(&dir.path().join("image"), 1 << 20).unwrap();
    device.write_at(&[7; 4096], 65_536).unwrap();
    let filled = device.fill_holes(32_768, 131_072).unwrap();
    device.flush().unwrap();
    // A file system without sparse files has no hole to fill.
    let whole = device.file.metadata().unwrap().blocks() * 512;
    assert!(filled <= 131_072 - 4096 && whole >= 131_072, "{filled}");
    assert_eq!(device.fill_holes(32_768, 131_072).unwrap(), 0);
    let mut all = vec![1; 1 << 20];
    device.read_at(&mut all, 0).unwrap();
    let data = all.iter().enumerate().filter(|(_, byte)| **byte != 0);
    assert!(data.map(|(at, _)| at).eq(65_536..69_632));
    assert!(device.fill_holes(1 << 20, 4096).is_err());
}
