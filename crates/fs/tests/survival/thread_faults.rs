//! A request fails while several threads work and commits run at any time: every thread ends, nothing panics,
//! and durable data survives.

use std::sync::Arc;
use std::time::Duration;

use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::compress::Compression;
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{Compress, NewInode, OpenOptions};
use ubtrfs_sim::fault::{Counts, Fault, FaultDevice};
use ubtrfs_sim::manifest::Manifest;
use ubtrfs_sim::script::{Shape, Target, ThreadPlan};
use ubtrfs_sim::{Progress, Rng, seed};

use crate::devices::{
    Devices, Layout, MIB, MIRROR_FAULTS, check_after_cut, check_but, open, quiet,
};
use crate::engine::Engine;
use crate::shown::manifest;
use crate::soak::count;
use crate::watchdog::in_time;

const THREADS: u8 = 3;
const KEPT: &[u8] = b"kept";
const KEPT_FILES: usize = 40;

/// Creates a volume with files that no thread changes.
fn base(layout: &Layout) -> (Vec<MemDevice>, Manifest) {
    let made = layout.make();
    let devices: Devices = made
        .iter()
        .map(|device| Arc::new(device.clone()) as Arc<dyn BlockDevice>)
        .collect();
    let volume = open(&devices, &quiet()).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let dir = volume
        .create(top, KEPT, &NewInode::directory(0o755))
        .unwrap();
    for number in 0..KEPT_FILES {
        let name = format!("{number}").into_bytes();
        let file = volume.create(dir, &name, &NewInode::file(0o644)).unwrap();
        let bytes = vec![number as u8; number * 1000];
        volume.write(file, 0, &bytes).unwrap();
    }
    volume.sync().unwrap();
    let kept = manifest(&volume).below(KEPT);
    drop(volume);
    let snapshot = |device: &Arc<dyn BlockDevice>| {
        let copy = MemDevice::new(device.len_bytes());
        let mut block = vec![0; MIB as usize];
        for at in (0..device.len_bytes()).step_by(MIB as usize) {
            device.read_at(&mut block, at).unwrap();
            if block.iter().any(|byte| *byte != 0) {
                copy.write_at(&block, at).unwrap();
            }
        }
        copy
    };
    (devices.iter().map(snapshot).collect(), kept)
}

/// Runs the threads until they end. Returns the requests of each device.
fn work(devices: &[Arc<FaultDevice>], plan: &ThreadPlan, options: &OpenOptions) -> Vec<Counts> {
    let shared = devices
        .iter()
        .map(|device| Arc::clone(device) as Arc<dyn BlockDevice>);
    if let Ok(mut engine) = Engine::open(&shared.collect(), options) {
        for op in &plan.setup {
            let _ = engine.apply(op);
        }
        std::thread::scope(|scope| {
            for ops in &plan.threads {
                let mut engine = engine.another();
                scope.spawn(move || {
                    for op in ops {
                        let _ = engine.apply(op);
                    }
                });
            }
        });
        let _ = engine.volume().sync();
        let _ = engine.manifest();
    }
    devices.iter().map(|device| device.counts()).collect()
}

fn random_fault(counts: &Counts, rng: &mut Rng) -> Fault {
    match rng.below(8) {
        0 if counts.reads > 0 => Fault::Read {
            nth: rng.below(counts.reads),
        },
        1 | 2 if counts.flushes > 0 => Fault::Flush {
            nth: rng.below(counts.flushes),
        },
        3 => Fault::GoneAfter {
            requests: rng.below(counts.total().max(1)),
        },
        _ => Fault::Write {
            nth: rng.below(counts.writes.max(1)),
        },
    }
}

fn threads_survive(name: &str, layout: &Layout, options: &OpenOptions, shape: Shape) {
    let seed = seed(name);
    let mut rng = Rng::new(seed);
    let (base, kept) = base(layout);
    let mut counts = None;
    let trials = count(2, 400);
    let progress = Progress::new(name, trials + 1);
    for trial in 0..=trials {
        let plan = ThreadPlan::apart(
            shape,
            rng.next_u64(),
            THREADS,
            count(60, 200),
            trial % 2 == 1,
        );
        let good: Devices = base
            .iter()
            .map(|device| Arc::new(device.clone()) as Arc<dyn BlockDevice>)
            .collect();
        let faulty: Vec<_> = good
            .iter()
            .map(|device| Arc::new(FaultDevice::new(Arc::clone(device))))
            .collect();
        // The first run has no fault.
        let fault = counts.as_ref().map(|counts: &Vec<Counts>| {
            let device = rng.below(counts.len() as u64) as usize;
            (device, random_fault(&counts[device], &mut rng))
        });
        if let Some((device, fault)) = &fault {
            faulty[*device].add(fault.clone());
        }
        let what = format!("{name}, trial {trial}, {fault:?}");
        let options = options.clone();
        let ran = in_time(&what, move || work(&faulty, &plan, &options));
        counts.get_or_insert(ran);
        let checked = match good.len() {
            1 => check_after_cut(&good),
            _ => check_but(&good, &MIRROR_FAULTS),
        };
        checked.unwrap_or_else(|issues| panic!("{what}: {issues}"));
        let volume = open(&good, &quiet()).unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = manifest(&volume).below(KEPT);
        assert!(found == kept, "{what}: files that no thread touched");
        volume
            .sync()
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        progress.step(|| &what);
    }
}

#[test]
fn one_device_fails_under_threads() {
    let options = OpenOptions::new()
        .writable(true)
        .commit_interval(Some(Duration::from_millis(1)))
        .compress(Compress {
            algorithm: Compression::Zstd,
            level: 1,
            force: false,
        });
    let layout = Layout::new(1, 256 * MIB);
    threads_survive("thread faults", &layout, &options, Shape::Mixed);
}

#[test]
fn one_of_two_mirrors_fails_under_threads_and_pressure() {
    let options = OpenOptions::new()
        .writable(true)
        .commit_interval(Some(Duration::from_secs(3600)))
        .buffer_bytes(1 << 20)
        .delta_bytes(128 << 10);
    let layout = Layout::new(2, 256 * MIB).profiles(Profile::Raid1, Profile::Raid1);
    threads_survive("thread faults, raid1", &layout, &options, Shape::Snapshots);
}
