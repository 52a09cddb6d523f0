//! `cp` and `mv` onto existing files: links, the source itself, the image, devices and pipes; and onto a full
//! volume.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Stdio;

use ubtrfs_sim::Scratch;

use crate::process::{empty_volume, fail, location, succeed, ubtrfs};

fn cat(image: &Path, path: &str) -> Vec<u8> {
    succeed(["cat".into(), location(image, path)])
}

/// Runs the command with these bytes as its standard input.
fn fed(args: &[OsString], input: &[u8]) -> std::process::Output {
    let mut child = ubtrfs()
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn copy_goes_through_a_link_that_leads_somewhere() {
    let (scratch, image) = empty_volume();
    let at = |path: &str| location(&image, path);
    let host = scratch.path().join("host");
    fs::write(&host, "new").unwrap();
    succeed(["mkdir".into(), at("dir")]);
    for path in ["file", "dir/file", "source"] {
        succeed(["cp".into(), host.clone().into(), at(path)]);
        fs::write(&host, "newer").unwrap();
    }
    fs::write(&host, "through").unwrap();
    for (target, link) in [
        ("file", "link"),
        ("../file", "dir/link"),
        ("none", "dangling"),
    ] {
        succeed(["ln".into(), "-s".into(), target.into(), at(link)]);
    }
    // Copies from the host, from the volume, with -a, and into a directory under its own name.
    let check = |source: OsString, wanted: &[u8], destination: &str, option: Option<&str>| {
        let option = option.map(OsString::from);
        let words = [
            Some("cp".into()),
            option,
            Some(source),
            Some(at(destination)),
        ];
        succeed(words.into_iter().flatten());
        assert_eq!(cat(&image, "file"), wanted, "{destination}");
        let listed = succeed(["stat".into(), at("link")]);
        assert!(String::from_utf8_lossy(&listed).contains("symbolic link"));
    };
    check(host.clone().into(), b"through", "link", None);
    check(at("source"), b"newer", "dir/link", None);
    check(host.clone().into(), b"through", "link", Some("-a"));
    let named = scratch.path().join("link");
    fs::write(&named, "by name").unwrap();
    check(named.into(), b"by name", "dir", None);
    let output = fed(&["cp".into(), "-".into(), at("link")], b"piped");
    assert!(output.status.success());
    assert_eq!(cat(&image, "file"), b"piped");

    let message = "not writing through dangling symlink";
    fail(["cp".into(), host.clone().into(), at("dangling")], message);
    fail(["cp".into(), at("source"), at("dangling")], message);
    let output = fed(&["cp".into(), "-".into(), at("dangling")], b"piped");
    assert!(String::from_utf8_lossy(&output.stderr).contains(message));
    fail(["ls".into(), at("none")], "no such file");
    fail(["cp".into(), host.into(), at("new/")], "is not a directory");
    // These create the missing file, as open(2) does.
    succeed(["touch".into(), at("dangling")]);
    assert_eq!(cat(&image, "none"), b"");
}

#[test]
fn copy_out_goes_through_links_and_into_what_is_no_file() {
    let (scratch, image) = empty_volume();
    let at = |path: &str| location(&image, path);
    let host = |name: &str| scratch.path().join(name);
    fs::write(host("source"), "content").unwrap();
    succeed(["cp".into(), host("source").into(), at("file")]);
    succeed(["truncate".into(), "-s".into(), "200K".into(), at("holes")]);
    fs::write(host("target"), "old and longer").unwrap();
    symlink("target", host("link")).unwrap();
    symlink("none", host("dangling")).unwrap();
    fs::hard_link(host("target"), host("hard")).unwrap();
    succeed(["cp".into(), at("file"), host("link").into()]);
    assert!(host("link").symlink_metadata().unwrap().is_symlink());
    assert_eq!(fs::read(host("hard")).unwrap(), b"content");
    let message = "not writing through dangling symlink";
    fail(["cp".into(), at("file"), host("dangling").into()], message);
    assert!(!host("none").exists());

    succeed(["cp".into(), at("file"), "/dev/null".into()]);
    let kind = Path::new("/dev/null").metadata().unwrap();
    assert_eq!(kind.rdev(), 0x103, "the device is still there");
    assert_eq!(succeed(["cp".into(), at("file"), "-".into()]), b"content");
    let zeros = succeed(["cp".into(), at("holes"), "-".into()]);
    assert_eq!(zeros, vec![0; 200 << 10]);
    fail(
        ["cp".into(), "-r".into(), at(""), "-".into()],
        "only a file",
    );
    let mut words = ubtrfs();
    words.current_dir(scratch.path());
    let done = words.args(["cp".into(), at("file"), "./-".into()]).status();
    assert!(done.unwrap().success());
    assert_eq!(fs::read(host("-")).unwrap(), b"content");
}

#[test]
fn image_is_not_overwritten_by_what_it_holds() {
    let (scratch, image) = empty_volume();
    let at = |path: &str| location(&image, path);
    fs::write(scratch.path().join("v"), "content").unwrap();
    succeed(["cp".into(), scratch.path().join("v").into(), at("v.img")]);
    symlink("v.img", scratch.path().join("link")).unwrap();
    let before = image.metadata().unwrap().len();
    let message = "the image that is read";
    fail(["cp".into(), at("v.img"), image.clone().into()], message);
    let link = scratch.path().join("link");
    fail(["cp".into(), at("v.img"), link.into()], message);
    for option in ["-a", "-r"] {
        let dir = scratch.path().into();
        fail(["cp".into(), option.into(), at("."), dir], message);
        let args = [
            "cp".into(),
            option.into(),
            at("v.img"),
            image.clone().into(),
        ];
        fail(args, message);
    }
    assert_eq!(image.metadata().unwrap().len(), before);
    let output = ubtrfs()
        .args(["cp".into(), "-".into(), at("copy")])
        .stdin(fs::File::open(&image).unwrap())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("it is the image that is written"), "{said}");
    succeed(["check".as_ref(), "-q".as_ref(), image.as_os_str()]);
}

#[test]
fn copy_onto_itself_loses_nothing() {
    let (scratch, image) = empty_volume();
    let at = |path: &str| location(&image, path);
    let host = scratch.path().join("host");
    fs::write(&host, vec![7; 100_000]).unwrap();
    let content = fs::read(&host).unwrap();
    succeed(["cp".into(), host.into(), at("file")]);
    succeed(["ln".into(), at("file"), at("hard")]);
    succeed(["ln".into(), "-s".into(), "file".into(), at("soft")]);
    for (from, to) in [
        ("file", "file"),
        ("file", "./file"),
        ("file", "hard"),
        ("file", "soft"),
        ("soft", "file"),
        ("soft", "soft"),
        ("file", ""),
    ] {
        for option in [
            "--reflink=auto",
            "--reflink=always",
            "--reflink=never",
            "-a",
        ] {
            if option == "-a" && from == "soft" {
                continue;
            }
            let args = ["cp".into(), option.into(), at(from), at(to)];
            fail(args, "onto itself");
            assert_eq!(cat(&image, "file"), content, "{option} {from} {to}");
        }
    }
    fail(
        ["cp".into(), "-a".into(), at("soft"), at("soft")],
        "onto itself",
    );
    fail(["mv".into(), at("file"), at("file")], "are the same file");
    fail(["mv".into(), at("file"), at("./file")], "are the same file");
    fail(["rm".into(), "-r".into(), at("soft/")], "not a directory");
    // Like mv(1), it removes one of the two names.
    succeed(["mv".into(), at("hard"), at("file")]);
    assert_eq!(cat(&image, "file"), content);
    assert_eq!(succeed(["ls".into(), at("")]), b"file\nsoft\n");
}

#[test]
fn file_that_finds_no_space_is_named_and_has_the_size_that_was_written() {
    let scratch = Scratch::new().unwrap();
    let image = scratch.path().join("v.img");
    let size = ["mkfs", "-q", "-b", "128M"].map(OsString::from);
    succeed(size.into_iter().chain([image.clone().into()]));
    let at = |path: &str| location(&image, path);
    let tree = scratch.path().join("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    let noise: Vec<u8> = (0..200u32 << 20).map(|at| (at >> 12) as u8 | 1).collect();
    fs::write(tree.join("sub/big"), &noise).unwrap();
    let shown = |path: &str| {
        format!(
            "cannot write '{}:/{path}': no space left on device",
            image.display()
        )
    };
    let written = |path: &str| {
        let content = cat(&image, path);
        assert!(
            content.len() < noise.len() && !content.is_empty(),
            "{path}: {}",
            content.len()
        );
        assert!(
            content == noise[..content.len()],
            "{path} ends with what was not written"
        );
        succeed([
            "rm".into(),
            "-r".into(),
            at(path.split('/').next().unwrap()),
        ]);
    };
    fail(
        ["cp".into(), tree.join("sub/big").into(), at("big")],
        &shown("big"),
    );
    written("big");
    fail(
        ["cp".into(), tree.join("sub/big").into(), at("")],
        &shown("big"),
    );
    written("big");
    fail(
        ["cp".into(), "-a".into(), tree.clone().into(), at("new")],
        &shown("new/sub/big"),
    );
    written("new/sub/big");
    succeed(["mkdir".into(), at("dir")]);
    fail(
        ["cp".into(), "-r".into(), tree.clone().into(), at("dir")],
        &shown("dir/tree/sub/big"),
    );
    written("dir/tree/sub/big");
    let output = fed_or_refused(&["cp".into(), "-".into(), at("piped")], &noise);
    assert!(output.contains(&shown("piped")), "{output}");
    written("piped");
    let tar = scratch.path().join("tree.tar");
    let packed = std::process::Command::new("tar")
        .arg("-cf")
        .arg(&tar)
        .arg("-C")
        .arg(&tree)
        .arg(".")
        .status();
    assert!(packed.unwrap().success());
    succeed(["mkdir".into(), at("in")]);
    fail(["import".into(), tar.into(), at("in")], "no space left");
    written("in/sub/big");
    succeed(["check".as_ref(), "-q".as_ref(), image.as_os_str()]);
}

/// Returns the error message of a command that ends before it has read all of its input.
fn fed_or_refused(args: &[OsString], input: &[u8]) -> String {
    let mut child = ubtrfs()
        .args(args)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input));
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    })
}

#[test]
fn another_volume_is_not_overwritten() {
    let (scratch, image) = empty_volume();
    let at = |path: &str| location(&image, path);
    let other = scratch.path().join("b.img");
    let args = ["mkfs", "-q", "-b", "128M"].map(OsString::from);
    succeed(args.into_iter().chain([other.clone().into()]));
    let file = scratch.path().join("f.txt");
    fs::write(&file, "precious").unwrap();
    succeed(["cp".into(), file.clone().into(), at("b.img")]);
    let before = fs::read(&other).unwrap();
    let message = "b.img:/' is its top directory";
    let to_other = |source: OsString, options: &[&str]| {
        let options = options.iter().map(OsString::from);
        let paths = [source, other.clone().into()];
        let args = std::iter::once("cp".into()).chain(options).chain(paths);
        args.collect::<Vec<OsString>>()
    };
    fail(to_other(at("b.img"), &[]), message);
    // The argument names a file of this machine: the colon and the path are missing.
    fail(to_other(file.clone().into(), &[]), message);
    let link = scratch.path().join("link");
    symlink("b.img", &link).unwrap();
    let args = ["cp".into(), at("b.img"), link.into()];
    fail(args, "it holds a btrfs volume");
    // The copy would replace the image, by its own name or below a directory.
    let holds = "b.img holds a btrfs volume";
    for options in [&["-a"][..], &["-r"]] {
        let dir: OsString = scratch.path().into();
        let args = ["cp".into(), options[0].into(), at("."), dir];
        fail(args, holds);
    }
    fail(to_other(at("b.img"), &["-a"]), holds);
    let script = format!("cp /b.img host:{}\n", other.display());
    let said = fed(&["shell".into(), image.clone().into()], script.as_bytes());
    assert!(String::from_utf8_lossy(&said.stderr).contains("it holds a btrfs volume"));
    assert!(fs::read(&other).unwrap() == before);
    // Appending to a log would damage an image as well.
    let mount = scratch.path().join("m");
    fs::create_dir(&mount).unwrap();
    let option = format!("log={}", other.display());
    let args = ["mount".as_ref(), "-o".as_ref(), option.as_ref()];
    let places = [image.as_os_str(), mount.as_os_str()];
    fail(args.into_iter().chain(places), "it holds a btrfs volume");
    assert!(fs::read(&other).unwrap() == before);
    succeed(["check".as_ref(), "-q".as_ref(), other.as_os_str()]);
}

#[test]
fn file_that_another_program_has_locked_is_not_overwritten() {
    let (scratch, image) = empty_volume();
    let at = |path: &str| location(&image, path);
    let file = scratch.path().join("file");
    fs::write(&file, "new").unwrap();
    succeed(["cp".into(), file.clone().into(), at("file")]);
    // A file as large as the smallest volume, but without a volume.
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    let holder = crate::held::Holder::of(&file);
    fail(["cp".into(), at("file"), file.clone().into()], "is in use");
    fail(
        ["cp".into(), "-a".into(), at("file"), file.clone().into()],
        "is in use",
    );
    assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    holder.end();
    succeed(["cp".into(), at("file"), file.clone().into()]);
    assert_eq!(fs::read(&file).unwrap(), b"new");
}
