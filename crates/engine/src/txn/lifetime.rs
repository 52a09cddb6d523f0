//! Hearing that a volume takes no changes any more, without keeping it open.

use std::sync::Arc;
use std::time::Duration;

use super::writer::Writer;
use crate::volume::Volume;

/// The life of a volume that is written to.
#[derive(Clone, Debug)]
pub struct Lifetime(Arc<Writer>);

impl Lifetime {
    /// Waits until a transaction is aborted, and says why. None: the volume is being closed, or dropped.
    pub fn wait_for_abort(&self) -> Option<Arc<String>> {
        self.0.wait_for_abort()
    }

    /// Waits until the volume is being closed, or for so long; tells whether it is.
    pub fn wait_for_close(&self, at_most: Duration) -> bool {
        self.0.wait_for_close(at_most)
    }
}

impl Volume {
    /// None of a volume that is only read.
    pub fn lifetime(&self) -> Option<Lifetime> {
        self.writer()
            .ok()
            .map(|writer| Lifetime(Arc::clone(writer)))
    }

    /// Why it takes no changes any more, if a transaction was aborted.
    pub fn abort_reason(&self) -> Option<Arc<String>> {
        self.writer().ok()?.abort_reason()
    }
}
