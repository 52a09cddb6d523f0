//! Random and written scripts of operations, applied to a file system under test and to the model in parallel.
//!
//! ```text
//! prove(Shape::Mixed, seed("a test"), 2000, &RunOptions::default(), || MyTarget::empty());
//! ```
//!
//! generates a script, applies it to a new target, and compares each result (errors by errno) and, periodically, the
//! complete manifest. A failing script is shortened and printed, ready for use in a test:
//!
//! ```text
//! run(&mut target, &[Op::Create { path: path(b"a"), mode: 0o644 }, ...], &RunOptions::default())
//! ```
//!
//! A target implements `Target`: `apply` for one `Op`, and a complete `Manifest`. A library maps `Slot` to open
//! files; a path is a sequence of look-ups that follow no symlinks. For a mount, `VfsTarget` does everything by
//! system calls, and only needs `Mounted` for remounts and subvolumes. `KernelTarget` is the one for the kernel's
//! btrfs, which verifies the model. `Run` executes single steps, for tests with actions between operations.
//!
//! `ThreadPlan` creates scripts for several threads whose combined result does not depend on the interleaving.

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
