//! The adapter as the `FileSystem` of a connection: dispatches each verb to its module.

use std::sync::Arc;

use ubtrfs_device::{forget_pages, nonblocking};
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
        self.find(context, dir, name)
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        self.forget_number(node.0, lookups);
    }

    fn getattr(&self, _context: &Context, node: NodeId) -> Result<Attributes> {
        let node = self.node(node)?;
        let inode = self.source.inode(node.id)?;
        Ok(Self::attributes_of(node.number, &inode))
    }

    fn setattr(
        &self,
        context: &Context,
        node: NodeId,
        handle: Option<Handle>,
        change: &AttrChange,
    ) -> Result<Attributes> {
        self.change_attributes(context, node, handle, change)
    }

    fn readlink(&self, _context: &Context, node: NodeId, out: &mut [u8]) -> Result<usize> {
        let id = self.node(node)?.id;
        let target = self.source.readlink(id)?;
        out.get_mut(..target.len())
            .ok_or(Errno::NAMETOOLONG)?
            .copy_from_slice(&target);
        self.note_read(id, self.live.atime());
        Ok(target.len())
    }

    fn mknod(&self, context: &Context, dir: NodeId, name: &[u8], new: &NewNode) -> Result<Entry> {
        self.make(context, dir, name, new)
    }

    fn mkdir(&self, context: &Context, dir: NodeId, name: &[u8], new: &NewNode) -> Result<Entry> {
        self.make_dir(context, dir, name, new)
    }

    fn symlink(&self, context: &Context, dir: NodeId, name: &[u8], target: &[u8]) -> Result<Entry> {
        self.make_symlink(context, dir, name, target)
    }

    fn link(&self, _context: &Context, node: NodeId, dir: NodeId, name: &[u8]) -> Result<Entry> {
        self.make_link(node, dir, name)
    }

    fn unlink(&self, _context: &Context, dir: NodeId, name: &[u8]) -> Result<()> {
        self.remove_entry(dir, name)
    }

    fn rmdir(&self, _context: &Context, dir: NodeId, name: &[u8]) -> Result<()> {
        self.take_dir(dir, name)
    }

    fn rename(
        &self,
        context: &Context,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        self.move_name(context, from, to, flags)
    }

    fn create(
        &self,
        context: &Context,
        dir: NodeId,
        name: &[u8],
        new: &NewNode,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened)> {
        self.create_file(context, dir, name, new, flags)
    }

    fn tmpfile(
        &self,
        context: &Context,
        dir: NodeId,
        new: &NewNode,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened)> {
        self.make_tmpfile(context, dir, new, flags)
    }

    fn open(&self, context: &Context, node: NodeId, flags: OpenFlags) -> Result<Opened> {
        self.open_file(context, node, flags)
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
        self.read_file(node, offset, out, how)
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
        self.write_file(context, node, handle, offset, bytes, how)
    }

    fn fsync(&self, _: &Context, node: NodeId, handle: Handle, data_only: bool) -> Result<()> {
        let open = self.handles.get(handle);
        self.sync_file(node, open.as_deref(), data_only)
    }

    fn fsyncdir(
        &self,
        _context: &Context,
        node: NodeId,
        _handle: Handle,
        data_only: bool,
    ) -> Result<()> {
        self.sync_file(node, None, data_only)
    }

    fn syncfs(&self, _context: &Context) -> Result<()> {
        self.sync_all()
    }

    fn fallocate(
        &self,
        _context: &Context,
        node: NodeId,
        _handle: Handle,
        range: (u64, u64),
        mode: u32,
    ) -> Result<()> {
        self.allocate(node, range, mode)
    }

    fn copy_file_range(
        &self,
        _context: &Context,
        from: CopyEnd,
        to: CopyEnd,
        len: u64,
    ) -> Result<u64> {
        self.copy(from, to, len)
    }

    fn release(&self, _context: &Context, _node: NodeId, handle: Handle) -> Result<()> {
        self.close(handle)
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
        self.list(node, offset, sink)
    }

    fn readdirplus(
        &self,
        _context: &Context,
        node: NodeId,
        _handle: Handle,
        offset: u64,
        sink: &mut dyn DirPlusSink,
    ) -> Result<()> {
        self.list_plus(node, offset, sink)
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
        self.xattr(node, name, out)
    }

    fn listxattr(&self, _context: &Context, node: NodeId, out: &mut [u8]) -> Result<usize> {
        self.xattr_names(node, out)
    }

    fn setxattr(
        &self,
        _context: &Context,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
    ) -> Result<()> {
        self.set_xattr(node, name, value, how)
    }

    fn removexattr(&self, context: &Context, node: NodeId, name: &[u8]) -> Result<()> {
        self.remove_xattr(context, node, name)
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
        self.seek(node, offset, what)
    }

    fn ioctl(
        &self,
        context: &Context,
        node: NodeId,
        command: u32,
        input: &[u8],
        out: &mut [u8],
    ) -> Result<IoctlAnswer> {
        match self.flags_ioctl(node, command, input, out) {
            Some(outcome) => outcome.map(IoctlAnswer::of),
            None => self.btrfs_ioctl(context, node, command, input, out),
        }
    }
}
