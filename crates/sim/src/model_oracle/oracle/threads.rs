//! Histories of concurrent threads, each in a folder of its own.

use parking_lot::Mutex;

use super::history::{History, Mark};
use crate::model::ModelFs;
use crate::record::Recorder;
use crate::script::{Op, RunOptions, Step, Target, ThreadFailure, ThreadPlan, Watch, path};

/// Runs a plan of `ThreadPlan::apart` and adds marks for starts and promises of each thread. A promise to a thread is
/// only about its own operations.
///
/// The histories begin after the setup, which must end with a Sync. So use cuts since `Mark::Durable { thread: 0,
/// ops: 0 }`, and judge each thread by `Promise::of_thread`.
pub fn record_threads<T: Target + Send>(
    plan: &ThreadPlan,
    targets: &mut [T],
    recorder: &Recorder,
    options: &RunOptions,
    promises: impl Fn(&Op) -> bool + Sync,
) -> Result<Vec<History>, ThreadFailure> {
    let recording = Threads {
        plan,
        recorder,
        promises,
        histories: Mutex::default(),
    };
    plan.run(targets, options, &recording)?;
    Ok(recording.histories.into_inner())
}

struct Threads<'a, P> {
    plan: &'a ThreadPlan,
    recorder: &'a Recorder,
    promises: P,
    histories: Mutex<Vec<History>>,
}

impl<P: Fn(&Op) -> bool + Sync> Watch for Threads<'_, P> {
    fn start(&self, model: &ModelFs) {
        let threads = 0..self.plan.threads.len() as u8;
        *self.histories.lock() = threads
            .clone()
            .map(|thread| History::of_part(model.clone(), path(format!("t{thread}"))))
            .collect();
        for thread in threads.rev() {
            self.recorder.mark(Mark::Durable { thread, ops: 0 });
        }
    }

    fn before(&self, thread: u8, index: usize) {
        let ops = index + 1;
        self.recorder.mark(Mark::Started { thread, ops });
    }

    fn after(&self, thread: u8, index: usize, step: &Step, model: &ModelFs) {
        let op = &self.plan.threads[usize::from(thread)][index];
        let ops = index + 1;
        if *step == Step::Done
            && let Some(mark) = Mark::after(op, thread, ops, &self.promises)
        {
            self.recorder.mark(mark);
        }
        let mut histories = self.histories.lock();
        histories[usize::from(thread)].push(op.clone(), model.clone());
    }
}
