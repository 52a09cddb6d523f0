//! Whole trees with options and an observer: removed past failures.

use std::io::ErrorKind;
use std::path::Path;

use ubtrfs::{Error, FileFlags, FileType, RemovalObserver, RemoveOptions, Volume};

const VOLUME_BYTES: u64 = 256 << 20;

/// The news of a removal, a line each.
#[derive(Default)]
struct Removals {
    lines: Vec<String>,
    ends_at: Option<&'static str>,
}

impl RemovalObserver for Removals {
    fn removed(&mut self, path: &Path, file_type: FileType) {
        let is_dir = if file_type.is_dir() { "/" } else { "" };
        self.lines.push(format!("{}{is_dir}", path.display()));
    }

    fn failed(&mut self, path: &Path, error: Error) -> ubtrfs::Result<()> {
        assert_eq!(error.path(), Some(path));
        let line = format!("{}: {:?}", path.display(), error.kind());
        self.lines.push(line);
        match self.ends_at {
            Some(at) if Path::new(at) == path => Err(error),
            _ => Ok(()),
        }
    }
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
        let ended = root.remove_tree_with(path, &options, &mut removals);
        (ended.map_err(|error| error.kind()), removals.lines)
    };
    let options = RemoveOptions::new();
    let (ended, told) = removed("/top", options, Some("/top/a/kept"));
    assert_eq!(ended, Err(ErrorKind::PermissionDenied));
    assert_eq!(told, ["/top/a/kept: PermissionDenied"]);

    let (ended, told) = removed("/top", options, None);
    assert_eq!(ended, Ok(()));
    let wanted = [
        "/top/a/kept: PermissionDenied",
        "/top/a: DirectoryNotEmpty",
        "/top/sub: CrossesDevices",
        "/top/link",
        "/top: DirectoryNotEmpty",
    ];
    assert_eq!(told, wanted);

    root.set_flags("/top/a/kept", FileFlags::default()).unwrap();
    let refused = |path| removed(path, options, None);
    assert_eq!(refused("/top/sub").0, Err(ErrorKind::CrossesDevices));
    assert_eq!(refused("/").0, Err(ErrorKind::ResourceBusy));
    assert_eq!(refused("/none").0, Err(ErrorKind::NotFound));
    assert_eq!(refused("/top/a/kept/").0, Err(ErrorKind::NotADirectory));
    let (ended, told) = removed("/top/", options.enter_subvolumes(true), None);
    assert_eq!(ended, Ok(()));
    let wanted = [
        "/top/a/kept",
        "/top/a/",
        "/top/sub/file",
        "/top/sub/",
        "/top//",
    ];
    assert_eq!(told, wanted);

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
    let told = data.remove_tree_with("/dir", &options, &mut removals);
    // Only this subvolume cannot be changed.
    told.unwrap();
    assert_eq!(removals.lines.len(), 3, "{:?}", removals.lines);

    data.set_read_only(false).unwrap();
    volume.close().unwrap();
    let mut removals = Removals::default();
    let ended = data.remove_tree_with("/dir", &options, &mut removals);
    assert!(ended.unwrap_err().is_of_volume());
    assert!(removals.lines.is_empty(), "{:?}", removals.lines);
}
