//! The adapter as the `FileSystem` of a connection: each operation is the method of its name.

use std::sync::Arc;

use ubtrfs_device::{forget_pages, nonblocking};
use ubtrfs_fs::Durable;
use ubtrfs_fuse_server::request::{
    Answer, AnswerBuffer, ConnectionFlags, Context, Errno, FileSystem, NodeId, Notifier, Opened,
    Operation, Result,
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

    fn set_nonblocking(&self) {
        nonblocking::set();
    }

    fn perform(
        &self,
        context: &Context,
        node: NodeId,
        operation: &Operation<'_>,
        out: &mut impl AnswerBuffer,
    ) -> Result<Answer> {
        let done = |()| Answer::Done;
        match *operation {
            Operation::Lookup { name } => self.lookup(context, node, name),
            Operation::Forget { lookups } => {
                self.forget(node, lookups);
                Ok(Answer::Done)
            }
            Operation::Getattr => self.getattr(node).map(Answer::Attributes),
            Operation::Setattr { handle, ref change } => self
                .setattr(context, node, handle, change)
                .map(Answer::Attributes),
            Operation::Readlink => self.readlink(node, out.bytes()).map(Answer::Len),
            Operation::Mknod { name, ref new } => {
                self.mknod(context, node, name, new).map(Answer::Entry)
            }
            Operation::Mkdir { name, ref new } => {
                self.mkdir(context, node, name, new).map(Answer::Entry)
            }
            Operation::Symlink { name, target } => {
                self.symlink(context, node, name, target).map(Answer::Entry)
            }
            Operation::Link { target, name } => self.link(target, node, name).map(Answer::Entry),
            Operation::Unlink { name } => self.unlink(node, name).map(done),
            Operation::Rmdir { name } => self.rmdir(node, name).map(done),
            Operation::Rename { name, to, flags } => {
                self.rename(context, (node, name), to, flags).map(done)
            }
            Operation::Create {
                name,
                ref new,
                flags,
            } => self
                .create(context, node, name, new, flags)
                .map(|(entry, opened)| Answer::Created(entry, opened)),
            Operation::Tmpfile { ref new, flags } => self
                .tmpfile(context, node, new, flags)
                .map(|(entry, opened)| Answer::Created(entry, opened)),
            Operation::Open { flags } => self.open(context, node, flags).map(Answer::Opened),
            Operation::Read {
                offset, ref how, ..
            } => self.read(node, offset, out.bytes(), how).map(Answer::Len),
            Operation::Write {
                handle,
                offset,
                bytes,
                ref how,
            } => self
                .write(context, node, handle, offset, bytes, how)
                .map(Answer::Written),
            Operation::Fsync { handle, data_only } => {
                self.fsync(node, Some(handle), durable(data_only)).map(done)
            }
            Operation::Fsyncdir { data_only, .. } => {
                self.fsync(node, None, durable(data_only)).map(done)
            }
            Operation::Syncfs => self.syncfs().map(done),
            Operation::Fallocate { range, mode, .. } => self.fallocate(node, range, mode).map(done),
            Operation::CopyFileRange { from, to, len } => {
                self.copy_file_range(from, to, len).map(Answer::Copied)
            }
            Operation::Release { handle } => self.release(handle).map(done),
            // A listing needs no handle: its offsets hold the whole state (`listing`).
            Operation::Opendir => Ok(Answer::Opened(Opened::Elided)),
            Operation::Readdir { offset, .. } => self.readdir(node, offset, out).map(done),
            Operation::Readdirplus { offset, .. } => self.readdirplus(node, offset, out).map(done),
            Operation::Releasedir { .. } => Ok(Answer::Done),
            Operation::Getxattr { name, .. } => {
                self.getxattr(node, name, out.bytes()).map(Answer::Len)
            }
            Operation::Listxattr { .. } => self.listxattr(node, out.bytes()).map(Answer::Len),
            Operation::Setxattr { name, value, how } => {
                self.setxattr(node, name, value, how).map(done)
            }
            Operation::Removexattr { name } => self.removexattr(context, node, name).map(done),
            Operation::Statfs => self.source.statfs().map(Answer::StatFs),
            Operation::Lseek { offset, what, .. } => {
                self.lseek(node, offset, what).map(Answer::Offset)
            }
            Operation::Ioctl { command, input, .. } => self
                .ioctl(context, node, command, input, out.bytes())
                .map(Answer::Ioctl),
            Operation::Destroy => self.destroy().map(done),
            // The kernel checks permissions, and stops sending these.
            Operation::Access { .. } | Operation::Flush { .. } => Err(Errno::NOSYS),
        }
    }
}

impl<S: Source> Adapter<S> {
    pub(super) fn destroy(&self) -> Result<()> {
        nonblocking::check().map_err(|_| Errno::WOULD_BLOCK)?;
        self.forget_all();
        if let Ok(volume) = self.writing()
            && let Err(error) = volume.close()
        {
            tracing::error!(%error, "some written data may be lost");
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
}

/// Returns the part of a file that an fsync or fdatasync makes durable.
fn durable(data_only: bool) -> Durable {
    if data_only {
        Durable::Data
    } else {
        Durable::All
    }
}
