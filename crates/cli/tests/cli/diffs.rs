//! `subvolume diff`, on images.

use std::path::{Path, PathBuf};

use crate::process::{fail, location, succeed};

fn run(image: &Path, verb: &[&str], paths: &[&str]) -> String {
    let mut args: Vec<std::ffi::OsString> = verb.iter().map(Into::into).collect();
    args.extend(paths.iter().map(|path| location(image, path)));
    String::from_utf8(succeed(args)).unwrap()
}

/// Creates an image with two snapshots of one subvolume, which changed between them.
fn image(dir: &Path) -> PathBuf {
    let image = dir.join("v.img");
    std::fs::File::create(&image)
        .unwrap()
        .set_len(256 << 20)
        .unwrap();
    succeed(["-q".as_ref(), "mkfs".as_ref(), image.as_os_str()]);
    let quiet = |verb: &[&str], paths: &[&str]| run(&image, &[&["-q"], verb].concat(), paths);
    quiet(&["subvolume", "create"], &["s"]);
    quiet(&["mkdir"], &["s/dir"]);
    quiet(&["touch"], &["s/dir/kept", "s/gone", "s/big"]);
    quiet(&["subvolume", "snapshot", "-r"], &["s", "old"]);
    quiet(&["mv"], &["s/dir", "s/moved"]);
    quiet(&["rm"], &["s/gone"]);
    quiet(&["truncate", "-s", "5000"], &["s/big"]);
    quiet(&["chmod", "600"], &["s/moved/kept"]);
    quiet(&["touch"], &["s/new"]);
    quiet(&["subvolume", "snapshot", "-r"], &["s", "new"]);
    image
}

#[test]
fn changes_between_two_snapshots_are_listed_in_the_order_of_paths() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    let text = run(&image, &["subvolume", "diff"], &["old", "new"]);
    let begins = [
        "changed  directory .: ",
        "changed  file      big: size 0 -> 5000, ",
        "removed  file      gone",
        "renamed  directory moved from dir",
        "changed  file      moved/kept: mode 0644 -> 0600, ctime",
        "added    file      new",
    ];
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), begins.len(), "{text}");
    for (line, begin) in lines.iter().zip(begins) {
        assert!(line.starts_with(begin), "{line:?}, {begin:?}");
    }
    assert_eq!(run(&image, &["subvolume", "diff"], &["old", "old"]), "");
}

#[test]
fn json_has_an_object_in_each_line() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    let verb = ["--format", "json", "subvolume", "diff"];
    let text = run(&image, &verb, &["old", "new"]);
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let objects: Vec<serde_json::Value> = lines.collect();
    let moved = objects.iter().find(|o| o["path"] == "moved").unwrap();
    assert_eq!(
        (&moved["change"], &moved["from"]),
        (&"renamed".into(), &"dir".into())
    );
    let big = objects.iter().find(|o| o["path"] == "big").unwrap();
    assert_eq!(
        (&big["old"]["size"], &big["new"]["size"]),
        (&0.into(), &5000.into())
    );
}

#[test]
fn subvolumes_that_can_be_written_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    let args = [
        "subvolume".into(),
        "diff".into(),
        location(&image, "old"),
        location(&image, "s"),
    ];
    fail(args, "cannot compare");
}
