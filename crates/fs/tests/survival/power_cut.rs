//! Power cuts on recorded devices: every volume opens, is sound, shows a legal state, and can be used
//! further.
//!
//! In exact runs, commits happen at known points and include all data. The state is a prefix of the script,
//! no older than the last sync that returned. Inodes that were synced alone may be newer, because of a log.

mod background;
mod blocks;
mod exact;
mod in_place;
mod kernel;
mod steps;

use std::sync::Arc;

use ubtrfs_device::BlockDevice;
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{NewInode, OpenOptions};
use ubtrfs_sim::Progress;
use ubtrfs_sim::manifest::Manifest;
use ubtrfs_sim::model::ModelFs;
use ubtrfs_sim::oracle::{History, Mark, Promise, Rules, every_sync, judge_crash};
use ubtrfs_sim::record::{CrashPlan, CrashState, Recorder, Recording};
use ubtrfs_sim::script::{Op, Problem, Run, RunOptions, Step};

use crate::devices::{
    Devices, Layout, check, check_after_cut, has_log, recover_superblocks, shared,
};
use crate::engine::Engine;
use crate::shown::manifest;

/// Creates the devices of a new volume, with recording from now on.
fn recorded(layout: &Layout, recorder: &Recorder) -> Devices {
    let devices = layout.make().into_iter();
    devices
        .map(|device| recorder.device(device) as Arc<dyn BlockDevice>)
        .collect()
}

/// Runs a script, and marks the begin of operations and durable points. It is enough if both sides fail.
fn history(engine: &mut Engine, ops: &[Op], recorder: &Recorder) -> History {
    let options = RunOptions {
        may_be_full: true,
        ..RunOptions::default()
    };
    let mut run = Run::new(ModelFs::new(options.limits), engine, options);
    let mut history = History::new(run.model.clone());
    for (index, op) in ops.iter().enumerate() {
        let ops = index + 1;
        recorder.mark(Mark::Started { thread: 0, ops });
        match run.step(op) {
            Ok(Step::Done) => {
                let mark = Mark::after(op, 0, ops, every_sync);
                mark.into_iter().for_each(|mark| recorder.mark(mark));
            }
            Ok(_) => {}
            Err(Problem::Outcome(both)) if both.wanted.is_err() && both.got.is_err() => {}
            Err(problem) => panic!("operation {index}: {problem:?}"),
        }
        history.push(op.clone(), run.model.clone());
    }
    history
}

/// A volume after a power cut, opened.
struct Survivor {
    devices: Devices,
    engine: Engine,
    /// Whether its newest superblock named a log before it was opened.
    had_log: bool,
}

impl Survivor {
    /// Checks the volume and opens it. If the cut tore a primary superblock, opening is refused until it is
    /// recovered.
    fn open(state: &CrashState, options: &OpenOptions) -> Result<Survivor, String> {
        let devices = shared(state.devices.clone());
        check_after_cut(&devices)?;
        let had_log = has_log(&devices);
        let opened = Engine::open(&devices, options);
        let opened = if !recover_superblocks(&devices) {
            opened
        } else if opened.is_ok() {
            return Err("opened with a torn superblock".to_owned());
        } else {
            Engine::open(&devices, options)
        };
        let engine = opened.map_err(|error| error.to_string())?;
        Ok(Survivor {
            devices,
            engine,
            had_log,
        })
    }

    fn shown(&self) -> Manifest {
        manifest(self.engine.volume())
    }

    /// Checks that the volume can be used, and that the next commit removes the leftovers of the cut.
    fn stays_usable(self) -> Result<(), String> {
        let volume = self.engine.volume();
        let work = || {
            let top = volume.root_dir(RootId::FS_TREE)?;
            let file = volume.create(top, b"after the cut", &NewInode::file(0o600))?;
            volume.write(file, 0, &[7; 10_000])?;
            volume.sync()
        };
        match work() {
            Err(error) if !error.is_no_space() => return Err(error.to_string()),
            _ => {}
        }
        drop(self.engine);
        check(&self.devices)
    }
}

/// Cuts at every `step`-th state of the plan. Returns the number of cuts.
fn each_cut(
    recording: &Recording,
    plan: &CrashPlan,
    step: usize,
    mut judge: impl FnMut(&CrashState) -> Result<(), String>,
) -> usize {
    let step = step.max(1);
    let states = (recording.flushes() + 1 + plan.random_states).div_ceil(step);
    let thread = std::thread::current();
    let progress = Progress::new(thread.name().unwrap_or("cuts"), states);
    let mut count = 0;
    for state in recording.crash_states(plan).step_by(step) {
        judge(&state).unwrap_or_else(|fault| panic!("{state}\n{fault}"));
        count += 1;
        progress.step(|| &state);
    }
    count
}

fn legal(
    history: &History,
    shown: &Manifest,
    state: &CrashState,
    rules: &Rules,
) -> Result<(), String> {
    let promise = Promise::of(state.marks());
    let verdict = judge_crash(history, shown, promise, rules);
    verdict.map(drop).map_err(|fault| fault.to_string())
}
