//! Targets that a script can be done to.

use super::{Op, OpError, Outcome};
use crate::manifest::Manifest;
use crate::model::ModelFs;

/// A file system under test. `ModelFs` is one as well.
pub trait Target {
    /// Does the operation. A write that was done only in part is `Outcome::Written`.
    fn apply(&mut self, op: &Op) -> Result<Outcome, OpError>;

    /// Lists all that the target shows. A file that could not be shown is among the manifest's faults.
    fn manifest(&mut self) -> Manifest;

    /// Returns whether this target may fail so where the model succeeds, and then changes nothing.
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
