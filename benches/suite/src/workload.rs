//! The measured workloads: one file each, and equal on every side.

mod databases;
mod dbench;
mod discard;
mod fio;
mod latency;
mod many_files;
mod meter;
mod nocow;
mod receive;
mod rename_fsync;
mod replay;
mod send;
mod slow_discards;
mod slow_disk;
mod snapshots;
mod sync_calls;
mod tools;
mod tree;

use anyhow::Result;

use crate::figures::{Round, Side};
use crate::kit::Kit;

pub(crate) use self::snapshots::send_alone;

/// A workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// A description of the work, for readers of the page.
    pub(crate) text: &'static str,
    pub(crate) sides: &'static [Side],
    /// The maximum number of rounds, lower for long workloads.
    pub(crate) most_rounds: u32,
    pub(crate) run: fn(&Kit, Side) -> Result<Outcome>,
}

/// The outcome of one round on one side.
#[derive(Debug)]
pub(crate) enum Outcome {
    Figures(Round),
    /// No figures, with the reason.
    Absent(&'static str),
}

const MOUNTED: &[Side] = &[Side::Kernel, Side::Mount];
const GIB: u64 = 1 << 30;

/// All workloads, in the order of the page.
pub(crate) const WORKLOADS: &[Workload] = &[
    rename_fsync::WORKLOAD,
    sync_calls::WORKLOAD,
    replay::WORKLOAD,
    databases::WORKLOAD,
    dbench::WORKLOAD,
    nocow::WORKLOAD,
    send::MOVES,
    send::MANY,
    receive::WORKLOAD,
    discard::WORKLOAD,
    discard::ON_SLOW_DISCARDS,
    many_files::WORKLOAD,
    latency::WORKLOAD,
    latency::ON_SLOW_DISK,
    fio::WORKLOAD,
    tree::WORKLOAD,
    tools::WORKLOAD,
];
