//! A file system whose requests are intercepted by an observer.

use std::sync::Arc;

use super::{
    AttrChange, Attributes, ConnectionFlags, Context, CopyEnd, DirPlusSink, DirSink, Entry,
    FileSystem, Handle, IoctlAnswer, Lookup, NewNode, NodeId, Notifier, OpenFlags, Opened, ReadHow,
    RenameFlags, Result, SeekFor, StatFs, Verb, WriteHow, XattrHow,
};

/// An observer of requests.
pub trait Watch: Send + Sync + 'static {
    /// Executes the request.
    fn around<T>(&self, verb: Verb, request: impl FnOnce() -> Result<T>) -> Result<T>;

    /// Observes the number of bytes that a read returned.
    fn has_read(&self, _bytes: usize) {}

    /// Observes the number of bytes that a write accepted.
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

/// A file system and the observer of its requests.
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

/// Forwards verbs to the inner file system, each within `around`.
macro_rules! pass_on {
    ($($verb:ident: $method:ident($($arg:ident: $type:ty),*) -> $answer:ty;)+) => {
        $(
            fn $method(&self, context: &Context, $($arg: $type),*) -> Result<$answer> {
                self.watch
                    .around(Verb::$verb, || self.inner.$method(context, $($arg),*))
            }
        )+
    };
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

    fn set_nonblocking(&self) {
        self.inner.set_nonblocking();
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        let _ = self.watch.around(Verb::Forget, || {
            self.inner.forget(node, lookups);
            Ok(())
        });
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

    pass_on! {
        Lookup: lookup(dir: NodeId, name: &[u8]) -> Lookup;
        Getattr: getattr(node: NodeId) -> Attributes;
        Setattr: setattr(node: NodeId, handle: Option<Handle>, change: &AttrChange) -> Attributes;
        Readlink: readlink(node: NodeId, out: &mut [u8]) -> usize;
        Mknod: mknod(dir: NodeId, name: &[u8], new: &NewNode) -> Entry;
        Mkdir: mkdir(dir: NodeId, name: &[u8], new: &NewNode) -> Entry;
        Symlink: symlink(dir: NodeId, name: &[u8], target: &[u8]) -> Entry;
        Link: link(node: NodeId, dir: NodeId, name: &[u8]) -> Entry;
        Unlink: unlink(dir: NodeId, name: &[u8]) -> ();
        Rmdir: rmdir(dir: NodeId, name: &[u8]) -> ();
        Rename: rename(from: (NodeId, &[u8]), to: (NodeId, &[u8]), flags: RenameFlags) -> ();
        Create: create(dir: NodeId, name: &[u8], new: &NewNode, flags: OpenFlags) -> (Entry, Opened);
        Tmpfile: tmpfile(dir: NodeId, new: &NewNode, flags: OpenFlags) -> (Entry, Opened);
        Open: open(node: NodeId, flags: OpenFlags) -> Opened;
        Flush: flush(node: NodeId, handle: Handle) -> ();
        Fsync: fsync(node: NodeId, handle: Handle, data_only: bool) -> ();
        Fsyncdir: fsyncdir(node: NodeId, handle: Handle, data_only: bool) -> ();
        Syncfs: syncfs() -> ();
        Fallocate: fallocate(node: NodeId, handle: Handle, range: (u64, u64), mode: u32) -> ();
        CopyFileRange: copy_file_range(from: CopyEnd, to: CopyEnd, len: u64) -> u64;
        Release: release(node: NodeId, handle: Handle) -> ();
        Opendir: opendir(node: NodeId) -> Opened;
        Readdir: readdir(node: NodeId, handle: Handle, offset: u64, sink: &mut dyn DirSink) -> ();
        Readdirplus: readdirplus(node: NodeId, handle: Handle, offset: u64, sink: &mut dyn DirPlusSink) -> ();
        Releasedir: releasedir(node: NodeId, handle: Handle) -> ();
        Getxattr: getxattr(node: NodeId, name: &[u8], out: &mut [u8]) -> usize;
        Listxattr: listxattr(node: NodeId, out: &mut [u8]) -> usize;
        Setxattr: setxattr(node: NodeId, name: &[u8], value: &[u8], how: XattrHow) -> ();
        Removexattr: removexattr(node: NodeId, name: &[u8]) -> ();
        Statfs: statfs(node: NodeId) -> StatFs;
        Access: access(node: NodeId, mask: u32) -> ();
        Lseek: lseek(node: NodeId, handle: Handle, offset: u64, what: SeekFor) -> u64;
        Ioctl: ioctl(node: NodeId, command: u32, input: &[u8], out: &mut [u8]) -> IoctlAnswer;
    }
}
