//! Random scripts run on the engine and on the model, which must agree; then the kernel must show the model's
//! state. With `UBTRFS_SOAK` the scripts are long, and `btrfs check` and scrub run as well.

mod alternating_with_kernel;
mod case_options;
mod shown;
mod target;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ubtrfs_device::MemDevice;
use ubtrfs_format::compress::Compression;
use ubtrfs_fs::{Compress, OpenOptions};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::kernel::{self, KernelVolume};
use ubtrfs_sim::manifest::Manifest;
use ubtrfs_sim::model::{Limits, ModelFs};
use ubtrfs_sim::record::save_image;
use ubtrfs_sim::script::{
    Op, RunOptions, Shape, Target, ThreadPlan, dedupes, generate, prove_script, run,
};
use ubtrfs_sim::{Progress, Rng, Scratch, new_volume, seed};

use target::{EngineTarget, NamedDevices};

const LEN_BYTES: u64 = 1 << 30;

/// Creates a new volume in memory.
fn device(nodesize: u32, features: &str, len_bytes: u64) -> MemDevice {
    let mut options = MkfsOptions {
        nodesize: Some(nodesize),
        ..MkfsOptions::default()
    };
    options.features.apply_list(features).unwrap();
    new_volume(&options, len_bytes)
}

fn is_soak() -> bool {
    std::env::var_os("UBTRFS_SOAK").is_some()
}

/// Calls `prove` with one seed, or with several in a soak. A failure prints the first seed of its own run.
fn each_seed(test: &str, mut prove: impl FnMut(u64)) {
    const IN_SOAK: u64 = 8;
    let first = seed(test);
    for number in 0..if is_soak() { IN_SOAK } else { 1 } {
        prove(first.wrapping_add(number));
    }
}

/// Returns options without automatic commits. In a soak, the seed may select little memory.
fn options(compress: Compress, seed: u64) -> OpenOptions {
    let mut options = OpenOptions::new()
        .writable(true)
        .compress(compress)
        .commit_interval(None);
    if is_soak() {
        let mut rng = Rng::new(seed);
        if rng.one_in(3) {
            options = options.cache_bytes(1 << 20);
        }
        if rng.one_in(3) {
            options = options.delta_bytes(256 << 10).buffer_bytes(1 << 20);
        }
        if rng.one_in(3) {
            options = options.commit_interval(Some(Duration::from_millis(5)));
        }
    }
    options
}

fn open(device: Arc<MemDevice>, options: &OpenOptions) -> EngineTarget {
    let devices: NamedDevices = vec![(PathBuf::from("memory"), device)];
    EngineTarget::open(devices, options).unwrap()
}

/// A script and its volume.
struct Case {
    nodesize: u32,
    features: &'static str,
    compress: Compress,
    lazy_times: bool,
    len_bytes: u64,
    shape: Shape,
    /// The number of operations, usually and in a soak.
    few: usize,
    many: usize,
}

impl Case {
    fn new(shape: Shape, few: usize) -> Case {
        Case {
            nodesize: 16 << 10,
            features: "",
            compress: Compress::default(),
            lazy_times: false,
            len_bytes: LEN_BYTES,
            shape,
            few,
            many: 50 * few,
        }
    }

    fn options(&self) -> RunOptions {
        RunOptions {
            limits: Limits {
                algorithm: match self.compress.algorithm {
                    Compression::None => Compression::Zlib.name(),
                    algorithm => algorithm.name(),
                },
                ..Limits::of_nodesize(self.nodesize as usize)
            },
            may_be_full: self.shape == Shape::FullDisk,
            ..RunOptions::default()
        }
    }

    fn prove(&self, test: &str) {
        each_seed(test, |seed| self.prove_one(test, seed));
    }

    fn prove_one(&self, test: &str, seed: u64) {
        let count = if is_soak() { self.many } else { self.few };
        let name = format!("{test}, UBTRFS_SEED={seed}, {count} operations");
        self.prove_ops(test, &name, seed, generate(self.shape, seed, count));
    }

    /// Runs a script. The kernel must then show the same state and be able to continue.
    fn prove_ops(&self, test: &str, name: &str, seed: u64, mut ops: Vec<Op>) {
        let opened = options(self.compress, seed).lazy_times(self.lazy_times);
        ops.push(Op::Remount);
        let (model, device) = prove_script(name, &ops, &self.options(), |ops, options| {
            let device = device(self.nodesize, self.features, self.len_bytes);
            let device = Arc::new(device);
            let mut target = open(device.clone(), &opened);
            run(&mut target, ops, options).map(|model| (model, device))
        });
        ask_kernel(test, name, &device, &model);
    }
}

/// Asserts that the kernel shows the model's state.
fn ask_kernel(test: &str, name: &str, device: &MemDevice, model: &ModelFs) {
    if !kernel::or_skip(test) {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let image = scratch.path().join("image");
    save_image(device, &image).unwrap();
    let volume = KernelVolume::of_files(vec![image], scratch);
    if is_soak() {
        volume
            .check()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let mount = volume.mount("subvolid=5").unwrap();
    let shown = Manifest::of_dir(mount.path()).unwrap();
    let differences = model.compare(&shown, &[]);
    assert!(differences.is_empty(), "{name}: {differences:#?}");
    if is_soak() {
        mount
            .scrub()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    mount.unmount().unwrap();
    let mount = volume.mount_ro().unwrap();
    let shown = Manifest::of_dir(mount.path()).unwrap();
    let differences = model.compare_default(&shown);
    assert!(differences.is_empty(), "{name}, default: {differences:#?}");
    mount.unmount().unwrap();
}

fn prove(test: &str, shape: Shape, few: usize) {
    Case::new(shape, few).prove(test);
}

#[test]
fn mixed() {
    prove("mixed", Shape::Mixed, 3000);
}

#[test]
fn many_small_files() {
    prove("many_small_files", Shape::ManySmallFiles, 6000);
}

#[test]
fn big_file() {
    prove("big_file", Shape::BigFile, 800);
}

#[test]
fn snapshots() {
    prove("snapshots", Shape::Snapshots, 1500);
}

/// DRAFT-1
#[test]
fn colliding_names() {
    prove("colliding_names", Shape::CollidingNames, 4000);
}

#[test]
fn long_names() {
    prove("long_names", Shape::LongNames, 3000);
}

#[test]
fn xattrs() {
    prove("xattrs", Shape::Xattrs, 3000);
}

/// The kernel has the same outcomes as the model (`tests/model.rs` of sim).
#[test]
fn dedupes_of_ranges_that_end_anywhere() {
    let test = "dedupes_of_ranges_that_end_anywhere";
    let case = Case::new(Shape::Mixed, 0);
    case.prove_ops(test, test, seed(test), dedupes());
}

#[test]
fn small_nodes_and_old_features() {
    let case = Case {
        nodesize: 4 << 10,
        features: "^no-holes,^bgt,^fst,^extref",
        ..Case::new(Shape::Mixed, 3000)
    };
    case.prove("small_nodes_and_old_features");
}

#[test]
fn compressed() {
    let case = Case {
        compress: Compress {
            algorithm: Compression::Zstd,
            level: 1,
            force: true,
        },
        ..Case::new(Shape::BigFile, 600)
    };
    case.prove("compressed");
}

#[test]
fn lazy_times() {
    for shape in [Shape::Mixed, Shape::Snapshots] {
        let case = Case {
            lazy_times: true,
            ..Case::new(shape, 1000)
        };
        case.prove("lazy_times");
    }
}

/// LAZY-3
#[test]
fn full_disk_with_lazy_times() {
    let case = Case {
        len_bytes: 160 << 20,
        lazy_times: true,
        many: 4000,
        ..Case::new(Shape::FullDisk, 300)
    };
    case.prove("full_disk_with_lazy_times");
}

#[test]
fn full_disk() {
    let case = Case {
        len_bytes: 160 << 20,
        // The generator's model is never full, and keeps everything in memory.
        many: 4000,
        ..Case::new(Shape::FullDisk, 300)
    };
    case.prove("full_disk");
}

#[test]
fn threads_end_as_the_model_says() {
    const THREADS: u8 = 3;
    // States are only compared after the threads have ended, so many scripts find more than long ones.
    let times = if is_soak() { 5 } else { 1 };
    each_seed("engine threads", |seed| {
        let plans = [
            ("shared", ThreadPlan::shared(seed, THREADS, times * 2000)),
            (
                "apart",
                ThreadPlan::apart(Shape::Mixed, seed, THREADS, times * 1000, false),
            ),
            (
                "snapshots",
                ThreadPlan::apart(Shape::Snapshots, seed, THREADS, times * 300, true),
            ),
        ];
        for (what, plan) in plans {
            let name = format!("threads, {what}, UBTRFS_SEED={seed}");
            let device = Arc::new(device(16 << 10, "", LEN_BYTES));
            let first = open(device.clone(), &options(Compress::default(), seed));
            let mut targets: Vec<_> = (0..THREADS).map(|_| first.another()).collect();
            let progress = Progress::new(name.as_str(), plan.threads.iter().map(Vec::len).sum());
            let run = plan
                .run(&mut targets, &RunOptions::default(), &progress)
                .unwrap_or_else(|failure| panic!("{name}: {failure}"));
            drop(targets);
            let mut first = first;
            first
                .apply(&Op::Remount)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            drop(first);
            let mut model = run.end;
            // Files that were open are closed.
            let _ = model.apply(&Op::Remount);
            ask_kernel("engine threads", &name, &device, &model);
        }
    });
}
