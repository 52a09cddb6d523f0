//! Concurrent syncs, while other threads change names.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use ubtrfs_check::{CheckOptions, check_devices};
use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{FileId, NewInode, RenameMode, Volume};

use crate::cut::{made, open};
use crate::written::pattern;

const WRITERS: usize = 3;
const SAVES: u64 = 60;
const CUTS: usize = 12;

fn dir_name(writer: usize) -> Vec<u8> {
    format!("writer {writer}").into_bytes()
}

fn content(version: u64) -> Vec<u8> {
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.extend(pattern(version as u8, 3000));
    bytes
}

/// Saves like an editor: creates a new file, syncs it, renames it over the old one, and syncs the directory.
fn save(volume: &Volume, dir: FileId, version: u64) {
    let new = NewInode::file(0o644);
    let file = volume.create(dir, b"new", &new).unwrap();
    volume.write(file, 0, &content(version)).unwrap();
    volume.fsync(file).unwrap();
    let to = (dir, &b"file"[..]);
    volume.rename(dir, b"new", to, RenameMode::Replace).unwrap();
    volume.fsync(dir).unwrap();
}

/// Moves and links a file between all directories, without syncs.
fn disturb(volume: &Volume, dirs: &[FileId], until: &AtomicBool) {
    let new = NewInode::file(0o644);
    let file = volume.create(dirs[0], b"wanderer", &new).unwrap();
    let mut at = 0;
    while !until.load(Ordering::Relaxed) {
        let next = (at + 1) % dirs.len();
        volume.link(file, dirs[next], b"link").unwrap();
        let to = (dirs[next], &b"wanderer"[..]);
        volume
            .rename(dirs[at], b"wanderer", to, RenameMode::Replace)
            .unwrap();
        volume.unlink(dirs[next], b"link").unwrap();
        at = next;
    }
}

/// A cut, and the versions that were durable before it.
struct Cut {
    image: MemDevice,
    synced: Vec<u64>,
}

fn judge(cut: Cut) {
    let device = Arc::new(cut.image);
    let volume = open(Arc::clone(&device) as Arc<dyn BlockDevice>, true).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let mut wanderers = 0;
    for (writer, synced) in cut.synced.into_iter().enumerate() {
        let dir = volume.lookup(top, &dir_name(writer)).unwrap().unwrap();
        wanderers += usize::from(volume.lookup(dir, b"wanderer").unwrap().is_some());
        let Some(file) = volume.lookup(dir, b"file").unwrap() else {
            assert_eq!(synced, 0, "the file of writer {writer} is gone");
            continue;
        };
        let mut bytes = vec![0; 4000];
        let len = volume.read(file, 0, &mut bytes).unwrap();
        let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert!(bytes[..len] == content(version), "a save is torn");
        assert!(
            version >= synced,
            "version {version}, and {synced} was synced"
        );
    }
    assert!(wanderers <= 1, "a moved file is in two places");
    volume.close().unwrap();
    drop(volume);
    let options = CheckOptions {
        data_csums: true,
        ..CheckOptions::default()
    };
    let devices = vec![("memory".into(), device as Arc<dyn BlockDevice>)];
    let report = check_devices(devices, &options, &mut ()).unwrap();
    assert!(report.is_spotless(), "{report}");
}

#[test]
fn syncs_side_by_side_are_all_kept() {
    let device = Arc::new(made());
    let volume = open(Arc::clone(&device) as Arc<dyn BlockDevice>, true).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let new = NewInode::directory(0o755);
    let dirs: Vec<FileId> = (0..WRITERS)
        .map(|writer| volume.create(top, &dir_name(writer), &new).unwrap())
        .collect();
    save(&volume, dirs[0], 0);
    volume.sync().unwrap();
    let synced: Vec<AtomicU64> = dirs.iter().map(|_| AtomicU64::new(0)).collect();
    let is_over = AtomicBool::new(false);
    let all = SAVES * WRITERS as u64;
    let saved = || -> u64 { synced.iter().map(|at| at.load(Ordering::SeqCst)).sum() };
    // Pace the cuts: on a busy machine the writers could end before the first cut.
    let taken = AtomicUsize::new(0);
    let is_ahead = || saved() > all * (taken.load(Ordering::SeqCst) as u64 + 1) / CUTS as u64;
    let mut cuts = Vec::new();
    thread::scope(|scope| {
        let writers: Vec<_> = dirs
            .iter()
            .zip(&synced)
            .map(|(dir, synced)| {
                let (volume, is_ahead) = (&volume, &is_ahead);
                scope.spawn(move || {
                    for version in 1..=SAVES {
                        while is_ahead() {
                            thread::yield_now();
                        }
                        save(volume, *dir, version);
                        synced.store(version, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        scope.spawn(|| disturb(&volume, &dirs, &is_over));
        while writers.iter().any(|writer| !writer.is_finished()) {
            if saved() > all * cuts.len() as u64 / CUTS as u64 {
                let synced = synced.iter().map(|at| at.load(Ordering::SeqCst)).collect();
                let image = (*device).clone();
                cuts.push(Cut { image, synced });
                taken.store(cuts.len(), Ordering::SeqCst);
            }
            thread::yield_now();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let stats = volume.writer_stats().unwrap();
    println!("{} cuts, {} logs", cuts.len(), stats.logs);
    assert!(stats.logs > 50, "{stats:?}");
    // The writers may end before the last cut.
    assert!(cuts.len() >= CUTS - 1, "{} cuts", cuts.len());
    cuts.into_iter().for_each(judge);
}
