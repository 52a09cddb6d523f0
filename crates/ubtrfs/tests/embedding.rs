//! Use of the library in a program: files, links, snapshots, threads, and images that outlive the program.

use std::fs::Permissions;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, thread};

use ubtrfs::{
    Access, Builder, Compress, Compression, DirBuilder, FileFlags, FileKind, OpenOptions, Volume,
    XattrMode, scan, scan_devices,
};
use ubtrfs_sim::images;

const VOLUME_BYTES: u64 = 256 << 20;

#[test]
fn files_are_as_with_std_fs() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    volume.root().create_dir_all("/a/b").unwrap();
    volume.root().write("/a/b/file", b"content").unwrap();
    volume.root().hard_link("/a/b/file", "/a/hard").unwrap();
    volume.root().symlink("b/file", "/a/soft").unwrap();
    assert_eq!(volume.root().read("/a/soft").unwrap(), b"content");
    assert_eq!(
        volume.root().read_link("/a/soft").unwrap(),
        Path::new("b/file")
    );
    assert_eq!(volume.root().metadata("/a/hard").unwrap().nlink(), 2);
    volume.root().rename("/a/b/file", "/a/b/moved").unwrap();
    assert!(!volume.root().exists("/a/b/file").unwrap());
    assert_eq!(
        volume.root().create_dir("/a").unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    assert_eq!(
        volume.root().remove_dir("/a").unwrap_err().kind(),
        ErrorKind::DirectoryNotEmpty
    );
    assert_eq!(
        volume.root().read("/none").unwrap_err().kind(),
        ErrorKind::NotFound
    );
    volume.root().remove_dir_all("/a").unwrap();
    assert!(volume.root().read_dir("/").unwrap().next().is_none());
}

#[test]
fn open_file_has_a_position_and_outlives_its_name() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let both = OpenOptions::new().read(true).write(true).create(true);
    let mut file = volume.root().open_with("/file", &both).unwrap();
    file.write_all(b"hello world").unwrap();
    file.seek(SeekFrom::Start(6)).unwrap();
    volume.root().remove_file("/file").unwrap();
    let mut rest = String::new();
    file.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "world");
    file.set_len(5).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 5);
    volume.sync().unwrap();
}

#[test]
fn snapshot_shows_what_was_there() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    volume.root().create_subvolume("/data").unwrap();
    let big = vec![7u8; 3 << 20];
    volume.root().write("/data/big", &big).unwrap();
    volume
        .root()
        .snapshot("/data", "/snap", Access::ReadOnly)
        .unwrap();
    volume.root().write("/data/big", b"small").unwrap();
    volume.root().reflink("/snap/big", "/copy").unwrap();
    assert_eq!(volume.root().read("/snap/big").unwrap(), big);
    assert_eq!(volume.root().read("/copy").unwrap(), big);
    let snap = volume.root().subvolume("/snap").unwrap();
    assert_eq!(
        snap.write("/new", b"x").unwrap_err().kind(),
        ErrorKind::ReadOnlyFilesystem
    );
    volume.root().delete_subvolume("/snap").unwrap();
    volume.free_deleted_subvolumes().unwrap();
    assert_eq!(volume.root().read("/copy").unwrap(), big);
}

#[test]
fn image_keeps_what_was_synced() {
    let dir = std::env::temp_dir().join(format!("ubtrfs-embedding-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let image = dir.join("image");
    let volume = Volume::create(&image, VOLUME_BYTES).unwrap();
    volume.root().write("/file", b"kept").unwrap();
    let refused = Volume::open(&image).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
    assert!(refused.to_string().contains("this process"), "{refused}");
    drop(volume);
    let volume = Volume::open_read_only(&image).unwrap();
    assert_eq!(volume.root().read("/file").unwrap(), b"kept");
    assert!(volume.root().metadata("/file").unwrap().is_file());
    drop(volume);
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn file_keeps_its_volume_open() {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("image");
    let volume = Volume::create(&image, VOLUME_BYTES).unwrap();
    let file = volume.root().create_file("/file").unwrap();
    drop(volume);
    file.write_all_at(b"written later", 0).unwrap();
    file.sync_all().unwrap();
    assert!(Volume::open(&image).is_err());
    drop(file);
    let volume = Volume::open(&image).unwrap();
    assert_eq!(volume.root().read("/file").unwrap(), b"written later");
}

#[test]
fn file_without_a_name_goes_with_its_last_handle() {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("image");
    let volume = Volume::create(&image, VOLUME_BYTES).unwrap();
    let file = volume.root().create_file("/file").unwrap();
    file.write_all_at(&[1; 1 << 20], 0).unwrap();
    volume.root().remove_file("/file").unwrap();
    drop(volume);
    drop(file);
    let volume = Volume::open_read_only(&image).unwrap();
    assert!(volume.root().read_dir("/").unwrap().next().is_none());
}

#[test]
fn close_commits_and_ends_changes_of_all_handles() {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("image");
    let volume = Volume::create(&image, VOLUME_BYTES).unwrap();
    volume.root().write("/file", b"kept").unwrap();
    let (other, file) = (
        volume.clone(),
        volume
            .root()
            .open_with("/file", &OpenOptions::new().write(true))
            .unwrap(),
    );
    volume.close().unwrap();
    let refused = other.root().write("/new", b"").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    assert!(file.write_at(b"lost", 0).is_err());
    drop((other, file));
    let volume = Volume::open_read_only(&image).unwrap();
    assert_eq!(volume.root().read("/file").unwrap(), b"kept");
    assert!(!volume.root().exists("/new").unwrap());
}

#[test]
fn volume_that_could_not_be_made_leaves_no_file() {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("image");
    let refused = Volume::create(&image, 1 << 20).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::StorageFull, "{refused}");
    assert_eq!(refused.path(), Some(&*image));
    assert!(
        refused
            .to_string()
            .contains("of 1048576 bytes is too small"),
        "{refused}"
    );
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
    let text = volume.root().read("/none").unwrap_err().to_string();
    assert_eq!(text, "cannot read '/none': no such file or directory");
    let text = volume
        .root()
        .rename("/none", "/new")
        .unwrap_err()
        .to_string();
    let wanted = "cannot rename '/none' to '/new': no such file or directory";
    assert_eq!(text, wanted);
    volume.root().create_dir("/dir").unwrap();
    let mut dir = volume.root().open_file("/dir").unwrap();
    let refused = dir.read(&mut [0]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::IsADirectory);
    assert!(refused.to_string().contains("'/dir'"), "{refused}");
}

/// REMOVAL-1, REMOVAL-2
#[test]
fn removal_of_a_tree_loses_no_subvolume() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    volume.root().create_dir_all("/top/a/b").unwrap();
    volume.root().write("/top/file", b"").unwrap();
    volume.root().write("/top/a/file", b"").unwrap();
    volume.root().create_subvolume("/top/a/b/sub").unwrap();
    volume.root().write("/top/a/b/sub/kept", b"data").unwrap();
    volume.root().symlink("/top", "/link").unwrap();
    let refused = volume.root().remove_dir_all("/top").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::CrossesDevices);
    assert!(refused.to_string().contains("'/top/a/b/sub'"), "{refused}");
    let refused = volume.root().remove_dir_all("/top/a/b/sub").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::CrossesDevices);
    assert!(
        volume.root().exists("/top/file").unwrap() && volume.root().exists("/top/a/file").unwrap()
    );
    assert_eq!(volume.root().read("/top/a/b/sub/kept").unwrap(), b"data");
    // A subvolume elsewhere does not prevent the removal, nor does the empty directory of a nested subvolume in a
    // snapshot.
    volume.root().create_subvolume("/data").unwrap();
    volume.root().create_dir("/data/dir").unwrap();
    volume.root().create_subvolume("/data/dir/nested").unwrap();
    volume
        .root()
        .snapshot("/data", "/snap", Access::Writable)
        .unwrap();
    volume.root().remove_dir_all("/snap/dir").unwrap();
    assert!(volume.root().exists("/data/dir/nested").unwrap());
    volume.root().remove_dir_all("/link").unwrap();
    assert!(volume.root().exists("/top/file").unwrap());
    volume.root().delete_subvolume("/top/a/b/sub").unwrap();
    volume.root().remove_dir_all("/top").unwrap();
    assert!(!volume.root().exists("/top").unwrap());
}

#[test]
fn removal_of_a_tree_goes_beyond_a_batch_of_entries() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    for number in 0..2500 {
        let path = format!("/top/{}/{number}", number % 2);
        volume.root().create_dir_all(&path).unwrap();
    }
    volume.root().remove_dir_all("/top").unwrap();
    assert!(volume.root().read_dir("/").unwrap().next().is_none());
}

#[test]
fn reflink_onto_the_same_file_is_refused_and_loses_nothing() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let content = vec![7u8; 100_000];
    volume.root().write("/file", &content).unwrap();
    volume.root().hard_link("/file", "/hard").unwrap();
    volume.root().symlink("file", "/soft").unwrap();
    for (from, to) in [("/file", "/file"), ("/file", "/hard"), ("/soft", "/file")] {
        let refused = volume.root().reflink(from, to).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{from} {to}");
        assert_eq!(volume.root().read("/file").unwrap(), content, "{from} {to}");
    }
}

#[test]
fn reflink_that_cannot_be_made_leaves_the_destination() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    volume.root().write("/summed", vec![7u8; 100_000]).unwrap();
    volume.root().create_dir("/unsummed").unwrap();
    volume
        .root()
        .set_flags(
            "/unsummed",
            FileFlags {
                no_cow: true,
                ..FileFlags::default()
            },
        )
        .unwrap();
    volume.root().write("/unsummed/file", b"kept").unwrap();
    let refused = volume
        .root()
        .reflink("/summed", "/unsummed/file")
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    assert_eq!(volume.root().read("/unsummed/file").unwrap(), b"kept");
    assert!(volume.root().reflink("/summed", "/unsummed/new").is_err());
    assert!(!volume.root().exists("/unsummed/new").unwrap());
    assert!(volume.root().reflink("/unsummed", "/new").is_err());
    assert!(!volume.root().exists("/new").unwrap());
}

#[test]
fn rename_replaces_nothing_if_told_so() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    volume.root().write("/a", b"a").unwrap();
    volume.root().write("/b", b"b").unwrap();
    let refused = volume.root().rename_no_replace("/a", "/b");
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::AlreadyExists);
    volume.root().rename_exchange("/a", "/b").unwrap();
    assert_eq!(volume.root().read("/a").unwrap(), b"b");
}

#[test]
fn shared_file_is_read_and_written_by_reference() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let both = OpenOptions::new().read(true).write(true).create(true);
    let file = volume.root().open_with("/file", &both).unwrap();
    (&file).write_all(b"one two").unwrap();
    (&file).seek(SeekFrom::Start(4)).unwrap();
    let mut rest = String::new();
    (&file).read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "two");
    assert_eq!(file.metadata().unwrap().len(), 7);
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
                volume.root().create_dir(&dir).unwrap();
                for file in 0..200u32 {
                    let path = format!("{dir}/{file}");
                    volume.root().write(&path, file.to_le_bytes()).unwrap();
                    if file % 3 == 0 {
                        volume.root().remove_file(&path).unwrap();
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
        .map(|number| {
            volume
                .root()
                .read_dir(format!("/{number}"))
                .unwrap()
                .count()
        })
        .sum();
    assert_eq!(found as u64, made.load(Ordering::Relaxed));
}

/// Returns the space used by a file with this content, compared with an empty file.
fn taken_by(volume: &Volume, content: &[u8]) -> u64 {
    let used = || {
        volume.sync().unwrap();
        volume.engine().superblock().bytes_used.get()
    };
    volume.root().write("/file", b"").unwrap();
    let before = used();
    volume.root().write("/file", content).unwrap();
    used() - before
}

#[test]
fn builder_says_how_data_is_written() {
    let make = |builder: Builder| builder.in_memory(VOLUME_BYTES).unwrap();
    let content = vec![7u8; 4 << 20];
    let plain = make(Volume::builder());
    assert!(taken_by(&plain, &content) >= 4 << 20);
    let flags = |of: &Volume| of.root().metadata("/file").unwrap().flags();
    assert_eq!(flags(&plain), FileFlags::default());
    let zstd = Compress {
        algorithm: Compression::Zstd,
        ..Compress::default()
    };
    assert!(taken_by(&make(Volume::builder().compress(zstd)), &content) < 1 << 20);

    assert_eq!(taken_by(&plain, b"small"), 0);
    let not_inline = Volume::builder().set("max_inline_bytes", "0").unwrap();
    assert_eq!(taken_by(&make(not_inline), b"small"), 4096);

    let in_place = make(Volume::builder().no_data_cow(true));
    in_place.root().write("/file", &content).unwrap();
    assert!(flags(&in_place).no_cow);
    let unsummed = make(Volume::builder().no_data_sum(true));
    unsummed.root().write("/file", &content).unwrap();
    assert!(!flags(&unsummed).no_cow);
    let summed = unsummed.root().metadata("/file").unwrap();
    assert_eq!(summed.flag_names(), ["NODATASUM"]);
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
    let builder = Volume::builder().read_only(true).scan(others);
    assert!(builder.open(&[first]).is_ok());
}

#[test]
fn attributes_are_set_by_open_file_without_name() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    volume.root().write("/file", b"").unwrap();
    let file = volume.root().open_file("/file").unwrap();
    volume.root().remove_file("/file").unwrap();
    file.set_xattr("user.note", "one", XattrMode::Create)
        .unwrap();
    let refused = file.set_xattr("user.note", "two", XattrMode::Create);
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    let missing = file.set_xattr("user.none", "two", XattrMode::Replace);
    let missing = missing.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    file.set_xattr("user.note", "two", XattrMode::Replace)
        .unwrap();
    file.set_xattr("trusted.other", "", XattrMode::Any).unwrap();
    assert_eq!(
        file.xattr("user.note").unwrap().as_deref(),
        Some(&b"two"[..])
    );
    let mut names: Vec<_> = file.xattrs().unwrap();
    names.sort();
    let names: Vec<_> = names.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["trusted.other", "user.note"]);
    file.remove_xattr("user.note").unwrap();
    assert_eq!(file.xattr("user.note").unwrap(), None);
    let gone = file.remove_xattr("user.note").unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    assert_eq!(gone.path(), Some(Path::new("/file")));
}

#[test]
fn directories_are_made_with_their_permissions() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    let mode = |path: &str| root.metadata(path).unwrap().mode() & 0o7777;
    let sticky = DirBuilder::new().mode(0o1777);
    root.create_dir_with("/tmp", &sticky).unwrap();
    assert_eq!(mode("/tmp"), 0o1777);
    let again = root.create_dir_with("/tmp", &sticky).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    let missing = root.create_dir_with("/a/b", &sticky).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);

    let private = DirBuilder::new().recursive(true).mode(0o700);
    root.create_dir_with("/tmp/a/b", &private).unwrap();
    root.create_dir_with("/tmp/a/b", &private).unwrap();
    assert_eq!((mode("/tmp/a"), mode("/tmp/a/b")), (0o700, 0o700));
    assert_eq!(mode("/tmp"), 0o1777);
    root.create_dir_all("/c/d").unwrap();
    assert_eq!((mode("/c"), mode("/c/d")), (0o755, 0o755));
}

#[test]
fn attributes_and_properties_are_set_by_paths() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    volume.root().write("/file", b"").unwrap();
    volume.root().symlink("file", "/link").unwrap();
    volume
        .root()
        .set_xattr("/link", "user.note", "one", XattrMode::Create)
        .unwrap();
    let refused = volume
        .root()
        .set_xattr("/link", "user.note", "two", XattrMode::Create)
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    volume
        .root()
        .set_xattr("/link", "user.note", "two", XattrMode::Replace)
        .unwrap();
    let root = volume.root();
    let set_of_link = |value, mode| root.set_symlink_xattr("/link", "trusted.of_link", value, mode);
    let missing = set_of_link("none", XattrMode::Replace);
    assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
    for mode in [XattrMode::Create, XattrMode::Replace, XattrMode::Any] {
        set_of_link("link", mode).unwrap();
    }
    let refused = set_of_link("two", XattrMode::Create);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::AlreadyExists);
    let of_link = volume
        .root()
        .symlink_xattr("/link", "trusted.of_link")
        .unwrap();
    assert_eq!(of_link.as_deref(), Some(&b"link"[..]));
    assert_eq!(
        volume.root().xattr("/link", "trusted.of_link").unwrap(),
        None
    );
    let note = volume.root().xattr("/file", "user.note").unwrap();
    assert_eq!(note.as_deref(), Some(&b"two"[..]));
    assert_eq!(volume.root().xattr("/file", "user.none").unwrap(), None);
    let set_compression =
        |value| root.set_xattr("/file", "btrfs.compression", value, XattrMode::Any);
    let compression = || root.xattr("/file", "btrfs.compression").unwrap();
    set_compression("zstd:3").unwrap();
    assert_eq!(compression().as_deref(), Some(&b"zstd:3"[..]));
    let mut names: Vec<_> = volume.root().xattrs("/file").unwrap();
    names.sort();
    let names: Vec<_> = names.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["btrfs.compression", "user.note"]);
    set_compression("").unwrap();
    assert_eq!(compression(), None);
    let invalid = set_compression("bogus").unwrap_err();
    assert_eq!(invalid.kind(), ErrorKind::InvalidInput);
    volume.root().remove_xattr("/file", "user.note").unwrap();
    let gone = volume
        .root()
        .remove_xattr("/file", "user.note")
        .unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    let immutable = FileFlags {
        immutable: true,
        ..FileFlags::default()
    };
    volume.root().set_flags("/file", immutable).unwrap();
    assert_eq!(volume.root().metadata("/file").unwrap().flags(), immutable);
    let immutable = volume.root().write("/file", b"x").unwrap_err();
    assert_eq!(immutable.kind(), ErrorKind::PermissionDenied);
}

#[test]
fn subvolumes_have_a_read_only_flag_and_one_is_the_default() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let data = volume.root().create_subvolume("/data").unwrap();
    data.create_dir("/dir").unwrap();
    data.set_read_only(true).unwrap();
    assert!(data.is_read_only().unwrap());
    let refused = volume.root().write("/data/file", b"").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    data.set_read_only(false).unwrap();
    data.write("/file", b"").unwrap();
    assert!(volume.root().subvolume("/data/dir").is_err());

    assert_eq!(volume.default_subvolume().unwrap().id(), 5);
    volume.set_default_subvolume(&data).unwrap();
    assert_eq!(volume.default_subvolume().unwrap().id(), data.id());
    assert_eq!(volume.default_subvolume_id().unwrap(), data.id());
    let other = Volume::in_memory(VOLUME_BYTES).unwrap();
    let refused = other.set_default_subvolume(&data).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::CrossesDevices);
    volume.set_label("name").unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.label(), "name");
}

#[test]
fn subvolumes_are_listed_with_what_is_known_of_them() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let data = volume.root().create_subvolume("/data").unwrap();
    data.create_dir("/dir").unwrap();
    let nested = data.create_subvolume("/dir/nested").unwrap();
    let snapshot = data.snapshot("/", "/before", Access::ReadOnly).unwrap();
    let all = volume.subvolumes().unwrap();
    let paths: Vec<_> = all.iter().map(|info| info.path.clone().unwrap()).collect();
    let wanted = ["", "data", "data/dir/nested", "data/before"];
    assert_eq!(paths, wanted.map(PathBuf::from));
    assert_eq!(all[3].parent_uuid, Some(all[1].uuid));
    assert!(all[3].is_read_only && !all[1].is_read_only);
    assert_eq!(nested.info().unwrap(), all[2]);
    assert_eq!(
        volume
            .subvolume_by_id(snapshot.id())
            .unwrap()
            .info()
            .unwrap(),
        all[3]
    );
    data.delete_subvolume("/before").unwrap();
    let gone = volume.subvolume_by_id(snapshot.id()).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound, "{gone}");
    assert_eq!(gone.errno(), rustix::io::Errno::NOENT.raw_os_error());
    let id = snapshot.id();
    assert_eq!(
        gone.to_string(),
        format!("cannot open subvolume: subvolume {id} does not exist")
    );
    // The extent tree is not a subvolume.
    assert!(volume.subvolume_by_id(2).is_err());
}

#[test]
fn paths_do_not_lead_above_their_subvolume() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    volume.root().write("/secret", b"above").unwrap();
    let data = volume.root().create_subvolume("/data").unwrap();
    data.symlink("/../secret", "/link").unwrap();
    for path in ["../secret", "/../data/../secret", "link"] {
        assert_eq!(data.read(path).unwrap_err().kind(), ErrorKind::NotFound);
    }
    data.create_dir("/dir").unwrap();
    assert_eq!(data.canonicalize("dir/../..").unwrap(), Path::new("/"));
    assert_eq!(
        volume.root().canonicalize("data/dir").unwrap(),
        Path::new("/data/dir")
    );
}

#[test]
fn listing_goes_beyond_a_batch_and_ends_while_names_are_added() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    for number in 0..1000 {
        root.write(number.to_string(), b"").unwrap();
    }
    let mut names = Vec::new();
    for entry in root.read_dir("/").unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        root.rename(&name, format!("new-{name}")).unwrap();
        names.push(name);
    }
    let wanted: Vec<_> = (0..1000).map(|number| number.to_string()).collect();
    assert_eq!(names, wanted);
    assert_eq!(root.read_dir("/").unwrap().count(), 1000);
}

#[test]
fn files_of_one_volume_share_and_of_two_do_not() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    root.write("/from", vec![7; 1 << 20]).unwrap();
    let from = root.open_file("/from").unwrap();
    let to = root.create_file("/to").unwrap();
    to.clone_range(&from, 0, 1 << 20, 0).unwrap();
    assert_eq!(root.read("/to").unwrap(), vec![7; 1 << 20]);
    to.clone_range(&from, 0, 4096, 1 << 20).unwrap();
    assert_eq!(to.metadata().unwrap().len(), (1 << 20) + 4096);
    assert!(to.dedupe_range(&from, 0, 4096, 4096).unwrap());
    let itself = to.try_clone().unwrap();
    let refused = to.clone_range(&itself, 0, 4096, 8192).unwrap_err();
    assert_eq!(refused.kind(), bad_descriptor());
    let other = Volume::in_memory(VOLUME_BYTES).unwrap();
    let refused = other
        .root()
        .create_file("/to")
        .unwrap()
        .clone_range(&from, 0, 4096, 0)
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::CrossesDevices);
    // Only opened for reading.
    assert!(from.set_len(0).is_err());
    assert!(from.punch_hole(0, 4096).is_err());
}

fn bad_descriptor() -> ErrorKind {
    std::io::Error::from_raw_os_error(9).kind()
}

#[test]
fn nodes_owners_and_times_are_as_they_were_set() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    root.create_node("/null", 0o020_666, 0x103).unwrap();
    let null = root.metadata("/null").unwrap();
    assert_eq!(null.file_type(), FileKind::CharDevice);
    assert_eq!((null.rdev(), null.mode()), (0x103, 0o020_666));
    let refused = root.create_node("/dir", 0o040_755, 0).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    root.write("/file", b"").unwrap();
    root.set_permissions("/file", Permissions::from_mode(0o4711))
        .unwrap();
    root.symlink("file", "/link").unwrap();
    root.chown("/link", Some(7), None).unwrap();
    root.lchown("/link", None, Some(8)).unwrap();
    let file = root.metadata("/file").unwrap();
    assert_eq!((file.uid(), file.gid(), file.mode()), (7, 0, 0o100_711));
    let link = root.symlink_metadata("/link").unwrap();
    assert_eq!((link.uid(), link.gid()), (0, 8));
}

/// The maximum file size of Linux.
const LARGEST_FILE: u64 = i64::MAX as u64;

#[test]
fn file_that_memory_has_no_room_for_is_refused_with_its_path() {
    let volume = Volume::in_memory(256 << 20).unwrap();
    let root = volume.root();
    let options = OpenOptions::new().read(true).write(true).create(true);
    let file = root.open_with("/sparse", &options).unwrap();
    file.set_len(LARGEST_FILE).unwrap();

    for error in [
        root.read("/sparse").unwrap_err(),
        root.read_to_string("/sparse").unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert_eq!(error.path(), Some(Path::new("/sparse")));
        assert_eq!(error.errno(), 12, "ENOMEM");
    }
    let mut content = Vec::new();
    let error = (&file).read_to_end(&mut content).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("'/sparse'"), "{error}");
    let error = (&file).read_to_string(&mut String::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);

    file.write_all_at(b"the end", LARGEST_FILE - 7).unwrap();
    (&file).seek(SeekFrom::End(-7)).unwrap();
    let mut end = String::from("It is ");
    assert_eq!((&file).read_to_string(&mut end).unwrap(), 7);
    assert_eq!(end, "It is the end");
}

#[test]
fn errors_show_no_control_characters_of_paths() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    let name = "/\u{1b}[2J\n";
    let missing = root.read(name).unwrap_err();
    assert_eq!(missing.path(), Some(Path::new(name)));
    root.create_subvolume(name).unwrap();
    for error in [
        missing,
        root.rename("/missing", name).unwrap_err(),
        root.remove_dir_all(name).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(!text.contains(char::is_control), "{text:?}");
        assert!(text.contains(r"'/\u{1b}[2J\n'"), "{text}");
    }
    // The message contains the name of the device once.
    let error = Volume::open(format!("/missing{name}")).unwrap_err();
    for text in [error.to_string(), error.reason().to_string()] {
        assert!(!text.contains(char::is_control), "{text:?}");
        assert!(text.contains(r"/missing/\u{1b}[2J\n"), "{text}");
    }
}

#[test]
fn read_only_volume_closes_and_its_files_stay_readable() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("volume.img");
    let volume = Volume::create(&image, 1 << 30).unwrap();
    volume.root().write("/file", b"content").unwrap();
    volume.close().unwrap();
    let volume = Volume::open_read_only(&image).unwrap();
    let file = volume.root().open_file("/file").unwrap();
    volume.close().unwrap();
    let mut content = String::new();
    (&file).read_to_string(&mut content).unwrap();
    assert_eq!(content, "content");
}

#[test]
fn scan_takes_the_newest_of_devices_with_one_number() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("a.img"), folder.path().join("b.img"));
    Volume::create(&old, 1 << 30).unwrap().close().unwrap();
    fs::copy(&old, &new).unwrap();
    let volume = Volume::open(&new).unwrap();
    volume.root().write("/file", b"content").unwrap();
    volume.close().unwrap();

    assert_eq!(scan_devices(&[folder.path()]).len(), 2);
    // SCAN-1
    let volumes = scan(&[folder.path()]);
    assert_eq!((volumes.len(), volumes[0].devices.len()), (1, 1));
    assert_eq!(volumes[0].devices[0].path, new);
}
