//! A target of scripts that empties block groups between the operations.

use std::sync::Arc;

use ubtrfs_fs::{Error, RelocationOptions, RelocationReport, Volume};
use ubtrfs_sim::Rng;
use ubtrfs_sim::manifest::Manifest;
use ubtrfs_sim::script::{Op, OpError, Outcome, Target};

use crate::fixture::groups;
use crate::target::EngineTarget;

pub(crate) struct Relocating {
    target: EngineTarget,
    rng: Rng,
    /// The average number of operations between relocations.
    interval: u64,
    pub(crate) totals: RelocationReport,
}

impl Relocating {
    pub(crate) fn new(target: EngineTarget, seed: u64, interval: u64) -> Relocating {
        Relocating {
            target,
            rng: Rng::new(seed ^ 0x7265_6c6f),
            interval,
            totals: RelocationReport::default(),
        }
    }

    fn relocate_any(&mut self) {
        let report = relocate_any(self.target.volume(), &mut self.rng);
        self.totals.moved_extents += report.moved_extents;
        self.totals.moved_blocks += report.moved_blocks;
        self.totals.copied_blocks += report.copied_blocks;
    }
}

/// Returns random limits of batches.
pub(crate) fn any_limits(rng: &mut Rng) -> RelocationOptions {
    RelocationOptions {
        batch_bytes: 1 << rng.below(24),
        batch_extents: 1 + rng.below(200) as usize,
        batch_blocks: 1 + rng.below(100) as usize,
        batch_copies: 1 + rng.below(500) as usize,
        ..RelocationOptions::default()
    }
}

/// Empties a random block group. A volume without room for that stays as it is.
pub(crate) fn relocate_any(volume: &Arc<Volume>, rng: &mut Rng) -> RelocationReport {
    let groups = groups(volume);
    let group = groups[rng.below(groups.len() as u64) as usize];
    let limits = any_limits(rng);
    match volume.relocate(group.start, &limits, &mut ()) {
        Ok(report) => {
            assert_eq!(report.damaged_sectors, 0);
            report
        }
        Err(error) if error.is_no_space() => RelocationReport::default(),
        Err(Error::HeldSubvolume(_) | Error::Space(_)) => RelocationReport::default(),
        Err(error) => panic!("group {}: {error}", group.start),
    }
}

impl Target for Relocating {
    fn apply(&mut self, op: &Op) -> Result<Outcome, OpError> {
        let is_due = self.rng.one_in(self.interval);
        if is_due && self.rng.one_in(2) {
            self.relocate_any();
        }
        let outcome = self.target.apply(op);
        if is_due {
            self.relocate_any();
        }
        outcome
    }

    fn manifest(&mut self) -> Manifest {
        self.target.manifest()
    }

    fn may_refuse(&self, op: &Op, error: OpError) -> bool {
        self.target.may_refuse(op, error)
    }
}
