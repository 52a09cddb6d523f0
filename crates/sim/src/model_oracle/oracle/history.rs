//! The sequence of models during a script, and the durability promises.

use std::sync::OnceLock;

use crate::manifest::Manifest;
use crate::model::ModelFs;
use crate::record::Recorder;
use crate::script::{Durability, Failure, FsPath, Op, Run, RunOptions, Step, Target};

/// A mark in a recording. Operations are counted from 1 within a thread; 0 is the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// This many operations have started.
    Started { thread: u8, ops: usize },
    /// This many operations are durable.
    Durable { thread: u8, ops: usize },
    /// The last of this many operations was an fsync, whose inode is durable in its state at that time.
    Synced { thread: u8, ops: usize },
}

impl Mark {
    /// Returns the mark to add after operation number `ops` of a thread, if any.
    pub fn after(op: &Op, thread: u8, ops: usize, promises: impl Fn(&Op) -> bool) -> Option<Mark> {
        match op {
            op if promises(op) => Some(Mark::Durable { thread, ops }),
            Op::Fsync { .. } => Some(Mark::Synced { thread, ops }),
            _ => None,
        }
    }
}

const DURABLE: u64 = 1 << 63;
const SYNCED: u64 = 1 << 62;
const THREAD_SHIFT: u32 = 48;
const OPS: u64 = (1 << THREAD_SHIFT) - 1;

impl From<Mark> for u64 {
    fn from(mark: Mark) -> u64 {
        let (kind, thread, ops) = match mark {
            Mark::Started { thread, ops } => (0, thread, ops),
            Mark::Durable { thread, ops } => (DURABLE, thread, ops),
            Mark::Synced { thread, ops } => (SYNCED, thread, ops),
        };
        kind | u64::from(thread) << THREAD_SHIFT | ops as u64 & OPS
    }
}

impl From<u64> for Mark {
    fn from(mark: u64) -> Mark {
        let thread = (mark >> THREAD_SHIFT) as u8;
        let ops = (mark & OPS) as usize;
        match mark & (DURABLE | SYNCED) {
            0 => Mark::Started { thread, ops },
            SYNCED => Mark::Synced { thread, ops },
            _ => Mark::Durable { thread, ops },
        }
    }
}

/// The promises about a thread's operations, from the marks before a power cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// Minimum number of operations in the volume.
    pub at_least: usize,
    /// Maximum number of operations in the volume.
    pub at_most: usize,
    /// The numbers of the completed fsync operations.
    pub synced: Vec<usize>,
}

impl Promise {
    /// Returns the promise of the only thread.
    pub fn of(marks: &[u64]) -> Promise {
        Promise::of_thread(marks, 0)
    }

    pub fn of_thread(marks: &[u64], wanted: u8) -> Promise {
        let mut promise = Promise::default();
        for mark in marks {
            match Mark::from(*mark) {
                Mark::Started { thread, ops } if thread == wanted => {
                    promise.at_most = promise.at_most.max(ops);
                }
                Mark::Durable { thread, ops } if thread == wanted => {
                    promise.at_least = promise.at_least.max(ops);
                }
                Mark::Synced { thread, ops } if thread == wanted => promise.synced.push(ops),
                _ => {}
            }
        }
        promise
    }
}

/// The models after each number of operations.
#[derive(Debug)]
pub struct History {
    pub(super) states: Vec<State>,
    /// The folder that contains all changes of the operations.
    pub(super) below: FsPath,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) model: ModelFs,
    /// The operation between this state and the next one.
    pub(super) next: Option<Op>,
    prints: OnceLock<Prints>,
}

/// Fingerprints of a manifest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prints {
    pub(super) whole: u64,
    pub(super) without_data: u64,
}

impl History {
    /// Starts a history. `start` is the state of the volume before the first operation.
    pub fn new(start: ModelFs) -> History {
        History::of_part(start, FsPath::default())
    }

    /// Starts the history of one of several threads, which works below a folder that it never removes.
    pub fn of_part(start: ModelFs, below: FsPath) -> History {
        History {
            states: vec![State::new(start)],
            below,
        }
    }

    /// Adds an operation and the model after it.
    pub fn push(&mut self, op: Op, model: ModelFs) {
        if let Some(last) = self.states.last_mut() {
            last.next = Some(op);
        }
        self.states.push(State::new(model));
    }

    pub fn ops(&self) -> usize {
        self.states.len() - 1
    }

    pub fn model(&self, ops: usize) -> &ModelFs {
        &self.states[ops].model
    }

    /// Returns the operation after this many.
    pub(super) fn next(&self, ops: usize) -> Option<&Op> {
        self.states[ops].next.as_ref()
    }

    /// Runs a script on an empty target as the only thread, and adds marks for starts and promises. `promises`
    /// returns whether everything is durable after an operation: `every_sync`, unless the target gives other
    /// promises.
    pub fn record<T: Target>(
        target: &mut T,
        ops: &[Op],
        recorder: &Recorder,
        options: &RunOptions,
        promises: impl Fn(&Op) -> bool,
    ) -> Result<History, Failure> {
        let mut run = Run::new(ModelFs::new(options.limits), target, options.clone());
        let mut history = History::new(run.model.clone());
        for (index, op) in ops.iter().enumerate() {
            let ops = index + 1;
            // ORACLE-1
            recorder.mark(Mark::Started { thread: 0, ops });
            let step = run.step(op);
            let step = step.map_err(|problem| Failure { index, problem })?;
            if step == Step::Done
                && let Some(mark) = Mark::after(op, 0, ops, &promises)
            {
                recorder.mark(mark);
            }
            history.push(op.clone(), run.model.clone());
        }
        Ok(history)
    }

    /// Returns the manifest after this many operations.
    pub fn shown(&self, ops: usize) -> Manifest {
        part(&self.states[ops].model.manifest(), &self.below)
    }

    pub(super) fn prints(&self, ops: usize) -> Prints {
        let prints = &self.states[ops].prints;
        *prints.get_or_init(|| Prints::of(&self.shown(ops)))
    }
}

/// Returns whether the operation is Sync, Commit or Remount, which make everything durable.
pub fn every_sync(op: &Op) -> bool {
    op.durability() == Durability::Everything
}

/// Returns whether the operation is Sync, Commit, Remount or Fsync, for a target whose fsync makes everything
/// durable.
pub fn every_sync_and_fsync(op: &Op) -> bool {
    op.durability() != Durability::Nothing
}

impl State {
    fn new(model: ModelFs) -> State {
        State {
            model,
            next: None,
            prints: OnceLock::new(),
        }
    }
}

impl Prints {
    pub(super) fn of(shown: &Manifest) -> Prints {
        Prints {
            whole: shown.fingerprint(),
            without_data: shown.fingerprint_without_data(),
        }
    }
}

pub(super) fn part(manifest: &Manifest, below: &FsPath) -> Manifest {
    if below.is_root() {
        manifest.canonical()
    } else {
        manifest.below(below.as_bytes()).canonical()
    }
}
