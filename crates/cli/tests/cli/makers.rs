//! Volumes with the marks of NAS makers: every verb reads them, and none writes.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
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

/// The marks on which the output of a command does not depend.
#[derive(Clone, Copy, PartialEq)]
enum Same {
    OnAll,
    /// Archives and streams have all attributes.
    WithoutAttributes,
    Never,
}

/// Returns commands that read, and the marks on which their output does not depend.
fn reads(image: &Path, out: &Path) -> Vec<(Same, Vec<OsString>)> {
    let at = |path: &str| location(image, path);
    let whole = || image.as_os_str().to_owned();
    let words = |words: &[&str], last: OsString| -> Vec<OsString> {
        words.iter().map(OsString::from).chain([last]).collect()
    };
    vec![
        (Same::OnAll, words(&["ls", "-laR"], at(""))),
        (Same::OnAll, words(&["tree"], at(""))),
        (Same::OnAll, words(&["cat"], at("share/File"))),
        (Same::OnAll, words(&["filesystem", "du"], at(""))),
        (Same::Never, words(&["stat"], at("File"))),
        (Same::Never, words(&["getfattr", "-d"], at("File"))),
        (Same::Never, words(&["subvolume", "list"], whole())),
        (Same::Never, words(&["subvolume", "show"], at("share"))),
        (Same::Never, words(&["filesystem", "show"], whole())),
        (Same::Never, words(&["filesystem", "usage"], whole())),
        (
            Same::Never,
            words(&["inspect-internal", "dump-super"], whole()),
        ),
        (
            Same::Never,
            words(&["inspect-internal", "dump-tree"], whole()),
        ),
        (Same::WithoutAttributes, words(&["export", "--tar"], at(""))),
        (Same::Never, words(&["check", "-q"], whole())),
        (Same::WithoutAttributes, words(&["send"], at("before"))),
        (
            Same::Never,
            vec!["cp".into(), "-a".into(), at("share"), out.into()],
        ),
    ]
}

/// Files of the host to write into a volume.
struct Sources {
    file: PathBuf,
    archive: PathBuf,
    stream: PathBuf,
}

impl Sources {
    /// Creates them in a folder. The archive and the stream are of a volume without marks.
    fn new(folder: &Path, unmarked: &Path) -> Sources {
        let [file, archive, stream] = ["host", "archive", "stream"].map(|name| folder.join(name));
        fs::write(&file, "host").unwrap();
        let export = ["export".into(), "--tar".into(), location(unmarked, "share")];
        fs::write(&archive, output(export.into())).unwrap();
        let send = ["send".into(), location(unmarked, "before")];
        fs::write(&stream, output(send.into())).unwrap();
        Sources {
            file,
            archive,
            stream,
        }
    }
}

/// Returns commands that write.
fn writes(image: &Path, sources: &Sources) -> Vec<Vec<OsString>> {
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
        vec!["cp".into(), sources.file.clone().into(), at("Copied")],
        vec!["cp".into(), at("File"), at("Copied")],
        words(&["subvolume", "create"], at("new")),
        vec![
            "subvolume".into(),
            "snapshot".into(),
            at("share"),
            at("new"),
        ],
        words(&["subvolume", "delete"], at("before")),
        vec![
            "import".into(),
            "--tar".into(),
            sources.archive.clone().into(),
            at("homes"),
        ],
        vec![
            "receive".into(),
            "-f".into(),
            sources.stream.clone().into(),
            at("homes"),
        ],
        vec![
            "property".into(),
            "set".into(),
            at("File"),
            "compression".into(),
            "zstd".into(),
        ],
        vec![
            "property".into(),
            "set".into(),
            at("share"),
            "ro".into(),
            "true".into(),
        ],
    ]
}

#[test]
fn every_verb_reads_and_none_writes() {
    let base = Base::new();
    let scratch = Scratch::new().unwrap();
    // Displays all, and returns the outputs that do not depend on the mark.
    let shown = |image: &Path, name: &str, has_attributes: bool| -> Vec<Option<Vec<u8>>> {
        let out = scratch.path().join(name);
        fs::create_dir(&out).unwrap();
        let reads = reads(image, &out).into_iter();
        let shown = reads.map(|(same, args)| {
            let shown = output(args);
            let is_same = match same {
                Same::OnAll => true,
                Same::WithoutAttributes => !has_attributes,
                Same::Never => false,
            };
            is_same.then_some(shown)
        });
        let mut shown: Vec<_> = shown.collect();
        shown.push(Some(fs::read(out.join("share/File")).unwrap()));
        fs::remove_dir_all(out).unwrap();
        shown
    };
    // The name of the image is displayed.
    let unmarked = base.scratch.path().join("marked.img");
    fs::copy(&base.image, &unmarked).unwrap();
    let before = [false, true].map(|has_attributes| shown(&unmarked, "base", has_attributes));
    let sources = Sources::new(scratch.path(), &unmarked);
    for mark in nas::names().chain(["all"]) {
        let image = base.marked(mark);
        let hash = fingerprint(&image).unwrap();
        let has_attributes = ["xattrs", "all"].contains(&mark);
        let shown = shown(&image, mark, has_attributes);
        assert!(shown == before[usize::from(has_attributes)], "{mark}");
        assert_eq!(fingerprint(&image).unwrap(), hash, "{mark}: reading");
        for args in writes(&image, &sources) {
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

/// A new label is in the superblock, and changes no block that can have such a mark. A volume that DSM has made also has
/// marks that are found before.
#[test]
fn label_of_a_volume_with_late_marks_leaves_them() {
    let base = Base::new();
    for mark in LATE {
        let image = base.marked(mark);
        let marks = || {
            let check = ["--format", "json", "check"].map(OsString::from);
            let report = output(check.into_iter().chain([image.clone().into()]).collect());
            let report: Value = serde_json::from_slice(&report).expect("JSON");
            assert_eq!(report["check"]["clean"], true, "{mark}: {report}");
            report["check"]["marks"].clone()
        };
        let before = marks();
        assert_ne!(before, Value::Array(Vec::new()), "{mark}");
        let hash = fingerprint(&image).unwrap();
        let label = ["filesystem", "label"].map(OsString::from).into_iter();
        let label = label.chain([image.clone().into(), "new".into()]);
        let labelled = ubtrfs().args(label).output().unwrap();
        let stderr = String::from_utf8_lossy(&labelled.stderr);
        if !labelled.status.success() {
            assert!(
                stderr.contains("marks of Synology DSM: "),
                "{mark}: {stderr}"
            );
            assert_eq!(fingerprint(&image).unwrap(), hash, "{mark}");
        }
        assert_eq!(marks(), before, "{mark}");
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
