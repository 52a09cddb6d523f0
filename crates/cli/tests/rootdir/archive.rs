//! A volume made from a tar archive equals the volume made from the archived folder.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ubtrfs_sim::kernel::{self, KernelMount};
use ubtrfs_sim::manifest::{Field, Manifest, assert_same};
use ubtrfs_sim::{Scratch, fingerprint};

use crate::judges::{assert_sound, assert_sound_by, manifest};
use crate::process::{assert_success, mkfs, refusal};
use crate::repeats::make_again;
use crate::tree;

/// Creates a folder that archives can represent: without sockets.
fn folder(scratch: &Scratch, seed: u64) -> PathBuf {
    let source = scratch.path().join("source");
    fs::create_dir(&source).unwrap();
    tree::fill(&source, seed);
    fs::remove_file(source.join("special/socket")).unwrap();
    source
}

/// Archives the folder's members, in the order determined by `options`.
fn tar(source: &Path, archive: &Path, options: &str) {
    let status = Command::new("tar")
        .arg("--create")
        .arg("--file")
        .arg(archive)
        .args(options.split_whitespace())
        .arg("-C")
        .arg(source)
        .arg(".")
        .env("LC_ALL", "C")
        .status();
    assert!(status.unwrap().success(), "{options}");
}

const ALL: &str = "--format=pax --xattrs --xattrs-include=* --sparse";

/// Creates a volume from the output of a program that writes the archive to a pipe.
fn through_pipe(words: &str, archive: &Path, image: &Path) -> Output {
    let _ = fs::remove_file(image);
    let mut cat = Command::new("cat")
        .arg(archive)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = mkfs()
        .env("SOURCE_DATE_EPOCH", crate::repeats::EPOCH.to_string())
        .args(["-q", "-U", crate::repeats::UUID])
        .args(words.split_whitespace())
        .args(["--rootdir", "-"])
        .arg(image)
        .stdin(cat.stdout.take().unwrap())
        .output()
        .unwrap();
    assert!(cat.wait().unwrap().success() || !output.status.success());
    output
}

/// SOURCE-1: folder and archive give the same events.
#[test]
fn archive_gives_the_bytes_that_its_folder_gives() {
    let scratch = Scratch::new().unwrap();
    let source = folder(&scratch, 21);
    let archive = scratch.path().join("v.tar");
    let image = scratch.path().join("v.img");
    for words in [
        "",
        "--compress zstd --subvol links/z --subvol ro:crowd --shrink",
    ] {
        let expected = make_again(words, &source, &[&image]);
        for order in ["--sort=name", "--sort=none"] {
            tar(&source, &archive, &format!("{ALL} {order}"));
            let found = make_again(words, &archive, &[&image]);
            assert!(found == expected, "{words}: {order} from a file");
            let output = through_pipe(words, &archive, &image);
            assert_success(words, &output);
            let found = fingerprint(&image).unwrap();
            assert!(found == expected[0], "{words}: {order} from a pipe");
        }
        assert_sound(words, std::slice::from_ref(&image));
    }
}

/// Encodes an ACL for the user daemon, and for a user and a group without names.
fn acl(owner: u8) -> Vec<u8> {
    let no_id = u32::MAX;
    let entries: [(u8, u8, u32); 7] = [
        (1, owner, no_id),
        (2, 5, 1),
        (2, 4, 54_321),
        (4, 5, no_id),
        (8, 6, 54_322),
        (16, 7, no_id),
        (32, 0, no_id),
    ];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend([tag, 0, permissions, 0]);
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[test]
fn acls_that_are_only_text_are_as_in_the_folder() {
    let scratch = Scratch::new().unwrap();
    let source = scratch.path().join("source");
    fs::create_dir_all(source.join("dir")).unwrap();
    fs::write(source.join("file"), "file").unwrap();
    fs::write(source.join("dir/file"), "file").unwrap();
    fs::write(source.join("plain"), "plain").unwrap();
    let set = |path: &str, name: &str, owner: u8| {
        let name = format!("system.posix_acl_{name}");
        xattr::set(source.join(path), name, &acl(owner))
    };
    let set_all = set("file", "access", 6)
        .and_then(|()| set("dir", "access", 7))
        .and_then(|()| set("dir", "default", 7));
    if let Err(error) = set_all {
        ubtrfs_sim::skip_optional(format_args!("no ACLs here: {error}"));
        return;
    }
    let archive = scratch.path().join("v.tar");
    let image = scratch.path().join("v.img");
    tar(&source, &archive, "--format=pax --acls --sort=name");
    let text = fs::read(&archive).unwrap();
    let has = |wanted: &[u8]| text.windows(wanted.len()).any(|part| part == wanted);
    if !has(b"SCHILY.acl.access") || has(b"SCHILY.xattr") {
        ubtrfs_sim::skip_optional("this tar knows no ACLs");
        return;
    }
    let expected = make_again("", &source, &[&image]);
    assert!(
        make_again("", &archive, &[&image]) == expected,
        "from a file"
    );
    assert_success("", &through_pipe("", &archive, &image));
    assert_eq!(fingerprint(&image).unwrap(), expected[0], "from a pipe");

    // The ACL is for a user who is known only on the machine where the archive was made.
    let at = text.windows(6).position(|part| part == b"daemon");
    let mut strange = text.clone();
    strange[at.unwrap()..][..6].copy_from_slice(b"xaemon");
    fs::write(&archive, strange).unwrap();
    let output = through_pipe("", &archive, &image);
    assert_success("", &output);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("ACL"), "{said}");
    assert_ne!(fingerprint(&image).unwrap(), expected[0]);
}

#[test]
fn order_of_members_does_not_show() {
    let scratch = Scratch::new().unwrap();
    let source = folder(&scratch, 22);
    let image = scratch.path().join("v.img");
    let archive = scratch.path().join("v.tar");
    tar(&source, &archive, &format!("{ALL} --sort=name"));
    let expected = make_again("", &archive, &[&image]);
    // The same members in reverse order: links before their targets, files before their directories.
    let mut members = raw_members(&fs::read(&archive).unwrap());
    members.reverse();
    let backwards = scratch.path().join("backwards.tar");
    fs::write(&backwards, [members.concat(), vec![0; 1024]].concat()).unwrap();
    // This also reverses the order of a link and its target.
    let found = make_again("", &backwards, &[&image]);
    assert!(found == expected, "from a file");
    assert_success("", &through_pipe("", &backwards, &image));
    assert_eq!(fingerprint(&image).unwrap(), expected[0], "from a pipe");
}

/// Returns the members of a pax archive, each with its extension headers.
fn raw_members(archive: &[u8]) -> Vec<Vec<u8>> {
    let mut members = Vec::new();
    let mut member = Vec::new();
    let mut at = 0;
    while archive[at..at + 512].iter().any(|&byte| byte != 0) {
        let header = tar::Header::from_byte_slice(&archive[at..at + 512]);
        let is_extension = header.entry_type().as_byte() == b'x';
        let size = match header.entry_type().as_byte() {
            b'1' => 0,
            _ => header.size().unwrap() as usize,
        };
        let end = at + 512 + size.next_multiple_of(512);
        member.extend_from_slice(&archive[at..end]);
        if !is_extension {
            members.push(std::mem::take(&mut member));
        }
        at = end;
    }
    members
}

#[test]
fn every_format_of_archives_is_read() {
    if !kernel::or_skip("every_format_of_archives_is_read") {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let source = folder(&scratch, 23);
    // Remove files that old formats cannot store.
    fs::remove_dir_all(source.join("attributes")).unwrap();
    fs::remove_dir_all(source.join("names")).unwrap();
    let archive = scratch.path().join("v.tar");
    for options in [
        "--format=gnu",
        "--format=gnu --sparse",
        "--format=oldgnu --sparse",
        "--format=ustar --exclude=./deep --exclude=./links/long",
        "--format=pax",
        "--format=pax --sparse --sparse-version=0.0",
        "--format=pax --sparse --sparse-version=0.1",
        "--format=pax --sparse --sparse-version=1.0",
        "--format=v7 --exclude=./deep --exclude=./links/long --exclude=./special",
    ] {
        let expected = {
            let mut expected = manifest(&source);
            for entry in &mut expected.entries {
                if !options.contains("pax") {
                    entry.stat.mtime.nanoseconds = 0;
                }
            }
            expected.entries.retain(|entry| {
                !options.split(" --exclude=./").skip(1).any(|excluded| {
                    let path = String::from_utf8_lossy(&entry.path).into_owned();
                    path == excluded || path.starts_with(&format!("{excluded}/"))
                })
            });
            expected
        };
        tar(&source, &archive, options);
        let image = scratch.path().join("v.img");
        let _ = fs::remove_file(&image);
        let output = mkfs()
            .args(["-q", "--rootdir"])
            .arg(&archive)
            .arg(&image)
            .output();
        assert_success(options, &output.unwrap());
        let devices = std::slice::from_ref(&image);
        assert_sound_by(options, devices, &["--check-data-csum"]);
        let mount = KernelMount::new(std::slice::from_ref(&image), "ro").unwrap();
        let found = Manifest::of_dir(mount.path()).unwrap();
        let ignored = [
            Field::Ino,
            Field::Btime,
            Field::DirSize,
            Field::Atime,
            Field::Ctime,
            // The folders that the test made above have no xattrs, and old formats store none.
            Field::Xattrs,
        ];
        assert_same(options, &expected, &found, &ignored);
    }
}

#[test]
fn export_of_a_volume_gives_the_volume_again() {
    let scratch = Scratch::new().unwrap();
    let source = folder(&scratch, 24);
    let image = scratch.path().join("v.img");
    let expected = make_again("", &source, &[&image]);
    let archive = scratch.path().join("v.tar");
    let location = format!("{}:/", image.display());
    let status = Command::new(env!("CARGO_BIN_EXE_ubtrfs"))
        .args(["export", "--tar", &location])
        .stdout(File::create(&archive).unwrap())
        .status();
    assert!(status.unwrap().success());
    let found = make_again("", &archive, &[&image]);
    assert!(found == expected);
}

#[test]
fn damaged_archives_are_refused_by_their_place() {
    let scratch = Scratch::new().unwrap();
    let source = scratch.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), vec![b'x'; 100_000]).unwrap();
    fs::write(source.join("other"), "other").unwrap();
    let archive = scratch.path().join("v.tar");
    tar(&source, &archive, "--format=pax --sort=name");
    let whole = fs::read(&archive).unwrap();
    let image = scratch.path().join("v.img");
    let refuse = |bytes: &[u8], error: &str| {
        fs::write(&archive, bytes).unwrap();
        for output in [
            mkfs()
                .args(["-q", "--rootdir"])
                .arg(&archive)
                .arg(&image)
                .output()
                .unwrap(),
            through_pipe("", &archive, &image),
        ] {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{error}: {said}");
            assert!(said.contains(error), "{error}: {said}");
        }
    };
    refuse(b"", "not a tar archive: no header at byte 0");
    refuse(&[b'z'; 4096], "not a tar archive: no header at byte 0");
    refuse(&whole[..10_000], "archive ends inside the member at byte");
    let mut damaged = whole.clone();
    damaged[0] ^= 1;
    refuse(&damaged, "no header at byte 0");
    let mut outside = tar::Header::new_gnu();
    outside.as_old_mut().name[..4].copy_from_slice(b"../x");
    outside.set_size(0);
    outside.set_mode(0o644);
    outside.set_uid(0);
    outside.set_gid(0);
    outside.set_mtime(0);
    outside.set_cksum();
    refuse(outside.as_bytes(), "../x: leads out of the archive");
}

#[test]
fn names_that_the_archive_lacks_are_refused() {
    let scratch = Scratch::new().unwrap();
    let source = folder(&scratch, 25);
    let archive = scratch.path().join("v.tar");
    tar(&source, &archive, ALL);
    for option in [
        ["--subvol", "no/such"],
        ["--inode-flags", "nodatacow:no/such"],
    ] {
        let output = mkfs()
            .arg("-q")
            .args(option)
            .arg("--rootdir")
            .arg(&archive)
            .arg(scratch.path().join("v.img"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1));
        assert!(said.contains("not found: no/such"), "{said}");
    }
}

#[test]
fn pipe_that_ends_early_leaves_no_volume() {
    let scratch = Scratch::new().unwrap();
    let image = scratch.path().join("v.img");
    let mut child = mkfs()
        .args(["-q", "--rootdir", "-"])
        .arg(&image)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut header = tar::Header::new_gnu();
    header.as_old_mut().name[..4].copy_from_slice(b"file");
    header.set_size(1 << 30);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_cksum();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(header.as_bytes()).unwrap();
    pipe.write_all(&[7; 100_000]).unwrap();
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("archive ends inside the member at byte 0"),
        "{said}"
    );
    let listed = Command::new(env!("CARGO_BIN_EXE_ubtrfs"))
        .arg("ls")
        .arg(&image)
        .output();
    assert!(!listed.unwrap().status.success());
}

#[test]
fn compressed_archive_gives_the_bytes_of_the_plain_one() {
    let scratch = Scratch::new().unwrap();
    let source = folder(&scratch, 22);
    let (plain, compressed) = (
        scratch.path().join("v.tar"),
        scratch.path().join("v.tar.gz"),
    );
    tar(&source, &plain, ALL);
    let zipped = Command::new("gzip")
        .arg("-kc")
        .arg(&plain)
        .output()
        .unwrap();
    fs::write(&compressed, zipped.stdout).unwrap();
    let image = scratch.path().join("v.img");
    let expected = make_again("", &plain, &[&image]);
    assert!(expected == make_again("", &compressed, &[&image]));
    let output = through_pipe("", &compressed, &image);
    assert_success("a pipe", &output);
    assert_eq!(expected, [fingerprint(&image).unwrap()]);
    // A truncated archive is reported.
    fs::remove_file(&image).unwrap();
    let short = fs::read(&compressed).unwrap();
    fs::write(&compressed, &short[..short.len() - 9]).unwrap();
    let said = refusal([
        "--rootdir".as_ref(),
        compressed.as_os_str(),
        image.as_os_str(),
    ]);
    assert!(said.contains("gzip: "), "{said}");
}

#[test]
fn archive_is_not_overwritten_by_its_volume() {
    let scratch = Scratch::new().unwrap();
    let archive = scratch.path().join("v.tar");
    tar(&folder(&scratch, 23), &archive, "");
    let before = fs::read(&archive).unwrap();
    let said = refusal([
        "--rootdir".as_ref(),
        archive.as_os_str(),
        archive.as_os_str(),
    ]);
    assert!(said.contains("is the archive itself"), "{said}");
    assert!(fs::read(&archive).unwrap() == before);
}
