//! Many threads and the background commit at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ubtrfs_format::item::InodeFlags;
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::{Rng, seed};
use ubtrfs_storage::FileId;

use super::fixture::{MIB, Rig, options};
use crate::file::Fallocate;
use crate::{OpenOptions, Volume};

const NOCOW: InodeFlags = InodeFlags::NODATACOW.union(InodeFlags::NODATASUM);

fn busy() -> OpenOptions {
    options()
        .commit_interval(Some(Duration::from_millis(5)))
        .buffer_bytes(MIB)
        .delta_bytes(256 << 10)
}

/// Writes a file that no other thread writes.
fn use_alone(volume: &Volume, id: FileId, mut rng: Rng) -> Vec<u8> {
    let mut model: Vec<u8> = Vec::new();
    for step in 0..400u32 {
        let offset = rng.below(400_000) as usize;
        let len = 1 + rng.below(30_000) as usize;
        match rng.below(12) {
            0 => {
                volume.truncate(id, offset as u64).unwrap();
                model.resize(offset, 0);
            }
            1 => {
                let (start, len) = (offset as u64, len as u64);
                volume
                    .fallocate(id, Fallocate::PunchHole, start, len)
                    .unwrap();
                let end = (offset + len as usize).min(model.len());
                if offset < end {
                    model[offset..end].fill(0);
                }
            }
            2 => volume.fsync(id).unwrap(),
            3 => {
                let mut buf = vec![0; model.len() + 1];
                let len = volume.read(id, 0, &mut buf).unwrap();
                assert!(buf[..len] == model[..], "step {step}");
            }
            _ => {
                let bytes = vec![rng.below(256) as u8; len];
                volume.write(id, offset as u64, &bytes).unwrap();
                if model.len() < offset + len {
                    model.resize(offset + len, 0);
                }
                model[offset..offset + len].copy_from_slice(&bytes);
            }
        }
    }
    model
}

#[test]
fn threads_with_files_of_their_own_do_not_disturb_each_other() {
    let seed = seed("threads_with_files_of_their_own");
    let rig = Rig::on(&MkfsOptions::default(), 512 * MIB, busy());
    let ids: Vec<FileId> = (0..6)
        .map(|number| {
            rig.file(if number % 3 == 0 {
                NOCOW
            } else {
                InodeFlags::empty()
            })
        })
        .collect();
    let volume = rig.volume();
    let models: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let users: Vec<_> = ids
            .iter()
            .zip(0..)
            .map(|(&id, number)| {
                let rng = Rng::new(seed ^ number);
                scope.spawn(move || use_alone(volume, id, rng))
            })
            .collect();
        users.into_iter().map(|user| user.join().unwrap()).collect()
    });
    rig.assert_sound();
    for (id, model) in ids.iter().zip(models) {
        let mut buf = vec![0; model.len() + 1];
        let len = volume.read(*id, 0, &mut buf).unwrap();
        assert!(buf[..len] == model[..]);
    }
}

/// BUFFER-1. Each write fills a whole sector with one byte value, so in any order a sector never has two
/// values.
#[test]
fn sectors_are_never_torn_while_many_write_clone_and_read() {
    let seed = seed("sectors_are_never_torn");
    let rig = Rig::on(&MkfsOptions::default(), 512 * MIB, busy());
    let ids = [InodeFlags::empty(), InodeFlags::empty()].map(|flags| rig.file(flags));
    let volume = rig.volume();
    let done = AtomicBool::new(false);
    let sectors = 64;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4u64)
            .map(|number| {
                scope.spawn(move || {
                    let mut rng = Rng::new(seed ^ number);
                    for _ in 0..300 {
                        let id = ids[rng.below(2) as usize];
                        let other = ids[rng.below(2) as usize];
                        let at = 4096 * rng.below(sectors);
                        let to = 4096 * rng.below(sectors);
                        match rng.below(10) {
                            0 => volume.truncate(id, at).unwrap(),
                            1 => volume.sync().unwrap(),
                            2 => drop(volume.clone_range(id, at, 16384, other, to)),
                            3 => {
                                let reserve = Fallocate::Reserve { keep_size: false };
                                volume.fallocate(id, reserve, at, 40960).unwrap();
                            }
                            4 => {
                                let bytes = [rng.below(256) as u8; 8192];
                                volume.write_direct(id, at, &bytes).unwrap();
                            }
                            _ => {
                                let bytes = [rng.below(256) as u8; 8192];
                                volume.write(id, at, &bytes).unwrap();
                            }
                        }
                    }
                })
            })
            .collect();
        let (done, rig) = (&done, &rig);
        let reader = scope.spawn(move || {
            let mut buf = vec![0; 4096 * sectors as usize + 65536];
            while !done.load(Ordering::Relaxed) {
                for id in ids {
                    let len = rig.volume().read(id, 0, &mut buf).unwrap();
                    for sector in buf[..len].chunks(4096) {
                        assert!(sector.iter().all(|&byte| byte == sector[0]));
                    }
                }
            }
        });
        writers
            .into_iter()
            .for_each(|manager| manager.join().unwrap());
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    rig.assert_sound();
}
