//! An independent, read-only check of the consistency of a volume.
//!
//! [`check`] and [`check_devices`] return a [`Report`] with the problems as [`Issue`]s, each with a stable number,
//! and the volume's figures. The check shares no code with the engine above the tree layer, so that it can find the
//! engine's errors.
//!
//! Every tree is read once, in key order. Data that must agree in two places is compared as keyed sums first
//! (`fingerprint`), in constant memory. Only if sums differ, a second pass finds the individual faults. It sorts
//! records and spills to a file when they exceed the memory (`ubtrfs_spill`). So the memory use depends on the options
//! and not on the volume.
//!
//! An unreadable block is an issue by itself. Findings that may only be a consequence of it are counted as suppressed
//! (`lost`).

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod block_groups;
mod block_set;
mod chunks;
mod csums;
mod error;
mod extents;
mod facts;
mod fault;
mod files;
mod fingerprint;
mod free_space;
mod issue;
mod item_reader;
mod item_types;
mod log_tree;
mod lost;
mod marks;
mod options;
mod references;
mod report;
mod root_entry;
mod root_links;
mod roots;
mod run;
mod space;
mod state;
mod superblocks;
mod tree_root;
mod uuids;
mod volume;
mod walk;

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_device::progress::Progress;
use ubtrfs_device::{BlockDevice, CopyChoice, DeviceName, Pool, PoolOptions};

pub use error::CheckError;
pub use fault::{Fault, Severity};
pub use issue::{Issue, Place};
pub use options::{CheckOptions, Phase};
pub use report::{Figures, MakerMark, Report};

/// Checks the volume on the named devices, including other devices of it found by a scan. Its phases are reported to `progress`.
pub fn check<D: Clone + Into<DeviceName>>(
    devices: &[D],
    options: &CheckOptions,
    progress: &mut dyn Progress,
) -> Result<Report, CheckError> {
    let pool_options = pool_options().scan(options.scan.clone());
    check_pool(Pool::open(devices, &pool_options)?, options, progress)
}

/// Checks the volume on open devices; the paths are only for messages.
pub fn check_devices(
    devices: Vec<(PathBuf, Arc<dyn BlockDevice>)>,
    options: &CheckOptions,
    progress: &mut dyn Progress,
) -> Result<Report, CheckError> {
    let pool = Pool::from_devices(devices, &pool_options())?;
    check_pool(pool, options, progress)
}

/// Returns the options for opening a pool for a check. They accept as much as possible, because the check reports all
/// defects as issues.
pub fn pool_options() -> PoolOptions {
    PoolOptions::new()
        .degraded(true)
        .superblock_copies(CopyChoice::Any)
}

/// Checks the volume of a pool that was opened for reading.
pub fn check_pool(
    pool: Pool,
    options: &CheckOptions,
    progress: &mut dyn Progress,
) -> Result<Report, CheckError> {
    let mut volume = volume::CheckedVolume::new(pool, options)?;
    let mut state = state::State::new(&volume, options, progress);
    run::run(&mut state, &mut volume)?;
    Ok(state.report)
}
