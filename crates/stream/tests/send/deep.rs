//! Paths that would temporarily be too long at the receiver during an incremental receive.

use std::fs::{self, File};
use std::path::PathBuf;

use ubtrfs_sim::kernel::available_or_skip;

use crate::fixture::{Source, Target, V1, btrfs};

/// Returns the relative path of a chain of directories.
fn chain(letter: &str) -> PathBuf {
    let name = letter.repeat(250);
    std::iter::repeat_n(name, 14).collect()
}

/// Moves or removes deep contents of a directory, and moves the directory itself into a deep one.
#[test]
fn contents_of_a_directory_that_moves_deeper_are_reached() {
    if !available_or_skip() {
        return;
    }
    let mut source = Source::new("");
    let live = source.live();
    let at = |path: &str| live.join(path);
    let low = |dir: &str| at(dir).join(chain("l"));
    let head = |dir: &str| at(dir).join("l".repeat(250));
    let dirs = ["a", "b", "c", "d"];
    for dir in dirs {
        fs::create_dir_all(low(dir).join("dir")).unwrap();
        fs::write(low(dir).join("file"), dir).unwrap();
        fs::write(low(dir).join("dir/in it"), dir).unwrap();
        fs::create_dir(low(dir).join("gone")).unwrap();
    }
    let deep = live.join(chain("d")).join("e".repeat(250));
    fs::create_dir_all(&deep).unwrap();
    source.snapshot("first");
    fs::remove_dir_all(head("a")).unwrap();
    // A directory and a file move elsewhere.
    for name in ["dir", "file"] {
        fs::rename(low("b").join(name), at(&format!("{name} of b"))).unwrap();
    }
    fs::remove_dir_all(head("b")).unwrap();
    fs::rename(head("c"), at("chain of c")).unwrap();
    // They move up within the directory that moves.
    for name in ["dir", "file", "gone"] {
        fs::rename(low("d").join(name), at("d").join(name)).unwrap();
    }
    fs::remove_dir(at("d/gone")).unwrap();
    fs::remove_dir_all(head("d")).unwrap();
    for dir in dirs {
        fs::rename(at(dir), deep.join(dir)).unwrap();
    }
    source.snapshot("second");
    let sending = source.open();
    for (old, new) in [("first", "second"), ("second", "first")] {
        let target = Target::new("");
        target.receive(&sending, old, &sending.send(old, None, &[], V1));
        let stream = sending.send(new, Some(old), &[], V1);
        target.receive(&sending, new, &stream);
    }
}

/// It cannot exist at the receiver, so it is not a clone source.
#[test]
fn clone_sources_with_too_long_a_path_are_left_out() {
    if !available_or_skip() {
        return;
    }
    let mut source = Source::new("");
    let live = source.live();
    let low = live.join(chain("x"));
    fs::create_dir_all(&low).unwrap();
    let bytes: Vec<u8> = (0..50_000_u32).map(|at| (at / 7) as u8).collect();
    fs::write(low.join("file"), bytes).unwrap();
    File::open(low.join("file")).unwrap().sync_all().unwrap();
    let other = live.with_file_name("other");
    btrfs(&["subvolume", "create"], &[&other]);
    let copy = File::create(other.join("copy")).unwrap();
    rustix::fs::ioctl_ficlone(&copy, File::open(low.join("file")).unwrap()).unwrap();
    drop(copy);
    source.snapshot_of("other", "copy");
    let head = "x".repeat(250);
    let above = live
        .join("y".repeat(250))
        .join("y".repeat(250))
        .join("y".repeat(250));
    fs::create_dir_all(&above).unwrap();
    fs::rename(live.join(&head), above.join(&head)).unwrap();
    let far = live.with_file_name("far");
    btrfs(&["subvolume", "snapshot", "-r"], &[&live, &far]);
    let sending = source.open();
    let stream = sending.send("copy", None, &["far"], V1);
    let target = Target::new("");
    target.receive(&sending, "copy", &stream);
}
