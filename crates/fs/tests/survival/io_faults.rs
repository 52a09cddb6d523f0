//! Each request of a script fails in turn. An operation reports the error, and nothing panics. Afterwards the
//! volume is at its last commit or a later one.

use std::sync::Arc;

use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_fs::{Error, OpenOptions};
use ubtrfs_sim::fault::{Counts, Fault, FaultDevice};
use ubtrfs_sim::manifest::Field;
use ubtrfs_sim::model::ModelFs;
use ubtrfs_sim::oracle::{History, Promise, Rules, every_sync, judge_crash};
use ubtrfs_sim::script::{
    Disagreement, Op, OpError, Outcome, Problem, Run, RunOptions, Shape, Step, Target, generate,
    path,
};
use ubtrfs_sim::{Progress, seed};

use crate::devices::{
    Devices, Layout, MIB, MIRROR_FAULTS, check_after_cut, check_but, open, quiet,
};
use crate::engine::Engine;
use crate::scripts::copied_on_write;
use crate::shown::manifest;
use crate::soak::count;

struct Trial {
    faulty: Vec<Arc<FaultDevice>>,
    good: Devices,
}

impl Trial {
    fn new(base: &[MemDevice]) -> Trial {
        let good: Devices = base
            .iter()
            .map(|device| Arc::new(device.clone()) as Arc<dyn BlockDevice>)
            .collect();
        let faulty = good
            .iter()
            .map(|device| Arc::new(FaultDevice::new(Arc::clone(device))));
        Trial {
            faulty: faulty.collect(),
            good,
        }
    }

    fn devices(&self) -> Devices {
        let share = |device: &Arc<FaultDevice>| Arc::clone(device) as Arc<dyn BlockDevice>;
        self.faulty.iter().map(share).collect()
    }
}

/// The course of a script on a failing device.
struct Ran {
    history: History,
    promise: Promise,
    /// The first operation that failed because of the fault.
    refused: Option<usize>,
    aborted: bool,
}

fn run(engine: &mut Engine, ops: &[Op]) -> Ran {
    let options = RunOptions::default();
    let mut model = ModelFs::new(options.limits);
    let mut ran = Ran {
        history: History::new(model.clone()),
        promise: Promise::default(),
        refused: None,
        aborted: false,
    };
    for (index, op) in ops.iter().enumerate() {
        let mut run = Run::new(model.clone(), engine, options.clone());
        let step = run.step(op);
        model = run.model;
        ran.history.push(op.clone(), model.clone());
        ran.promise.at_most = ran.history.ops();
        match step {
            Ok(Step::Done) if every_sync(op) => ran.promise.at_least = ran.history.ops(),
            Ok(Step::Done) if matches!(op, Op::Fsync { .. }) => {
                ran.promise.synced.push(ran.history.ops());
            }
            Ok(Step::Refused) => {
                ran.refused.get_or_insert(index);
                match engine.volume().sync() {
                    Ok(()) => ran.promise.at_least = ran.history.ops(),
                    Err(Error::Aborted(_)) => {
                        // The failed commit may still be durable.
                        let _ = model.apply(op);
                        ran.history.push(op.clone(), model);
                        ran.promise.at_most = ran.history.ops();
                        ran.aborted = true;
                        return ran;
                    }
                    Err(_) => {}
                }
            }
            Ok(_) => {}
            Err(Problem::Outcome(both)) if both.wanted.is_err() && both.got.is_err() => {
                // The error may belong to an earlier sync, and be reported only here.
                if both.got == Err(OpError::Io) {
                    ran.refused.get_or_insert(index);
                }
            }
            // A copy with a fault after its beginning returns the length copied.
            Err(Problem::Outcome(both)) if is_cut_short(&both) => {
                ran.refused.get_or_insert(index);
            }
            // The lost data may be the data that is read.
            Err(problem) => assert!(ran.refused.is_some(), "operation {index}: {problem:?}"),
        }
    }
    match engine.volume().sync() {
        Ok(()) => ran.promise.at_least = ran.history.ops(),
        Err(error) => {
            ran.refused.get_or_insert(ops.len());
            let again = engine.volume().sync();
            ran.aborted = matches!(again, Err(Error::Aborted(_)));
            assert!(ran.aborted || again.is_ok(), "{error}, then {again:?}");
        }
    }
    ran
}

fn is_cut_short(both: &Disagreement) -> bool {
    match (&both.wanted, &both.got) {
        (Ok(Outcome::Copied(wanted)), Ok(Outcome::Copied(got))) => got < wanted,
        _ => false,
    }
}

/// Asserts that an aborted volume can be read but refuses changes.
fn assert_reads_only(engine: &mut Engine) {
    let shown = engine.manifest();
    assert!(shown.faults.is_empty(), "{:?}", shown.faults);
    let ops = [
        Op::Create {
            path: path("late"),
            mode: 0o600,
        },
        Op::Sync,
        Op::CreateSubvolume {
            path: path("late subvolume"),
        },
    ];
    for op in ops {
        assert!(engine.apply(&op).is_err(), "{op:?} on an aborted volume");
    }
    assert!(matches!(engine.volume().sync(), Err(Error::Aborted(_))));
}

/// Counts the requests of each device while the script runs without a fault.
fn count_requests(base: &[MemDevice], ops: &[Op], options: &OpenOptions) -> Vec<Counts> {
    let trial = Trial::new(base);
    let mut engine = Engine::open(&trial.devices(), options).unwrap().exact();
    let ran = run(&mut engine, ops);
    assert!(ran.refused.is_none(), "without a fault");
    drop(engine);
    check_but(&trial.good, &[]).unwrap();
    trial.faulty.iter().map(|device| device.counts()).collect()
}

fn survives(
    base: &[MemDevice],
    (device, fault): (usize, &Fault),
    ops: &[Op],
    options: &OpenOptions,
) {
    let mirrored = base.len() > 1;
    let trial = Trial::new(base);
    trial.faulty[device].add(fault.clone());
    if let Fault::Read { nth } = fault {
        // A request that fails once is retried.
        for nth in nth + 1..nth + 8 {
            trial.faulty[device].add(Fault::Read { nth });
        }
    }
    let promise = match Engine::open(&trial.devices(), options) {
        Err(_) => {
            let nothing = Promise::default();
            (History::new(ModelFs::default()), nothing, Rules::default())
        }
        Ok(engine) => {
            let mut engine = engine.exact().failing();
            let mut ran = run(&mut engine, ops);
            let mut rules = Rules::default();
            if ran.aborted {
                if !matches!(fault, Fault::GoneAfter { .. }) {
                    trial.faulty[device].heal();
                    assert_reads_only(&mut engine);
                }
            } else {
                ran.promise.at_least = ran.promise.at_most;
                if ran.refused.is_some() {
                    rules.ignored = vec![Field::Content, Field::Size];
                }
            }
            if mirrored {
                assert!(ran.refused.is_none(), "the other mirror does");
            }
            drop(engine);
            (ran.history, ran.promise, rules)
        }
    };
    let (history, promise, rules) = promise;
    let checked = if mirrored {
        check_but(&trial.good, &MIRROR_FAULTS)
    } else {
        check_after_cut(&trial.good)
    };
    checked.unwrap_or_else(|issues| panic!("{issues}"));
    let volume = open(&trial.good, options).unwrap_or_else(|error| panic!("{error}"));
    judge_crash(&history, &manifest(&volume), promise, &rules)
        .unwrap_or_else(|fault| panic!("{fault}"));
}

/// Fails every `step`-th request of a random script.
fn every_request(name: &str, layout: &Layout, options: &OpenOptions, shape: Shape) {
    let seed = seed(name);
    let mut ops = copied_on_write(generate(shape, seed, count(60, 250)));
    for (index, op) in ops.iter_mut().enumerate() {
        if index % 20 == 15 || *op == Op::Remount {
            *op = Op::Sync;
        }
    }
    let base = layout.make();
    let counts = count_requests(&base, &ops, options);
    let faults: Vec<(usize, Fault)> = counts
        .iter()
        .enumerate()
        .flat_map(|(device, counts)| {
            let each = counts.each_since(Counts::default());
            let gone = (0..counts.total())
                .step_by(7)
                .map(|requests| Fault::GoneAfter { requests });
            each.chain(gone).map(move |fault| (device, fault))
        })
        .collect();
    let step = faults.len().div_ceil(count(60, 5000));
    println!(
        "{name}: {} requests, {counts:?}, each {step}th",
        faults.len()
    );
    let progress = Progress::new(name, faults.len().div_ceil(step));
    for (device, fault) in faults.iter().step_by(step) {
        println!("device {device}, {fault:?}");
        survives(&base, (*device, fault), &ops, options);
        progress.step(|| format!("device {device}, {fault:?}"));
    }
}

#[test]
fn one_device() {
    let layout = Layout::new(1, 256 * MIB);
    every_request("faults, one device", &layout, &quiet(), Shape::Mixed);
}

#[test]
fn snapshots_with_a_small_cache() {
    let layout = Layout::new(1, 256 * MIB)
        .nodesize(4096)
        .profiles(Profile::Single, Profile::Single);
    let options = quiet().cache_bytes(64 << 10);
    every_request("faults, snapshots", &layout, &options, Shape::Snapshots);
}

#[test]
fn one_of_two_mirrors() {
    let layout = Layout::new(2, 256 * MIB).profiles(Profile::Raid1, Profile::Raid1);
    every_request("faults, raid1", &layout, &quiet(), Shape::Mixed);
}
