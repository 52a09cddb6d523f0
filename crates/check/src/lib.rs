//! An independent second opinion on the consistency of a volume. Reads only.
//!
//! [`check`] and [`check_devices`] give a [`Report`]: what is wrong as [`Issue`]s, each with a stable number,
//! and the volume's figures. The check shares nothing with the engine above the trees, so that it can judge
//! what the engine writes.
//!
//! Every tree is read once, in key order. Data that must agree in two places is compared as keyed sums first
//! (`fingerprint`), in constant memory. Only where sums differ a second pass looks for the single fault. It sorts
//! records in runs that go to a file when memory does not hold them (`sorter`). Memory so follows from the options
//! and not from the volume.
//!
//! A block that cannot be read is an issue by itself; what may only follow from it is counted as suppressed
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
mod item_types;
mod log_tree;
mod lost;
mod options;
mod references;
mod report;
mod root_entry;
mod root_links;
mod roots;
mod run;
mod sorter;
mod space;
mod state;
mod superblocks;
mod tree_root;
mod uuids;
mod volume;
mod walk;

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_device::{BlockDevice, CopyChoice, Pool, PoolOptions};

pub use error::CheckError;
pub use fault::{Fault, Severity};
pub use issue::{Issue, Place};
pub use options::{CheckObserver, CheckOptions, Phase, Progress};
pub use report::{Figures, Report};

/// Checks the volume that `paths` hold, with those of its devices that a scan finds.
pub fn check(
    paths: &[PathBuf],
    options: &CheckOptions,
    mut progress: &mut dyn FnMut(&Progress),
) -> Result<Report, CheckError> {
    let pool_options = pool_options().scan(options.scan.clone());
    check_pool(Pool::open(paths, &pool_options)?, options, &mut progress)
}

/// Checks the volume on devices that are open already; the paths are names for messages.
pub fn check_devices(
    devices: Vec<(PathBuf, Arc<dyn BlockDevice>)>,
    options: &CheckOptions,
    mut progress: &mut dyn FnMut(&Progress),
) -> Result<Report, CheckError> {
    let pool = Pool::from_devices(devices, &pool_options())?;
    check_pool(pool, options, &mut progress)
}

/// Returns the options to open a pool for a check. As much as can be read is judged, and all that is not as it should
/// be is an issue.
pub fn pool_options() -> PoolOptions {
    PoolOptions::new()
        .degraded(true)
        .superblock_copies(CopyChoice::Any)
}

/// Checks the volume of a pool that was opened for reading.
pub fn check_pool(
    pool: Pool,
    options: &CheckOptions,
    observer: &mut dyn CheckObserver,
) -> Result<Report, CheckError> {
    let mut volume = volume::CheckedVolume::new(pool, options)?;
    let mut state = state::State::new(&volume, options, observer);
    run::run(&mut state, &mut volume)?;
    Ok(state.report)
}
