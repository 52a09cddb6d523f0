//! Operations of several threads at once.

use std::sync::Barrier;
use std::thread;

use ubtrfs_fs::{Error, NewInode, RenameMode};
use ubtrfs_sim::Rng;

use crate::fixture::{World, names};

/// INODE-2
#[test]
fn threads_fill_and_empty_directories_while_commits_run() {
    let mut world = World::new();
    let volume = world.volume();
    let dirs = ["a", "b", "c"].map(|name| world.dir(name));
    thread::scope(|scope| {
        for turn in 0..4u64 {
            scope.spawn(move || {
                let mut rng = Rng::new(turn);
                for number in 0..2000u64 {
                    let dir = dirs[rng.below(3) as usize];
                    let name = format!("{turn}-{number}");
                    let new = NewInode::file(0o600);
                    volume.create(dir, name.as_bytes(), &new).unwrap();
                    match rng.below(4) {
                        0 => volume.unlink(dir, name.as_bytes()).unwrap(),
                        1 => {
                            let to = (dirs[rng.below(3) as usize], b"shared".as_slice());
                            volume
                                .rename(dir, name.as_bytes(), to, RenameMode::Replace)
                                .unwrap();
                        }
                        _ => {}
                    }
                    if number % 500 == 0 {
                        volume.sync().unwrap();
                    }
                }
            });
        }
    });
    let shown = ["a", "b", "c"].map(|name| names(volume, name));
    world.shows(|volume| {
        for (name, shown) in ["a", "b", "c"].iter().zip(&shown) {
            assert_eq!(&names(volume, name), shown);
            let size: usize = shown.iter().map(|name| 2 * name.len()).sum();
            assert_eq!(
                volume.attr(crate::fixture::at(volume, name)).unwrap().size,
                size as u64
            );
        }
    });
}

#[test]
fn directories_moved_by_many_form_no_loop() {
    let world = World::new();
    let volume = world.volume();
    let top = world.top();
    let dirs: Vec<_> = (0..6)
        .map(|number| world.dir(&number.to_string()))
        .collect();
    thread::scope(|scope| {
        for turn in 0..4u64 {
            let dirs = &dirs;
            scope.spawn(move || {
                let mut rng = Rng::new(100 + turn);
                for _ in 0..1500 {
                    let number = rng.below(6) as usize;
                    let name = number.to_string();
                    let from = volume.parent(dirs[number]).unwrap();
                    let to = match rng.below(3) {
                        0 => top,
                        _ => dirs[rng.below(6) as usize],
                    };
                    let mode = RenameMode::NoReplace;
                    match volume.rename(from, name.as_bytes(), (to, name.as_bytes()), mode) {
                        Ok(()) | Err(Error::NotFound | Error::Exists | Error::Invalid(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    for dir in dirs {
        let mut at = dir;
        let mut steps = 0;
        while at != top {
            at = volume.parent(at).unwrap();
            steps += 1;
            assert!(steps <= 6);
        }
    }
}

/// INODE-1: with more than one object, the lock would not exclude other threads.
#[test]
fn one_of_many_makes_a_name() {
    let world = World::new();
    let volume = world.volume();
    let top = world.top();
    for round in 0..50 {
        let name = format!("{round}");
        let start = Barrier::new(4);
        let made: usize = thread::scope(|scope| {
            let all: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        let new = NewInode::file(0o600);
                        match volume.create(top, name.as_bytes(), &new) {
                            Ok(_) => 1,
                            Err(Error::Exists) => 0,
                            Err(error) => panic!("{error}"),
                        }
                    })
                })
                .collect();
            all.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(made, 1);
    }
    assert_eq!(names(volume, "").len(), 50);
}

#[test]
fn unlinking_and_holding_at_once_leaves_nothing() {
    let world = World::new();
    let volume = world.volume();
    let top = world.top();
    for _ in 0..300 {
        let id = world.file("file");
        thread::scope(|scope| {
            scope.spawn(|| volume.unlink(top, b"file").unwrap());
            scope.spawn(|| drop(volume.open_file(id)));
        });
        assert!(crate::fixture::keys_of(volume, id).is_empty());
    }
}
