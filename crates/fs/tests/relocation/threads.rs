//! Threads that change files while another thread empties one block group after the other.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::kernel::{self, KernelVolume};
use ubtrfs_sim::manifest::Manifest;
use ubtrfs_sim::record::save_image;
use ubtrfs_sim::script::{Op, RunOptions, Shape, Target, ThreadPlan};
use ubtrfs_sim::{Progress, Rng, Scratch, new_volume, seed};

use crate::fixture::{check_both, is_soak, options};
use crate::relocating::relocate_any;
use crate::target::{EngineTarget, NamedDevices};

const THREADS: u8 = 3;

/// RELOCATION-2
#[test]
fn threads_change_files_during_relocations() {
    let first = seed("threads with relocations");
    let (times, ops) = if is_soak() { (10, 3000) } else { (1, 400) };
    for number in 0..times {
        let seed = first.wrapping_add(number);
        let plans = [
            ("shared", ThreadPlan::shared(seed, THREADS, ops)),
            (
                "snapshots",
                ThreadPlan::apart(Shape::Snapshots, seed, THREADS, ops / 3, true),
            ),
            (
                "big files",
                ThreadPlan::apart(Shape::BigFile, seed, THREADS, ops / 3, false),
            ),
        ];
        for (what, plan) in plans {
            run_beside(&format!("{what}, UBTRFS_SEED={seed}"), &plan, seed);
        }
    }
}

fn run_beside(name: &str, plan: &ThreadPlan, seed: u64) {
    println!("{name}");
    let device = Arc::new(new_volume(&MkfsOptions::default(), 1 << 30));
    let devices: NamedDevices = vec![(PathBuf::from("memory"), device.clone())];
    let mut target = EngineTarget::open(devices, &options()).unwrap();
    let mut targets: Vec<_> = (0..THREADS).map(|_| target.another()).collect();
    let volume = Arc::clone(target.volume());
    let (is_done, moved) = (AtomicBool::new(false), AtomicU64::new(0));
    let progress = Progress::new(name, plan.threads.iter().map(Vec::len).sum());
    let run = thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = Rng::new(seed);
            while !is_done.load(Ordering::Relaxed) {
                let report = relocate_any(&volume, &mut rng);
                moved.fetch_add(report.moved_extents, Ordering::Relaxed);
            }
        });
        let run = plan.run(&mut targets, &RunOptions::default(), &progress);
        is_done.store(true, Ordering::Relaxed);
        run
    });
    drop(volume);
    let run = run.unwrap_or_else(|failure| panic!("{name}: {failure}"));
    println!("{} extents moved", moved.load(Ordering::Relaxed));
    drop(targets);
    target
        .apply(&Op::Remount)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    drop(target);
    if !kernel::or_skip("threads with relocations") {
        return;
    }
    let mut model = run.end;
    // Files that were open are closed.
    let _ = model.apply(&Op::Remount);
    let scratch = Scratch::new().unwrap();
    let image = scratch.path().join("image");
    save_image(&*device, &image).unwrap();
    let volume = KernelVolume::of_files(vec![image], scratch);
    check_both(&volume);
    let mount = volume.mount("ro,subvolid=5").unwrap();
    let shown = Manifest::of_dir(mount.path()).unwrap();
    mount.unmount().unwrap();
    let differences = model.compare(&shown, &[]);
    assert!(differences.is_empty(), "{name}: {differences:#?}");
}
