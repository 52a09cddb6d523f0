//! Random scripts are done to the engine and to the model, which must agree; then the kernel must show what
//! the model does. With `UBTRFS_SOAK` set the scripts are long.

mod shown;
mod target;

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_device::MemDevice;
use ubtrfs_engine::mkfs::{Identity, MkfsOptions, Plan};
use ubtrfs_engine::{Compress, OpenOptions};
use ubtrfs_format::compress::Compression;
use ubtrfs_format::item::Timespec;
use ubtrfs_sim::kernel::{self, KernelMount};
use ubtrfs_sim::manifest::Manifest;
use ubtrfs_sim::model::Limits;
use ubtrfs_sim::record::save_image;
use ubtrfs_sim::script::{Op, RunOptions, Shape, Target, ThreadPlan, generate, run, shrink};
use ubtrfs_sim::{Scratch, seed};

use target::{EngineTarget, NamedDevices};

const LEN_BYTES: u64 = 1 << 30;

/// A new volume in memory.
fn device(nodesize: u32, features: &str, len_bytes: u64) -> MemDevice {
    let mut options = MkfsOptions {
        nodesize: Some(nodesize),
        ..MkfsOptions::default()
    };
    options.features.apply_list(features).unwrap();
    let created = Timespec {
        sec: 1_700_000_000.into(),
        nsec: 0.into(),
    };
    let plan = Plan::new(&options, &Identity::random(1, created), &[len_bytes]).unwrap();
    let device = MemDevice::new(len_bytes);
    plan.write(&[&device], false).unwrap();
    device
}

/// With no commits but those that are asked for.
fn open(device: Arc<MemDevice>, compress: Compress) -> EngineTarget {
    let devices: NamedDevices = vec![(PathBuf::from("memory"), device)];
    let options = OpenOptions::new()
        .writable(true)
        .compress(compress)
        .commit_interval(None);
    EngineTarget::open(devices, &options).unwrap()
}

/// How many operations a script has: few, unless it is a soak.
fn count(few: usize) -> usize {
    match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => 50 * few,
        None => few,
    }
}

/// A script, and what it is done to.
struct Case {
    nodesize: u32,
    features: &'static str,
    compress: Compress,
    len_bytes: u64,
    shape: Shape,
    few: usize,
}

impl Case {
    fn new(shape: Shape, few: usize) -> Case {
        Case {
            nodesize: 16 << 10,
            features: "",
            compress: Compress::default(),
            len_bytes: LEN_BYTES,
            shape,
            few,
        }
    }

    fn options(&self) -> RunOptions {
        RunOptions {
            limits: Limits::of_nodesize(self.nodesize as usize),
            may_be_full: self.shape == Shape::FullDisk,
            ..RunOptions::default()
        }
    }

    /// Does the script; then the kernel shows the same, and can go on with it.
    fn prove(&self, test: &str) {
        let mut ops = generate(self.shape, seed(test), count(self.few));
        ops.push(Op::Remount);
        let attempt = |ops: &[Op]| {
            let device = device(self.nodesize, self.features, self.len_bytes);
            let device = Arc::new(device);
            let mut target = open(device.clone(), self.compress);
            run(&mut target, ops, &self.options()).map(|model| (model, device))
        };
        let (model, device) = match attempt(&ops) {
            Ok(done) => done,
            Err(first) => {
                eprintln!("shrinking: {first}");
                let short = shrink(&ops[..=first.index], |ops| attempt(ops).is_err());
                let last = attempt(&short).err().unwrap_or(first);
                let script: Vec<String> = short.iter().map(|op| format!("Op::{op:?},")).collect();
                panic!("{last}\n[\n{}\n]", script.join("\n"));
            }
        };
        if !kernel::or_skip(test) {
            return;
        }
        let scratch = Scratch::new().unwrap();
        let image = scratch.path().join("image");
        save_image(&device, &image).unwrap();
        let mount = KernelMount::new(std::slice::from_ref(&image), "subvolid=5").unwrap();
        let shown = Manifest::of_dir(mount.path()).unwrap();
        let differences = model.compare(&shown, &[]);
        assert!(differences.is_empty(), "{differences:#?}");
        mount.unmount().unwrap();
    }
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
fn full_disk() {
    let case = Case {
        len_bytes: 160 << 20,
        ..Case::new(Shape::FullDisk, 300)
    };
    case.prove("full_disk");
}

#[test]
fn threads_end_as_the_model_says() {
    const THREADS: u8 = 3;
    let seed = seed("engine threads");
    let plans = [
        ThreadPlan::shared(seed, THREADS, count(2000)),
        ThreadPlan::apart(Shape::Mixed, seed, THREADS, count(1000), false),
        ThreadPlan::apart(Shape::Snapshots, seed, THREADS, count(300), true),
    ];
    for plan in plans {
        let first = open(
            Arc::new(device(16 << 10, "", LEN_BYTES)),
            Compress::default(),
        );
        let mut targets: Vec<_> = (0..THREADS).map(|_| first.another()).collect();
        plan.run(&mut targets, &RunOptions::default(), &())
            .unwrap_or_else(|failure| panic!("{failure}"));
        drop(targets);
        let mut first = first;
        first.apply(&Op::Remount).unwrap();
    }
}
