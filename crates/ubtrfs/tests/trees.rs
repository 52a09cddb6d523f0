//! Directory trees: removed despite failures, copied within and between volumes and the host, listed.

use std::fs;
use std::fs::Permissions;
use std::io::{Cursor, ErrorKind, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use ubtrfs::{
    Access, CopyOptions, Effect, Event, FileFlags, FileKind, ImportOptions, Mkfs, MkfsOptions,
    OpenOptions, Problems, Progress, Reflink, RemoveOptions, Subvolume, Volume, WalkOptions,
    XattrMode,
};

const VOLUME_BYTES: u64 = 256 << 20;

/// The events of a removal, one per line.
#[derive(Default)]
struct Removals {
    lines: Vec<String>,
    ends_at: Option<&'static str>,
}

impl Progress for Removals {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Removed { path, kind } => {
                let end = match kind {
                    FileKind::Directory => "/",
                    _ => "",
                };
                self.lines.push(format!("{}{end}", path.display()));
            }
            Event::Problem(problem) => {
                let path = problem.path.display();
                self.lines.push(format!("{path}: {:?}", problem.kind));
                if self.ends_at.is_some_and(|at| Path::new(at) == problem.path) {
                    return ControlFlow::Break(());
                }
            }
            event => panic!("{event:?}"),
        }
        ControlFlow::Continue(())
    }
}

/// Runs a transfer, and returns its problems.
fn transfer(run: impl FnOnce(&mut Problems) -> ubtrfs::Result<()>) -> ubtrfs::Result<Problems> {
    let mut problems = Problems::default();
    run(&mut problems)?;
    Ok(problems)
}

#[test]
fn removal_goes_past_failures_and_tells_them() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    root.create_dir_all("/top/a").unwrap();
    root.write("/top/a/kept", b"").unwrap();
    root.create_subvolume("/top/sub").unwrap();
    root.write("/top/sub/file", b"").unwrap();
    root.symlink("/top/sub", "/top/link").unwrap();
    let immutable = FileFlags {
        immutable: true,
        ..FileFlags::default()
    };
    root.set_flags("/top/a/kept", immutable).unwrap();
    let removed = |path: &str, options: RemoveOptions, ends_at| {
        let mut removals = Removals {
            ends_at,
            ..Removals::default()
        };
        let ended = root.remove_tree(path, &options, &mut removals);
        (ended.map_err(|error| error.kind()), removals.lines)
    };
    let options = RemoveOptions::new();
    let (ended, failures) = removed("/top", options, Some("/top/a/kept"));
    assert_eq!(ended, Err(ErrorKind::Interrupted));
    assert_eq!(failures, ["/top/a/kept: PermissionDenied"]);

    let (ended, failures) = removed("/top", options, None);
    assert_eq!(ended, Ok(()));
    let wanted = [
        "/top/a/kept: PermissionDenied",
        "/top/a: DirectoryNotEmpty",
        "/top/sub: CrossesDevices",
        "/top/link",
        "/top: DirectoryNotEmpty",
    ];
    assert_eq!(failures, wanted);

    root.set_flags("/top/a/kept", FileFlags::default()).unwrap();
    let refused = |path| removed(path, options, None);
    assert_eq!(refused("/top/sub").0, Err(ErrorKind::CrossesDevices));
    assert_eq!(refused("/").0, Err(ErrorKind::ResourceBusy));
    assert_eq!(refused("/none").0, Err(ErrorKind::NotFound));
    assert_eq!(refused("/top/a/kept/").0, Err(ErrorKind::NotADirectory));
    let (ended, failures) = removed("/top/", options.enter_subvolumes(true), None);
    assert_eq!(ended, Ok(()));
    let wanted = [
        "/top/a/kept",
        "/top/a/",
        "/top/sub/file",
        "/top/sub/",
        "/top//",
    ];
    assert_eq!(failures, wanted);

    root.write("/file", b"").unwrap();
    assert_eq!(removed("/file", options, None).1, ["/file"]);
}

#[test]
fn removal_ends_where_all_would_fail() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let data = volume.root().create_subvolume("/data").unwrap();
    data.create_dir("/dir").unwrap();
    data.write("/dir/one", b"").unwrap();
    data.write("/dir/two", b"").unwrap();
    data.set_read_only(true).unwrap();
    let mut removals = Removals::default();
    let options = RemoveOptions::new();
    let removed = data.remove_tree("/dir", &options, &mut removals);
    // This subvolume is the only one that cannot be changed.
    removed.unwrap();
    assert_eq!(removals.lines.len(), 3, "{:?}", removals.lines);

    data.set_read_only(false).unwrap();
    volume.close().unwrap();
    let mut removals = Removals::default();
    let ended = data.remove_tree("/dir", &options, &mut removals);
    assert!(ended.unwrap_err().is_of_volume());
    assert!(removals.lines.is_empty(), "{:?}", removals.lines);
}

#[test]
fn directory_is_removed_without_reading_subvolumes_of_others() {
    let blocks = [0, 200].map(|others| {
        let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
        let data = volume.root().create_subvolume("/data").unwrap();
        data.create_dir("/dir").unwrap();
        data.create_subvolume("/nested").unwrap();
        for number in 0..others {
            let to = format!("/other{number}");
            volume.root().create_subvolume(to).unwrap();
        }
        let looks = || {
            let stats = volume.engine().node_store().stats();
            stats.hits + stats.misses
        };
        let before = looks();
        data.remove_dir_all("/dir").unwrap();
        looks() - before
    });
    let [few, many] = blocks;
    assert!(many <= few * 2, "{many} blocks, and {few} without others");
}

#[test]
fn error_that_ends_a_copy_has_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "content").unwrap();
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root().clone();
    assert!(
        transfer(|problems| root.copy_from_host(&file, "/file", &CopyOptions::new(), problems))
            .unwrap()
            .is_empty()
    );
    let mut archive = Vec::new();
    assert!(
        transfer(|problems| root.export_tar("/file", &mut archive, problems))
            .unwrap()
            .is_empty()
    );
    volume.close().unwrap();
    let copied =
        transfer(|problems| root.copy_from_host(&file, "/new", &CopyOptions::new(), problems))
            .unwrap_err();
    let unpacked =
        transfer(|problems| root.import_tar(&archive[..], "/", &ImportOptions::new(), problems))
            .unwrap_err();
    for error in [copied, unpacked] {
        let text = error.to_string();
        assert!(text.ends_with("': the volume is closed"), "{text}");
    }
}

/// The events of a copy.
#[derive(Default)]
struct Met {
    begun: Vec<PathBuf>,
    bytes: u64,
    failed: Vec<(PathBuf, ErrorKind)>,
}

impl Progress for Met {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Begin { path } => self.begun.push(path.to_path_buf()),
            Event::Advance { bytes } => self.bytes += bytes,
            Event::Problem(problem) => {
                assert_eq!(problem.effect, Effect::Failed, "{problem:?}");
                self.failed.push((problem.path.clone(), problem.kind));
            }
            event => panic!("{event:?}"),
        }
        ControlFlow::Continue(())
    }
}

/// Creates a tree with a file of mode 0666 owned by user 7, a link and a directory.
fn fill(root: &Subvolume) {
    root.create_dir_all("/tree/dir").unwrap();
    root.write("/tree/file", vec![7; 100_000]).unwrap();
    let mode = Permissions::from_mode(0o666);
    root.set_permissions("/tree/file", mode).unwrap();
    root.lchown("/tree/file", Some(7), Some(7)).unwrap();
    root.symlink("file", "/tree/link").unwrap();
    root.symlink("tree", "/link").unwrap();
}

#[test]
fn copy_does_as_the_options_say() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    fill(root);
    let mut met = Met::default();
    let as_others = CopyOptions::new().preserve(false).umask(0o022);
    let copied = root.copy_tree("/tree/file", root, "/plain", &as_others, &mut met);
    copied.unwrap();
    let plain = root.metadata("/plain").unwrap();
    assert_eq!((plain.mode() & 0o7777, plain.uid()), (0o644, 0));
    assert_eq!(met.bytes, 0, "the data is shared");

    // An existing file is overwritten and keeps its owner, or it is replaced.
    root.lchown("/plain", Some(9), None).unwrap();
    let apart = as_others.clone().reflink(Reflink::Never).follow(true);
    let copied = root.copy_tree("/tree/link", root, "/plain", &apart, &mut met);
    copied.unwrap();
    assert_eq!(root.metadata("/plain").unwrap().uid(), 9);
    assert_eq!(met.bytes, 100_000);
    let kept = CopyOptions::new();
    let copied = root.copy_tree("/tree/file", root, "/plain", &kept, &mut met);
    copied.unwrap();
    assert_eq!(root.metadata("/plain").unwrap().uid(), 7);

    // The contents of a link's target. A directory in place of a file stays, and the rest is copied.
    root.create_dir_all("/into/file").unwrap();
    let mut met = Met::default();
    let contents = CopyOptions::new().follow(true).contents(true);
    let copied = root.copy_tree("/link", root, "/into", &contents, &mut met);
    copied.unwrap();
    assert_eq!(
        met.begun,
        ["/link/dir", "/link/file", "/link/link"].map(Path::new)
    );
    assert_eq!(met.failed, [("/link/file".into(), ErrorKind::IsADirectory)]);
    assert!(root.symlink_metadata("/into/link").unwrap().is_symlink());
    assert!(root.metadata("/into/dir").unwrap().is_dir());

    for (from, to) in [("/tree", "/tree/dir"), ("/", "/into"), ("/tree", "/tree")] {
        let refused = root.copy_tree(from, root, to, &contents, &mut met);
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{from}");
        let reason = refused.reason().to_string();
        assert!(reason.contains("into itself"), "{reason}");
    }
    for (from, to) in [("/plain", "/into"), ("/tree", "/plain")] {
        let refused = root.copy_tree(from, root, to, &contents, &mut met);
        assert_eq!(
            refused.unwrap_err().kind(),
            ErrorKind::NotADirectory,
            "{from}"
        );
    }
}

#[test]
fn copy_goes_to_another_volume_and_names_what_finds_no_space() {
    let volume = Volume::in_memory(2 * VOLUME_BYTES).unwrap();
    fill(volume.root());
    let other = Volume::in_memory(128 << 20).unwrap();
    let sub = other.root().create_subvolume("/sub").unwrap();
    let mut met = Met::default();
    let options = CopyOptions::new();
    let copy = |to: &str, options: &CopyOptions, met: &mut Met| {
        volume.root().copy_tree("/tree", &sub, to, options, met)
    };
    copy("/copy", &options, &mut met).unwrap();
    assert_eq!(met.bytes, 100_000);
    assert_eq!(sub.read("/copy/link").unwrap(), vec![7; 100_000]);
    assert_eq!(sub.metadata("/copy/file").unwrap().uid(), 7);

    let always = options.clone().reflink(Reflink::Always);
    copy("/shared", &always, &mut met).unwrap();
    let wanted = [("/tree/file".into(), ErrorKind::Unsupported)];
    assert_eq!(met.failed, wanted, "data of another volume is not shared");

    volume
        .root()
        .write("/tree/big", vec![7; 150 << 20])
        .unwrap();
    let shown = options.shown_as("other.img:/full");
    let mut met = Met::default();
    let refused = copy("/full", &shown, &mut met).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::StorageFull);
    assert!(refused.is_of_volume() && met.failed.is_empty());
    let reason = refused.reason().to_string();
    assert!(reason.contains("'other.img:/full/"), "{reason}");
}

#[test]
fn copies_go_to_and_from_the_host_as_the_options_say() {
    let scratch = tempfile::tempdir().unwrap();
    let host = |name: &str| scratch.path().join(name);
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    fill(root);
    let mut met = Met::default();
    let options = CopyOptions::new().preserve(false);
    let contents = options.clone().contents(true).follow(true);
    fs::create_dir_all(host("into/file")).unwrap();
    let copied = root.copy_to_host("/link", host("into"), &contents, &mut met);
    copied.unwrap();
    assert_eq!(met.failed, [("/link/file".into(), ErrorKind::IsADirectory)]);
    assert!(host("into/link").symlink_metadata().unwrap().is_symlink());
    let copied = root.copy_to_host("/tree/file", host("file"), &options, &mut met);
    copied.unwrap();
    assert_eq!(fs::read(host("file")).unwrap(), vec![7; 100_000]);
    let refused = root.copy_to_host("/tree", host("none/tree"), &options, &mut met);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotFound);

    symlink("file", host("named")).unwrap();
    let mut met = Met::default();
    let follow = options.clone().follow(true).umask(0o077);
    let copied = root.copy_from_host(host("named"), "/named", &follow, &mut met);
    copied.unwrap();
    assert_eq!(met.begun, [host("named")]);
    let named = root.symlink_metadata("/named").unwrap();
    assert_eq!((named.mode() & 0o777, named.len()), (0o600, 100_000));
    fs::remove_dir(host("into/file")).unwrap();
    let copied = root.copy_from_host(host("into"), "/tree/dir", &contents, &mut met);
    copied.unwrap();
    assert!(
        root.symlink_metadata("/tree/dir/link")
            .unwrap()
            .is_symlink()
    );
    let refused = root.copy_from_host(host("file"), "/tree", &contents, &mut met);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotADirectory);
}

#[test]
fn data_goes_into_an_open_file_or_a_pipe() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    fill(root);
    let options = CopyOptions::new();
    let mut met = Met::default();
    // A hole, then a sector of data.
    root.write("/holes", b"").unwrap();
    root.open_with("/holes", &OpenOptions::new().write(true))
        .unwrap()
        .write_all_at(b"end", 8192)
        .unwrap();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let writer = fs::File::from(std::os::fd::OwnedFd::from(writer));
    root.copy_to_file("/holes", writer, &options, &mut met)
        .unwrap();
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, [&[0; 8192][..], b"end"].concat());

    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"longer than what follows").unwrap();
    let mut refused = |from: &str| {
        let file = file.try_clone().unwrap();
        let copied = root.copy_to_file(from, file, &options, &mut met);
        copied.map_err(|error| error.kind())
    };
    assert_eq!(refused("/tree"), Err(ErrorKind::IsADirectory));
    assert_eq!(refused("/tree/link"), Err(ErrorKind::InvalidInput));
    assert_eq!(refused("/holes"), Ok(()));
    assert_eq!(file.metadata().unwrap().len(), 8195);
    assert!(met.failed.is_empty());
}

#[test]
fn directories_are_listed_as_a_whole_before_those_in_them() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    for dir in ["/top/b/below", "/top/a", "/top/.hidden"] {
        root.create_dir_all(dir).unwrap();
    }
    for file in ["/top/z", "/top/a/file", "/top/.hidden/file"] {
        root.write(file, b"").unwrap();
    }
    root.create_subvolume("/top/b/sub").unwrap();
    root.symlink("top", "/link").unwrap();
    let walked = |path: &str, options: WalkOptions, skipped: &str| {
        let mut walk = root.walk_dirs(path, &options).unwrap();
        let mut lines = Vec::new();
        while let Some(dir) = walk.next() {
            let dir = dir.unwrap();
            assert!(dir.failure.is_none());
            let names = dir.entries.iter().map(|entry| entry.file_name());
            let names = names.map(|name| name.into_string().unwrap());
            let names = names.collect::<Vec<_>>().join(" ");
            lines.push(format!("{}: {names}", dir.path.display()));
            if *dir.path == *Path::new(skipped) {
                walk.skip_below();
            }
        }
        lines
    };
    let named = WalkOptions::new().sort_by_name(true);
    let wanted = [
        "/top: .hidden a b z",
        "/top/.hidden: file",
        "/top/a: file",
        "/top/b: below sub",
        "/top/b/below: ",
        "/top/b/sub: ",
    ];
    assert_eq!(walked("/top", named, ""), wanted);
    let hidden = named.skip_hidden(true);
    let wanted = ["/link/: a b z", "/link/a: file", "/link/b: below sub"];
    assert_eq!(walked("/link/", hidden, "/link/b"), wanted);
    // In the order of creation.
    assert_eq!(
        walked("/top", WalkOptions::new(), "/top"),
        ["/top: b a .hidden z"]
    );

    for (path, options) in [("/top/z", named), ("/link", named.no_follow(true))] {
        let refused = root.walk_dirs(path, &options).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotADirectory, "{path}");
    }
}

#[test]
fn entry_knows_the_attributes_of_its_file() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    let data = root.create_subvolume("/data").unwrap();
    data.write("/file", b"").unwrap();
    data.set_xattr("/file", "user.note", b"value", XattrMode::Any)
        .unwrap();
    let entry = data.read_dir("/").unwrap().next().unwrap().unwrap();
    assert_eq!(entry.xattr("user.note").unwrap(), Some(b"value".to_vec()));
    assert_eq!(entry.xattr("user.none").unwrap(), None);
    // The empty directory of a nested subvolume in a snapshot has the same inode number as in the kernel.
    let snapshot = root.snapshot("/", "/snapshot", Access::ReadOnly).unwrap();
    let entry = snapshot.read_dir("/").unwrap().next().unwrap().unwrap();
    assert_eq!(entry.file_name(), "data");
    assert_eq!(entry.ino(), 2);
    assert_eq!(entry.metadata().unwrap().ino(), 2);
}

/// Reads the umask of this process before each file of a copy.
#[derive(Default)]
struct SeenUmasks(Vec<u32>);

impl Progress for SeenUmasks {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Begin { .. } => self.0.push(umask()),
            Event::Advance { .. } => {}
            event => panic!("{event:?}"),
        }
        ControlFlow::Continue(())
    }
}

fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    u32::from_str_radix(line.unwrap().trim(), 8).unwrap()
}

#[test]
fn copy_to_the_host_heeds_the_umask_and_leaves_it_alone() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    root.create_dir("/dir").unwrap();
    root.write("/dir/file", b"data").unwrap();
    for path in ["/dir", "/dir/file"] {
        let mode = Permissions::from_mode(0o777);
        root.set_permissions(path, mode).unwrap();
    }
    let before = umask();
    let folder = tempfile::tempdir().unwrap();
    for (preserve, mode) in [(true, 0o777), (false, 0o777 & !before)] {
        let to = folder.path().join(format!("preserved-{preserve}"));
        let options = CopyOptions::new().preserve(preserve);
        let mut seen = SeenUmasks::default();
        root.copy_to_host("/dir", &to, &options, &mut seen).unwrap();
        assert_eq!(seen.0, [before; 2]);
        for path in [to.clone(), to.join("file")] {
            let found = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(found & 0o7777, mode, "{}", path.display());
        }
    }
    assert_eq!(umask(), before);
}

#[test]
fn damaged_range_is_copied_as_zeros_and_reported() {
    const SECTOR: usize = 4096;
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let volume = Volume::create(&image, VOLUME_BYTES).unwrap();
    let mut content = vec![1; 16 * SECTOR];
    content[2 * SECTOR..3 * SECTOR].fill(0xa7);
    volume.root().write("/file", &content).unwrap();
    volume.close().unwrap();
    let bytes = fs::read(&image).unwrap();
    let mut sectors = bytes.chunks(SECTOR);
    let damaged = sectors.position(|sector| sector.iter().all(|byte| *byte == 0xa7));
    let file = fs::File::options().write(true).open(&image).unwrap();
    let at = damaged.unwrap() * SECTOR;
    file.write_all_at(b"x", at as u64).unwrap();

    let volume = Volume::open_read_only(&image).unwrap();
    let other = Volume::in_memory(VOLUME_BYTES).unwrap();
    let mut failures = Problems::default();
    let options = CopyOptions::new();
    let copied = volume
        .root()
        .copy_tree("/file", other.root(), "/copy", &options, &mut failures);
    copied.unwrap();
    content[2 * SECTOR..3 * SECTOR].fill(0);
    assert_eq!(other.root().read("/copy").unwrap(), content);
    let [problem] = failures.listed() else {
        panic!("{failures:?}");
    };
    assert_eq!(problem.path, Path::new("/file"));
    assert_eq!(problem.effect, Effect::Incomplete, "{problem:?}");
    assert_eq!(problem.kind, ErrorKind::InvalidData);
}

#[test]
fn problems_of_archives_have_kinds() {
    const SOCKET: u32 = 0o140_644;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("archive.tar");
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    root.create_dir("/dir").unwrap();
    root.create_node("/dir/socket", SOCKET, 0).unwrap();
    root.write("/dir/file", b"content").unwrap();
    let mut failures = Problems::default();
    let archive = fs::File::create(&path).unwrap();
    root.export_tar("/dir", archive, &mut failures).unwrap();
    let [problem] = failures.listed() else {
        panic!("{failures:?}");
    };
    assert_eq!(problem.path, Path::new("dir/socket"));
    assert_eq!(problem.kind, ErrorKind::Unsupported);
    assert_eq!(problem.effect, Effect::Unsupported);

    root.create_dir_all("/into/dir/file/kept").unwrap();
    let mut failures = Problems::default();
    let archive = fs::File::open(&path).unwrap();
    let options = ImportOptions::new();
    let unpacked = root.import_tar(archive, "/into", &options, &mut failures);
    unpacked.unwrap();
    let [problem] = failures.listed() else {
        panic!("{failures:?}");
    };
    assert_eq!(problem.path, Path::new("dir/file"));
    assert_eq!(problem.kind, ErrorKind::DirectoryNotEmpty);
    assert_eq!(problem.effect, Effect::Failed);
}

/// A reader that returns a byte at a time, and is interrupted before each.
struct Slow<'a> {
    bytes: &'a [u8],
    was_interrupted: bool,
}

impl Read for Slow<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.was_interrupted = !self.was_interrupted;
        if self.was_interrupted {
            return Err(ErrorKind::Interrupted.into());
        }
        let len = buf.len().min(1);
        self.bytes.read(&mut buf[..len])
    }
}

#[test]
fn archive_of_any_reader_is_unpacked_and_fills_a_volume() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    fill(root);
    let mut archive = Vec::new();
    assert!(
        transfer(|problems| root.export_tar("/tree", &mut archive, problems))
            .unwrap()
            .is_empty()
    );
    let slow = Slow {
        bytes: &archive,
        was_interrupted: false,
    };
    let unpacked = Volume::in_memory(VOLUME_BYTES).unwrap();
    assert!(
        transfer(|problems| unpacked
            .root()
            .import_tar(slow, "/", &ImportOptions::new(), problems))
        .unwrap()
        .is_empty()
    );

    let filled = Mkfs::new(MkfsOptions::default()).fill_from_reader(Cursor::new(archive));
    let filled = Volume::builder().mkfs(filled).in_memory(VOLUME_BYTES);
    for volume in [unpacked, filled.unwrap()] {
        let root = volume.root();
        assert_eq!(root.read("/tree/file").unwrap(), vec![7; 100_000]);
        assert_eq!(root.read_link("/tree/link").unwrap(), Path::new("file"));
        assert_eq!(root.metadata("/tree/file").unwrap().uid(), 7);
    }
}
