//! A file system with something around each of its requests.

use std::sync::Arc;

use super::{
    AttrChange, Attributes, ConnectionFlags, Context, CopyEnd, DirPlusSink, DirSink, Entry,
    FileSystem, Handle, IoctlAnswer, Lookup, NewNode, NodeId, Notifier, OpenFlags, Opened, ReadHow,
    RenameFlags, Result, SeekFor, StatFs, Verb, WriteHow, XattrHow,
};

/// What is around requests.
pub trait Watch: Send + Sync + 'static {
    /// Makes the request.
    fn around<T>(&self, verb: Verb, request: impl FnOnce() -> Result<T>) -> Result<T>;

    /// A read gave so many bytes.
    fn has_read(&self, _bytes: usize) {}

    /// A write took so many bytes.
    fn has_written(&self, _bytes: usize) {}
}

impl<W: Watch> Watch for Arc<W> {
    fn around<T>(&self, verb: Verb, request: impl FnOnce() -> Result<T>) -> Result<T> {
        W::around(self, verb, request)
    }

    fn has_read(&self, bytes: usize) {
        W::has_read(self, bytes);
    }

    fn has_written(&self, bytes: usize) {
        W::has_written(self, bytes);
    }
}

/// A file system, and who watches its requests.
#[derive(Debug)]
pub struct Watched<F, W> {
    inner: F,
    watch: W,
}

impl<F, W> Watched<F, W> {
    pub fn new(inner: F, watch: W) -> Watched<F, W> {
        Watched { inner, watch }
    }

    pub fn into_inner(self) -> F {
        self.inner
    }
}

impl<F: FileSystem, W: Watch> FileSystem for Watched<F, W> {
    fn connection_flags(&self) -> ConnectionFlags {
        self.inner.connection_flags()
    }

    fn start(&self, notifier: Arc<dyn Notifier>) {
        self.inner.start(notifier);
    }

    fn destroy(&self) -> Result<()> {
        self.watch.around(Verb::Destroy, || self.inner.destroy())
    }

    fn forbid_waiting(&self) {
        self.inner.forbid_waiting();
    }

    fn lookup(&self, context: &Context, dir: NodeId, name: &[u8]) -> Result<Lookup> {
        self.watch
            .around(Verb::Lookup, || self.inner.lookup(context, dir, name))
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        let _ = self.watch.around(Verb::Forget, || {
            self.inner.forget(node, lookups);
            Ok(())
        });
    }

    fn getattr(&self, context: &Context, node: NodeId) -> Result<Attributes> {
        self.watch
            .around(Verb::Getattr, || self.inner.getattr(context, node))
    }

    fn readlink(&self, context: &Context, node: NodeId, out: &mut [u8]) -> Result<usize> {
        self.watch
            .around(Verb::Readlink, || self.inner.readlink(context, node, out))
    }

    fn open(&self, context: &Context, node: NodeId, flags: OpenFlags) -> Result<Opened> {
        self.watch
            .around(Verb::Open, || self.inner.open(context, node, flags))
    }

    fn read(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        offset: u64,
        out: &mut [u8],
        how: &ReadHow,
    ) -> Result<usize> {
        let read = self.watch.around(Verb::Read, || {
            self.inner.read(context, node, handle, offset, out, how)
        });
        if let Ok(len) = read {
            self.watch.has_read(len);
        }
        read
    }

    fn release(&self, context: &Context, node: NodeId, handle: Handle) -> Result<()> {
        self.watch
            .around(Verb::Release, || self.inner.release(context, node, handle))
    }

    fn opendir(&self, context: &Context, node: NodeId) -> Result<Opened> {
        self.watch
            .around(Verb::Opendir, || self.inner.opendir(context, node))
    }

    fn readdir(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        offset: u64,
        sink: &mut dyn DirSink,
    ) -> Result<()> {
        self.watch.around(Verb::Readdir, || {
            self.inner.readdir(context, node, handle, offset, sink)
        })
    }

    fn readdirplus(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        offset: u64,
        sink: &mut dyn DirPlusSink,
    ) -> Result<()> {
        self.watch.around(Verb::Readdirplus, || {
            self.inner.readdirplus(context, node, handle, offset, sink)
        })
    }

    fn releasedir(&self, context: &Context, node: NodeId, handle: Handle) -> Result<()> {
        self.watch.around(Verb::Releasedir, || {
            self.inner.releasedir(context, node, handle)
        })
    }

    fn getxattr(
        &self,
        context: &Context,
        node: NodeId,
        name: &[u8],
        out: &mut [u8],
    ) -> Result<usize> {
        self.watch.around(Verb::Getxattr, || {
            self.inner.getxattr(context, node, name, out)
        })
    }

    fn listxattr(&self, context: &Context, node: NodeId, out: &mut [u8]) -> Result<usize> {
        self.watch
            .around(Verb::Listxattr, || self.inner.listxattr(context, node, out))
    }

    fn statfs(&self, context: &Context, node: NodeId) -> Result<StatFs> {
        self.watch
            .around(Verb::Statfs, || self.inner.statfs(context, node))
    }

    fn access(&self, context: &Context, node: NodeId, mask: u32) -> Result<()> {
        self.watch
            .around(Verb::Access, || self.inner.access(context, node, mask))
    }

    fn lseek(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        offset: u64,
        what: SeekFor,
    ) -> Result<u64> {
        self.watch.around(Verb::Lseek, || {
            self.inner.lseek(context, node, handle, offset, what)
        })
    }

    fn ioctl(
        &self,
        context: &Context,
        node: NodeId,
        command: u32,
        input: &[u8],
        out: &mut [u8],
    ) -> Result<IoctlAnswer> {
        self.watch.around(Verb::Ioctl, || {
            self.inner.ioctl(context, node, command, input, out)
        })
    }

    fn setattr(
        &self,
        context: &Context,
        node: NodeId,
        handle: Option<Handle>,
        change: &AttrChange,
    ) -> Result<Attributes> {
        self.watch.around(Verb::Setattr, || {
            self.inner.setattr(context, node, handle, change)
        })
    }

    fn mknod(&self, context: &Context, dir: NodeId, name: &[u8], new: &NewNode) -> Result<Entry> {
        self.watch
            .around(Verb::Mknod, || self.inner.mknod(context, dir, name, new))
    }

    fn mkdir(&self, context: &Context, dir: NodeId, name: &[u8], new: &NewNode) -> Result<Entry> {
        self.watch
            .around(Verb::Mkdir, || self.inner.mkdir(context, dir, name, new))
    }

    fn symlink(&self, context: &Context, dir: NodeId, name: &[u8], target: &[u8]) -> Result<Entry> {
        self.watch.around(Verb::Symlink, || {
            self.inner.symlink(context, dir, name, target)
        })
    }

    fn link(&self, context: &Context, node: NodeId, dir: NodeId, name: &[u8]) -> Result<Entry> {
        self.watch
            .around(Verb::Link, || self.inner.link(context, node, dir, name))
    }

    fn unlink(&self, context: &Context, dir: NodeId, name: &[u8]) -> Result<()> {
        self.watch
            .around(Verb::Unlink, || self.inner.unlink(context, dir, name))
    }

    fn rmdir(&self, context: &Context, dir: NodeId, name: &[u8]) -> Result<()> {
        self.watch
            .around(Verb::Rmdir, || self.inner.rmdir(context, dir, name))
    }

    fn rename(
        &self,
        context: &Context,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        self.watch
            .around(Verb::Rename, || self.inner.rename(context, from, to, flags))
    }

    fn create(
        &self,
        context: &Context,
        dir: NodeId,
        name: &[u8],
        new: &NewNode,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened)> {
        self.watch.around(Verb::Create, || {
            self.inner.create(context, dir, name, new, flags)
        })
    }

    fn tmpfile(
        &self,
        context: &Context,
        dir: NodeId,
        new: &NewNode,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened)> {
        self.watch.around(Verb::Tmpfile, || {
            self.inner.tmpfile(context, dir, new, flags)
        })
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
        let written = self.watch.around(Verb::Write, || {
            self.inner.write(context, node, handle, offset, bytes, how)
        });
        if let Ok(len) = written {
            self.watch.has_written(len);
        }
        written
    }

    fn flush(&self, context: &Context, node: NodeId, handle: Handle) -> Result<()> {
        self.watch
            .around(Verb::Flush, || self.inner.flush(context, node, handle))
    }

    fn fsync(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        data_only: bool,
    ) -> Result<()> {
        self.watch.around(Verb::Fsync, || {
            self.inner.fsync(context, node, handle, data_only)
        })
    }

    fn fsyncdir(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        data_only: bool,
    ) -> Result<()> {
        self.watch.around(Verb::Fsyncdir, || {
            self.inner.fsyncdir(context, node, handle, data_only)
        })
    }

    fn syncfs(&self, context: &Context) -> Result<()> {
        self.watch
            .around(Verb::Syncfs, || self.inner.syncfs(context))
    }

    fn fallocate(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        range: (u64, u64),
        mode: u32,
    ) -> Result<()> {
        self.watch.around(Verb::Fallocate, || {
            self.inner.fallocate(context, node, handle, range, mode)
        })
    }

    fn copy_file_range(
        &self,
        context: &Context,
        from: CopyEnd,
        to: CopyEnd,
        len: u64,
    ) -> Result<u64> {
        self.watch.around(Verb::CopyFileRange, || {
            self.inner.copy_file_range(context, from, to, len)
        })
    }

    fn setxattr(
        &self,
        context: &Context,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
    ) -> Result<()> {
        self.watch.around(Verb::Setxattr, || {
            self.inner.setxattr(context, node, name, value, how)
        })
    }

    fn removexattr(&self, context: &Context, node: NodeId, name: &[u8]) -> Result<()> {
        self.watch.around(Verb::Removexattr, || {
            self.inner.removexattr(context, node, name)
        })
    }
}
