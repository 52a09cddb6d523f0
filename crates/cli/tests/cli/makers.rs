//! Volumes with the marks of NAS makers: every verb reads them, and none writes.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ubtrfs_sim::{Scratch, fingerprint, nas};

use crate::process::{fail, location, succeed, ubtrfs};

/// Marks that are first read with an inode or an extent. A command that reads neither may write.
const LATE: [&str; 6] = [
    "inode-user-quota",
    "inode-no-dedupe",
    "subvolume-usage",
    "extent-clone",
    "extent-deduplicated",
    "xattrs",
];

struct Base {
    scratch: Scratch,
    image: PathBuf,
}

impl Base {
    /// Creates a volume with a file, a subvolume and a snapshot.
    fn new() -> Base {
        let scratch = Scratch::new().unwrap();
        let image = scratch.path().join("base.img");
        let file = scratch.path().join("file");
        fs::write(&file, "content\n".repeat(40_000)).unwrap();
        let words = ["mkfs", "-q", "-b", "256M", "-O", "^block-group-tree"];
        succeed(
            words
                .map(OsString::from)
                .into_iter()
                .chain([image.clone().into()]),
        );
        for name in ["share", "homes"] {
            succeed([
                "subvolume".into(),
                "create".into(),
                "-q".into(),
                location(&image, name),
            ]);
            succeed([
                "cp".into(),
                file.clone().into(),
                location(&image, &format!("{name}/File")),
            ]);
        }
        succeed(["cp".into(), file.into(), location(&image, "File")]);
        succeed([
            "subvolume".into(),
            "snapshot".into(),
            "-rq".into(),
            location(&image, "share"),
            location(&image, "before"),
        ]);
        Base { scratch, image }
    }

    /// Copies the volume, and puts a mark on the copy, or all.
    fn marked(&self, mark: &str) -> PathBuf {
        let image = self.scratch.path().join("marked.img");
        let copied = Command::new("cp")
            .arg("--sparse=always")
            .args([&self.image, &image])
            .status();
        assert!(copied.unwrap().success());
        if mark == "all" {
            nas::put_all(&image);
        } else {
            nas::put(&image, mark);
        }
        image
    }
}

/// Runs a command that may warn. Returns its output.
fn output(args: Vec<OsString>) -> Vec<u8> {
    let output = ubtrfs().args(&args).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {stderr}");
    assert!(!stderr.contains("ERROR"), "{args:?}: {stderr}");
    output.stdout
}

/// Returns commands that read, and whether their output does not depend on marks.
fn reads(image: &Path, out: &Path) -> Vec<(bool, Vec<OsString>)> {
    let at = |path: &str| location(image, path);
    let whole = || image.as_os_str().to_owned();
    let words = |words: &[&str], last: OsString| -> Vec<OsString> {
        words.iter().map(OsString::from).chain([last]).collect()
    };
    vec![
        (true, words(&["ls", "-laR"], at(""))),
        (true, words(&["tree"], at(""))),
        (true, words(&["cat"], at("share/File"))),
        (true, words(&["filesystem", "du"], at(""))),
        (false, words(&["stat"], at("File"))),
        (false, words(&["getfattr", "-d"], at("File"))),
        (false, words(&["subvolume", "list"], whole())),
        (false, words(&["subvolume", "show"], at("share"))),
        (false, words(&["filesystem", "show"], whole())),
        (false, words(&["filesystem", "usage"], whole())),
        (false, words(&["inspect-internal", "dump-super"], whole())),
        (false, words(&["inspect-internal", "dump-tree"], whole())),
        (false, words(&["export", "--tar"], at(""))),
        (false, words(&["check", "-q"], whole())),
        (false, words(&["send"], at("before"))),
        (
            false,
            vec!["cp".into(), "-a".into(), at("share"), out.into()],
        ),
    ]
}

/// Returns commands that write.
fn writes(image: &Path, host: &Path) -> Vec<Vec<OsString>> {
    let at = |path: &str| location(image, path);
    let words = |words: &[&str], last: OsString| -> Vec<OsString> {
        words.iter().map(OsString::from).chain([last]).collect()
    };
    vec![
        words(&["mkdir"], at("new")),
        words(&["touch"], at("File")),
        words(&["rm"], at("File")),
        vec!["mv".into(), at("File"), at("Other")],
        vec!["ln".into(), at("File"), at("Other")],
        words(&["chmod", "600"], at("File")),
        words(&["chown", "7:7"], at("File")),
        words(&["truncate", "-s", "7"], at("File")),
        words(&["setfattr", "-n", "user.a", "-v", "b"], at("File")),
        vec!["cp".into(), host.into(), at("Copied")],
        vec!["cp".into(), at("File"), at("Copied")],
        words(&["subvolume", "create"], at("new")),
        vec![
            "subvolume".into(),
            "snapshot".into(),
            at("share"),
            at("new"),
        ],
        words(&["subvolume", "delete"], at("before")),
    ]
}

#[test]
fn every_verb_reads_and_none_writes() {
    let base = Base::new();
    let scratch = Scratch::new().unwrap();
    let shown = |image: &Path, name: &str| -> Vec<Option<Vec<u8>>> {
        let out = scratch.path().join(name);
        fs::create_dir(&out).unwrap();
        let reads = reads(image, &out).into_iter();
        let shown = reads.map(|(is_same, args)| is_same.then_some(output(args)));
        let mut shown: Vec<_> = shown.collect();
        shown.push(Some(fs::read(out.join("share/File")).unwrap()));
        fs::remove_dir_all(out).unwrap();
        shown
    };
    // The name of the image is displayed.
    let unmarked = base.scratch.path().join("marked.img");
    fs::copy(&base.image, &unmarked).unwrap();
    let before = shown(&unmarked, "base");
    let host = scratch.path().join("host");
    fs::write(&host, "host").unwrap();
    for mark in nas::names().chain(["all"]) {
        let image = base.marked(mark);
        let hash = fingerprint(&image).unwrap();
        assert!(shown(&image, mark) == before, "{mark}");
        assert_eq!(fingerprint(&image).unwrap(), hash, "{mark}: reading");
        for args in writes(&image, &host) {
            fail(args, "marks of Synology DSM: ");
        }
        if !LATE.contains(&mark) {
            let whole = image.clone().into_os_string();
            let label = [
                "filesystem".into(),
                "label".into(),
                whole.clone(),
                "new".into(),
            ];
            fail(label, "marks of Synology DSM: ");
            fail(
                ["rescue".into(), "zero-log".into(), whole],
                "marks of Synology DSM: ",
            );
        }
        assert_eq!(fingerprint(&image).unwrap(), hash, "{mark}: writing");
    }
}

#[test]
fn attributes_of_makers_are_left_out_of_copies_and_named_once() {
    let base = Base::new();
    let image = base.marked("xattrs");
    let copy = |options: &[&str], to: &str| {
        let destination = base.scratch.path().join(to);
        let mut command = ubtrfs();
        command.args(["cp", "-a"]).args(options);
        command.arg(location(&image, "share")).arg(destination);
        command.output().unwrap()
    };
    let copied = copy(&[], "copy");
    let stderr = String::from_utf8(copied.stderr).unwrap();
    assert!(copied.status.success(), "{stderr}");
    let named = stderr
        .lines()
        .filter(|line| line.contains("syno.create_time (2)"));
    assert_eq!(named.count(), 1, "{stderr}");
    let refused = copy(&["--strict-attributes"], "strict");
    assert_eq!(refused.status.code(), Some(1));
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert!(stderr.contains("cannot set attribute syno."), "{stderr}");
}

#[test]
fn maker_is_displayed() {
    let base = Base::new();
    let text = |args: Vec<OsString>| String::from_utf8(output(args)).unwrap();
    let image = base.marked("root-hide");
    let listed = text(vec![
        "subvolume".into(),
        "list".into(),
        image.clone().into(),
    ]);
    assert!(listed.contains("flags hidden path share\n"), "{listed}");
    let shown = text(vec![
        "subvolume".into(),
        "show".into(),
        location(&image, "before"),
    ]);
    assert!(shown.contains("readonly,hidden\n"), "{shown}");
    let tree = ["inspect-internal", "dump-tree", "-t", "root"];
    let tree = tree.map(OsString::from).into_iter();
    let tree = text(tree.chain([image.into()]).collect());
    assert!(tree.contains("0x100000000(root-hide)"), "{tree}");

    let image = base.marked("label");
    nas::put(&image, "superblock-end");
    let show = || {
        text(vec![
            "filesystem".into(),
            "show".into(),
            image.clone().into(),
        ])
    };
    assert!(
        show().contains("\tmade by Synology DSM build 25556\n"),
        "{}",
        show()
    );
    nas::write_elsewhere(&image);
    assert!(
        show().contains("build 25556, written elsewhere since\n"),
        "{}",
        show()
    );
    let dumped = ["inspect-internal", "dump-super"]
        .map(OsString::from)
        .into_iter();
    let dumped = text(dumped.chain([image.clone().into()]).collect());
    assert!(dumped.contains("syno_generation"), "{dumped}");

    let image = base.marked("xattrs");
    let stat = text(vec!["stat".into(), location(&image, "File")]);
    assert!(stat.contains("   NAS: created 2017-07-14 "), "{stat}");
    let checked = text(vec!["check".into(), image.into()]);
    assert!(
        checked.contains("mark of Synology DSM: attributes syno.* "),
        "{checked}"
    );
}
