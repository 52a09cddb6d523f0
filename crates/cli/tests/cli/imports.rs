//! `import`: archives of GNU tar and of our export reproduce the original files, and hostile archives write
//! only below their destination.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ubtrfs_sim::Scratch;
use ubtrfs_sim::fill::Scale;
use ubtrfs_sim::kernel::{KernelVolume, Profile, or_skip};
use ubtrfs_sim::manifest::{Field, Kind, Manifest, assert_same};
use ubtrfs_sim::matrix::Case;
use ubtrfs_sim::seed;

use crate::edits::write;
use crate::process::{empty_volume, fail, judged, location, other_devices, succeed, ubtrfs};

/// Fields of a file that an archive does not carry.
const NOT_ARCHIVED: [Field; 4] = [Field::Ino, Field::Ctime, Field::Btime, Field::DirSize];

fn import(archive: &Path, image: &Path) -> Manifest {
    succeed(["import".into(), archive.into(), location(image, "")]);
    judged(image)
}

/// Archives a directory's contents with GNU tar and some options.
fn tar(options: &[&str], dir: &Path, archive: &Path) {
    let made = Command::new("tar")
        .args(["--create", "--numeric-owner", "--sparse"])
        .arg("--warning=no-file-ignored")
        .args(options)
        .arg("--file")
        .arg(archive)
        .arg("-C")
        .arg(dir)
        .arg(".")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{options:?}: {stderr}");
}

#[test]
fn archives_become_what_they_were_made_of() {
    if !or_skip("archives_become_what_they_were_made_of") {
        return;
    }
    // Tools that open by path cannot create paths longer than PATH_MAX.
    let scale = Scale {
        beyond_path_max: false,
        ..Scale::small()
    };
    let case = Case::of_profile(Profile::Single);
    let filled = case.build(&scale, seed("imports")).unwrap();
    let mut expected = filled.manifest.clone();
    // An archive contains no sockets.
    expected
        .entries
        .retain(|entry| entry.stat.kind != Kind::Socket);

    let (scratch, ours) = empty_volume();
    let archive = scratch.path().join("ours.tar");
    let exported = ubtrfs()
        .args([
            "export".into(),
            "--tar".into(),
            location(&filled.volume.devices()[0], ""),
        ])
        .args(other_devices(filled.volume.devices()))
        .stdout(File::create(&archive).unwrap())
        .status();
    assert!(exported.unwrap().success());
    assert_same("export", &expected, &import(&archive, &ours), &NOT_ARCHIVED);

    let (scratch, theirs) = empty_volume();
    let archive = scratch.path().join("theirs.tar");
    let mount = filled.volume.mount_ro().unwrap();
    let options = ["--format=posix", "--xattrs", "--xattrs-include=*", "--acls"];
    tar(&options, mount.path(), &archive);
    assert_same("tar", &expected, &import(&archive, &theirs), &NOT_ARCHIVED);

    // With ACLs only as text.
    let (scratch, theirs) = empty_volume();
    let archive = scratch.path().join("text.tar");
    let options = [
        "--format=posix",
        "--xattrs",
        "--xattrs-exclude=system.*",
        "--acls",
    ];
    tar(&options, mount.path(), &archive);
    mount.unmount().unwrap();
    assert_same(
        "ACLs as text",
        &expected,
        &import(&archive, &theirs),
        &NOT_ARCHIVED,
    );
}

/// Fills a directory with files that old formats can store, and files with holes.
fn small_tree(dir: &Path) {
    use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
    let long = "long".repeat(40);
    fs::create_dir_all(dir.join("sub").join(&long)).unwrap();
    fs::write(dir.join("sub").join(&long).join("file"), "contents").unwrap();
    fs::write(dir.join("empty"), "").unwrap();
    fs::hard_link(dir.join("empty"), dir.join("sub/other")).unwrap();
    symlink(format!("{long}/{long}/target"), dir.join("link")).unwrap();
    let sparse = File::create(dir.join("sparse")).unwrap();
    sparse.set_len(30 << 20).unwrap();
    for part in 0..40 {
        let bytes = [part as u8 + 1; 4096];
        sparse.write_all_at(&bytes, part << 19).unwrap();
    }
    fs::set_permissions(dir.join("sub"), fs::Permissions::from_mode(0o2751)).unwrap();
    for name in ["sub", "empty", "sparse"] {
        let set = Command::new("touch")
            .args(["-d", "@1000000000"])
            .arg(dir.join(name))
            .status();
        assert!(set.unwrap().success());
    }
}

#[test]
fn every_format_of_gnu_tar_is_read() {
    if !or_skip("every_format_of_gnu_tar_is_read") {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let dir = scratch.path().join("tree");
    fs::create_dir(&dir).unwrap();
    small_tree(&dir);
    let expected = Manifest::of_dir(&dir).unwrap();
    let formats: [&[&str]; 6] = [
        &["--format=gnu"],
        &["--format=oldgnu"],
        &["--format=posix", "--sparse-version=0.0"],
        &["--format=posix", "--sparse-version=0.1"],
        &["--format=posix", "--sparse-version=1.0"],
        &["--format=gnu", "--label=name", "--blocking-factor=1"],
    ];
    for options in formats {
        let archive = scratch.path().join("archive.tar");
        tar(options, &dir, &archive);
        let (_scratch, image) = empty_volume();
        let found = import(&archive, &image);
        let ignored = [&NOT_ARCHIVED[..], &[Field::Atime, Field::Nlink]].concat();
        // Other formats store whole seconds.
        let ignored = match options[0] {
            "--format=posix" => ignored,
            _ => [&ignored[..], &[Field::Mtime]].concat(),
        };
        assert_same(&format!("{options:?}"), &expected, &found, &ignored);
        let entry = found.get(b"sub").unwrap();
        assert_eq!(entry.stat.mtime.seconds, 1_000_000_000, "{options:?}");
        let volume = KernelVolume::of_files(vec![image], Scratch::new().unwrap());
        let mount = volume.mount_ro().unwrap();
        let sparse = mount.path().join("sparse").metadata().unwrap();
        let bytes = std::os::unix::fs::MetadataExt::blocks(&sparse) * 512;
        assert_eq!(bytes, 40 * 4096, "{options:?}");
    }
}

/// An archive with members that no tar would create.
struct Crafted {
    builder: tar::Builder<Vec<u8>>,
}

impl Crafted {
    fn new() -> Crafted {
        Crafted {
            builder: tar::Builder::new(Vec::new()),
        }
    }

    fn add(&mut self, path: &str, kind: tar::EntryType, link: &str, data: &[u8]) -> &mut Crafted {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(data.len() as u64);
        header.set_cksum();
        self.builder.append(&header, data).unwrap();
        self
    }

    fn file(&mut self, path: &str, data: &str) -> &mut Crafted {
        self.add(path, tar::EntryType::Regular, "", data.as_bytes())
    }

    fn link(&mut self, path: &str, target: &str) -> &mut Crafted {
        self.add(path, tar::EntryType::Symlink, target, b"")
    }

    fn hard_link(&mut self, path: &str, target: &str) -> &mut Crafted {
        self.add(path, tar::EntryType::Link, target, b"")
    }

    fn dir(&mut self, path: &str) -> &mut Crafted {
        self.add(path, tar::EntryType::Directory, "", b"")
    }

    /// Imports from a pipe into the directory "in".
    fn import(self, image: &Path) -> Output {
        import_bytes(&self.builder.into_inner().unwrap(), image)
    }
}

fn import_bytes(bytes: &[u8], image: &Path) -> Output {
    let mut child = ubtrfs()
        .args([
            "import".into(),
            "--tar".into(),
            "-".into(),
            location(image, "in"),
        ])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    // The reader may end early if the data is not an archive.
    let _ = std::io::Write::write_all(&mut input, bytes);
    drop(input);
    child.wait_with_output().unwrap()
}

/// Lists all paths below the root, one per line.
fn listed(image: &Path) -> Vec<String> {
    let list = succeed([
        "ls".into(),
        "-RA".into(),
        "--json".into(),
        location(image, ""),
    ]);
    let list: serde_json::Value = serde_json::from_slice(&list).unwrap();
    let files = list["ls"].as_array().unwrap().iter();
    let mut paths: Vec<String> = files
        .map(|file| file["path"].as_str().unwrap().to_owned())
        .collect();
    paths.sort();
    paths
}

/// Creates a volume with a directory to import into, and other files next to it that must not be touched.
fn volume_with_victims() -> (Scratch, std::path::PathBuf) {
    let (scratch, image) = empty_volume();
    succeed([
        "mkdir".into(),
        location(&image, "in"),
        location(&image, "out"),
    ]);
    write(&image, "victim", b"untouched");
    write(&image, "out/victim", b"untouched");
    (scratch, image)
}

/// UNPACK-1, and UNPACK-2 for members that are refused.
#[test]
fn members_do_not_leave_their_directory() {
    let (_scratch, image) = volume_with_victims();
    let mut archive = Crafted::new();
    archive
        .file("../victim", "evil")
        .file("a/../../victim", "evil")
        .file("/victim", "evil")
        .link("up", "..")
        .file("up/victim", "through a link")
        .link("root", "/out")
        .dir("out")
        .file("root/victim", "through a link")
        .link("deep", "a/b/../../../../out")
        .dir("a")
        .dir("a/b")
        .file("deep/other", "through a link")
        .hard_link("stolen", "../victim")
        .hard_link("again", "up/victim")
        .link("loop", "loop")
        .file("loop/x", "nowhere")
        .file("last", "in its place");
    let output = archive.import(&image);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    for (path, reason) in [
        ("../victim", "leads out of the directory"),
        ("a/../../victim", "leads out of the directory"),
        ("stolen", "leads out of the directory"),
        ("loop/x", "too many levels of symbolic links"),
    ] {
        let said = stderr
            .lines()
            .find(|line| line.contains(&format!("'{path}'")));
        assert!(
            said.is_some_and(|line| line.contains(reason)),
            "{path}: {stderr}"
        );
    }
    for victim in ["victim", "out/victim"] {
        assert_eq!(
            succeed(["cat".into(), location(&image, victim)]),
            b"untouched"
        );
    }
    let cat = |path: &str| succeed(["cat".into(), location(&image, path)]);
    assert_eq!(cat("in/victim"), b"through a link");
    assert_eq!(cat("in/again"), b"through a link");
    assert_eq!(cat("in/out/victim"), b"through a link");
    assert_eq!(cat("in/out/other"), b"through a link");
    assert_eq!(cat("in/last"), b"in its place");
    let outside: Vec<String> = listed(&image)
        .into_iter()
        .filter(|path| !path.starts_with("/in"))
        .collect();
    assert_eq!(outside, ["/", "/out", "/out/victim", "/victim"]);
    succeed(["check".as_ref(), "-q".as_ref(), image.as_os_str()]);
}

#[test]
fn later_members_replace_earlier_ones_and_what_was_there() {
    let (_scratch, image) = volume_with_victims();
    write(&image, "in/old", b"old");
    succeed([
        "mkdir".into(),
        "-p".into(),
        location(&image, "in/dir/full"),
        location(&image, "in/empty"),
    ]);
    let mut archive = Crafted::new();
    archive
        .file("old", "new")
        .file("twice", "first")
        .file("twice", "second")
        .hard_link("name", "twice")
        .file("empty", "a file now")
        .file("dir", "not a file")
        .link("link", "twice")
        .file("link", "no link any more")
        .file("becomes", "x")
        .dir("becomes")
        .file("becomes/full", "y")
        .hard_link("missing", "nothing");
    let output = archive.import(&image);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr.lines().count(), 2, "{stderr}");
    assert!(stderr.contains("'dir': it would replace a directory that is not empty"));
    assert!(stderr.contains("'missing': it is another name of 'nothing'"));
    let cat = |path: &str| succeed(["cat".into(), location(&image, path)]);
    for (path, contents) in [
        ("in/old", "new"),
        ("in/twice", "second"),
        ("in/name", "second"),
        ("in/empty", "a file now"),
        ("in/link", "no link any more"),
        ("in/becomes/full", "y"),
    ] {
        assert_eq!(cat(path), contents.as_bytes(), "{path}");
    }
    succeed(["check".as_ref(), "-q".as_ref(), image.as_os_str()]);
}

#[test]
fn a_file_without_its_acl_is_not_said_to_be_missing() {
    let (_scratch, image) = volume_with_victims();
    let mut archive = Crafted::new();
    let acl = [("SCHILY.acl.access", &b"no acl"[..])];
    archive.builder.append_pax_extensions(acl).unwrap();
    archive.file("file", "content");
    let output = archive.import(&image);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("'file': its ACL is left out"), "{stderr}");
    assert!(!stderr.contains("cannot unpack"), "{stderr}");
    let content = succeed(["cat".into(), location(&image, "in/file")]);
    assert_eq!(content, b"content");
}

#[test]
fn a_file_that_is_no_archive_is_named() {
    let (scratch, image) = volume_with_victims();
    let refused = |bytes: &[u8], message: &str| {
        let output = import_bytes(bytes, &image);
        assert_eq!(output.status.code(), Some(1));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(message), "{stderr}");
    };
    refused(b"", "not a tar archive");
    refused(&[7; 2048], "not a tar archive");
    let mut archive = Crafted::new();
    archive
        .file("first", "kept")
        .file("second", &"x".repeat(5000));
    let bytes = archive.builder.into_inner().unwrap();
    refused(&bytes[..3000], "ends inside the member");
    assert_eq!(
        succeed(["cat".into(), location(&image, "in/first")]),
        b"kept"
    );

    // A name that grows from header to header, and a map that never ends.
    let mut archive = Crafted::new();
    let part = vec![b'x'; 40 << 20];
    for _ in 0..2 {
        archive.add("long", tar::EntryType::GNULongName, "", &part);
    }
    refused(&archive.builder.into_inner().unwrap(), "is too long");

    let packed = scratch.path().join("packed.tar.gz");
    fs::write(&packed, b"\x1f\x8b\x08rest").unwrap();
    let into = location(&image, "in");
    fail(["import".into(), packed.into(), into.clone()], "gzip: ");
    let none = scratch.path().join("none.tar");
    fail(["import".into(), none.into(), into], "No such file");
    let args = ["import".into(), "-".into(), location(&image, "victim")];
    fail::<_, OsString>(args, "is not a directory");
    succeed(["check".as_ref(), "-q".as_ref(), image.as_os_str()]);
}

#[test]
fn compressed_archives_are_unpacked_from_files_and_pipes() {
    let (scratch, image) = empty_volume();
    let (tree, packed) = (scratch.path().join("tree"), scratch.path().join("v.tar.gz"));
    fs::create_dir(&tree).unwrap();
    let content = vec![b'x'; 3 << 20];
    fs::write(tree.join("file"), &content).unwrap();
    let tar = Command::new("tar")
        .arg("-czf")
        .args([&packed, Path::new("-C"), &tree])
        .arg(".")
        .status();
    assert!(tar.unwrap().success());
    for (name, archive) in [("one", packed.as_os_str()), ("two", "-".as_ref())] {
        succeed(["mkdir".into(), location(&image, name)]);
        let mut cat = Command::new("cat")
            .arg(&packed)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = ubtrfs()
            .args(["import".into(), archive.to_owned(), location(&image, name)])
            .stdin(cat.stdout.take().unwrap())
            .output()
            .unwrap();
        cat.wait().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && stderr.is_empty(), "{stderr}");
        let file = location(&image, &format!("{name}/file"));
        assert!(succeed(["cat".into(), file]) == content);
    }
}
