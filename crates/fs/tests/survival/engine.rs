//! The engine as a target of scripts, with an exactly known history after a fault.

use std::sync::Arc;

use ubtrfs_fs::{OpenOptions, Result, Volume};
use ubtrfs_sim::manifest::Manifest;
use ubtrfs_sim::script::{Op, OpError, Outcome, Target};

use crate::devices::{Devices, named};
use crate::target::EngineTarget;

pub(crate) struct Engine {
    target: EngineTarget,
    /// Syncs before any operation that commits, so that no commit leaves data behind.
    is_exact: bool,
    /// Whether its devices may fail.
    fails: bool,
}

impl Engine {
    pub(crate) fn open(devices: &Devices, options: &OpenOptions) -> Result<Engine> {
        Ok(Engine {
            target: EngineTarget::open(named(devices), options)?,
            is_exact: false,
            fails: false,
        })
    }

    /// Returns another handle of the volume, for another thread.
    pub(crate) fn another(&self) -> Engine {
        Engine {
            target: self.target.another(),
            ..*self
        }
    }

    pub(crate) fn exact(self) -> Engine {
        Engine {
            is_exact: true,
            ..self
        }
    }

    pub(crate) fn failing(self) -> Engine {
        Engine {
            fails: true,
            ..self
        }
    }

    pub(crate) fn volume(&self) -> &Arc<Volume> {
        self.target.volume()
    }
}

/// Returns whether an operation commits without writing back the data of all files.
fn commits_by_itself(op: &Op) -> bool {
    matches!(
        op,
        Op::CreateSubvolume { .. }
            | Op::Snapshot { .. }
            | Op::DeleteSubvolume { .. }
            | Op::Rmdir { .. }
            | Op::SetReadOnly { .. }
            | Op::SetReceived { .. }
    )
}

impl Target for Engine {
    fn apply(&mut self, op: &Op) -> std::result::Result<Outcome, OpError> {
        if self.is_exact && commits_by_itself(op) {
            self.target.apply(&Op::Sync)?;
        }
        self.target.apply(op)
    }

    fn manifest(&mut self) -> Manifest {
        self.target.manifest()
    }

    fn may_refuse(&self, op: &Op, error: OpError) -> bool {
        self.fails && error == OpError::Io || self.target.may_refuse(op, error)
    }
}
