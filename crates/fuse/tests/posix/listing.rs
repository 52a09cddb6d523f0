//! Listing a directory while it changes, and seeking in it.

use std::collections::BTreeSet;

use super::calls::{self, Fd};
use super::stage::{Stage, done};

/// Returns the names up to the end, read with a buffer of `room` bytes.
fn rest(dir: &Fd, room: usize) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        match calls::entries(dir, room) {
            Ok(found) if found.is_empty() => return names,
            Ok(found) => names.extend(found.into_iter().map(|(name, _, _)| text(&name))),
            Err(error) => {
                names.push(format!("{error:?}"));
                return names;
            }
        }
        assert!(names.len() < 10_000, "it does not end");
    }
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn filled(stage: &mut Stage, name: &str, count: usize) -> Fd {
    calls::mkdir(stage.dir(), name.as_bytes(), 0o755).unwrap();
    for number in 0..count {
        drop(stage.file(&format!("{name}/n{number}"), b""));
    }
    stage.open(name, libc::O_RDONLY | libc::O_DIRECTORY)
}

pub(crate) fn while_it_changes(stage: &mut Stage) {
    let dir = filled(stage, "deleting", 300);
    let mut seen = Vec::new();
    let mut deleted = 0;
    // rm -r with a small buffer.
    loop {
        let found = calls::entries(&dir, 512).unwrap();
        if found.is_empty() {
            break;
        }
        for (name, _, _) in found {
            if name != b"." && name != b".." {
                deleted += i32::from(calls::unlink(dir.0, &name, 0).is_ok());
            }
            seen.push(text(&name));
        }
    }
    stage.note("seen while all was deleted", (deleted, seen));
    stage.note("left", super::stage::listing_of(&dir));

    let dir = filled(stage, "going-back", 300);
    // A call may return fewer entries than fit.
    let first = calls::entries(&dir, 2000).unwrap();
    let (_, _, after_ten) = first[9];
    let names: Vec<_> = first[..10]
        .iter()
        .map(|(name, kind, _)| (text(name), *kind))
        .collect();
    stage.note("the first ten", names);
    for number in (0..300).step_by(3) {
        calls::unlink(dir.0, format!("n{number}").as_bytes(), 0).unwrap();
    }
    for number in 300..310 {
        drop(stage.file(&format!("going-back/n{number}"), b""));
    }
    calls::seek(&dir, after_ten, libc::SEEK_SET).unwrap();
    let (later, old): (Vec<_>, Vec<_>) = rest(&dir, 700)
        .into_iter()
        .partition(|name| name.starts_with("n30"));
    stage.note("from the tenth on", old);
    stage.note("made since, from the tenth on", later);
    calls::seek(&dir, 0, libc::SEEK_SET).unwrap();
    stage.note("from the beginning", rest(&dir, 5000));
    stage.note("at the end", rest(&dir, 5000));
    drop(stage.file("going-back/late", b""));
    calls::seek(&dir, 0, libc::SEEK_SET).unwrap();
    let all: BTreeSet<String> = rest(&dir, 5000).into_iter().collect();
    stage.note("a late name", all.contains("late"));

    let dir = filled(stage, "renaming", 200);
    calls::entries(&dir, 1000).unwrap();
    for number in 0..200 {
        let (from, to) = (format!("n{number}"), format!("m{number}"));
        calls::rename((dir.0, from.as_bytes()), (dir.0, to.as_bytes()), 0).unwrap();
    }
    let mut later: Vec<_> = rest(&dir, 1000);
    later.truncate(250);
    let doubled = later.len() - later.iter().collect::<BTreeSet<_>>().len();
    stage.note("twice while all was renamed", doubled);
    calls::seek(&dir, 0, libc::SEEK_SET).unwrap();
    stage.note("all renamed", rest(&dir, 5000));
}

pub(crate) fn beside_another(stage: &mut Stage) {
    let dir = filled(stage, "dir", 200);
    let first = calls::entries(&dir, 1000).unwrap();
    let mut seen: Vec<_> = first.iter().map(|(name, _, _)| text(name)).collect();
    // These names are now at the end of the directory.
    for name in ["n1", "n2", "n3"] {
        let name = (dir.0, name.as_bytes());
        calls::rename(name, (dir.0, b"elsewhere"), 0).unwrap();
        calls::rename((dir.0, b"elsewhere"), name, 0).unwrap();
    }
    let other = stage.open("dir", libc::O_RDONLY | libc::O_DIRECTORY);
    let mut later: Vec<_> = calls::entries(&other, 1000).unwrap();
    drop(stage.file("dir/new", b""));
    seen.extend(rest(&dir, 1000));
    let doubled = seen.len() - seen.iter().collect::<BTreeSet<_>>().len();
    stage.note("twice while another listing began", doubled);
    later.extend(calls::entries(&other, 1 << 20).unwrap());
    let later: BTreeSet<_> = later.iter().map(|(name, _, _)| text(name)).collect();
    stage.note("seen by the other listing", later);
}

pub(crate) fn places(stage: &mut Stage) {
    let dir = filled(stage, "dir", 50);
    let other = filled(stage, "empty", 0);
    stage.note("empty", rest(&other, 1000));
    for room in [0, 1, 23, 24, 32, 100] {
        calls::seek(&dir, 0, libc::SEEK_SET).unwrap();
        let found = calls::entries(&dir, room).map(|found| found.len());
        stage.note(format!("room for {room}"), found);
    }
    for (offset, whence) in [
        (0, libc::SEEK_SET),
        (-1, libc::SEEK_SET),
        (0, libc::SEEK_CUR),
        (-5, libc::SEEK_CUR),
        (0, 99),
    ] {
        let came = calls::seek(&dir, offset, whence);
        stage.note(format!("seek {offset} {whence}"), came);
    }
    calls::seek(&dir, 0, libc::SEEK_SET).unwrap();
    let mut offsets = Vec::new();
    loop {
        let found = calls::entries(&dir, 200).unwrap();
        if found.is_empty() {
            break;
        }
        offsets.extend(
            found
                .into_iter()
                .map(|(name, kind, offset)| (text(&name), kind, offset)),
        );
    }
    let is_short = |(_, _, offset): &(String, u8, i64)| *offset <= i64::from(i32::MAX);
    stage.note("offsets fit 31 bits", offsets.iter().all(is_short));
    for offset in [52, 53, 1000, 1 << 31, 1 << 40, (1 << 62) + 7, i64::MAX] {
        let came = calls::seek(&dir, offset, libc::SEEK_SET);
        stage.note(format!("seek past the end to {offset}"), came);
        stage.note(format!("entries at {offset}"), rest(&dir, 1000));
    }
    let ascend = offsets.windows(2).all(|pair| pair[0].2 < pair[1].2);
    stage.note("offsets ascend", ascend);
    for (name, _, offset) in offsets.iter().rev().step_by(7) {
        calls::seek(&dir, *offset, libc::SEEK_SET).unwrap();
        let next =
            calls::entries(&dir, 100).map(|found| found.first().map(|(name, _, _)| text(name)));
        stage.note(format!("after {name}"), next);
    }
    let file = stage.file("file", b"");
    stage.note(
        "list a file",
        calls::entries(&file, 1000).map(|found| found.len()),
    );
    let path_only = stage.open("dir", libc::O_PATH);
    stage.note(
        "list a path",
        calls::entries(&path_only, 1000).map(|found| found.len()),
    );
    let closed = calls::open(stage.dir(), b"dir", libc::O_WRONLY | libc::O_DIRECTORY, 0);
    stage.note("open for writing", done(closed));
    let kinds: Vec<_> = ["file", "dir", "link", "fifo", "socket"].to_vec();
    calls::symlink(b"x", stage.dir(), b"link").unwrap();
    calls::mknod(stage.dir(), b"fifo", libc::S_IFIFO | 0o600, 0).unwrap();
    calls::mknod(stage.dir(), b"socket", libc::S_IFSOCK | 0o600, 0).unwrap();
    let here = stage.open(".", libc::O_RDONLY);
    let mut shown: Vec<_> = calls::entries(&here, 4000)
        .unwrap()
        .into_iter()
        .map(|(name, kind, _)| (text(&name), kind))
        .collect();
    shown.sort();
    stage.note(format!("kinds of {kinds:?}"), shown);
}
