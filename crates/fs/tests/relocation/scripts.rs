//! Random scripts with relocations of random groups, by batches of random sizes, between the operations.

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_check::{CheckOptions, check};
use ubtrfs_device::{Access, BlockDevice, FileDevice, MemDevice};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::kernel::{self, KernelVolume};
use ubtrfs_sim::manifest::Manifest;
use ubtrfs_sim::matrix::{self, Case, Features};
use ubtrfs_sim::model::{Limits, ModelFs};
use ubtrfs_sim::record::save_image;
use ubtrfs_sim::script::{KernelTarget, Op, Run, RunOptions, Shape, generate, run};
use ubtrfs_sim::{Progress, Scratch, new_volume, seed};

use crate::case_options::engine_options;
use crate::fixture::{is_soak, options};
use crate::relocating::Relocating;
use crate::target::{EngineTarget, NamedDevices};

const SHAPES: [Shape; 4] = [
    Shape::Snapshots,
    Shape::Mixed,
    Shape::BigFile,
    Shape::FullDisk,
];
const DEVICE_BYTES: u64 = 1 << 30;

/// Runs a script on a new volume of the engine. The kernel must then show the state of the model.
fn prove_in_memory(nodesize: u32, shape: Shape, count: usize, seed: u64) {
    let device_bytes = match shape {
        // Small enough to run out of space.
        Shape::FullDisk => 160 << 20,
        _ => DEVICE_BYTES,
    };
    let name = format!("UBTRFS_SEED={seed}, {shape:?}, nodes of {nodesize}, {count} operations");
    println!("{name}");
    let made = MkfsOptions {
        nodesize: Some(nodesize),
        ..MkfsOptions::default()
    };
    let device = Arc::new(new_volume(&made, device_bytes));
    let devices: NamedDevices = vec![(PathBuf::from("memory"), device.clone())];
    let opened = EngineTarget::open(devices, &options()).unwrap();
    let mut target = Relocating::new(opened, seed, 12);
    let mut ops = generate(shape, seed, count);
    ops.push(Op::Remount);
    let run_options = RunOptions {
        limits: Limits::of_nodesize(nodesize as usize),
        may_be_full: shape == Shape::FullDisk,
        ..RunOptions::default()
    };
    let model =
        run(&mut target, &ops, &run_options).unwrap_or_else(|failure| panic!("{name}: {failure}"));
    let totals = &target.totals;
    assert!(totals.moved_extents + totals.moved_blocks > 0, "{name}");
    println!(
        "{} extents and {} blocks moved, {} blocks copied",
        totals.moved_extents, totals.moved_blocks, totals.copied_blocks
    );
    drop(target);
    judge_image(&name, &device, &model);
}

fn judge_image(name: &str, device: &MemDevice, model: &ModelFs) {
    if !kernel::or_skip("scripts with relocations") {
        return;
    }
    let scratch = Scratch::new().unwrap();
    let image = scratch.path().join("image");
    save_image(device, &image).unwrap();
    judge(name, &KernelVolume::of_files(vec![image], scratch), model);
}

/// Checks the closed volume with both checkers, and compares the contents that the kernel shows.
fn judge(name: &str, volume: &KernelVolume, model: &ModelFs) {
    let report = check(volume.devices(), &CheckOptions::default(), &mut ()).unwrap();
    assert!(report.is_spotless(), "{name}: {report}");
    volume
        .check()
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let mount = volume.mount("ro,subvolid=5").unwrap();
    let shown = Manifest::of_dir(mount.path()).unwrap();
    mount.unmount().unwrap();
    let differences = model.compare(&shown, &[]);
    assert!(differences.is_empty(), "{name}: {differences:#?}");
}

#[test]
fn scripts_with_relocations() {
    let first = seed("scripts with relocations");
    let (times, count) = if is_soak() { (10, 2000) } else { (1, 250) };
    for number in 0..times {
        for (index, shape) in SHAPES.into_iter().enumerate() {
            for nodesize in [4 << 10, 16 << 10] {
                let seed = first.wrapping_add(number * SHAPES.len() as u64 + index as u64);
                prove_in_memory(nodesize, shape, count, seed);
            }
        }
    }
}

fn open(volume: &KernelVolume, case: &Case) -> EngineTarget {
    let devices: NamedDevices = volume
        .devices()
        .iter()
        .map(|path| {
            let device = FileDevice::open(path, Access::Write).unwrap();
            (path.clone(), Arc::new(device) as Arc<dyn BlockDevice>)
        })
        .collect();
    EngineTarget::open(devices, &engine_options(case)).unwrap()
}

/// Completes the scan for missing UUID entries, which the kernel begins at the first mount of a new volume. It could
/// otherwise begin again, and add an entry for a subvolume that is being deleted.
fn scan_uuids(volume: &KernelVolume) {
    let mount = volume.mount("").unwrap();
    let file = mount.path().join("scan");
    std::fs::write(&file, b"a commit after the scan").unwrap();
    std::fs::remove_file(&file).unwrap();
    mount.unmount().unwrap();
}

/// Runs a script in turns with the kernel, which then changes, snapshots and deletes moved extents.
fn take_turns(case: &Case, shape: Shape, count: usize, seed: u64) {
    const TURNS: usize = 4;
    let name = format!("UBTRFS_CASE={case} UBTRFS_SEED={seed}, {shape:?}, {count} operations");
    println!("{name}");
    let spec = case.spec().device_bytes(DEVICE_BYTES);
    let mut volume = KernelVolume::make(&spec).unwrap();
    scan_uuids(&volume);
    let run_options = RunOptions {
        limits: Limits {
            algorithm: match case.compression {
                matrix::Compression::None | matrix::Compression::Zlib => "zlib",
                matrix::Compression::Lzo => "lzo",
                matrix::Compression::Zstd => "zstd",
            },
            ..Limits::of_nodesize(case.nodesize as usize)
        },
        ..RunOptions::default()
    };
    let mut model = ModelFs::new(run_options.limits);
    let ops = generate(shape, seed, count);
    for (number, ops) in ops.chunks(count.div_ceil(TURNS)).enumerate() {
        let fail = |failure: &dyn std::fmt::Display| panic!("{name}, turn {number}: {failure}");
        model = if number % 2 == 0 {
            let target = open(&volume, case);
            let mut engine = Relocating::new(target, seed.wrapping_add(number as u64), 8);
            let mut run = Run::new(model, &mut engine, run_options.clone());
            run.script(ops).unwrap_or_else(|failure| fail(&failure));
            run.step(&Op::Remount).unwrap();
            run.model
        } else {
            let mut kernel = KernelTarget::mount(volume, case.compression.mount_option()).unwrap();
            let mut run = Run::new(model, &mut kernel, run_options.clone());
            run.script(ops).unwrap_or_else(|failure| fail(&failure));
            run.step(&Op::Remount).unwrap();
            let model = run.model;
            volume = kernel.into_volume().unwrap();
            model
        };
        judge(&format!("{name}, turn {number}"), &volume, &model);
    }
}

#[test]
fn kernel_goes_on_after_relocations() {
    const TEST: &str = "relocations in turns with the kernel";
    if !kernel::or_skip(TEST) {
        return;
    }
    let (many, count) = if is_soak() {
        (usize::MAX, 1200)
    } else {
        (4, 240)
    };
    let mut cases = matrix::writable();
    // Without NO_HOLES, the kernel (6.18) loses the end of a write to space preallocated beyond the file's end in an
    // earlier mount.
    cases.retain(|case| !matches!(case.features, Features::Oldest | Features::NoNoHoles));
    match std::env::var("UBTRFS_CASE") {
        Ok(name) => cases.retain(|case| case.to_string() == name),
        Err(_) => cases = matrix::varied_of(&cases, many),
    }
    let first = seed(TEST);
    let progress = Progress::new(TEST, cases.len());
    for (number, case) in cases.iter().enumerate() {
        let seed = match std::env::var_os("UBTRFS_CASE") {
            Some(_) => first,
            None => first.wrapping_add(number as u64),
        };
        take_turns(case, SHAPES[(seed % 3) as usize], count, seed);
        progress.step(|| case);
    }
}
