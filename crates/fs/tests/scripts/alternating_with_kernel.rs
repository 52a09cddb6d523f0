//! The engine and the kernel alternate in running one script, on volumes of all kinds. Each must show the
//! state of the model, and both checkers find nothing after each turn.

use std::path::Path;
use std::sync::Arc;

use ubtrfs_check::{CheckOptions, check};
use ubtrfs_device::{Access, BlockDevice, FileDevice};
use ubtrfs_fs::OpenOptions;
use ubtrfs_sim::kernel::{self, KernelVolume};
use ubtrfs_sim::manifest::Manifest;
use ubtrfs_sim::matrix::{self, Case};
use ubtrfs_sim::model::{Limits, ModelFs};
use ubtrfs_sim::script::{
    Disagreement, Failure, KernelTarget, Op, OpError, Problem, Run, RunOptions, Shape, Target,
    generate, prove_script,
};
use ubtrfs_sim::{Progress, seed};

use crate::case_options::engine_options;
use crate::is_soak;
use crate::target::{EngineTarget, NamedDevices};

const TEST: &str = "scripts in turns with the kernel";
const DEVICE_BYTES: u64 = 1 << 30;
const TURNS: usize = 3;
const SHAPES: [Shape; 3] = [Shape::Mixed, Shape::Snapshots, Shape::BigFile];

fn run_options(case: &Case) -> RunOptions {
    RunOptions {
        limits: Limits {
            algorithm: match case.compression {
                matrix::Compression::None | matrix::Compression::Zlib => "zlib",
                matrix::Compression::Lzo => "lzo",
                matrix::Compression::Zstd => "zstd",
            },
            ..Limits::of_nodesize(case.nodesize as usize)
        },
        ..RunOptions::default()
    }
}

/// Converts an error into an outcome of the script, so that the script can be shortened.
fn unclean(error: &dyn std::fmt::Display) -> Problem {
    const UNCLEAN: OpError = OpError::Other(117);
    eprintln!("{error}");
    Problem::Outcome(Box::new(Disagreement {
        op: Op::Remount,
        wanted: Ok(ubtrfs_sim::script::Outcome::Done),
        got: Err(UNCLEAN),
    }))
}

fn open(devices: &[impl AsRef<Path>], options: &OpenOptions) -> EngineTarget {
    let devices: NamedDevices = devices
        .iter()
        .map(|path| {
            let path = path.as_ref().to_path_buf();
            let device = FileDevice::open(&path, Access::Write).unwrap();
            (path, Arc::new(device) as Arc<dyn BlockDevice>)
        })
        .collect();
    EngineTarget::open(devices, options).unwrap()
}

/// Runs a part of the script. At its end everything is closed and visible after a remount.
fn turn(
    model: ModelFs,
    target: &mut impl Target,
    ops: &[Op],
    options: &RunOptions,
) -> Result<ModelFs, Failure> {
    let mut run = Run::new(model, target, options.clone());
    run.script(ops)?;
    let at_end = |problem| Failure {
        index: ops.len() - 1,
        problem,
    };
    run.step(&Op::Remount).map_err(at_end)?;
    run.compare().map_err(at_end)?;
    Ok(run.model)
}

/// Checks the volume, which is not in use.
fn judge(volume: &KernelVolume, model: &ModelFs) -> Result<(), Problem> {
    let report = check(volume.devices(), &CheckOptions::default(), &mut ()).unwrap();
    if !report.is_spotless() {
        return Err(unclean(&report));
    }
    volume.check().map_err(|error| unclean(&error))?;
    // Scrub stores its progress.
    let options = if is_soak() { "" } else { "ro," };
    let mount = volume.mount(&format!("{options}subvolid=5")).unwrap();
    let shown = Manifest::of_dir(mount.path()).unwrap();
    let mut differences = model.compare(&shown, &[]);
    if is_soak() {
        mount.scrub().map_err(|error| unclean(&error))?;
    }
    mount.unmount().unwrap();
    let mount = volume.mount_ro().unwrap();
    let shown = Manifest::of_dir(mount.path()).unwrap();
    differences.extend(model.compare_default(&shown));
    mount.unmount().unwrap();
    if differences.is_empty() {
        Ok(())
    } else {
        Err(Problem::Shown(differences))
    }
}

/// Runs the script in turns with the kernel. The engine begins and ends.
fn take_turns(case: &Case, ops: &[Op], options: &RunOptions) -> Result<(), Failure> {
    let spec = case.spec().device_bytes(DEVICE_BYTES);
    let mut volume = KernelVolume::make(&spec).unwrap();
    // The first mount of a new volume scans for missing UUID entries, perhaps for a subvolume that is being
    // deleted. Unmounting waits until the scan ends.
    volume.mount("").unwrap().unmount().unwrap();
    let mut model = ModelFs::new(options.limits);
    let len = ops.len().div_ceil(TURNS).max(1);
    for (number, ops) in ops.chunks(len).enumerate() {
        let begin = number * len;
        let in_all = |failure: Failure| Failure {
            index: begin + failure.index,
            ..failure
        };
        model = if number % 2 == 0 {
            let mut engine = open(volume.devices(), &engine_options(case));
            turn(model, &mut engine, ops, options).map_err(in_all)?
        } else {
            let mut kernel = KernelTarget::mount(volume, case.compression.mount_option()).unwrap();
            let model = turn(model, &mut kernel, ops, options).map_err(in_all)?;
            volume = kernel.into_volume().unwrap();
            model
        };
        judge(&volume, &model).map_err(|problem| Failure {
            index: begin + ops.len() - 1,
            problem,
        })?;
    }
    Ok(())
}

/// In a soak the cases cover all pairs of values; otherwise only the few most varied ones. UBTRFS_CASES sets
/// the number, and UBTRFS_CASE selects one.
#[test]
fn engine_and_kernel_do_one_script_in_turns() {
    if !kernel::or_skip(TEST) {
        return;
    }
    let (many, count) = if is_soak() {
        (usize::MAX, 1500)
    } else {
        (4, 240)
    };
    let given = std::env::var("UBTRFS_CASES").ok();
    let many = given.and_then(|many| many.parse().ok()).unwrap_or(many);
    let mut cases = matrix::writable();
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
        let shape = SHAPES[(seed % SHAPES.len() as u64) as usize];
        let name = format!("UBTRFS_CASE={case} UBTRFS_SEED={seed}, {shape:?}, {count} operations");
        println!("{name}");
        let ops = generate(shape, seed, count);
        prove_script(&name, &ops, &run_options(case), |ops, options| {
            take_turns(case, ops, options)
        });
        progress.step(|| case);
    }
}
