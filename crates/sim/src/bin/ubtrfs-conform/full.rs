//! A load on a volume that is always full, with verified contents.
//!
//! Each of many processes has its own directory or subvolume, and its own pages in shared files. It tracks the result
//! of each call, and thus the contents of each file. An operation may fail because of missing space, and must then
//! have no visible effect. At the end each process writes a description of its tree. `verify` compares it with three
//! mounts of the volume: ours, ours after a remount, and the kernel's.
//!
//! - PRESSURE-1: a read always returns the data of acknowledged writes.
//! - PRESSURE-2: an fsync only fails if data was lost. Data of a process's own files is never lost, unless it was
//!   stored through a mapping: FUSE accepts such stores before their space is reserved.
//! - PRESSURE-3: only calls that need space return ENOSPC.

mod ballast;
mod mapped;
mod member;
mod model;
mod record;
mod region;
mod subvolume;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use super::Outcome;
use ballast::{available_bytes, leave};

pub(super) use mapped::store_child;
pub(super) use member::run as member;

/// Number of files shared by all processes, and bytes of each process in each of them.
const SHARED_FILES: u64 = 2;
const SHARED_BYTES: u64 = 16 << 10;
/// Space that the ballast leaves for each process. Their files would need more.
const BYTES_EACH: u64 = 384 << 10;

/// Runs the load. `state` is a folder outside of the volume for the descriptions.
pub(super) fn run(
    dir: &Path,
    state: &Path,
    (seed, seconds, processes): (u64, u64, u64),
) -> Outcome {
    for number in 0..SHARED_FILES {
        let file = File::create(dir.join(shared_name(number)))?;
        subvolume::set_nocow(&file)?;
        file.set_len(processes * SHARED_BYTES)?;
    }
    leave(dir, processes * BYTES_EACH)?;
    let spawn = |number: u64| {
        let words = [seed + number, seconds, number].map(|word| word.to_string());
        Command::new("/proc/self/exe")
            .arg("full-member")
            .args([dir, state])
            .args(words)
            .spawn()
    };
    let members: io::Result<Vec<_>> = (0..processes).map(spawn).collect();
    let mut failed = 0;
    for mut member in members? {
        failed += u32::from(!member.wait()?.success());
    }
    match failed {
        0 => Ok(()),
        _ => Err(format!("{failed} members failed, seed {seed}").into()),
    }
}

fn shared_name(number: u64) -> String {
    format!("shared{number}")
}

/// Compares a mount with the descriptions of the load.
pub(super) fn verify(dir: &Path, state: &Path) -> Outcome {
    let mut wrong = 0;
    for entry in fs::read_dir(state)? {
        for fault in record::verify(dir, &entry?.path())? {
            eprintln!("{}: {fault}", dir.display());
            wrong += 1;
        }
    }
    match wrong {
        0 => Ok(()),
        _ => Err(format!("{wrong} files are not what was written").into()),
    }
}

/// Empties the volume, which must free all space. Then writes large amounts, which must not return ENOSPC. `before`
/// is the free space of the new volume.
pub(super) fn again(dir: &Path, before: u64) -> Outcome {
    subvolume::remove_all(dir)?;
    ballast::wait_for(dir, before - before / 16)?;
    let bytes = vec![0x5a; 1 << 20];
    let most = before - before / 4;
    let threads = 8;
    let outcomes: Vec<io::Result<()>> = std::thread::scope(|scope| {
        let fill = |number: u64| {
            let file = File::create(dir.join(format!("again{number}")))?;
            for part in 0..(most / threads) >> 20 {
                file.write_all_at(&bytes, part << 20)?;
            }
            file.sync_all()
        };
        let all: Vec<_> = (0..threads)
            .map(|number| scope.spawn(move || fill(number)))
            .collect();
        all.into_iter()
            .map(|one| one.join().expect("a thread that writes"))
            .collect()
    });
    for outcome in outcomes {
        let left = available_bytes(dir)?;
        outcome.map_err(|error| format!("on an empty volume: {error}; {left} bytes are left"))?;
    }
    subvolume::remove_all(dir)
}

/// Prints the number of available bytes.
pub(super) fn available(dir: &Path) -> Outcome {
    println!("{}", available_bytes(dir)?);
    Ok(())
}
