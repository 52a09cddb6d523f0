//! Which states a volume may be in after a power cut, and whether it is in one.
//!
//! Legal is the state after some prefix of the operations. The prefix holds all that was promised to be durable and
//! nothing that was not begun. Beside it a log may keep inodes that were synced alone. A test of an engine:
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
//! With several threads (`script::ThreadPlan`), each has a history of its own and is judged by its part of
//! the volume: see `record_threads`.
//!
//! - ORACLE-1: `Mark::Started` is put before an operation reaches the target, `Mark::Durable` after the operation
//!   that promised it returned. So no legal state is ever called a fault.

mod history;
mod judge;
mod logs;
#[cfg(test)]
mod tests;
mod threads;

pub use history::{History, Mark, Promise, every_sync, every_sync_and_fsync};
pub use judge::{CrashFault, DataRule, Rules, Verdict, judge_crash};
pub use threads::record_threads;
