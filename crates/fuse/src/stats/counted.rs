//! The interception of requests, for their counts.

use std::sync::Arc;

use ubtrfs_fuse_server::request::{
    Answer, AnswerBuffer, ConnectionFlags, Context, FileSystem, NodeId, Notifier, Operation, Result,
};

use super::Stats;

/// A file system whose requests are counted.
#[derive(Debug)]
pub(crate) struct Counted<F> {
    inner: F,
    stats: Arc<Stats>,
}

impl<F> Counted<F> {
    pub(crate) fn new(inner: F, stats: Arc<Stats>) -> Counted<F> {
        Counted { inner, stats }
    }
}

impl<F: FileSystem> FileSystem for Counted<F> {
    fn connection_flags(&self) -> ConnectionFlags {
        self.inner.connection_flags()
    }

    fn start(&self, notifier: Arc<dyn Notifier>) {
        self.inner.start(notifier);
    }

    fn set_nonblocking(&self) {
        self.inner.set_nonblocking();
    }

    fn perform(
        &self,
        context: &Context,
        node: NodeId,
        operation: &Operation<'_>,
        out: &mut impl AnswerBuffer,
    ) -> Result<Answer> {
        let perform = || self.inner.perform(context, node, operation, out);
        self.stats.count(operation.verb(), perform)
    }
}
