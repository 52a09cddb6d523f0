//! A full volume where many threads need space at once.

use std::sync::Barrier;
use std::thread;

use ubtrfs_format::ids::RootId;
use ubtrfs_mkfs::MkfsOptions;

use super::fixture::{MIB, Rig, options};
use crate::file::Fallocate;
use crate::{BlockGroupType, Error, NewInode, Volume};

const THREADS: usize = 4;

/// Creates small files in a directory until the volume is full, and returns their number.
fn fill(volume: &Volume, dir: ubtrfs_storage::FileId) -> usize {
    let data = [7; 700];
    for number in 0.. {
        let new = NewInode::file(0o644);
        let written = volume
            .create(dir, format!("f{number}").as_bytes(), &new)
            .and_then(|file| (0..3).try_for_each(|_| volume.append(file, &data).map(drop)));
        match written {
            Ok(()) => {}
            Err(error) if error.is_no_space() => return number,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("no volume is that large")
}

#[test]
fn threads_that_remove_files_of_a_full_volume_all_find_space() {
    let rig = Rig::on(&MkfsOptions::default(), 128 * MIB, options());
    let volume = rig.volume();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let dirs: Vec<_> = (0..THREADS)
        .map(|number| {
            let new = NewInode::directory(0o755);
            let name = format!("d{number}");
            volume.create(top, name.as_bytes(), &new).unwrap()
        })
        .collect();
    let counts: Vec<usize> = thread::scope(|scope| {
        let threads: Vec<_> = dirs
            .iter()
            .map(|&dir| scope.spawn(move || fill(volume, dir)))
            .collect();
        threads
            .into_iter()
            .map(|fill| fill.join().unwrap())
            .collect()
    });
    let refused: usize = thread::scope(|scope| {
        let unlink = |dir, number: usize| match volume.unlink(dir, format!("f{number}").as_bytes())
        {
            Ok(()) | Err(Error::NotFound) => 0,
            Err(error) if error.is_no_space() => 1,
            Err(error) => panic!("{error}"),
        };
        let threads: Vec<_> = dirs
            .iter()
            .zip(&counts)
            .map(|(&dir, &count)| {
                scope.spawn(move || (0..=count).map(|number| unlink(dir, number)).sum::<usize>())
            })
            .collect();
        threads.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert_eq!(refused, 0, "of {}", counts.iter().sum::<usize>());
    rig.assert_sound();
}

/// Each thread wants as much as it has just freed, and the shares of all threads fit at once.
///
/// Metadata and system chunks take 81 MiB of the volume. The other 175 MiB hold five files of 34 MiB. They would not
/// hold five of 36 MiB: while the other four files are there, ENOSPC is right.
#[test]
fn threads_that_reserve_what_they_have_freed_all_find_space() {
    const ROUNDS: usize = 40;
    const LEN_BYTES: u64 = 34 * MIB;
    let rig = Rig::on(&MkfsOptions::default(), 256 * MIB, options());
    let volume = rig.volume();
    let totals = volume.inodes.transactions().unwrap().space.totals();
    let data = totals.iter().find(|sums| sums.kind == BlockGroupType::Data);
    let data_bytes = data.map_or(0, |data| data.free_bytes + data.unallocated_bytes);
    assert_eq!(data_bytes, 175 * MIB);
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let begin = Barrier::new(THREADS + 1);
    let reserve = |number: usize| {
        begin.wait();
        let name = format!("f{number}");
        let mode = Fallocate::Reserve { keep_size: false };
        let mut refused = 0;
        for _ in 0..ROUNDS {
            let new = NewInode::file(0o644);
            let file = volume.create(top, name.as_bytes(), &new).unwrap();
            match volume.fallocate(file, mode, 0, LEN_BYTES) {
                Ok(()) => {}
                Err(error) if error.is_no_space() => refused += 1,
                Err(error) => panic!("{error}"),
            }
            volume.unlink(top, name.as_bytes()).unwrap();
        }
        refused
    };
    let write = || {
        begin.wait();
        let data = vec![1; MIB as usize];
        let mut refused = 0;
        for _ in 0..ROUNDS / 2 {
            let file = volume.create(top, b"w", &NewInode::file(0o644)).unwrap();
            for at in 0..LEN_BYTES / MIB {
                match volume.write(file, at * MIB, &data[..data.len() - 1]) {
                    Ok(()) => {}
                    Err(error) if error.is_no_space() => refused += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            volume.unlink(top, b"w").unwrap();
        }
        refused
    };
    let refused: Vec<i32> = thread::scope(|scope| {
        let reserve = &reserve;
        let mut threads: Vec<_> = (0..THREADS)
            .map(|number| scope.spawn(move || reserve(number)))
            .collect();
        threads.push(scope.spawn(write));
        threads.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(refused, [0; THREADS + 1]);
    rig.assert_sound();
}
