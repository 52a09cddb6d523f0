//! Inode flags and the operations that they forbid.

use ubtrfs_device::nonblocking::scope;
use ubtrfs_format::compress::Compression;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_fs::{Compress, Error, Fallocate, FileId, NewInode, OpenOptions, RenameMode, XattrMode};

use crate::fixture::{World, attr};

#[test]
fn flags_are_set_exactly() {
    let mut world = World::new();
    let id = world.file("file");
    let volume = world.volume();
    let some = InodeFlags::NOATIME | InodeFlags::NODUMP | InodeFlags::SYNC | InodeFlags::DIRSYNC;
    volume.set_inode_flags(id, some).unwrap();
    assert_eq!(volume.attr(id).unwrap().flags, some);
    volume.set_inode_flags(id, InodeFlags::NOATIME).unwrap();
    world.shows(|volume| assert_eq!(attr(volume, "file").flags, InodeFlags::NOATIME));
}

#[test]
fn contradictions_are_refused() {
    let world = World::new();
    let id = world.file("file");
    let set = |flags| world.volume().set_inode_flags(id, flags);
    let (compress, never) = (InodeFlags::COMPRESS, InodeFlags::NOCOMPRESS);
    let nocow = InodeFlags::NODATACOW;
    for flags in [compress | never, compress | nocow] {
        assert!(matches!(set(flags), Err(Error::Invalid(_))));
    }
    for flag in [
        InodeFlags::PREALLOC,
        InodeFlags::NODATASUM,
        InodeFlags::READONLY,
    ] {
        assert!(matches!(set(flag), Err(Error::Invalid(_))));
    }
    set(never | nocow).unwrap();
    set(InodeFlags::empty()).unwrap();
    set(compress).unwrap();
    assert!(matches!(set(nocow), Err(Error::Invalid(_))));
    set(InodeFlags::empty()).unwrap();
    set(nocow).unwrap();
    assert!(matches!(set(compress), Err(Error::Invalid(_))));
}

#[test]
fn compression_flag_sets_the_property() {
    let world = World::new();
    let id = world.file("file");
    let volume = world.volume();
    let property = || volume.xattr(id, b"btrfs.compression").unwrap();
    volume.set_inode_flags(id, InodeFlags::COMPRESS).unwrap();
    assert_eq!(property().unwrap(), b"zlib");
    volume.set_inode_flags(id, InodeFlags::NOCOMPRESS).unwrap();
    assert_eq!(property(), None);
}

#[test]
fn compression_flag_means_the_algorithm_of_the_volume() {
    let mut world = World::new();
    let id = world.file("file");
    world.reopen_with(&OpenOptions::new().writable(true).compress(Compress {
        algorithm: Compression::Lzo,
        ..Compress::default()
    }));
    let volume = world.volume();
    volume.set_inode_flags(id, InodeFlags::COMPRESS).unwrap();
    let property = volume.xattr(id, b"btrfs.compression").unwrap();
    assert_eq!(property.unwrap(), b"lzo");
}

#[test]
fn no_copy_on_write_goes_with_no_checksums_and_to_new_files() {
    let mut world = World::new();
    let (file, dir) = (world.file("file"), world.dir("dir"));
    let volume = world.volume();
    for id in [file, dir] {
        volume.set_inode_flags(id, InodeFlags::NODATACOW).unwrap();
    }
    world.file("dir/file");
    world.dir("dir/dir");
    let whole = InodeFlags::NODATACOW | InodeFlags::NODATASUM;
    world.shows(|volume| {
        assert_eq!(attr(volume, "file").flags, whole);
        assert_eq!(attr(volume, "dir").flags, InodeFlags::NODATACOW);
        assert_eq!(attr(volume, "dir/file").flags, whole);
        assert_eq!(attr(volume, "dir/dir").flags, InodeFlags::NODATACOW);
    });
    world
        .volume()
        .set_inode_flags(file, InodeFlags::empty())
        .unwrap();
    assert_eq!(attr(world.volume(), "file").flags, InodeFlags::empty());
}

#[test]
fn entries_of_guarded_directories_stay() {
    let world = World::new();
    let dir = world.dir("dir");
    let file = world.file("dir/file");
    let volume = world.volume();
    let new = NewInode::file(0o600);
    volume.set_inode_flags(dir, InodeFlags::APPEND).unwrap();
    volume.create(dir, b"more", &new).unwrap();
    assert!(matches!(
        volume.unlink(dir, b"file"),
        Err(Error::NotPermitted(_))
    ));
    let out = volume.rename(dir, b"file", world.place("x"), RenameMode::Replace);
    assert!(matches!(out, Err(Error::NotPermitted(_))));
    volume.set_inode_flags(dir, InodeFlags::IMMUTABLE).unwrap();
    assert!(matches!(
        volume.create(dir, b"x", &new),
        Err(Error::NotPermitted(_))
    ));
    assert!(matches!(
        volume.link(file, dir, b"x"),
        Err(Error::NotPermitted(_))
    ));
    assert!(matches!(
        volume.tmpfile(dir, &new, true),
        Err(Error::NotPermitted(_))
    ));
    // Only the entries are protected.
    volume
        .set_xattr(file, b"user.a", b"x", XattrMode::Any)
        .unwrap();
}

#[test]
fn guarded_files_are_not_opened_for_writing() {
    let world = World::new();
    let (file, dir) = (world.file("file"), world.dir("dir"));
    let volume = world.volume();
    let hold = |id, appends| volume.open_file_for_writing(id, appends).map(drop);
    assert!(matches!(hold(dir, true), Err(Error::IsADirectory(_))));
    hold(file, false).unwrap();
    volume.set_inode_flags(file, InodeFlags::APPEND).unwrap();
    assert!(matches!(hold(file, false), Err(Error::NotPermitted(_))));
    hold(file, true).unwrap();
    volume.set_inode_flags(file, InodeFlags::IMMUTABLE).unwrap();
    assert!(matches!(hold(file, true), Err(Error::NotPermitted(_))));
}

#[test]
fn names_of_guarded_files_stay() {
    let world = World::new();
    let (dir, top) = (world.dir("dir"), world.top());
    let file = world.file("file");
    world.file("other");
    let volume = world.volume();
    for flag in [InodeFlags::APPEND, InodeFlags::IMMUTABLE] {
        volume.set_inode_flags(file, flag).unwrap();
        volume.set_inode_flags(dir, flag).unwrap();
        assert!(matches!(
            volume.unlink(top, b"file"),
            Err(Error::NotPermitted(_))
        ));
        assert!(matches!(
            volume.rmdir(top, b"dir"),
            Err(Error::NotPermitted(_))
        ));
        assert!(matches!(
            volume.link(file, top, b"x"),
            Err(Error::NotPermitted(_))
        ));
        for (from, to) in [("file", "x"), ("other", "file")] {
            let to = world.place(to);
            let moved = volume.rename(top, from.as_bytes(), to, RenameMode::Replace);
            assert!(matches!(moved, Err(Error::NotPermitted(_))));
        }
    }
}

#[test]
fn guarded_contents_stay() {
    let world = World::new();
    let (id, source) = (world.file("file"), world.file("source"));
    let volume = world.volume();
    let bytes = vec![1; 8192];
    volume.write(id, 0, &bytes).unwrap();
    volume.write(source, 0, &bytes).unwrap();
    let open = volume.open_file_for_writing(id, false).unwrap();
    let reserve = Fallocate::Reserve { keep_size: false };
    let zero = Fallocate::ZeroRange { keep_size: true };
    let refused = |outcome| assert!(matches!(outcome, Err(Error::NotPermitted(_))));

    volume.set_inode_flags(id, InodeFlags::IMMUTABLE).unwrap();
    refused(volume.truncate(id, 5));
    for mode in [reserve, zero, Fallocate::PunchHole] {
        refused(volume.fallocate(id, mode, 0, 4096));
    }
    refused(volume.clone_range(source, 0, 4096, id, 0).map(drop));
    refused(volume.dedupe_range(source, 0, 4096, id, 0).map(drop));
    refused(volume.copy_range(source, 0, 100, id, 0).map(drop));
    refused(volume.open_file_for_writing(id, true).map(drop));
    // A file that is already open may be written.
    volume.write(id, 0, b"x").unwrap();
    volume.truncate_open(&open, 8000).unwrap();

    volume.set_inode_flags(id, InodeFlags::APPEND).unwrap();
    refused(volume.truncate(id, 5));
    refused(volume.truncate_open(&open, 5));
    refused(volume.fallocate(id, zero, 0, 4096));
    refused(volume.fallocate(id, Fallocate::PunchHole, 0, 4096));
    refused(volume.open_file_for_writing(id, false).map(drop));
    volume.fallocate(id, reserve, 0, 9000).unwrap();
    volume.append(id, b"more").unwrap();
    assert_eq!(volume.attr(id).unwrap().size, 9004);
}

/// Checks the flag before the file type, as in the kernel.
#[test]
fn immutable_subvolume_is_not_permitted_to_be_unlinked() {
    let world = World::new();
    let (volume, top) = (world.volume(), world.top());
    let root = NewInode::directory(0o755);
    let id = volume.create_subvolume(top, b"sub", &root).unwrap();
    let refused = || volume.unlink(top, b"sub").unwrap_err();
    assert!(matches!(refused(), Error::IsADirectory(_)));
    let flags = InodeFlags::IMMUTABLE;
    volume
        .set_inode_flags(volume.root_dir(id).unwrap(), flags)
        .unwrap();
    assert!(matches!(refused(), Error::NotPermitted(_)));
}

#[test]
fn data_written_to_a_file_that_syncs_survives_a_crash() {
    let world = World::new();
    let (id, source) = (world.file("file"), world.file("source"));
    let volume = world.volume();
    volume.write(source, 0, &vec![4; 1 << 16]).unwrap();
    volume.set_inode_flags(id, InodeFlags::SYNC).unwrap();
    let after_a_crash = |id: FileId| {
        let found = world.after_a_crash();
        let mut bytes = vec![0; 4 << 20];
        let len = found.read(id, 0, &mut bytes).unwrap();
        bytes.truncate(len);
        bytes
    };
    volume.write(id, 0, b"some").unwrap();
    assert_eq!(after_a_crash(id), b"some");
    volume.append(id, b" more").unwrap();
    assert_eq!(after_a_crash(id), b"some more");
    volume.write_direct(id, 0, &[1; 4096]).unwrap();
    assert!(after_a_crash(id) == [1; 4096]);
    volume.write(id, 0, &vec![2; 3 << 20]).unwrap();
    assert!(after_a_crash(id) == vec![2; 3 << 20]);
    volume.clone_range(source, 0, 8192, id, 0).unwrap();
    assert!(after_a_crash(id)[..8193] == [vec![4; 8192], vec![2]].concat());
    volume.clone_range(id, 8192, 4096, source, 0).unwrap();
    assert!(after_a_crash(source)[..4097] == [vec![2; 4096], vec![4]].concat());

    // It would have to wait for the devices, so it does nothing.
    let refused = scope(|| volume.write(id, 0, b"x")).unwrap_err();
    assert!(refused.is_would_block());
    let mut first = [0];
    volume.read(id, 0, &mut first).unwrap();
    assert_eq!(first, [4]);

    volume.set_inode_flags(id, InodeFlags::empty()).unwrap();
    volume.write(id, 0, b"later").unwrap();
    assert_eq!(after_a_crash(id)[0], 4);
}
