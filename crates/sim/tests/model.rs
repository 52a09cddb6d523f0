//! The model behaves like the kernel's btrfs: random scripts are applied to both.

use ubtrfs_sim::kernel::{KernelMount, KernelVolume, MkfsSpec, or_skip};
use ubtrfs_sim::model::Limits;
use ubtrfs_sim::script::{
    KernelFolder, KernelTarget, Op, RunOptions, Shape, ThreadPlan, VfsTarget, dedupes, generate,
    inherited_properties, prove, run,
};
use ubtrfs_sim::seed;

/// Returns the number of operations of a script: small, unless in a soak.
fn count(few: usize) -> usize {
    match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => 20 * few,
        None => few,
    }
}

fn target(spec: &MkfsSpec, options: &str) -> KernelTarget {
    let volume = KernelVolume::make(spec).unwrap();
    KernelTarget::mount(volume, options).unwrap()
}

fn prove_shape(test: &str, shape: Shape, few: usize) {
    if !or_skip(test) {
        return;
    }
    let options = RunOptions::default();
    prove(shape, seed(test), count(few), &options, || {
        target(&MkfsSpec::new(), "")
    });
}

#[test]
fn mixed() {
    prove_shape("mixed", Shape::Mixed, 1000);
}

#[test]
fn many_small_files() {
    prove_shape("many_small_files", Shape::ManySmallFiles, 1500);
}

#[test]
fn big_file() {
    prove_shape("big_file", Shape::BigFile, 400);
}

#[test]
fn snapshots() {
    prove_shape("snapshots", Shape::Snapshots, 600);
}

#[test]
fn colliding_names() {
    prove_shape("colliding_names", Shape::CollidingNames, 1000);
}

#[test]
fn long_names() {
    prove_shape("long_names", Shape::LongNames, 1000);
}

#[test]
fn xattrs() {
    prove_shape("xattrs", Shape::Xattrs, 1000);
}

#[test]
fn full_disk() {
    if !or_skip("full_disk") {
        return;
    }
    let options = RunOptions {
        may_be_full: true,
        ..RunOptions::default()
    };
    let small = MkfsSpec::new().device_bytes(160 << 20);
    // The generator's model is never full, and keeps everything in memory.
    let few = count(300).min(2000);
    prove(Shape::FullDisk, seed("full disk"), few, &options, || {
        target(&small, "")
    });
}

#[test]
fn small_nodes_and_compression() {
    if !or_skip("small_nodes_and_compression") {
        return;
    }
    let options = RunOptions {
        limits: Limits {
            algorithm: "zstd",
            ..Limits::of_nodesize(4096)
        },
        ..RunOptions::default()
    };
    let spec = MkfsSpec::new().nodesize(4096);
    prove(
        Shape::Mixed,
        seed("small nodes"),
        count(1000),
        &options,
        || target(&spec, "compress-force=zstd"),
    );
}

#[test]
fn dedupes_of_ranges_that_end_anywhere() {
    if !or_skip("dedupes_of_ranges_that_end_anywhere") {
        return;
    }
    let mut kernel = target(&MkfsSpec::new(), "");
    let done = run(&mut kernel, &dedupes(), &RunOptions::default());
    done.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn properties_are_inherited_from_directories_that_are_read_again() {
    if !or_skip("properties_are_inherited_from_directories_that_are_read_again") {
        return;
    }
    let mut kernel = target(&MkfsSpec::new().nodesize(4096), "");
    let options = RunOptions {
        limits: Limits::of_nodesize(4096),
        ..RunOptions::default()
    };
    let done = run(&mut kernel, &inherited_properties(), &options);
    done.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn volume_is_sound_and_alike_when_mounted_again() {
    if !or_skip("volume_is_sound_and_alike_when_mounted_again") {
        return;
    }
    let seed = seed("mounted again");
    let mut ops = generate(Shape::Mixed, seed, count(600));
    ops.push(Op::Remount);
    let mut kernel = target(&MkfsSpec::new(), "");
    run(&mut kernel, &ops, &RunOptions::default()).unwrap_or_else(|failure| panic!("{failure}"));
    kernel.into_volume().unwrap().check().unwrap();
}

#[test]
fn threads_end_as_the_model_says() {
    if !or_skip("threads_end_as_the_model_says") {
        return;
    }
    const THREADS: u8 = 3;
    let seed = seed("kernel threads");
    let plans = [
        ThreadPlan::shared(seed, THREADS, count(500)),
        ThreadPlan::apart(Shape::Mixed, seed, THREADS, count(400), false),
        ThreadPlan::apart(Shape::Snapshots, seed, THREADS, count(200), true),
    ];
    for plan in plans {
        let volume = KernelVolume::make(&MkfsSpec::new()).unwrap();
        let mount: KernelMount = volume.mount("").unwrap();
        let folder = || VfsTarget::new(KernelFolder::new(mount.path()));
        let mut targets: Vec<_> = (0..THREADS).map(|_| folder()).collect();
        plan.run(&mut targets, &RunOptions::default(), &())
            .unwrap_or_else(|failure| panic!("{failure}"));
    }
}
