//! A panic in one request fails that request and nothing else.
//!
//! A thread of a transport that unwinds is a thread less, and a mount without threads hangs whoever
//! touches it. No bytes of a volume may cause a panic, so this is for mistakes of ours, and it is right
//! only because a request that reads leaves nothing behind half done.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::request::{
    Attributes, Context, DirPlusSink, DirSink, Errno, FileSystem, Handle, Lookup, NodeId, Opened,
    Result, SeekFor, StatFs, Wishes,
};

/// A file system whose requests do not unwind.
#[derive(Debug)]
pub(super) struct Guarded<F>(pub(super) F);

fn guarded<T>(request: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(request)).unwrap_or_else(|_| {
        // The panic's own message is on standard error, or wherever the hook puts it.
        tracing::error!("a request panicked");
        Err(Errno::IO)
    })
}

impl<F: FileSystem> FileSystem for Guarded<F> {
    fn wishes(&self) -> Wishes {
        self.0.wishes()
    }

    fn lookup(&self, context: &Context, dir: NodeId, name: &[u8]) -> Result<Lookup> {
        guarded(|| self.0.lookup(context, dir, name))
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        // Nobody waits for an answer.
        let _ = guarded(|| {
            self.0.forget(node, lookups);
            Ok(())
        });
    }

    fn getattr(&self, context: &Context, node: NodeId) -> Result<Attributes> {
        guarded(|| self.0.getattr(context, node))
    }

    fn readlink(&self, context: &Context, node: NodeId, out: &mut [u8]) -> Result<usize> {
        guarded(|| self.0.readlink(context, node, out))
    }

    fn open(&self, context: &Context, node: NodeId) -> Result<Opened> {
        guarded(|| self.0.open(context, node))
    }

    fn read(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize> {
        guarded(|| self.0.read(context, node, handle, offset, out))
    }

    fn release(&self, context: &Context, node: NodeId, handle: Handle) -> Result<()> {
        guarded(|| self.0.release(context, node, handle))
    }

    fn opendir(&self, context: &Context, node: NodeId) -> Result<Opened> {
        guarded(|| self.0.opendir(context, node))
    }

    fn readdir(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        offset: u64,
        sink: &mut dyn DirSink,
    ) -> Result<()> {
        guarded(|| self.0.readdir(context, node, handle, offset, sink))
    }

    fn readdirplus(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        offset: u64,
        sink: &mut dyn DirPlusSink,
    ) -> Result<()> {
        guarded(|| self.0.readdirplus(context, node, handle, offset, sink))
    }

    fn releasedir(&self, context: &Context, node: NodeId, handle: Handle) -> Result<()> {
        guarded(|| self.0.releasedir(context, node, handle))
    }

    fn getxattr(
        &self,
        context: &Context,
        node: NodeId,
        name: &[u8],
        out: &mut [u8],
    ) -> Result<usize> {
        guarded(|| self.0.getxattr(context, node, name, out))
    }

    fn listxattr(&self, context: &Context, node: NodeId, out: &mut [u8]) -> Result<usize> {
        guarded(|| self.0.listxattr(context, node, out))
    }

    fn statfs(&self, context: &Context, node: NodeId) -> Result<StatFs> {
        guarded(|| self.0.statfs(context, node))
    }

    fn access(&self, context: &Context, node: NodeId, mask: u32) -> Result<()> {
        guarded(|| self.0.access(context, node, mask))
    }

    fn lseek(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        offset: u64,
        what: SeekFor,
    ) -> Result<u64> {
        guarded(|| self.0.lseek(context, node, handle, offset, what))
    }

    fn ioctl(
        &self,
        context: &Context,
        node: NodeId,
        command: u32,
        input: &[u8],
        out: &mut [u8],
    ) -> Result<usize> {
        guarded(|| self.0.ioctl(context, node, command, input, out))
    }
}
