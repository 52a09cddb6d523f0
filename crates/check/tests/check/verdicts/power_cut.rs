//! Volumes after a power cut during writes of the kernel. All three judges must accept them, with and without a
//! pending log.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ubtrfs_format::superblock::{SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE};
use ubtrfs_sim::kernel::{self, CutVolume, MkfsSpec, Profile};
use ubtrfs_sim::script::{KernelFolder, Op, Shape, Target, VfsTarget, generate};
use ubtrfs_sim::{Progress, Rng};

use super::{Agreement, compare, ours, rounds};

/// Returns the generation and the log root of copy 0.
fn state_of(device: &Path) -> (u64, u64) {
    let mut block = vec![0; SUPERBLOCK_SIZE];
    let file = File::open(device).unwrap();
    file.read_exact_at(&mut block, SUPERBLOCK_OFFSETS[0])
        .unwrap();
    let superblock = ubtrfs_format::superblock::Superblock::from_block(&block).unwrap();
    (superblock.generation.get(), superblock.log_root.get())
}

/// Restores superblock copies from an earlier cut.
fn put_back(device: &Path, earlier: &Path, copies: &[usize]) {
    let file = File::options().write(true).open(device).unwrap();
    let earlier = File::open(earlier).unwrap();
    for &copy in copies {
        let mut block = vec![0; SUPERBLOCK_SIZE];
        let offset = SUPERBLOCK_OFFSETS[copy];
        earlier.read_exact_at(&mut block, offset).unwrap();
        file.write_all_at(&block, offset).unwrap();
    }
}

struct Trial {
    name: &'static str,
    spec: MkfsSpec,
    options: &'static str,
    shape: Shape,
}

/// Runs a random script on a kernel mount, cuts the power many times, and judges each state.
fn cut(trial: &Trial) {
    let test = trial.name;
    if !kernel::or_skip(test) {
        return;
    }
    let seed = ubtrfs_sim::seed(test);
    let mut rng = Rng::new(seed);
    let wanted = rounds(4, 150);
    let ops = generate(trial.shape, seed, rounds(500, 12_000));
    let mut volume = CutVolume::make(&trial.spec, trial.options).unwrap();
    let mut target = VfsTarget::new(KernelFolder::new(volume.path()));
    let every = (ops.len() / wanted) as u64;
    let mut cuts: Vec<Vec<PathBuf>> = Vec::new();
    for op in ops.iter().filter(|op| !matches!(op, Op::Remount)) {
        // The script's results are covered by other tests.
        let _ = target.apply(op);
        let is_promise = matches!(op, Op::Fsync { .. });
        if rng.one_in(if is_promise { every / 10 + 1 } else { every }) {
            cuts.push(volume.cut().unwrap());
        } else if rng.one_in(2 * every) {
            // There is usually one commit between these two cuts.
            cuts.push(volume.cut().unwrap());
            let _ = target.apply(&Op::Sync);
            cuts.push(volume.cut().unwrap());
        }
    }
    drop(target);
    volume.end().unwrap();

    let progress = Progress::new(test, cuts.len());
    let (mut with_log, mut stale) = (0, 0);
    let judge = |what: &str, devices: &[PathBuf]| {
        let agreement = compare(devices, || volume.copy(devices).unwrap());
        assert_eq!(
            agreement,
            Ok(Agreement::Sound),
            "{what}, UBTRFS_SEED={seed}"
        );
    };
    for (number, devices) in cuts.iter().enumerate() {
        let (generation, log) = state_of(&devices[0]);
        with_log += usize::from(log != 0);
        judge(&format!("cut {number}"), devices);
        progress.step(|| format!("{with_log} with a log"));
        let Some(earlier) = number.checked_sub(1).map(|before| &cuts[before]) else {
            continue;
        };
        // A power cut between the superblock writes of a commit: the other copies are from the previous commit.
        if state_of(&earlier[0]).0 + 1 == generation {
            stale += 1;
            put_back(&devices[0], &earlier[0], &[1]);
            if let (Some(second), Some(earlier)) = (devices.get(1), earlier.get(1)) {
                put_back(second, earlier, &[0, 1]);
            }
            assert!(!ours(devices).is_spotless());
            judge(&format!("cut {number} within a commit"), devices);
        }
    }
    println!(
        "{test}: {} cuts, {with_log} with a log, {stale} within a commit",
        cuts.len()
    );
}

#[test]
fn cuts_of_shared_and_preallocated_extents() {
    cut(&Trial {
        name: "cuts_of_shared_and_preallocated_extents",
        spec: MkfsSpec::new().device_bytes(300 << 20),
        options: "commit=2",
        shape: Shape::BigFile,
    });
}

#[test]
fn cuts_of_snapshots_on_raid1() {
    let spec = MkfsSpec::new().devices(2).device_bytes(300 << 20);
    cut(&Trial {
        name: "cuts_of_snapshots_on_raid1",
        spec: spec.data(Profile::Raid1).metadata(Profile::Raid1),
        options: "commit=1",
        shape: Shape::Snapshots,
    });
}

#[test]
fn cuts_of_mixed_work_in_small_nodes() {
    cut(&Trial {
        name: "cuts_of_mixed_work_in_small_nodes",
        spec: MkfsSpec::new().device_bytes(300 << 20).nodesize(4096),
        options: "commit=300,compress=zstd",
        shape: Shape::Mixed,
    });
}
