//! A program's use of the library: files, links, snapshots, threads, images that outlive the program.

use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, thread};

use ubtrfs::{
    Access, Builder, Compress, Compression, FileKind, InodeFlags, RenameMode, RootId, Volume,
    XattrMode,
};
use ubtrfs_sim::images;

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
    let refused = Volume::open(&image).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
    assert!(refused.to_string().contains("this process"), "{refused}");
    drop(volume);
    let volume = Volume::open_read_only(&image).unwrap();
    assert_eq!(volume.read("/file").unwrap(), b"kept");
    assert_eq!(volume.metadata("/file").unwrap().kind, FileKind::Regular);
    drop(volume);
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn file_keeps_its_volume_open() {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("image");
    let volume = Volume::create(&image, VOLUME_BYTES).unwrap();
    let file = volume.create_file("/file").unwrap();
    drop(volume);
    file.write_at(b"written later", 0).unwrap();
    file.sync_all().unwrap();
    assert!(Volume::open(&image).is_err());
    drop(file);
    let volume = Volume::open(&image).unwrap();
    assert_eq!(volume.read("/file").unwrap(), b"written later");
}

#[test]
fn file_without_a_name_goes_with_its_last_handle() {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("image");
    let volume = Volume::create(&image, VOLUME_BYTES).unwrap();
    let file = volume.create_file("/file").unwrap();
    file.write_at(&[1; 1 << 20], 0).unwrap();
    volume.remove_file("/file").unwrap();
    drop(volume);
    drop(file);
    let volume = Volume::open_read_only(&image).unwrap();
    assert!(volume.read_dir("/").unwrap().is_empty());
}

#[test]
fn close_commits_and_ends_changes_of_all_handles() {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("image");
    let volume = Volume::create(&image, VOLUME_BYTES).unwrap();
    volume.write("/file", b"kept").unwrap();
    let (other, file) = (volume.clone(), volume.open_file("/file").unwrap());
    volume.close().unwrap();
    let refused = other.write("/new", b"").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    assert!(file.write_at(b"lost", 0).is_err());
    drop((other, file));
    let volume = Volume::open_read_only(&image).unwrap();
    assert_eq!(volume.read("/file").unwrap(), b"kept");
    assert!(!volume.exists("/new").unwrap());
}

#[test]
fn volume_that_could_not_be_made_leaves_no_file() {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("image");
    let refused = Volume::create(&image, 1 << 20).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::StorageFull, "{refused}");
    assert!(!image.exists());
    let refused = Volume::create(&image, u64::MAX >> 1).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::FileTooLarge, "{refused}");
    assert!(!image.exists());
    fs::write(&image, "the user's own").unwrap();
    let refused = Volume::create(&image, VOLUME_BYTES).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&image).unwrap(), b"the user's own");
}

#[test]
fn volume_that_cannot_be_opened_says_why_and_which() {
    let scratch = tempfile::tempdir().unwrap();
    let none = scratch.path().join("none");
    let refused = Volume::open(&none).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    assert!(refused.to_string().contains("/none"), "{refused}");
    let noise = scratch.path().join("noise");
    fs::write(&noise, vec![7; 1 << 20]).unwrap();
    let refused = Volume::open_read_only(&noise).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidData, "{refused}");
    let refused = Volume::open_read_only(scratch.path()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
}

#[test]
fn errors_name_the_operation_and_the_paths() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let text = volume.read("/none").unwrap_err().to_string();
    assert_eq!(text, "cannot read '/none': no such file or directory");
    let text = volume.rename("/none", "/new").unwrap_err().to_string();
    let wanted = "cannot rename '/none' to '/new': no such file or directory";
    assert_eq!(text, wanted);
    volume.create_dir("/dir").unwrap();
    let mut dir = volume.open_file("/dir").unwrap();
    let refused = dir.read(&mut [0]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::IsADirectory);
    assert!(refused.to_string().contains("'/dir'"), "{refused}");
}

/// REMOVAL-1, REMOVAL-2
#[test]
fn removal_of_a_tree_loses_no_subvolume() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    volume.create_dir_all("/top/a/b").unwrap();
    volume.write("/top/file", b"").unwrap();
    volume.write("/top/a/file", b"").unwrap();
    volume.create_subvolume("/top/a/b/sub").unwrap();
    volume.write("/top/a/b/sub/kept", b"data").unwrap();
    volume.symlink("/top", "/link").unwrap();
    let refused = volume.remove_dir_all("/top").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::CrossesDevices);
    assert!(refused.to_string().contains("'/top/a/b/sub'"), "{refused}");
    let refused = volume.remove_dir_all("/top/a/b/sub").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::CrossesDevices);
    assert!(volume.exists("/top/file").unwrap() && volume.exists("/top/a/file").unwrap());
    assert_eq!(volume.read("/top/a/b/sub/kept").unwrap(), b"data");
    // A subvolume elsewhere is in no way, nor is the empty directory that a snapshot has for one.
    volume.create_subvolume("/data").unwrap();
    volume.create_dir("/data/dir").unwrap();
    volume.create_subvolume("/data/dir/nested").unwrap();
    volume.snapshot("/data", "/snap", Access::Writable).unwrap();
    volume.remove_dir_all("/snap/dir").unwrap();
    assert!(volume.exists("/data/dir/nested").unwrap());
    volume.remove_dir_all("/link").unwrap();
    assert!(volume.exists("/top/file").unwrap());
    volume.delete_subvolume("/top/a/b/sub").unwrap();
    volume.remove_dir_all("/top").unwrap();
    assert!(!volume.exists("/top").unwrap());
}

#[test]
fn removal_of_a_tree_goes_beyond_a_batch_of_entries() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    for number in 0..2500 {
        let path = format!("/top/{}/{number}", number % 2);
        volume.create_dir_all(&path).unwrap();
    }
    volume.remove_dir_all("/top").unwrap();
    assert!(volume.read_dir("/").unwrap().is_empty());
}

#[test]
fn reflink_onto_the_same_file_is_refused_and_loses_nothing() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let content = vec![7u8; 100_000];
    volume.write("/file", &content).unwrap();
    volume.hard_link("/file", "/hard").unwrap();
    volume.symlink("file", "/soft").unwrap();
    for (from, to) in [("/file", "/file"), ("/file", "/hard"), ("/soft", "/file")] {
        let refused = volume.reflink(from, to).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{from} {to}");
        assert_eq!(volume.read("/file").unwrap(), content, "{from} {to}");
    }
}

#[test]
fn reflink_that_cannot_be_made_leaves_the_destination() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    volume.write("/summed", vec![7u8; 100_000]).unwrap();
    volume.create_dir("/unsummed").unwrap();
    volume
        .set_flags("/unsummed", InodeFlags::NODATACOW)
        .unwrap();
    volume.write("/unsummed/file", b"kept").unwrap();
    let refused = volume.reflink("/summed", "/unsummed/file").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    assert_eq!(volume.read("/unsummed/file").unwrap(), b"kept");
    assert!(volume.reflink("/summed", "/unsummed/new").is_err());
    assert!(!volume.exists("/unsummed/new").unwrap());
    assert!(volume.reflink("/unsummed", "/new").is_err());
    assert!(!volume.exists("/new").unwrap());
}

#[test]
fn rename_replaces_nothing_if_told_so() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    volume.write("/a", b"a").unwrap();
    volume.write("/b", b"b").unwrap();
    let refused = volume.rename_with("/a", "/b", RenameMode::NoReplace);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::AlreadyExists);
    volume
        .rename_with("/a", "/b", RenameMode::Exchange)
        .unwrap();
    assert_eq!(volume.read("/a").unwrap(), b"b");
}

#[test]
fn shared_file_is_read_and_written_by_reference() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let file = volume.create_file("/file").unwrap();
    (&file).write_all(b"one two").unwrap();
    (&file).seek(SeekFrom::Start(4)).unwrap();
    let mut rest = String::new();
    (&file).read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "two");
    assert_eq!(file.metadata().unwrap().size, 7);
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

/// Bytes that a file of this content takes beside what an empty one takes.
fn taken_by(volume: &Volume, content: &[u8]) -> u64 {
    let used = || {
        volume.sync().unwrap();
        volume.engine().superblock().bytes_used.get()
    };
    volume.write("/file", b"").unwrap();
    let before = used();
    volume.write("/file", content).unwrap();
    used() - before
}

#[test]
fn builder_says_how_data_is_written() {
    let make = |builder: Builder| builder.in_memory(VOLUME_BYTES).unwrap();
    let content = vec![7u8; 4 << 20];
    let plain = make(Volume::builder());
    assert!(taken_by(&plain, &content) >= 4 << 20);
    assert!(plain.flags("/file").unwrap().is_empty());
    let zstd = Compress {
        algorithm: Compression::Zstd,
        ..Compress::default()
    };
    assert!(taken_by(&make(Volume::builder().compress(zstd)), &content) < 1 << 20);

    assert_eq!(taken_by(&plain, b"small"), 0);
    assert_eq!(
        taken_by(&make(Volume::builder().max_inline_bytes(0)), b"small"),
        4096
    );

    let in_place = make(Volume::builder().no_data_cow(true));
    in_place.write("/file", &content).unwrap();
    let both = InodeFlags::NODATACOW | InodeFlags::NODATASUM;
    assert_eq!(in_place.flags("/file").unwrap(), both);
    let unsummed = make(Volume::builder().no_data_sum(true));
    unsummed.write("/file", &content).unwrap();
    assert_eq!(unsummed.flags("/file").unwrap(), InodeFlags::NODATASUM);
}

#[test]
fn scan_finds_the_other_devices() {
    let several = images::names().unwrap().into_iter().find_map(|name| {
        let image = images::image(&name).unwrap();
        (image.devices.len() > 1).then_some(image)
    });
    let image = several.expect("there is a volume of several devices");
    let (first, others) = image.devices.split_first().unwrap();
    assert!(Volume::open_read_only(first).is_err());
    let builder = Volume::builder().read_only().scan(others);
    assert!(builder.open(first).is_ok());
}

#[test]
fn attributes_and_properties_are_set_by_paths() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    volume.write("/file", b"").unwrap();
    volume.symlink("file", "/link").unwrap();
    let set = |value: &[u8], mode| volume.set_xattr("/link", "user.note", value, mode);
    set(b"one", XattrMode::Create).unwrap();
    let refused = set(b"two", XattrMode::Create).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    set(b"two", XattrMode::Replace).unwrap();
    let note = volume.xattr("/file", "user.note").unwrap();
    assert_eq!(note.as_deref(), Some(&b"two"[..]));
    assert_eq!(volume.xattr("/file", "user.none").unwrap(), None);
    volume.set_compression("/file", "zstd:3").unwrap();
    assert_eq!(volume.compression("/file").unwrap().unwrap(), "zstd:3");
    let mut names: Vec<_> = volume.xattrs("/file").unwrap();
    names.sort();
    let names: Vec<&[u8]> = names.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!(names, [&b"btrfs.compression"[..], b"user.note"]);
    volume.set_compression("/file", "").unwrap();
    assert_eq!(volume.compression("/file").unwrap(), None);
    let invalid = volume.set_compression("/file", "bogus").unwrap_err();
    assert_eq!(invalid.kind(), ErrorKind::InvalidInput);
    volume.remove_xattr("/file", "user.note").unwrap();
    let gone = volume.remove_xattr("/file", "user.note").unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    volume.set_flags("/file", InodeFlags::IMMUTABLE).unwrap();
    assert_eq!(volume.flags("/file").unwrap(), InodeFlags::IMMUTABLE);
    let immutable = volume.write("/file", b"x").unwrap_err();
    assert_eq!(immutable.kind(), ErrorKind::PermissionDenied);
}

#[test]
fn subvolumes_have_a_read_only_flag_and_one_is_the_default() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let id = volume.create_subvolume("/data").unwrap();
    volume.create_dir("/data/dir").unwrap();
    volume.set_read_only("/data", true).unwrap();
    assert!(volume.is_read_only("/data").unwrap());
    let refused = volume.write("/data/file", b"").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    volume.set_read_only("/data", false).unwrap();
    volume.write("/data/file", b"").unwrap();
    assert!(volume.set_read_only("/data/dir", true).is_err());

    assert_eq!(volume.default_subvolume().unwrap(), RootId::FS_TREE);
    volume.set_default_subvolume("/data").unwrap();
    assert_eq!(volume.default_subvolume().unwrap(), id);
    volume.set_label("name").unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.label(), b"name");
}
