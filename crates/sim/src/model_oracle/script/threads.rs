//! Scripts for several threads whose combined result does not depend on the interleaving.
//!
//! - THREADS-1: the result of each operation, and the final manifest, do not depend on the timing of other threads.
//!   Times of shared directories and files, and the order in shared directories, are not compared.

use super::run::{Failure, Problem, Run, RunOptions, Step};
use super::{
    At, Bytes, Data, FsPath, Op, RenameHow, Shape, Slot, Target, XattrHow, generate, path,
};
use crate::Progress;
use crate::Rng;
use crate::fill;
use crate::model::ModelFs;

/// The operations of several concurrent threads, and a common setup.
#[derive(Clone, Debug)]
pub struct ThreadPlan {
    pub setup: Vec<Op>,
    pub threads: Vec<Vec<Op>>,
}

/// Number of slots in a script of one thread.
const SLOTS: u8 = 4;
const SHARED_DIRS: u64 = 3;
const SHARED_FILES: u64 = 4;
const REGIONS: u64 = 64;
const REGION_BYTES: u64 = 10_000;

impl ThreadPlan {
    /// Plans threads that each work below a separate folder `t0`, `t1`, ..., or a subvolume. The setup ends with a
    /// Sync.
    pub fn apart(
        shape: Shape,
        seed: u64,
        threads: u8,
        count: usize,
        subvolumes: bool,
    ) -> ThreadPlan {
        let root = |thread: u8| path(format!("t{thread}"));
        let roots = (0..threads).map(|thread| {
            if subvolumes {
                Op::CreateSubvolume { path: root(thread) }
            } else {
                Op::Mkdir {
                    path: root(thread),
                    mode: 0o755,
                }
            }
        });
        let script = |thread: u8| {
            let seed = Rng::new(seed ^ u64::from(thread)).next_u64();
            let ops = generate(shape, seed, count).into_iter();
            // A remount affects all threads, and the default subvolume belongs to no thread.
            let ops = ops.filter(|op| !matches!(op, Op::Remount | Op::SetDefault { .. }));
            ops.map(|op| op.moved(&root(thread), thread * SLOTS))
                .collect()
        };
        ThreadPlan {
            setup: roots.chain([Op::Sync]).collect(),
            threads: (0..threads).map(script).collect(),
        }
    }

    /// Plans threads that all work in the same directories and files, with commuting operations. Each creates, moves
    /// and removes its own names, links files of all threads, and writes its own regions of one file.
    pub fn shared(seed: u64, threads: u8, count: usize) -> ThreadPlan {
        let mut setup = Vec::new();
        for dir in 0..SHARED_DIRS {
            setup.push(Op::Mkdir {
                path: path(format!("d{dir}")),
                mode: 0o755,
            });
        }
        for file in 0..SHARED_FILES {
            setup.push(Op::Create {
                path: path(format!("f{file}")),
                mode: 0o644,
            });
        }
        setup.push(Op::Create {
            path: path("regions"),
            mode: 0o644,
        });
        setup.push(Op::Truncate {
            at: At::Path(path("regions")),
            size: REGIONS * u64::from(threads) * REGION_BYTES,
        });
        let script = |thread: u8| {
            let mut member = Member {
                thread,
                threads,
                rng: Rng::new(Rng::new(seed ^ u64::from(thread)).next_u64()),
                names: Vec::new(),
                made: 0,
            };
            (0..count).map(|_| member.op()).collect()
        };
        ThreadPlan {
            setup,
            threads: (0..threads).map(script).collect(),
        }
    }

    /// Runs the setup, then all scripts concurrently, the n-th on the n-th target, and compares at the end.
    pub fn run<T: Target + Send>(
        &self,
        targets: &mut [T],
        options: &RunOptions,
        watch: &impl Watch,
    ) -> Result<ThreadRun, ThreadFailure> {
        assert_eq!(
            targets.len(),
            self.threads.len(),
            "a target for each thread"
        );
        let failed = |thread| move |failure| ThreadFailure { thread, failure };
        let mut first = Run::new(
            ModelFs::new(options.limits),
            &mut targets[0],
            options.clone(),
        );
        first.script(&self.setup).map_err(failed(None))?;
        let start = first.model;
        watch.start(&start);

        let ends: Vec<Result<Vec<Op>, ThreadFailure>> = std::thread::scope(|scope| {
            let threads = self.threads.iter().zip(targets.iter_mut()).enumerate();
            let running: Vec<_> = threads
                .map(|(thread, (ops, target))| {
                    let mut run = Run::new(start.clone(), target, options.clone());
                    let work = move || {
                        let thread = thread as u8;
                        each(&mut run, thread, ops, watch).map_err(failed(Some(thread)))
                    };
                    scope.spawn(work)
                })
                .collect();
            let joined = running.into_iter().map(|thread| thread.join());
            joined
                .map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        let mut model = start.clone();
        for ops in ends {
            for op in ops? {
                let _ = model.apply(&op);
            }
        }
        let mut last = Run::new(model, &mut targets[0], options.clone());
        let compared = last.compare().map_err(|problem| Failure {
            index: self.threads.iter().map(Vec::len).sum(),
            problem,
        });
        compared.map_err(failed(None))?;
        Ok(ThreadRun {
            start,
            end: last.model,
        })
    }
}

/// Receives the progress of the threads.
pub trait Watch: Sync {
    /// Runs after the setup, before any thread starts.
    fn start(&self, _model: &ModelFs) {}

    /// Runs before the thread executes its operation `index`.
    fn before(&self, _thread: u8, _index: usize) {}

    /// Runs after the thread has executed its operation `index`. `model` is the thread's own model since the setup.
    fn after(&self, _thread: u8, _index: usize, _step: &Step, _model: &ModelFs) {}
}

impl Watch for () {}

impl Watch for Progress {
    fn after(&self, _thread: u8, _index: usize, _step: &Step, model: &ModelFs) {
        self.step(|| format!("{} inodes of a thread", model.inode_count()));
    }
}

/// The models before and after all threads ran.
#[derive(Clone, Debug)]
pub struct ThreadRun {
    pub start: ModelFs,
    pub end: ModelFs,
}

/// A failure, and its thread, or None for the final comparison.
#[derive(Clone, Debug)]
pub struct ThreadFailure {
    pub thread: Option<u8>,
    pub failure: Failure,
}

impl std::fmt::Display for ThreadFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.thread {
            Some(thread) => write!(f, "thread {thread}: {}", self.failure),
            None => write!(f, "all threads: {}", self.failure),
        }
    }
}

/// Runs a thread's script, and returns the operations that took effect.
fn each<T: Target>(
    run: &mut Run<'_, T>,
    thread: u8,
    ops: &[Op],
    watch: &impl Watch,
) -> Result<Vec<Op>, Failure> {
    let mut done = Vec::new();
    for (index, op) in ops.iter().enumerate() {
        watch.before(thread, index);
        let step = run.step(op);
        let step = step.map_err(|problem: Problem| Failure { index, problem })?;
        watch.after(thread, index, &step, &run.model);
        match step {
            Step::Done => done.push(op.clone()),
            Step::Part(part) => done.push(part),
            Step::Failed | Step::Refused | Step::LeftOut => {}
        }
    }
    Ok(done)
}

/// One of the threads that share directories.
struct Member {
    thread: u8,
    threads: u8,
    rng: Rng,
    /// Its own names, and whether each is a folder.
    names: Vec<(FsPath, bool)>,
    made: usize,
}

impl Member {
    fn new_name(&mut self) -> FsPath {
        self.made += 1;
        let dir = self.rng.below(SHARED_DIRS);
        path(format!("d{dir}/t{}-{}", self.thread, self.made))
    }

    fn make(&mut self, is_dir: bool) -> FsPath {
        let path = self.new_name();
        self.names.push((path.clone(), is_dir));
        path
    }

    fn data(&mut self, len_bytes: usize) -> Data {
        Data::Made {
            kind: fill::Kind::Mixed,
            len_bytes,
            seed: self.rng.next_u64(),
        }
    }

    fn op(&mut self) -> Op {
        let shared = path(format!("f{}", self.rng.below(SHARED_FILES)));
        let chosen = self.rng.below(self.names.len().max(1) as u64) as usize;
        match (self.rng.below(12), self.names.get(chosen).cloned()) {
            (0, _) => Op::Mkdir {
                path: self.make(true),
                mode: 0o700,
            },
            (1, _) => Op::Link {
                from: shared,
                to: self.make(false),
            },
            (2, _) => Op::SetXattr {
                path: shared,
                name: Bytes(format!("user.t{}-{}", self.thread, self.rng.below(5)).into_bytes()),
                value: self.data(20),
                how: XattrHow::Any,
            },
            (3, _) => {
                let region = self.rng.below(REGIONS) * u64::from(self.threads);
                let len = self.rng.below(REGION_BYTES) as usize;
                Op::Write {
                    at: At::Path(path("regions")),
                    offset: (region + u64::from(self.thread)) * REGION_BYTES,
                    data: self.data(len),
                }
            }
            (4, _) if self.rng.one_in(10) => Op::Sync,
            (5..7, Some((path, is_dir))) => {
                self.names.swap_remove(chosen);
                if is_dir {
                    Op::Rmdir { path }
                } else {
                    Op::Unlink { path }
                }
            }
            (7..9, Some((from, is_dir))) => {
                self.names.swap_remove(chosen);
                Op::Rename {
                    from,
                    to: self.make(is_dir),
                    how: RenameHow::Replace,
                }
            }
            (9, Some((path, false))) => Op::Fsync { at: At::Path(path) },
            _ => Op::Create {
                path: self.make(false),
                mode: 0o600,
            },
        }
    }
}

impl Op {
    /// Moves the operation below `root`, with separate slots.
    fn moved(mut self, root: &FsPath, slots: u8) -> Op {
        let below = |path: &mut FsPath| {
            *path = path
                .names()
                .fold(root.clone(), |path, name| path.join(name));
        };
        let shift = |slot: &mut Slot| slot.0 += slots;
        let file = |at: &mut At| match at {
            At::Path(path) => below(path),
            At::Slot(slot) => shift(slot),
        };
        match &mut self {
            Op::Create { path, .. }
            | Op::Mkdir { path, .. }
            | Op::Symlink { path, .. }
            | Op::Mknod { path, .. }
            | Op::Unlink { path }
            | Op::Rmdir { path }
            | Op::SetXattr { path, .. }
            | Op::RemoveXattr { path, .. }
            | Op::Chmod { path, .. }
            | Op::Chown { path, .. }
            | Op::SetTimes { path, .. }
            | Op::SetFlags { path, .. }
            | Op::CreateSubvolume { path }
            | Op::DeleteSubvolume { path }
            | Op::SetReadOnly { path, .. }
            | Op::SetDefault { path }
            | Op::SetReceived { path, .. }
            | Op::GetReceived { path }
            | Op::List { path }
            | Op::Stat { path }
            | Op::GetXattr { path, .. }
            | Op::GetFlags { path } => below(path),
            Op::Link { from, to } | Op::Rename { from, to, .. } | Op::Snapshot { from, to, .. } => {
                below(from);
                below(to);
            }
            Op::Open { path, slot }
            | Op::Tmpfile {
                dir: path, slot, ..
            }
            | Op::LinkOpen { slot, to: path } => {
                below(path);
                shift(slot);
            }
            Op::Close { slot } => shift(slot),
            Op::Write { at, .. }
            | Op::Append { at, .. }
            | Op::Truncate { at, .. }
            | Op::Fallocate { at, .. }
            | Op::Read { at, .. }
            | Op::Fsync { at } => file(at),
            Op::Clone { from, to, .. }
            | Op::CopyRange { from, to, .. }
            | Op::Dedupe { from, to, .. } => {
                file(from);
                file(to);
            }
            Op::Sync | Op::Commit | Op::Remount | Op::DropCaches => {}
        }
        self
    }
}
