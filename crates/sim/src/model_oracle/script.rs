//! Random and written scripts of operations, done to a file system under test and to the model at once.
//!
//! ```text
//! prove(Shape::Mixed, seed("a test"), 2000, &RunOptions::default(), || MyTarget::empty());
//! ```
//!
//! makes a script, does it to a new target, compares each outcome (errors by errno) and, now and then, all that is
//! shown. A script that fails is made short and printed, ready to be pasted into a test of its own:
//!
//! ```text
//! run(&mut target, &[Op::Create { path: path(b"a"), mode: 0o644 }, ...], &RunOptions::default())
//! ```
//!
//! A target implements `Target`: `apply` one `Op`, and a `Manifest` of all. A library keeps a table from `Slot` to
//! what holds a file open; a path is a walk of lookups that follow no symlink. For a mount, `VfsTarget` does all by
//! system calls, and asks `Mounted` only how to mount again and how to handle subvolumes. `KernelTarget` is one for
//! the kernel's btrfs, and with it the model is proven. `Run` goes step by step, for tests that do something
//! between operations.
//!
//! `ThreadPlan` gives each of several threads a script such that the end is the same however they
//! interleave.

mod action;
mod dedupes;
mod generator;
mod inherited;
mod ioctl;
mod kernel_target;
mod run;
mod shape;
mod shrink;
mod target;
#[cfg(test)]
mod tests;
mod threads;
mod vfs_target;

pub use crate::vocabulary::*;
pub use dedupes::dedupes;
pub use generator::{Generator, generate};
pub use inherited::inherited_properties;
pub use kernel_target::{KernelFolder, KernelTarget, MountedVolume};
pub use run::{Disagreement, Failure, Problem, Run, RunOptions, Step, run};
pub use shape::Shape;
pub use shrink::{prove, prove_script, shrink};
pub use target::Target;
pub use threads::{ThreadFailure, ThreadPlan, ThreadRun, Watch};
pub use vfs_target::{Mounted, SubvolumeVerb, VfsTarget};
