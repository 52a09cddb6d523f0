//! A program's use of the library: files, links, snapshots, threads, images that outlive the program.

use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, thread};

use ubtrfs::{Access, FileKind, Volume};

const VOLUME_BYTES: u64 = 256 << 20;

#[test]
fn files_are_as_with_std_fs() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    volume.create_dir_all("/a/b").unwrap();
    volume.write("/a/b/file", b"content").unwrap();
    volume.hard_link("/a/b/file", "/a/hard").unwrap();
    volume.symlink("b/file", "/a/soft").unwrap();
    assert_eq!(volume.read("/a/soft").unwrap(), b"content");
    assert_eq!(volume.read_link("/a/soft").unwrap(), b"b/file");
    assert_eq!(volume.metadata("/a/hard").unwrap().nlink, 2);
    volume.rename("/a/b/file", "/a/b/moved").unwrap();
    assert!(!volume.exists("/a/b/file").unwrap());
    assert_eq!(
        volume.create_dir("/a").unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    assert_eq!(
        volume.remove_dir("/a").unwrap_err().kind(),
        ErrorKind::DirectoryNotEmpty
    );
    assert_eq!(
        volume.read("/none").unwrap_err().kind(),
        ErrorKind::NotFound
    );
    volume.remove_dir_all("/a").unwrap();
    assert!(volume.read_dir("/").unwrap().is_empty());
}

#[test]
fn open_file_has_a_position_and_outlives_its_name() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let mut file = volume.create_file("/file").unwrap();
    file.write_all(b"hello world").unwrap();
    file.seek(SeekFrom::Start(6)).unwrap();
    volume.remove_file("/file").unwrap();
    let mut rest = String::new();
    file.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "world");
    file.set_len(5).unwrap();
    assert_eq!(file.len().unwrap(), 5);
    volume.sync().unwrap();
}

#[test]
fn snapshot_shows_what_was_there() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    volume.create_subvolume("/data").unwrap();
    let big = vec![7u8; 3 << 20];
    volume.write("/data/big", &big).unwrap();
    volume.snapshot("/data", "/snap", Access::ReadOnly).unwrap();
    volume.write("/data/big", b"small").unwrap();
    volume.reflink("/snap/big", "/copy").unwrap();
    assert_eq!(volume.read("/snap/big").unwrap(), big);
    assert_eq!(volume.read("/copy").unwrap(), big);
    let snap = volume.subvolume("/snap").unwrap();
    assert_eq!(
        snap.write("/new", b"x").unwrap_err().kind(),
        ErrorKind::ReadOnlyFilesystem
    );
    volume.delete_subvolume("/snap").unwrap();
    volume.engine().free_deleted_subvolumes().unwrap();
    assert_eq!(volume.read("/copy").unwrap(), big);
}

#[test]
fn image_keeps_what_was_synced() {
    let dir = std::env::temp_dir().join(format!("ubtrfs-embedding-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let image = dir.join("image");
    let volume = Volume::create(&image, VOLUME_BYTES).unwrap();
    volume.write("/file", b"kept").unwrap();
    assert!(Volume::open(&image).is_err(), "the image is in use");
    drop(volume);
    let volume = Volume::open_read_only(&image).unwrap();
    assert_eq!(volume.read("/file").unwrap(), b"kept");
    assert_eq!(volume.metadata("/file").unwrap().kind, FileKind::Regular);
    drop(volume);
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn many_threads_work_on_one_volume() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let made = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..4 {
            let (volume, made) = (volume.clone(), &made);
            scope.spawn(move || {
                let dir = format!("/{number}");
                volume.create_dir(&dir).unwrap();
                for file in 0..200u32 {
                    let path = format!("{dir}/{file}");
                    volume.write(&path, file.to_le_bytes()).unwrap();
                    if file % 3 == 0 {
                        volume.remove_file(&path).unwrap();
                    } else {
                        made.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let committing = volume.clone();
        scope.spawn(move || (0..10).for_each(|_| committing.sync().unwrap()));
    });
    let found: usize = (0..4)
        .map(|number| volume.read_dir(format!("/{number}")).unwrap().len())
        .sum();
    assert_eq!(found as u64, made.load(Ordering::Relaxed));
}
