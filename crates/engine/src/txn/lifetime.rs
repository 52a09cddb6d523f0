//! When a volume takes no changes any more: hearing of it without keeping it open, and bringing it about.

use std::sync::Arc;
use std::time::Duration;

use super::writer::Writer;
use crate::error::Error;
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

    /// Whether `close` has been done, or is not needed.
    pub fn is_closed(&self) -> bool {
        self.writer().is_ok_and(|writer| writer.is_closed()) || !self.is_writable()
    }

    /// Gives up what is not durable: from here on nothing is entered and no commit begins.
    pub fn abandon(&self, reason: &Error) {
        if let Ok(writer) = self.writer() {
            writer.abort(reason);
        }
    }

    /// Why it takes no changes any more, if a transaction was aborted.
    pub fn abort_reason(&self) -> Option<Arc<String>> {
        self.writer().ok()?.abort_reason()
    }
}
