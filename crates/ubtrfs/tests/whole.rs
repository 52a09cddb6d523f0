//! Whole volumes and trees with the library: several devices, filling, checks, archives, copies, walks.

use std::fs;
use std::io::{ErrorKind, Read, Seek, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ubtrfs::{
    Access, BlockDevice, BlockGroupKind, Builder, Checker, CopyOptions, DeviceAccess, DiscardMode,
    Effect, Event, FileDevice, FileFlags, ImportOptions, MemDevice, Mkfs, MkfsOptions, Problems,
    Profile, Progress, SendOptions, Snapshot, StreamVersion, TrimOptions, Volume, Walk,
    WalkOptions,
};
use ubtrfs_sim::craft;

const VOLUME_BYTES: u64 = 256 << 20;

/// Runs a transfer, and returns its problems.
fn transfer(run: impl FnOnce(&mut Problems) -> ubtrfs::Result<()>) -> ubtrfs::Result<Problems> {
    let mut problems = Problems::default();
    run(&mut problems)?;
    Ok(problems)
}

#[test]
fn volume_of_two_devices_reads_with_one_gone() {
    let scratch = tempfile::tempdir().unwrap();
    let paths = ["one", "two"].map(|name| scratch.path().join(name));
    let mirrored = MkfsOptions {
        data: Some(Profile::Raid1),
        metadata: Some(Profile::Raid1),
        ..MkfsOptions::default()
    };
    let volume = Volume::builder()
        .mkfs(mirrored.clone())
        .create(&paths, VOLUME_BYTES)
        .unwrap();
    volume.root().write("/file", b"kept").unwrap();
    let devices = volume.devices();
    assert_eq!(devices.len(), 2);
    assert_eq!(devices[1].path.as_ref(), Some(&paths[1]));
    let space = volume.space().unwrap();
    let data = space.block_groups.iter();
    let data = data.filter(|group| group.kind == BlockGroupKind::Data);
    assert!(data.clone().count() > 0);
    assert!(
        data.clone()
            .all(|group| group.profile == Some(Profile::Raid1))
    );
    volume.close().unwrap();

    // The last file already exists, so the first one is removed again.
    let again = ["three", "two"].map(|name| scratch.path().join(name));
    let refused = Volume::builder()
        .mkfs(mirrored)
        .create(&again, VOLUME_BYTES);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert!(!again[0].exists());

    let checker = Checker::new().read_data(true).scan([scratch.path()]);
    assert!(checker.check(&paths[0]).unwrap().is_clean());
    fs::remove_file(&paths[1]).unwrap();
    let missing = Volume::open_read_only(&paths[0]).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
    let volume = Volume::builder()
        .read_only(true)
        .degraded(true)
        .open(&paths[..1])
        .unwrap();
    assert_eq!(volume.root().read("/file").unwrap(), b"kept");
    assert_eq!(volume.devices()[1].path, None);
}

#[test]
fn no_devices_and_damaged_ones_are_errors() {
    let none: [&Path; 0] = [];
    let refused = Volume::builder().create(&none, VOLUME_BYTES).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    let refused = Volume::builder().make(Vec::new()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    let noise = Arc::new(MemDevice::new(1 << 20)) as Arc<dyn BlockDevice>;
    let devices = vec![(PathBuf::from("noise"), noise)];
    let refused = Checker::new().check_devices(devices).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidData, "{refused}");
    assert_eq!(refused.path(), Some(Path::new("noise")));
}

#[test]
fn check_lists_what_is_wrong() {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("image");
    let volume = Volume::create(&image, VOLUME_BYTES).unwrap();
    volume.root().write("/file", vec![0xabu8; 1 << 20]).unwrap();
    volume.close().unwrap();
    let device = FileDevice::open(&image, DeviceAccess::Read).unwrap();
    let devices = vec![(image.clone(), Arc::new(device) as Arc<dyn BlockDevice>)];
    let report = Checker::new().check_devices(devices).unwrap();
    assert!(report.is_clean() && report.issues.is_empty(), "{report:?}");

    // Find the content in the image, and change one byte of it.
    let content = fs::read(&image).unwrap();
    let at = content.windows(4096).position(|part| part == [0xab; 4096]);
    let file = fs::OpenOptions::new().write(true).open(&image).unwrap();
    file.write_all_at(b"x", at.unwrap() as u64).unwrap();
    assert!(Checker::new().check(&image).unwrap().is_clean());
    let report = Checker::new().read_data(true).check(&image).unwrap();
    assert_eq!(report.errors, 1, "{report:?}");
    assert!(report.issues[0].to_string().contains("E"), "{report:?}");
    let volume = Volume::open_read_only(&image).unwrap();
    let damaged = volume.root().read("/file").unwrap_err();
    assert_eq!(damaged.kind(), ErrorKind::InvalidData, "{damaged}");
}

/// A writer that is full after a number of bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let len = bytes.len().min(self.0);
        self.0 -= len;
        match len {
            0 => Err(ErrorKind::StorageFull.into()),
            len => Ok(len),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_stream_that_cannot_be_written_is_told_from_a_volume_that_cannot_be_read() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    volume.root().write("/file", vec![7; 5 << 20]).unwrap();
    let top = Snapshot::open(volume.root()).unwrap_err();
    assert!(!top.is_of_stream(), "{top}");
    let kept = volume.root().snapshot("/", "/kept", Access::ReadOnly);
    let kept = Snapshot::open(&kept.unwrap()).unwrap();
    let options = SendOptions::new();
    let failed = [
        kept.send(&options, Full(1 << 20), &mut ()),
        kept.send(&options, Full(0), &mut ()),
    ];
    for failed in failed {
        let failed = failed.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::StorageFull, "{failed}");
        assert!(failed.is_of_stream(), "{failed}");
    }
    let compressed = options.compressed(true).version(StreamVersion::V1);
    let refused = kept.send(&compressed, Vec::new(), &mut ()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
}

/// The paths reported by a transfer.
#[derive(Default)]
struct Met {
    begun: Vec<PathBuf>,
    failed: Vec<PathBuf>,
}

impl Progress for Met {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Begin { path } => self.begun.push(path.to_path_buf()),
            Event::Problem(problem) => {
                assert_ne!(problem.effect, Effect::Unsupported);
                self.failed.push(problem.path.clone());
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

#[test]
fn progress_has_archived_and_unpacked_files() {
    let scratch = tempfile::tempdir().unwrap();
    let archive = scratch.path().join("archive.tar");
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    volume.root().create_dir_all("/dir/below").unwrap();
    volume.root().write("/dir/file", b"content").unwrap();
    let mut met = Met::default();
    let out = fs::File::create(&archive).unwrap();
    volume.root().export_tar("/dir", out, &mut met).unwrap();
    assert_eq!(met.begun, ["dir", "dir/below", "dir/file"].map(Path::new));
    assert!(met.failed.is_empty());

    let backup = Volume::in_memory(VOLUME_BYTES).unwrap();
    // A directory that is not empty stays.
    backup.root().create_dir_all("/dir/file/kept").unwrap();
    let options = ImportOptions::new().shown_as("backup");
    let mut met = Met::default();
    let members = fs::File::open(&archive).unwrap();
    backup
        .root()
        .import_tar(members, "/", &options, &mut met)
        .unwrap();
    assert!(backup.root().exists("/dir/below").unwrap());
    assert_eq!(met.failed, [Path::new("dir/file")]);

    let full = volume.root().export_tar("/", Full(0), &mut met);
    let full = full.unwrap_err();
    assert!(full.is_of_stream(), "{full}");
    assert_eq!(full.kind(), ErrorKind::StorageFull);
}

#[test]
fn trees_are_copied_archived_and_unpacked() {
    let scratch = tempfile::tempdir().unwrap();
    let host = scratch.path().join("host");
    fs::create_dir_all(host.join("dir")).unwrap();
    fs::write(host.join("dir/file"), "content").unwrap();
    fs::hard_link(host.join("dir/file"), host.join("hard")).unwrap();
    std::os::unix::fs::symlink("dir/file", host.join("soft")).unwrap();
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    assert!(
        transfer(|problems| root.copy_from_host(&host, "/tree", &CopyOptions::new(), problems))
            .unwrap()
            .is_empty()
    );
    let judge = |top: &str| {
        let file = root.metadata(format!("{top}/hard")).unwrap();
        assert_eq!((file.nlink(), file.len()), (2, 7), "{top}");
        let of_host = host.join("hard").metadata().unwrap();
        assert_eq!(file.modified(), of_host.modified().unwrap(), "{top}");
        assert_eq!(
            (file.uid(), file.mode()),
            (of_host.uid(), of_host.mode()),
            "{top}"
        );
        let soft = root.read_link(format!("{top}/soft")).unwrap();
        assert_eq!(soft, Path::new("dir/file"), "{top}");
    };
    judge("/tree");
    assert!(
        transfer(|problems| root.copy_tree("/tree", root, "/copy", &CopyOptions::new(), problems))
            .unwrap()
            .is_empty()
    );
    judge("/copy");

    let mut archive = tempfile::tempfile().unwrap();
    assert!(
        transfer(|problems| root.export_tar("/tree", &archive, problems))
            .unwrap()
            .is_empty()
    );
    archive.rewind().unwrap();
    root.create_dir("/unpacked").unwrap();
    let problems = transfer(|problems| {
        root.import_tar(
            archive.try_clone().unwrap(),
            "/unpacked",
            &ImportOptions::new(),
            problems,
        )
    })
    .unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    judge("/unpacked/tree");

    let back = scratch.path().join("back");
    assert!(
        transfer(|problems| root.copy_to_host(
            "/unpacked/tree",
            &back,
            &CopyOptions::new(),
            problems
        ))
        .unwrap()
        .is_empty()
    );
    assert_eq!(fs::read(back.join("soft")).unwrap(), b"content");

    archive.rewind().unwrap();
    let tar = scratch.path().join("archive.tar");
    let mut bytes = Vec::new();
    archive.read_to_end(&mut bytes).unwrap();
    fs::write(&tar, bytes).unwrap();
    let filled = Volume::builder()
        .mkfs(Mkfs::default().fill_from(&tar))
        .in_memory(VOLUME_BYTES)
        .unwrap();
    assert_eq!(filled.root().read("/tree/hard").unwrap(), b"content");
    filled.root().write("/tree/more", b"more").unwrap();
    filled.sync().unwrap();
}

#[test]
fn failures_of_a_transfer_are_listed_and_the_rest_is_done() {
    let scratch = tempfile::tempdir().unwrap();
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    root.create_dir("/tree").unwrap();
    root.create_node("/tree/socket", 0o140_755, 0).unwrap();
    root.write("/tree/file", b"content").unwrap();
    let mut archive = Vec::new();
    let problems = transfer(|problems| root.export_tar("/tree", &mut archive, problems)).unwrap();
    assert_eq!(problems.count(), 1);
    assert_eq!(problems.listed()[0].path, Path::new("tree/socket"));
    let noise = scratch.path().join("noise");
    fs::write(&noise, vec![7; 5000]).unwrap();
    let refused = transfer(|problems| {
        root.import_tar(
            fs::File::open(&noise).unwrap(),
            "/",
            &ImportOptions::new(),
            problems,
        )
    })
    .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidData, "{refused}");
    let missing = transfer(|problems| {
        root.copy_from_host(
            scratch.path().join("none"),
            "/new",
            &CopyOptions::new(),
            problems,
        )
    })
    .unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
    let missing = Volume::builder().mkfs(Mkfs::default().fill_from(scratch.path().join("none")));
    let missing = missing.in_memory(VOLUME_BYTES).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
}

#[test]
fn trim_and_deleted_subvolumes_give_space_back() {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("image");
    let volume = Volume::create(&image, 1 << 30).unwrap();
    let data = volume.root().create_subvolume("/data").unwrap();
    data.write("/file", vec![7; 32 << 20]).unwrap();
    volume.sync().unwrap();
    let before = volume.space().unwrap().free_bytes;
    volume.root().delete_subvolume("/data").unwrap();
    volume.free_deleted_subvolumes().unwrap();
    assert!(volume.space().unwrap().free_bytes >= before + (32 << 20));
    volume.trim(&TrimOptions::new(), &mut ()).unwrap();
    assert!(image.metadata().unwrap().blocks() * 512 < 16 << 20);
    assert!(volume.statistics().data_bytes >= 32 << 20);
}

#[test]
fn tree_is_not_copied_into_itself() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    root.create_dir_all("/a/b").unwrap();
    root.write("/a/file", b"content").unwrap();
    let nested = root.create_subvolume("/a/b/nested").unwrap();
    nested.write("/file", b"nested").unwrap();
    root.symlink("a/b", "/link").unwrap();
    for (from, to) in [
        ("/a", "/a/copy"),
        ("/a", "/a/b/copy"),
        ("/a", "/a/b/nested/copy"),
        ("/a", "/link/copy"),
        ("/", "/copy"),
        ("/a", "/a"),
    ] {
        let refused =
            transfer(|problems| root.copy_tree(from, root, to, &CopyOptions::new(), problems))
                .unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{from} {to}");
    }
    assert_eq!(root.read_dir("/a").unwrap().count(), 2);
    assert!(
        transfer(|problems| root.copy_tree(
            "/link",
            root,
            "/a/b/link",
            &CopyOptions::new(),
            problems
        ))
        .unwrap()
        .is_empty()
    );
    let refused = transfer(|problems| {
        root.copy_tree("/a/file", root, "/a/file", &CopyOptions::new(), problems)
    })
    .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
}

#[test]
fn statistics_count_flushes_of_data_written_in_place() {
    let scratch = tempfile::tempdir().unwrap();
    let builder = Volume::builder().commit_interval(None);
    let volume = builder
        .create(&[scratch.path().join("image")], VOLUME_BYTES)
        .unwrap();
    let root = volume.root();
    let file = root.create_file("/file").unwrap();
    let no_cow = FileFlags {
        no_cow: true,
        ..FileFlags::default()
    };
    root.set_flags("/file", no_cow).unwrap();
    let counts = || {
        let statistics = volume.statistics();
        (statistics.logs, statistics.data_flushes)
    };
    volume.sync().unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(counts(), (1, 0));
    file.write_all_at(&[2; 4096], 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(counts(), (1, 1));
}

#[test]
fn volume_opens_as_committed_or_with_what_was_synced() {
    let scratch = tempfile::tempdir().unwrap();
    let paths = ["one", "two", "copy-one", "copy-two"].map(|name| scratch.path().join(name));
    let volume = Volume::builder()
        .commit_interval(None)
        .create(&paths[..2], VOLUME_BYTES)
        .unwrap();
    volume.root().write("/committed", b"kept").unwrap();
    volume.sync().unwrap();
    volume.root().write("/synced", b"logged").unwrap();
    let synced = volume.root().open_file("/synced").unwrap();
    synced.sync_all().unwrap();
    volume.root().create_dir_all("/dir/below").unwrap();
    volume.root().open_dir("/dir").unwrap().sync_all().unwrap();
    assert_eq!(volume.statistics().logs, 2);
    // The state that a power cut would leave.
    fs::copy(&paths[0], &paths[2]).unwrap();
    fs::copy(&paths[1], &paths[3]).unwrap();
    let open = |builder: Builder| builder.open(&paths[2..]).unwrap();
    let before = open(Volume::builder().as_committed(true));
    assert!(before.is_read_only());
    assert_eq!(before.root().read("/committed").unwrap(), b"kept");
    assert!(!before.root().exists("/synced").unwrap());
    assert!(!before.root().exists("/dir").unwrap());
    drop(before);
    let after = open(Volume::builder().read_only(true));
    assert_eq!(after.root().read("/synced").unwrap(), b"logged");
    assert!(after.root().exists("/dir/below").unwrap());
}

#[test]
fn freed_space_stays_in_the_image_if_told_so() {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("image");
    Volume::create(&image, VOLUME_BYTES).unwrap();
    let used = || image.metadata().unwrap().blocks() * 512;
    for (builder, holds) in [
        (Volume::builder().discard(Some(DiscardMode::None)), true),
        (Volume::builder(), false),
    ] {
        let volume = builder.open(&[&image]).unwrap();
        volume.root().write("/big", vec![7; 32 << 20]).unwrap();
        volume.sync().unwrap();
        volume.root().remove_file("/big").unwrap();
        volume.close().unwrap();
        assert_eq!(used() > 32 << 20, holds, "{}", used());
    }
}

#[test]
fn walk_goes_past_what_it_is_told_to_leave_out() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    root.create_dir_all("/top/b/deep").unwrap();
    root.create_subvolume("/top/a").unwrap();
    root.write("/top/a/file", b"").unwrap();
    root.write("/top/b/deep/file", b"").unwrap();
    root.symlink("..", "/top/b/link").unwrap();
    let names = |walk: Walk| -> Vec<String> {
        let paths = walk.map(|entry| entry.unwrap().path());
        paths.map(|path| path.display().to_string()).collect()
    };
    let made = ["b", "b/deep", "b/deep/file", "b/link", "a", "a/file"];
    assert_eq!(
        names(root.walk("top", &WalkOptions::new()).unwrap()),
        made.map(in_top)
    );
    let by_name = WalkOptions::new().sort_by_name(true);
    let sorted = ["a", "a/file", "b", "b/deep", "b/deep/file", "b/link"];
    assert_eq!(
        names(root.walk("top/", &by_name).unwrap()),
        sorted.map(in_top)
    );
    let mut walk = root.walk("/top", &WalkOptions::new()).unwrap();
    let mut seen = Vec::new();
    while let Some(entry) = walk.next() {
        let entry = entry.unwrap();
        seen.push((entry.file_name(), walk.depth()));
        // A link is not followed, and its own attributes change.
        entry.chown(Some(7), None).unwrap();
        if entry.file_name() == "deep" {
            walk.skip_contents();
        }
    }
    let seen: Vec<_> = seen.iter().map(|(name, at)| (name.to_str(), *at)).collect();
    assert_eq!(
        seen,
        [("b", 1), ("deep", 2), ("link", 2), ("a", 1), ("file", 2)]
            .map(|(name, at)| (Some(name), at))
    );
    assert_eq!(root.symlink_metadata("/top/b/link").unwrap().uid(), 7);
    assert_eq!(root.metadata("/top").unwrap().uid(), 0);
    assert_eq!(root.metadata("/top/b/deep/file").unwrap().uid(), 0);
    assert_eq!(
        root.walk("/top/b/link", &WalkOptions::new())
            .unwrap()
            .count(),
        6
    );
    let no_follow = WalkOptions::new().no_follow(true);
    let refused = root.walk("/top/b/link", &no_follow).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotADirectory);
    let refused = root.walk("/top/a/file", &WalkOptions::new()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotADirectory);
}

fn in_top(name: &str) -> String {
    format!("top/{name}")
}

#[test]
fn meter_measures_files_of_its_own_volume() {
    let [one, other] = [(), ()].map(|()| Volume::in_memory(256 << 20).unwrap());
    for volume in [&one, &other] {
        volume.root().write("/file", vec![7; 1 << 20]).unwrap();
        volume.sync().unwrap();
    }
    let mut meter = one.root().usage_meter();
    let mut first = |volume: &Volume| {
        let entry = volume.root().read_dir("/").unwrap().next().unwrap();
        meter.measure(&entry.unwrap())
    };
    assert_eq!(first(&other).unwrap_err().kind(), ErrorKind::CrossesDevices);
    assert_eq!(first(&one).unwrap().unwrap().total_bytes, 1 << 20);
}

/// ENTRY-PATH-1
#[test]
fn paths_of_entries_lead_nowhere_else() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("crafted.img");
    let volume = Volume::create(&image, 256 << 20).unwrap();
    let root = volume.root().clone();
    let crafted: [(&str, &[u8], &str); 3] = [
        ("entry1", b"../../", "..\\x2f..\\x2f"),
        ("entry2", b"/etc/x", "\\x2fetc\\x2fx"),
        ("entry3", b"nul\0..", "nul\\x00.."),
    ];
    let mut dirs = Vec::new();
    for (name, ..) in crafted {
        let dir = format!("/{}", dirs.len());
        root.create_dir_all(format!("{dir}/{name}")).unwrap();
        root.write(format!("{dir}/{name}/file"), b"x").unwrap();
        dirs.push((root.metadata(&dir).unwrap().ino(), dir));
    }
    drop(root);
    volume.close().unwrap();
    for ((ino, _), (name, other, _)) in dirs.iter().zip(crafted) {
        assert!(craft::rename(&image, *ino, name.as_bytes(), other).unwrap() > 0);
    }
    let volume = Volume::open_read_only(&image).unwrap();
    let root = volume.root();
    for ((ino, dir), (_, name, path)) in dirs.iter().zip(crafted) {
        let path = Path::new(dir).join(path);
        let entry = root.read_dir(dir).unwrap().next().unwrap().unwrap();
        assert_eq!(entry.file_name().as_bytes(), name);
        assert_eq!(entry.path(), path);
        let walked = root.walk(dir, &WalkOptions::new()).unwrap();
        let walked: Vec<PathBuf> = walked.map(|entry| entry.unwrap().path()).collect();
        assert_eq!(walked, [path.clone(), path.join("file")]);
        let listed = root.walk_dirs(dir, &WalkOptions::new()).unwrap();
        let listed: Vec<_> = listed.map(|dir| dir.unwrap()).collect();
        let paths: Vec<&Path> = listed.iter().map(|dir| &*dir.path).collect();
        assert_eq!(paths, [Path::new(dir), &path]);
        // Directories are nevertheless found at such paths.
        let itself = listed[1].open().metadata().unwrap();
        assert_eq!(itself.ino(), entry.ino());
        assert_eq!(listed[1].open_parent().unwrap().ino(), *ino);
    }
}
