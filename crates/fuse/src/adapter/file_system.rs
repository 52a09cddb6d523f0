//! The adapter as the `FileSystem` of a connection: dispatches each verb to its module.

use std::sync::Arc;

use ubtrfs_device::{forget_pages, nonblocking};
use ubtrfs_fs::Durable;
use ubtrfs_fuse_server::request::{
    AttrChange, Attributes, ConnectionFlags, Context, CopyEnd, DirPlusSink, DirSink, Entry, Errno,
    FileSystem, Handle, IoctlAnswer, Lookup, NewNode, NodeId, Notifier, OpenFlags, Opened, ReadHow,
    RenameFlags, Result, SeekFor, StatFs, WriteHow, XattrHow,
};

use super::Adapter;
use super::source::Source;

impl<S: Source> FileSystem for Adapter<S> {
    fn connection_flags(&self) -> ConnectionFlags {
        self.connection_flags
    }

    fn start(&self, notifier: Arc<dyn Notifier>) {
        if self.connection_flags.writable {
            self.changes.start(notifier);
        }
    }

    fn destroy(&self) -> Result<()> {
        nonblocking::check().map_err(|_| Errno::WOULD_BLOCK)?;
        self.forget_all();
        if let Ok(volume) = self.writing()
            && let Err(error) = volume.close()
        {
            tracing::error!(%error, "not all that was written is durable");
            self.close_failure.lock().get_or_insert(error);
        }
        // Done while the kernel's mount still holds the device: a later opener might keep it alive.
        if let Some(device) = self.shown_by.lock().take()
            && let Err(error) = forget_pages(&device)
        {
            tracing::debug!(%error, "a program with the loop device open may see old data of the image");
        }
        Ok(())
    }

    fn set_nonblocking(&self) {
        nonblocking::set();
    }

    fn lookup(&self, context: &Context, dir: NodeId, name: &[u8]) -> Result<Lookup> {
        self.lookup(context, dir, name)
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        self.forget(node, lookups);
    }

    fn getattr(&self, _context: &Context, node: NodeId) -> Result<Attributes> {
        self.getattr(node)
    }

    fn setattr(
        &self,
        context: &Context,
        node: NodeId,
        handle: Option<Handle>,
        change: &AttrChange,
    ) -> Result<Attributes> {
        self.setattr(context, node, handle, change)
    }

    fn readlink(&self, _context: &Context, node: NodeId, out: &mut [u8]) -> Result<usize> {
        self.readlink(node, out)
    }

    fn mknod(&self, context: &Context, dir: NodeId, name: &[u8], new: &NewNode) -> Result<Entry> {
        self.mknod(context, dir, name, new)
    }

    fn mkdir(&self, context: &Context, dir: NodeId, name: &[u8], new: &NewNode) -> Result<Entry> {
        self.mkdir(context, dir, name, new)
    }

    fn symlink(&self, context: &Context, dir: NodeId, name: &[u8], target: &[u8]) -> Result<Entry> {
        self.symlink(context, dir, name, target)
    }

    fn link(&self, _context: &Context, node: NodeId, dir: NodeId, name: &[u8]) -> Result<Entry> {
        self.link(node, dir, name)
    }

    fn unlink(&self, _context: &Context, dir: NodeId, name: &[u8]) -> Result<()> {
        self.unlink(dir, name)
    }

    fn rmdir(&self, _context: &Context, dir: NodeId, name: &[u8]) -> Result<()> {
        self.rmdir(dir, name)
    }

    fn rename(
        &self,
        context: &Context,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        self.rename(context, from, to, flags)
    }

    fn create(
        &self,
        context: &Context,
        dir: NodeId,
        name: &[u8],
        new: &NewNode,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened)> {
        self.create(context, dir, name, new, flags)
    }

    fn tmpfile(
        &self,
        context: &Context,
        dir: NodeId,
        new: &NewNode,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened)> {
        self.tmpfile(context, dir, new, flags)
    }

    fn open(&self, context: &Context, node: NodeId, flags: OpenFlags) -> Result<Opened> {
        self.open(context, node, flags)
    }

    fn read(
        &self,
        _context: &Context,
        node: NodeId,
        _handle: Handle,
        offset: u64,
        out: &mut [u8],
        how: &ReadHow,
    ) -> Result<usize> {
        self.read(node, offset, out, how)
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
        self.write(context, node, handle, offset, bytes, how)
    }

    fn fsync(&self, _: &Context, node: NodeId, handle: Handle, data_only: bool) -> Result<()> {
        self.fsync(node, Some(handle), durable(data_only))
    }

    fn fsyncdir(
        &self,
        _context: &Context,
        node: NodeId,
        _handle: Handle,
        data_only: bool,
    ) -> Result<()> {
        self.fsync(node, None, durable(data_only))
    }

    fn syncfs(&self, _context: &Context) -> Result<()> {
        self.syncfs()
    }

    fn fallocate(
        &self,
        _context: &Context,
        node: NodeId,
        _handle: Handle,
        range: (u64, u64),
        mode: u32,
    ) -> Result<()> {
        self.fallocate(node, range, mode)
    }

    fn copy_file_range(
        &self,
        _context: &Context,
        from: CopyEnd,
        to: CopyEnd,
        len: u64,
    ) -> Result<u64> {
        self.copy_file_range(from, to, len)
    }

    fn release(&self, _context: &Context, _node: NodeId, handle: Handle) -> Result<()> {
        self.release(handle)
    }

    /// Opens a directory without a handle. A listing needs none: its offsets hold the whole state (`listing`).
    fn opendir(&self, _context: &Context, _node: NodeId) -> Result<Opened> {
        Ok(Opened::Elided)
    }

    fn readdir(
        &self,
        _context: &Context,
        node: NodeId,
        _handle: Handle,
        offset: u64,
        sink: &mut dyn DirSink,
    ) -> Result<()> {
        self.readdir(node, offset, sink)
    }

    fn readdirplus(
        &self,
        _context: &Context,
        node: NodeId,
        _handle: Handle,
        offset: u64,
        sink: &mut dyn DirPlusSink,
    ) -> Result<()> {
        self.readdirplus(node, offset, sink)
    }

    fn releasedir(&self, _context: &Context, _node: NodeId, _handle: Handle) -> Result<()> {
        Ok(())
    }

    fn getxattr(
        &self,
        _context: &Context,
        node: NodeId,
        name: &[u8],
        out: &mut [u8],
    ) -> Result<usize> {
        self.getxattr(node, name, out)
    }

    fn listxattr(&self, _context: &Context, node: NodeId, out: &mut [u8]) -> Result<usize> {
        self.listxattr(node, out)
    }

    fn setxattr(
        &self,
        _context: &Context,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
    ) -> Result<()> {
        self.setxattr(node, name, value, how)
    }

    fn removexattr(&self, context: &Context, node: NodeId, name: &[u8]) -> Result<()> {
        self.removexattr(context, node, name)
    }

    fn statfs(&self, _context: &Context, _node: NodeId) -> Result<StatFs> {
        self.source.statfs()
    }

    fn access(&self, _context: &Context, _node: NodeId, _mask: u32) -> Result<()> {
        Err(Errno::NOSYS)
    }

    fn lseek(
        &self,
        _context: &Context,
        node: NodeId,
        _handle: Handle,
        offset: u64,
        what: SeekFor,
    ) -> Result<u64> {
        self.lseek(node, offset, what)
    }

    fn ioctl(
        &self,
        context: &Context,
        node: NodeId,
        command: u32,
        input: &[u8],
        out: &mut [u8],
    ) -> Result<IoctlAnswer> {
        self.ioctl(context, node, command, input, out)
    }
}

/// Returns the part of a file that an fsync or fdatasync makes durable.
fn durable(data_only: bool) -> Durable {
    if data_only {
        Durable::Data
    } else {
        Durable::All
    }
}
