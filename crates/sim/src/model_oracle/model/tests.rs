//! Properties of the model itself; the kernel verifies that it behaves like btrfs (`tests/model.rs`).

use super::*;
use crate::fill::Kind;
use crate::manifest::{Field, Time, diff};
use crate::script::{At, Data, Generator, RenameHow, Shape, path};
use crate::seed;

fn model(ops: &[Op]) -> ModelFs {
    let mut model = ModelFs::default();
    for op in ops {
        model
            .apply(op)
            .unwrap_or_else(|error| panic!("{op:?}: {error}"));
    }
    model
}

fn create(name: &str) -> Op {
    Op::Create {
        path: path(name),
        mode: 0o644,
    }
}

fn write(name: &str, offset: u64, bytes: &[u8]) -> Op {
    Op::Write {
        at: At::Path(path(name)),
        offset,
        data: Data::Bytes(bytes.to_vec()),
    }
}

fn read(model: &mut ModelFs, at: At) -> Vec<u8> {
    let read = Op::Read {
        at,
        offset: 0,
        len_bytes: 100,
    };
    match model.apply(&read) {
        Ok(Outcome::Bytes(bytes)) => bytes,
        other => panic!("{other:?}"),
    }
}

// MODEL-1
#[test]
fn operation_that_fails_changes_nothing() {
    let seed = seed("fails");
    for shape in [Shape::Mixed, Shape::Snapshots, Shape::Xattrs] {
        let mut generator = Generator::new(shape, seed);
        let mut model = ModelFs::default();
        let mut shown = model.manifest();
        for _ in 0..300 {
            let op = generator.next_op(&model);
            match model.apply(&op) {
                Ok(_) => shown = model.manifest(),
                Err(error) => assert!(model.manifest() == shown, "{op:?}: {error}"),
            }
        }
    }
}

#[test]
fn clone_keeps_what_it_was() {
    let mut live = model(&[create("a"), write("a", 0, b"one")]);
    let kept = live.clone();
    let before = kept.manifest();
    live.apply(&write("a", 0, b"two")).unwrap();
    live.apply(&create("b")).unwrap();
    assert!(kept.manifest() == before && live.manifest() != before);
}

#[test]
fn snapshot_shows_an_empty_subvolume_dir_for_a_subvolume_inside_its_source() {
    let made = model(&[
        Op::CreateSubvolume { path: path("a") },
        Op::CreateSubvolume { path: path("a/b") },
        create("a/b/file"),
        Op::Snapshot {
            from: path("a"),
            to: path("s"),
            read_only: false,
        },
    ]);
    let shown = made.manifest();
    assert!(shown.get(b"a/b/file").is_some() && shown.get(b"s/b/file").is_none());
    assert!(
        shown
            .get(b"s/b")
            .is_some_and(|entry| entry.is_empty_subvolume_dir())
    );
}

/// Matches simple_lookup in the kernel's fs/libfs.c.
#[test]
fn too_long_a_name_in_an_empty_subvolume_dir_is_told_before_its_absence() {
    let subvolume = |name| Op::CreateSubvolume { path: path(name) };
    let mut model = model(&[
        subvolume("a"),
        subvolume("a/b"),
        Op::Snapshot {
            from: path("a"),
            to: path("s"),
            read_only: false,
        },
    ]);
    let mut error_at = |name: &[u8]| {
        let path = path("s/b").join(name);
        model.apply(&Op::Stat { path }).unwrap_err()
    };
    assert_eq!(error_at(&[b'x'; 255]), OpError::NotFound);
    assert_eq!(error_at(&[b'x'; 256]), OpError::NameTooLong);
}

#[test]
fn stub_may_be_renamed_to_its_own_name_only() {
    let mut made = model(&[
        Op::CreateSubvolume { path: path("a") },
        Op::CreateSubvolume { path: path("a/b") },
        Op::Snapshot {
            from: path("a"),
            to: path("s"),
            read_only: false,
        },
    ]);
    let mut rename = |to: &str| {
        made.apply(&Op::Rename {
            from: path("s/b"),
            to: path(to),
            how: RenameHow::Replace,
        })
    };
    assert_eq!(rename("s/b"), Ok(Outcome::Done));
    assert_eq!(rename("s/c"), Err(OpError::NotEmpty));
}

#[test]
fn subvolume_moved_over_its_empty_subvolume_dir_is_there_again() {
    let made = model(&[
        Op::CreateSubvolume { path: path("a") },
        Op::CreateSubvolume { path: path("a/b") },
        create("a/b/file"),
        Op::Snapshot {
            from: path("a"),
            to: path("s"),
            read_only: false,
        },
        Op::Rename {
            from: path("a/b"),
            to: path("s/b"),
            how: RenameHow::Replace,
        },
    ]);
    let shown = made.manifest();
    assert!(shown.get(b"s/b/file").is_some() && shown.get(b"a/b").is_none());
}

#[test]
fn unlinked_file_lives_until_it_is_closed() {
    let slot = Slot(1);
    let mut open = model(&[
        create("a"),
        Op::Open {
            path: path("a"),
            slot,
        },
        Op::Unlink { path: path("a") },
        Op::Append {
            at: At::Slot(slot),
            data: Data::Bytes(b"still here".to_vec()),
        },
    ]);
    assert_eq!(read(&mut open, At::Slot(slot)), b"still here");
    assert_eq!(open.inode_count(), 2);
    open.apply(&Op::Close { slot }).unwrap();
    assert_eq!(open.inode_count(), 1);
}

// CONTENT-1
#[test]
fn bytes_past_a_shorter_size_are_gone() {
    let mut cut = model(&[
        create("a"),
        write("a", 0, &[7; 20]),
        Op::Truncate {
            at: At::Path(path("a")),
            size: 5,
        },
        Op::Truncate {
            at: At::Path(path("a")),
            size: 8,
        },
    ]);
    let bytes = read(&mut cut, At::Path(path("a")));
    assert_eq!(bytes, [7, 7, 7, 7, 7, 0, 0, 0]);
}

#[test]
fn one_content_has_one_digest_however_it_came_about() {
    let mut rng = crate::Rng::new(seed("one content"));
    let text = crate::fill::bytes(Kind::Text, 50_000, &mut rng);
    let whole = model(&[create("a"), write("a", 0, &text)]);
    let mut parts = model(&[create("a"), write("a", 60_000, b"x")]);
    for (number, part) in text
        .chunks(777)
        .enumerate()
        .collect::<Vec<_>>()
        .iter()
        .rev()
    {
        parts
            .apply(&write("a", *number as u64 * 777, part))
            .unwrap();
    }
    assert_ne!(
        whole.manifest().fingerprint(),
        parts.manifest().fingerprint()
    );
    let cut = Op::Truncate {
        at: At::Path(path("a")),
        size: 50_000,
    };
    parts.apply(&cut).unwrap();
    assert_eq!(
        whole.manifest().fingerprint(),
        parts.manifest().fingerprint()
    );
    assert_eq!(diff(&whole.manifest(), &parts.manifest()), []);
}

#[test]
fn only_times_that_were_set_are_compared() {
    let mut made = model(&[create("a"), create("b")]);
    let time = Time {
        seconds: 5,
        nanoseconds: 6,
    };
    made.apply(&Op::SetTimes {
        path: path("a"),
        atime: time,
        mtime: time,
    })
    .unwrap();
    let mut shown = made.manifest();
    for entry in &mut shown.entries {
        entry.stat.mtime.seconds += 1;
        entry.stat.ctime.seconds += 1;
    }
    let differences = made.compare(&shown, &[]);
    assert_eq!(differences.len(), 1, "{differences:?}");
    made.apply(&write("a", 0, b"changes the time")).unwrap();
    let mut shown = made.manifest();
    for entry in &mut shown.entries {
        entry.stat.mtime.seconds += 1;
    }
    assert_eq!(made.compare(&shown, &[]), []);
}

#[test]
fn copy_is_not_taken_for_a_hard_link() {
    let linked = model(&[
        create("a"),
        Op::Link {
            from: path("a"),
            to: path("b"),
        },
    ]);
    let mut shown = linked.manifest();
    for (number, entry) in shown.entries.iter_mut().enumerate() {
        entry.stat.ino += 1000 * number as u64;
    }
    let differences = linked.compare(&shown, &[]);
    assert_eq!(differences.len(), 1, "{differences:?}");
    assert_eq!(linked.compare(&shown, &[Field::Ino]), []);
    assert_ne!(linked.manifest().fingerprint(), shown.fingerprint());
}
