//! Repeated look-ups of names: a cached result is never stale.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{Error, FileId, NewInode, RenameMode, Volume};

use crate::fixture::{World, at, colliding_names, is_missing};

use RenameMode::{Exchange, NoReplace, Replace};

/// Looks up a name twice: the first look-up may fill the cache.
fn look_up(volume: &Volume, dir: FileId, name: &str) -> Option<FileId> {
    let first = volume.lookup(dir, name.as_bytes()).unwrap();
    assert_eq!(volume.lookup(dir, name.as_bytes()).unwrap(), first);
    first
}

fn rename(volume: &Volume, dir: FileId, from: &str, to: &str, mode: RenameMode) {
    let to = (dir, to.as_bytes());
    volume.rename(dir, from.as_bytes(), to, mode).unwrap();
}

/// Calls `in_dir` with directories of all ages: before, between and after commits. `in_dir` makes the same
/// changes in each, with look-ups of all names in between.
fn at_all_ages(in_dir: impl Fn(&World, FileId)) {
    let mut world = World::new();
    in_dir(&world, world.dir("new"));
    let old = world.dir("committed");
    world.volume().sync().unwrap();
    in_dir(&world, old);
    world.reopen();
    in_dir(&world, world.dir("other"));
}

#[test]
fn name_taken_away_and_given_again_leads_to_the_new_file() {
    at_all_ages(|world, dir| {
        let volume = world.volume();
        let new = NewInode::file(0o600);
        for round in 0..4 {
            assert_eq!(look_up(volume, dir, "name"), None);
            let id = volume.create(dir, b"name", &new).unwrap();
            assert_eq!(look_up(volume, dir, "name"), Some(id));
            if round % 2 == 0 {
                volume.sync().unwrap();
            }
            assert_eq!(look_up(volume, dir, "name"), Some(id));
            volume.unlink(dir, b"name").unwrap();
        }
        let below = volume
            .create(dir, b"name", &NewInode::directory(0o700))
            .unwrap();
        assert_eq!(look_up(volume, dir, "name"), Some(below));
        volume.rmdir(dir, b"name").unwrap();
        assert_eq!(look_up(volume, dir, "name"), None);
    });
}

/// DRAFT-2
#[test]
fn moved_names_lead_where_they_were_moved() {
    at_all_ages(|world, dir| {
        let volume = world.volume();
        let new = NewInode::file(0o600);
        let make = |name: &str| volume.create(dir, name.as_bytes(), &new).unwrap();
        let (a, b) = (make("a"), make("b"));
        let shows = |of: &str, to: Option<FileId>| assert_eq!(look_up(volume, dir, of), to);
        shows("a", Some(a));
        shows("b", Some(b));
        rename(volume, dir, "a", "b", Exchange);
        shows("a", Some(b));
        shows("b", Some(a));
        rename(volume, dir, "a", "c", NoReplace);
        shows("a", None);
        shows("c", Some(b));
        rename(volume, dir, "b", "c", Replace);
        shows("b", None);
        shows("c", Some(a));
        volume.link(a, dir, b"d").unwrap();
        shows("d", Some(a));
        let whiteout = NewInode::with_mode(0o020_000);
        let to = (dir, &b"e"[..]);
        volume
            .rename_leaving(dir, b"c", to, Replace, &whiteout)
            .unwrap();
        shows("e", Some(a));
        assert!(look_up(volume, dir, "c").is_some_and(|left| left != a));
    });
}

#[test]
fn names_with_one_hash_are_told_apart() {
    at_all_ages(|world, dir| {
        let volume = world.volume();
        let names = colliding_names(6, 20);
        let look = |name: &[u8]| {
            let first = volume.lookup(dir, name).unwrap();
            assert_eq!(volume.lookup(dir, name).unwrap(), first);
            first
        };
        let new = NewInode::file(0o600);
        let mut made = Vec::new();
        for name in &names {
            assert_eq!(look(name), None);
            made.push(volume.create(dir, name, &new).unwrap());
        }
        for _ in 0..names.len() {
            for (name, id) in names.iter().zip(&made) {
                assert_eq!(look(name), Some(*id));
            }
        }
        for gone in 0..names.len() {
            volume.unlink(dir, &names[gone]).unwrap();
            for (number, name) in names.iter().enumerate() {
                assert_eq!(look(name), (number > gone).then_some(made[number]));
            }
        }
    });
}

#[test]
fn snapshot_and_its_source_change_apart() {
    let world = World::new();
    let volume = world.volume();
    let dir = world.dir("dir");
    let new = NewInode::file(0o600);
    let old = volume.create(dir, b"name", &new).unwrap();
    assert_eq!(look_up(volume, dir, "name"), Some(old));
    let snapshot = volume
        .snapshot(RootId::FS_TREE, world.top(), b"snapshot", false)
        .unwrap();
    let copied = FileId::new(snapshot, dir.ino);
    let in_copy = |id: FileId| FileId::new(snapshot, id.ino);
    assert_eq!(look_up(volume, copied, "name"), Some(in_copy(old)));
    volume.unlink(dir, b"name").unwrap();
    assert_eq!(look_up(volume, dir, "name"), None);
    assert_eq!(look_up(volume, copied, "name"), Some(in_copy(old)));
    rename(volume, copied, "name", "moved", NoReplace);
    let other = volume.create(dir, b"name", &new).unwrap();
    assert_eq!(look_up(volume, dir, "name"), Some(other));
    assert_eq!(look_up(volume, copied, "name"), None);
    assert_eq!(look_up(volume, copied, "moved"), Some(in_copy(old)));
}

#[test]
fn nothing_is_found_in_a_deleted_subvolume_nor_in_the_place_of_one() {
    let mut world = World::new();
    for _ in 0..2 {
        let volume = world.volume();
        let top = world.top();
        let root = NewInode::directory(0o755);
        let first = volume.create_subvolume(top, b"sub", &root).unwrap();
        let inside = at(volume, "sub");
        let file = volume
            .create(inside, b"file", &NewInode::file(0o600))
            .unwrap();
        assert_eq!(look_up(volume, inside, "file"), Some(file));
        assert_eq!(look_up(volume, top, "sub"), Some(inside));
        volume.delete_subvolume(top, b"sub").unwrap();
        assert_eq!(look_up(volume, top, "sub"), None);
        let gone = volume.lookup(inside, b"file");
        assert!(matches!(gone, Err(Error::NoSuchSubvolume(_))), "{gone:?}");
        let second = volume.create_subvolume(top, b"sub", &root).unwrap();
        assert_ne!(first, second);
        assert!(is_missing(volume, "sub/file"));
        volume.free_deleted_subvolumes().unwrap();
        assert!(volume.lookup(inside, b"file").is_err());
        assert!(is_missing(volume, "sub/file"));
        volume.rmdir(top, b"sub").unwrap();
        assert_eq!(look_up(volume, top, "sub"), None);
        // A directory in the place of the subvolume.
        let plain = volume.create(top, b"sub", &root).unwrap();
        assert_eq!(look_up(volume, top, "sub"), Some(plain));
        volume.rmdir(top, b"sub").unwrap();
        world.reopen();
    }
}

/// The inode that a name leads to since `turn`. During a change the turn is odd.
#[derive(Default)]
struct NamedInode {
    turn: AtomicU64,
    /// 0: the name does not exist.
    ino: AtomicU64,
}

impl NamedInode {
    fn change(&self, make: impl FnOnce() -> u64) {
        self.turn.fetch_add(1, Ordering::SeqCst);
        let ino = make();
        self.ino.store(ino, Ordering::SeqCst);
        self.turn.fetch_add(1, Ordering::SeqCst);
    }

    /// Asserts that a look-up finds the current inode, unless it changed during the look-up. Returns whether
    /// it did not.
    fn judge(&self, find: impl FnOnce() -> Option<FileId>) -> bool {
        let turn = self.turn.load(Ordering::SeqCst);
        let named = self.ino.load(Ordering::SeqCst);
        let found = find().map_or(0, |id| id.ino.0);
        let is_still = turn.is_multiple_of(2) && self.turn.load(Ordering::SeqCst) == turn;
        assert!(!is_still || found == named, "found {found}, named {named}");
        is_still
    }
}

const CHANGES: u64 = 6000;
const LEAST_JUDGED: u64 = 10;

/// Creates, replaces, moves and removes "name" during look-ups and commits.
#[test]
fn names_that_change_while_others_look_are_never_shown_as_they_were() {
    let world = World::new();
    let volume = world.volume();
    let dir = world.dir("dir");
    let (name, moved) = (NamedInode::default(), NamedInode::default());
    let judged = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    let find = |of: &[u8]| volume.lookup(dir, of).unwrap();
    thread::scope(|scope| {
        let look = || {
            while !done.load(Ordering::Relaxed) {
                if name.judge(|| find(b"name")) | moved.judge(|| find(b"moved")) {
                    judged.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        let lookers = [scope.spawn(look), scope.spawn(look)];
        scope.spawn(|| {
            let mut number = 0;
            while !done.load(Ordering::Relaxed) {
                volume.sync().unwrap();
                number += 1;
                if number % 8 == 0 {
                    let shot = format!("shot{number}");
                    let top = world.top();
                    volume
                        .snapshot(RootId::FS_TREE, top, shot.as_bytes(), true)
                        .unwrap();
                    volume.delete_subvolume(top, shot.as_bytes()).unwrap();
                }
            }
        });
        let create = |of: &[u8]| {
            let new = NewInode::file(0o600);
            volume.create(dir, of, &new).unwrap().ino.0
        };
        // On a busy machine the readers may start late: continue until they have checked enough.
        let is_enough = || judged.load(Ordering::Relaxed) >= LEAST_JUDGED;
        let has_failed = || lookers.iter().any(|looker| looker.is_finished());
        let mut rounds = 0;
        while rounds < CHANGES / 6 || !(is_enough() || has_failed()) {
            rounds += 1;
            name.change(|| create(b"name"));
            // Rename over another name.
            let other = create(b"other");
            name.change(|| {
                rename(volume, dir, "other", "name", Replace);
                other
            });
            // Rename away. The moved name exists before the old one is checked.
            name.change(|| {
                moved.change(|| {
                    rename(volume, dir, "name", "moved", NoReplace);
                    other
                });
                0
            });
            let first = create(b"other");
            name.change(|| {
                rename(volume, dir, "other", "name", NoReplace);
                first
            });
            name.change(|| {
                moved.change(|| {
                    rename(volume, dir, "name", "moved", Exchange);
                    first
                });
                other
            });
            for (of, inode) in [("name", &name), ("moved", &moved)] {
                inode.change(|| {
                    volume.unlink(dir, of.as_bytes()).unwrap();
                    0
                });
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_name_that_was_seen_at_its_new_place_is_gone_from_its_old_one() {
    let world = World::new();
    let volume = world.volume();
    let dir = world.dir("dir");
    let file = world.file("dir/0");
    // The numbers of moves begun and done.
    let (begun, ended) = (AtomicU64::new(0), AtomicU64::new(0));
    let done = AtomicBool::new(false);
    let name = |number: u64| (number % 2).to_string();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let from = ended.load(Ordering::SeqCst);
                    let first = volume.lookup(dir, name(from + 1).as_bytes()).unwrap();
                    let second = volume.lookup(dir, name(from).as_bytes()).unwrap();
                    if begun.load(Ordering::SeqCst) > from + 1 {
                        continue;
                    }
                    // At most one move in between: from `from` to the other.
                    assert!(first.is_none_or(|id| id == file));
                    assert!(
                        first.is_none() || second.is_none(),
                        "at its old place after it was seen at the new one"
                    );
                }
            });
        }
        for number in 0..CHANGES {
            begun.fetch_add(1, Ordering::SeqCst);
            rename(volume, dir, &name(number), &name(number + 1), NoReplace);
            ended.fetch_add(1, Ordering::SeqCst);
            if number % 500 == 0 {
                volume.sync().unwrap();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}
