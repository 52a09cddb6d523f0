//! Targets for scripts.

use super::{Op, OpError, Outcome};
use crate::manifest::Manifest;
use crate::model::ModelFs;

/// A file system under test. `ModelFs` implements it as well.
pub trait Target {
    /// Executes the operation. A partial write returns `Outcome::Written`.
    fn apply(&mut self, op: &Op) -> Result<Outcome, OpError>;

    /// Lists the complete contents of the target. Unreadable files are among the manifest's faults.
    fn manifest(&mut self) -> Manifest;

    /// Returns whether this target may fail in this way, without any change, although the model succeeds.
    fn may_refuse(&self, _op: &Op, _error: OpError) -> bool {
        false
    }
}

impl Target for ModelFs {
    fn apply(&mut self, op: &Op) -> Result<Outcome, OpError> {
        ModelFs::apply(self, op)
    }

    fn manifest(&mut self) -> Manifest {
        ModelFs::manifest(self)
    }
}
