//! The files that `cp -a` and `export --tar` produce are the same as on the kernel's mount.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use ubtrfs_sim::fill::Scale;
use ubtrfs_sim::kernel::{KernelMount, KernelVolume, MkfsSpec, Profile, or_skip};
use ubtrfs_sim::manifest::{Field, Manifest, assert_same};
use ubtrfs_sim::matrix::{Case, Filled};
use ubtrfs_sim::seed;

use crate::process::{fail, location, other_devices, succeed, ubtrfs};

/// Fields in which a copy differs from its original.
const NOT_COPIED: [Field; 4] = [Field::Ino, Field::Ctime, Field::Btime, Field::DirSize];

/// A filled volume made by the kernel, and an empty one for the copy. The destination is also a btrfs, so
/// that link counts of directories and attributes can be compared.
struct Place {
    filled: Filled,
    _empty: KernelVolume,
    destination: KernelMount,
}

impl Place {
    fn new(profile: Profile, scale: &Scale, name: &str) -> Place {
        let filled = Case::of_profile(profile).build(scale, seed(name)).unwrap();
        let empty = KernelVolume::make(&MkfsSpec::default()).unwrap();
        let destination = empty.mount("").unwrap();
        Place {
            filled,
            _empty: empty,
            destination,
        }
    }

    fn image(&self) -> &Path {
        &self.filled.volume.devices()[0]
    }

    fn out(&self) -> std::path::PathBuf {
        self.destination.path().join("out")
    }

    fn export(&self, path: &str, tar_args: &[&str]) {
        fs::create_dir(self.out()).unwrap();
        let mut export = ubtrfs()
            .args(["export", "--tar"])
            .arg(location(self.image(), path))
            .args(other_devices(self.filled.volume.devices()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let status = Command::new("tar")
            .args(["--extract", "--preserve-permissions", "--numeric-owner"])
            .args(["--warning=no-timestamp", "--delay-directory-restore"])
            .args(tar_args)
            .arg("-C")
            .arg(self.out())
            .stdin(export.stdout.take().unwrap())
            .status()
            .unwrap();
        assert!(status.success(), "tar: {status}");
        // Sockets are omitted with a warning, which is no failure.
        assert!(export.wait().unwrap().success());
    }
}

/// COPY-3: the times of directories are compared as well.
#[test]
fn cp_gives_what_the_kernel_shows() {
    if !or_skip("cp_gives_what_the_kernel_shows") {
        return;
    }
    let place = Place::new(Profile::Single, &Scale::small(), "cp");
    succeed([
        "cp".as_ref(),
        "-a".as_ref(),
        place.image().as_os_str(),
        place.out().as_os_str(),
    ]);
    let copy = Manifest::of_dir(&place.out()).unwrap();
    assert_same("cp -a", &place.filled.manifest, &copy, &NOT_COPIED);
}

#[test]
fn cp_reads_several_devices_and_keeps_holes() {
    if !or_skip("cp_reads_several_devices_and_keeps_holes") {
        return;
    }
    let place = Place::new(Profile::Raid6, &Scale::tiny(), "cp raid6");
    let mut args: Vec<std::ffi::OsString> = vec!["cp".into(), "-a".into()];
    args.push(place.image().into());
    args.push(place.out().into());
    args.extend(other_devices(place.filled.volume.devices()));
    succeed(args);
    let copy = Manifest::of_dir(&place.out()).unwrap();
    assert_same("cp -a", &place.filled.manifest, &copy, &NOT_COPIED);

    let original = place.filled.volume.mount_ro().unwrap();
    let mut sparse = 0;
    for entry in &place.filled.manifest.entries {
        let path = String::from_utf8_lossy(&entry.path).into_owned();
        let of = |dir: &Path| fs::symlink_metadata(dir.join(&path));
        let (Ok(there), Ok(here)) = (of(original.path()), of(&place.out())) else {
            continue;
        };
        if there.is_file() && there.blocks() * 512 < there.size() / 2 {
            sparse += 1;
            assert!(
                here.blocks() * 512 < here.size() / 2,
                "{path} lost its holes"
            );
        }
    }
    assert!(sparse > 0);
}

#[test]
fn gnu_tar_extracts_what_the_kernel_shows() {
    if !or_skip("gnu_tar_extracts_what_the_kernel_shows") {
        return;
    }
    // Tools that open by path cannot create paths longer than PATH_MAX.
    let scale = Scale {
        beyond_path_max: false,
        ..Scale::small()
    };
    let place = Place::new(Profile::Single, &scale, "tar");
    place.export("", &["--xattrs", "--xattrs-include=*"]);
    let mut copy = Manifest::of_dir(&place.out()).unwrap();
    let mut shown = place.filled.manifest.clone();
    // An archive contains no sockets, and GNU tar does not restore access times.
    shown
        .entries
        .retain(|entry| entry.stat.kind != ubtrfs_sim::manifest::Kind::Socket);
    copy.faults.clear();
    let ignored = [&NOT_COPIED[..], &[Field::Atime]].concat();
    assert_same("export --tar", &shown, &copy, &ignored);
}

#[test]
fn acls_go_into_archives_as_text_as_well() {
    if !or_skip("acls_go_into_archives_as_text_as_well") {
        return;
    }
    let volume = KernelVolume::make(&MkfsSpec::default()).unwrap();
    let mount = volume.mount("").unwrap();
    let file = mount.path().join("file");
    fs::write(&file, "x").unwrap();
    let set = Command::new("setfacl")
        .args(["-m", "u:1000:rwx,g:7:r"])
        .arg(&file)
        .status();
    assert!(set.unwrap().success());
    let acl = xattr::get(&file, "system.posix_acl_access").unwrap();
    assert!(acl.is_some());
    mount.unmount().unwrap();
    let archive = succeed([
        "export".as_ref(),
        "--tar".as_ref(),
        volume.devices()[0].as_os_str(),
    ]);
    let path = volume.dir().join("acl.tar");
    fs::write(&path, archive).unwrap();
    let out = volume.mount("").unwrap();
    let into = out.path().join("into");
    fs::create_dir(&into).unwrap();
    let tar = Command::new("tar")
        .arg("--acls")
        .arg("-C")
        .arg(&into)
        .arg("-xpf")
        .arg(&path)
        .status();
    assert!(tar.unwrap().success());
    assert_eq!(
        xattr::get(into.join("file"), "system.posix_acl_access").unwrap(),
        acl
    );
}

/// Creates a volume whose files the test chooses and damages.
fn small_volume(fill: impl FnOnce(&Path)) -> KernelVolume {
    let volume = KernelVolume::make(&MkfsSpec::default()).unwrap();
    let mount = volume.mount("").unwrap();
    fill(mount.path());
    mount.unmount().unwrap();
    volume
}

#[test]
fn names_and_existing_files_are_treated_as_by_cp() {
    if !or_skip("names_and_existing_files_are_treated_as_by_cp") {
        return;
    }
    let volume = small_volume(|dir| {
        fs::create_dir_all(dir.join("a/b")).unwrap();
        fs::write(dir.join("a/b/file"), "new").unwrap();
        symlink("b/file", dir.join("a/link")).unwrap();
    });
    let image = &volume.devices()[0];
    let out = tempfile::tempdir().unwrap();
    let at = |path: &str| out.path().join(path);
    let cp = |path: &str, to: &Path| {
        succeed([
            "cp".as_ref(),
            "-a".as_ref(),
            location(image, path).as_os_str(),
            to.as_os_str(),
        ])
    };
    // If the destination is a directory, the copy gets its own name in it. Otherwise the destination is the
    // copy's name.
    cp("a/b", out.path());
    assert_eq!(fs::read(at("b/file")).unwrap(), b"new");
    cp("a/b/file", &at("renamed"));
    assert_eq!(fs::read(at("renamed")).unwrap(), b"new");
    cp("a/b", &at("c"));
    assert_eq!(fs::read(at("c/file")).unwrap(), b"new");
    // Only the contents.
    fs::create_dir(at("d")).unwrap();
    cp("a/b/.", &at("d"));
    assert_eq!(fs::read(at("d/file")).unwrap(), b"new");
    // A file is replaced; a link is replaced, and nothing is written through it.
    fs::write(at("victim"), "old").unwrap();
    fs::remove_file(at("d/file")).unwrap();
    symlink(at("victim"), at("d/file")).unwrap();
    cp("a/b/.", &at("d"));
    assert_eq!(fs::read(at("victim")).unwrap(), b"old");
    assert_eq!(fs::read(at("d/file")).unwrap(), b"new");
    // A directory is not replaced by a file, nor entered through a link.
    fs::create_dir(at("e")).unwrap();
    fs::create_dir(at("e/file")).unwrap();
    let a_b = location(image, "a/b/.");
    let args = ["cp".as_ref(), "-a".as_ref(), a_b.as_os_str()];
    fail(
        [&args[..], &[at("e").as_os_str()]].concat(),
        "would replace a directory",
    );
    fs::create_dir(at("f")).unwrap();
    symlink(at("c"), at("f/b")).unwrap();
    let a = location(image, "a/.");
    let args = ["cp".as_ref(), "-a".as_ref(), a.as_os_str()];
    fail(
        [&args[..], &[at("f").as_os_str()]].concat(),
        "would replace a file that is no directory",
    );
    // COPY-2
    assert!(fs::symlink_metadata(at("f/link")).is_ok());
    // Without -a, directories are refused, and a link is followed to its file.
    let a = location(image, "a");
    fail(
        ["cp".as_ref(), a.as_os_str(), at("g").as_os_str()],
        "is a directory",
    );
    let link = location(image, "a/link");
    succeed(["cp".as_ref(), link.as_os_str(), at("h").as_os_str()]);
    assert!(fs::symlink_metadata(at("h")).unwrap().is_file());
}

#[test]
fn a_directory_that_is_read_in_parts_is_copied_whole() {
    if !or_skip("a_directory_that_is_read_in_parts_is_copied_whole") {
        return;
    }
    let volume = small_volume(|dir| {
        for number in 0..3000 {
            fs::write(dir.join(number.to_string()), "").unwrap();
        }
    });
    let out = tempfile::tempdir().unwrap();
    let all = location(&volume.devices()[0], "");
    let copy = out.path().join("copy");
    succeed([
        "cp".as_ref(),
        "-a".as_ref(),
        all.as_os_str(),
        copy.as_os_str(),
    ]);
    let mut numbers: Vec<usize> = fs::read_dir(copy)
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .file_name()
                .to_str()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..3000).collect::<Vec<_>>());
}

/// EXPORT-1
#[test]
fn damage_costs_one_sector_and_is_reported() {
    if !or_skip("damage_costs_one_sector_and_is_reported") {
        return;
    }
    const SECTOR: usize = 4096;
    let data: Vec<u8> = (0..64 * SECTOR).map(|at| (at / SECTOR) as u8 + 1).collect();
    let volume = small_volume(|dir| {
        fs::write(dir.join("damaged"), &data).unwrap();
        fs::write(dir.join("sound"), &data[..SECTOR]).unwrap();
        fs::write(dir.join("lost"), [200; SECTOR]).unwrap();
    });
    let image = &volume.devices()[0];
    damage_sector(image, &[11; SECTOR]);
    damage_sector(image, &[200; SECTOR]);
    let mut expected = data.clone();
    expected[10 * SECTOR..11 * SECTOR].fill(0);

    let out = tempfile::tempdir().unwrap();
    let to = out.path().join("out");
    let args = [
        "cp".as_ref(),
        "-a".as_ref(),
        image.as_os_str(),
        to.as_os_str(),
    ];
    let copied = fail(args, "bytes 40960 to 45056 copied as zeros");
    let lost = "lost': nothing of it can be read, the copy is empty: ";
    assert!(String::from_utf8_lossy(&copied.stderr).contains(lost));
    assert_eq!(fs::read(to.join("lost")).unwrap(), b"");
    assert_eq!(fs::read(to.join("damaged")).unwrap(), expected);
    assert_eq!(fs::read(to.join("sound")).unwrap(), &data[..SECTOR]);

    let args = ["export".as_ref(), "--tar".as_ref(), image.as_os_str()];
    let archive = fail(args, "bytes 40960 to 45056 archived as zeros").stdout;
    let mut seen = false;
    let mut archive = tar::Archive::new(archive.as_slice());
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.path().unwrap().ends_with("damaged") {
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
            assert_eq!(bytes, expected);
            seen = true;
        }
    }
    assert!(seen);
    let damaged = location(image, "damaged");
    fail(["cat".as_ref(), damaged.as_os_str()], "offset 40960");
}

/// Overwrites every sector of the image that contains exactly `bytes`.
fn damage_sector(image: &Path, bytes: &[u8]) {
    let file = File::options().read(true).write(true).open(image).unwrap();
    let mut sector = vec![0; bytes.len()];
    let mut damaged = 0;
    for at in (0..file.metadata().unwrap().len()).step_by(bytes.len()) {
        file.read_exact_at(&mut sector, at).unwrap();
        if sector == bytes {
            file.write_all_at(&vec![0xee; bytes.len()], at).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 0);
}
