//! Legal states of a volume after a power cut, and checks for them.
//!
//! A state is legal if it results from a prefix of the operations. The prefix must include all that was promised to
//! be durable, and nothing that was not started. In addition, a log may contain inodes that were synced individually.
//! A test of an engine:
//!
//! ```text
//! let recorder = Recorder::new();
//! let mut target = MyTarget::on(recorder.device(image));
//! let history = History::record(&mut target, &ops, &recorder, &options, every_sync)?;
//! for state in recorder.recording().crash_states(&CrashPlan::new(seed)) {
//!     let promise = Promise::of(state.marks());
//!     let shown = MyTarget::open(&state.devices).manifest();
//!     judge_crash(&history, &shown, promise, &Rules::default())
//!         .unwrap_or_else(|fault| panic!("{state}\n{fault}"));
//! }
//! ```
//!
//! With several threads (`script::ThreadPlan`), each has its own history and is judged by its part of the volume: see
//! `record_threads`.
//!
//! - ORACLE-1: `Mark::Started` is added before an operation reaches the target, `Mark::Durable` after the operation
//!   with the promise has returned. So no legal state is ever reported as a fault.

mod history;
mod judge;
mod logs;
mod rules;
#[cfg(test)]
mod tests;
mod threads;

pub use history::{History, Mark, Promise, every_sync, every_sync_and_fsync};
pub use judge::{CrashFault, Verdict, judge_crash};
pub use rules::{DataRule, Rules};
pub use threads::record_threads;
