//! A panic in one request fails that request and nothing else.
//!
//! A thread of a transport that unwinds is a thread less, and a mount without threads hangs whoever
//! touches it. No bytes of a volume may cause a panic, so this is for mistakes of ours, and it is right
//! only because a verb changes nothing but through a transaction, which it enters when it knows all it will do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::request::{
    AttrChange, Attributes, Context, CopyEnd, DirPlusSink, DirSink, Entry, Errno, FileSystem,
    Handle, Lookup, NewNode, NodeId, Notifier, OpenFlags, Opened, RenameFlags, Result, SeekFor,
    StatFs, Wishes, WriteHow, XattrHow,
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

    fn start(&self, notifier: Arc<dyn Notifier>) {
        self.0.start(notifier);
    }

    fn destroy(&self) {
        let _ = guarded(|| {
            self.0.destroy();
            Ok(())
        });
    }

    fn forbid_waiting(&self) {
        self.0.forbid_waiting();
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

    fn open(&self, context: &Context, node: NodeId, flags: OpenFlags) -> Result<Opened> {
        guarded(|| self.0.open(context, node, flags))
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

    fn setattr(
        &self,
        context: &Context,
        node: NodeId,
        handle: Option<Handle>,
        change: &AttrChange,
    ) -> Result<Attributes> {
        guarded(|| self.0.setattr(context, node, handle, change))
    }

    fn mknod(&self, context: &Context, dir: NodeId, name: &[u8], new: &NewNode) -> Result<Entry> {
        guarded(|| self.0.mknod(context, dir, name, new))
    }

    fn mkdir(&self, context: &Context, dir: NodeId, name: &[u8], new: &NewNode) -> Result<Entry> {
        guarded(|| self.0.mkdir(context, dir, name, new))
    }

    fn symlink(&self, context: &Context, dir: NodeId, name: &[u8], target: &[u8]) -> Result<Entry> {
        guarded(|| self.0.symlink(context, dir, name, target))
    }

    fn link(&self, context: &Context, node: NodeId, dir: NodeId, name: &[u8]) -> Result<Entry> {
        guarded(|| self.0.link(context, node, dir, name))
    }

    fn unlink(&self, context: &Context, dir: NodeId, name: &[u8]) -> Result<()> {
        guarded(|| self.0.unlink(context, dir, name))
    }

    fn rmdir(&self, context: &Context, dir: NodeId, name: &[u8]) -> Result<()> {
        guarded(|| self.0.rmdir(context, dir, name))
    }

    fn rename(
        &self,
        context: &Context,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        guarded(|| self.0.rename(context, from, to, flags))
    }

    fn create(
        &self,
        context: &Context,
        dir: NodeId,
        name: &[u8],
        new: &NewNode,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened)> {
        guarded(|| self.0.create(context, dir, name, new, flags))
    }

    fn tmpfile(
        &self,
        context: &Context,
        dir: NodeId,
        new: &NewNode,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened)> {
        guarded(|| self.0.tmpfile(context, dir, new, flags))
    }

    fn write(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        offset: u64,
        bytes: &[u8],
        how: &WriteHow,
    ) -> Result<usize> {
        guarded(|| self.0.write(context, node, handle, offset, bytes, how))
    }

    fn flush(&self, context: &Context, node: NodeId, handle: Handle) -> Result<()> {
        guarded(|| self.0.flush(context, node, handle))
    }

    fn fsync(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        data_only: bool,
    ) -> Result<()> {
        guarded(|| self.0.fsync(context, node, handle, data_only))
    }

    fn fsyncdir(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        data_only: bool,
    ) -> Result<()> {
        guarded(|| self.0.fsyncdir(context, node, handle, data_only))
    }

    fn syncfs(&self, context: &Context) -> Result<()> {
        guarded(|| self.0.syncfs(context))
    }

    fn fallocate(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        range: (u64, u64),
        mode: u32,
    ) -> Result<()> {
        guarded(|| self.0.fallocate(context, node, handle, range, mode))
    }

    fn copy_file_range(
        &self,
        context: &Context,
        from: CopyEnd,
        to: CopyEnd,
        len: u64,
    ) -> Result<u64> {
        guarded(|| self.0.copy_file_range(context, from, to, len))
    }

    fn setxattr(
        &self,
        context: &Context,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
    ) -> Result<()> {
        guarded(|| self.0.setxattr(context, node, name, value, how))
    }

    fn removexattr(&self, context: &Context, node: NodeId, name: &[u8]) -> Result<()> {
        guarded(|| self.0.removexattr(context, node, name))
    }
}
