//! Open files and their contents.
//!
//! If the kernel sends opens, each open holds its file, and inode flags are checked only then. If it does not, files
//! are held while their nodes are known (`known`), and flags are checked on each change. Any file may then have pages
//! that a program has changed through a shared mapping.
//!
//! The kernel may keep cached contents from one open to the next: changes go through the cache, or the kernel is
//! notified (`changes`). The kernel has resolved `O_APPEND`: a write goes to the offset in the request, as the parts of
//! one write may arrive in any order.
//!
//! Not here: reading and writing extents (`ubtrfs_fs`).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ubtrfs_device::nonblocking;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_fs::{AtimePolicy, Durable, Error, Fallocate, FileId, OpenFile, Volume};
use ubtrfs_fuse_server::request::{
    Context, CopyEnd, Entry, Errno, FileKind, Handle, NewNode, NodeId, OpenFlags, Opened, ReadHow,
    Result, SeekFor, WriteHow,
};

use super::appends::Admitted;
use super::changes;
use super::errno::errno;
use super::flushing::For;
use super::handles::OpenHandle;
use super::known::{Background, QuickWrite, Store, StoresBefore};
use super::names::new_inode;
use super::source::Source;
use super::span::Span;
use super::{Adapter, Node, WHOLE_FILE};

const MAX_OFFSET: u64 = i64::MAX as u64;
const KEEP_SIZE: u32 = 0x1;
const PUNCH_HOLE: u32 = 0x2;
const ZERO_RANGE: u32 = 0x10;
/// The most bytes that one request copies if extents cannot be shared.
const COPY_BYTES: u64 = 64 << 20;

/// The source of the bytes of a write.
enum Way<'a> {
    PastCache(#[expect(dead_code, reason = "it is in service until dropped")] Background<'a>),
    /// By page writeback. Parts that a newer write covers are left out.
    FromCache(
        #[expect(dead_code, reason = "it is in service until dropped")] Store<'a>,
        Vec<Span>,
    ),
    /// Copied into the cache by a caller that waits; the serving thread may not wait.
    Quick(QuickWrite<'a>),
    /// Copied into the cache, on a serving thread that may wait.
    Buffered(StoresBefore),
}

impl<S: Source> Adapter<S> {
    pub(super) fn open(&self, context: &Context, node: NodeId, flags: OpenFlags) -> Result<Opened> {
        if !self.gets_opens {
            return Ok(Opened::Elided);
        }
        let volume = self.writing()?;
        let id = self.node(node)?.id;
        let held = if flags.access.writes() || flags.truncate {
            volume.open_file_for_writing(id, flags.append && !flags.truncate)
        } else {
            volume.open_file(id)
        };
        let held = held.map_err(errno)?;
        if flags.truncate {
            let by = flags.kill_setid.then_some(context);
            self.remove_privs(volume, (node, id), None, by)?;
            volume.truncate(id, 0).map_err(errno)?;
        }
        Ok(self.opened(held, flags, 0))
    }

    /// Registers a handle of an open file. `without_capability` is as in [`OpenHandle`].
    fn opened(&self, file: OpenFile, flags: OpenFlags, without_capability: u64) -> Opened {
        let open = OpenHandle {
            file,
            access: flags.access,
            sync: flags.sync,
            without_capability: AtomicU64::new(without_capability),
        };
        Opened::Handle {
            handle: self.handles.insert(open),
            keep_cache: true,
            direct: false,
        }
    }

    pub(super) fn create(
        &self,
        context: &Context,
        dir: NodeId,
        name: &[u8],
        new: &NewNode,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened)> {
        let volume = self.writing()?;
        if !self.gets_opens {
            // From now on the kernel sends mknod instead, and opens the file itself.
            return Err(Errno::NOSYS);
        }
        self.prepare_names()?;
        let parent = self.node(dir)?;
        if parent.is_empty_subvolume_dir() {
            return Err(Errno::ACCES);
        }
        let inode = new_inode(context, new);
        match volume.create_and_hold(parent.id, name, &inode) {
            Ok((file, attr)) => {
                self.sync_names(volume, parent.id)?;
                let entry = self.entry_made(volume, &parent, name, file.id(), &attr);
                let without_capability = self.capabilities.load(Ordering::Acquire);
                Ok((entry, self.opened(file, flags, without_capability)))
            }
            Err(Error::Exists) if !flags.exclusive => {
                self.open_existing(context, &parent, name, flags)
            }
            Err(error) => Err(errno(error)),
        }
    }

    /// Opens a file that another thread has created since the kernel's lookup.
    fn open_existing(
        &self,
        context: &Context,
        dir: &Node,
        name: &[u8],
        flags: OpenFlags,
    ) -> Result<(Entry, Opened)> {
        let id = self.source.lookup(dir.id, name)?.ok_or(Errno::STALE)?;
        match self.source.inode(id)?.attr.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Errno::ISDIR),
            // ESTALE makes the kernel look the name up again, and follow a symlink, for example.
            _ => return Err(Errno::STALE),
        }
        let number = self.look_up_number(dir, name, id, FileKind::Regular);
        let opened = self
            .open(context, NodeId(number), flags)
            .and_then(|opened| Ok((self.entry_of(number, &self.source.inode(id)?), opened)));
        if opened.is_err() {
            self.forget(NodeId(number), 1);
        }
        opened
    }

    pub(super) fn tmpfile(
        &self,
        context: &Context,
        dir: NodeId,
        new: &NewNode,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened)> {
        let volume = self.writing()?;
        let dir = self.node(dir)?;
        let inode = new_inode(context, new);
        let made = volume.tmpfile(dir.id, &inode, !flags.exclusive);
        let file = made.map_err(errno)?;
        let attr = volume.attr(file.id()).map_err(errno)?;
        let entry = self.entry_made(volume, &dir, b"", file.id(), &attr);
        if !self.gets_opens {
            file.close_and_pin();
            return Ok((entry, Opened::Elided));
        }
        let without_capability = self.capabilities.load(Ordering::Acquire);
        Ok((entry, self.opened(file, flags, without_capability)))
    }

    pub(super) fn release(&self, handle: Handle) -> Result<()> {
        let last = |open: Arc<OpenHandle>| open.file.would_block();
        if self.handles.get(handle).is_some_and(last) {
            return Err(Errno::WOULD_BLOCK);
        }
        drop(self.handles.remove(handle));
        Ok(())
    }

    pub(super) fn read(
        &self,
        node: NodeId,
        offset: u64,
        out: &mut [u8],
        how: &ReadHow,
    ) -> Result<usize> {
        let id = self.node(node)?.id;
        let pages = Span::new(offset, out.len() as u64).rounded(self.changes.page_bytes());
        let reading = self.known.begin_read(node.0, pages);
        let len = self.source.read(id, offset, out)?;
        drop(reading);
        if !how.no_atime {
            self.note_read(id, self.live.atime());
        }
        Ok(len)
    }

    /// Updates the access time after a read. No caller waits for that or receives its errors.
    pub(super) fn note_read(&self, id: FileId, policy: AtimePolicy) {
        if policy == AtimePolicy::Never {
            return;
        }
        if let Ok(volume) = self.writing()
            && !volume.is_quiesced()
            && let Err(error) = nonblocking::scope(|| volume.touch_atime(id, policy))
        {
            tracing::debug!(%error, "access time is not noted");
        }
    }

    pub(super) fn write(
        &self,
        context: &Context,
        node: NodeId,
        handle: Handle,
        offset: u64,
        bytes: &[u8],
        how: &WriteHow,
    ) -> Result<usize> {
        let volume = self.writing()?;
        let id = self.node(node)?.id;
        let range = Span::new(offset, bytes.len() as u64);
        let pages = range.rounded(self.changes.folio_bytes());
        if how.sync || how.direct {
            // A write that another thread repeats must not have been done here: it may append.
            nonblocking::check().map_err(|_| Errno::WOULD_BLOCK)?;
        }
        // Before the file changes, registers the write, or notes the stores that may overwrite it.
        let way = if how.direct {
            Way::PastCache(self.known.begin_in_background())
        } else if how.from_cache {
            let (store, parts) = self.known.begin_store(node.0, range);
            Way::FromCache(store, parts)
        } else if nonblocking::is_set() {
            let write = self.known.begin_quick_write(node.0, pages);
            Way::Quick(write.ok_or(Errno::WOULD_BLOCK)?)
        } else {
            Way::Buffered(self.known.begin_write(node.0))
        };
        let open = self.handles.get(handle);
        let end = offset.saturating_add(bytes.len() as u64);
        let appended = match open {
            Some(_) => None,
            None => self.may_write_to(id, offset..end)?,
        };
        let by = how.kill_setid.then_some(context);
        // Removes set-id bits before the data is visible, so that no program runs new contents with old rights.
        let rights = self.remove_privs(volume, (node, id), open.as_deref(), by);
        let written = rights.and_then(|()| {
            match &way {
                Way::PastCache(_) => match volume.write_direct(id, offset, bytes) {
                    // Unaligned direct writes go through the engine's buffer.
                    Err(Error::Unaligned) => volume.write(id, offset, bytes),
                    outcome => outcome,
                },
                Way::FromCache(_, parts) => parts
                    .iter()
                    .try_for_each(|part| volume.write(id, part.start, part.of(offset, bytes))),
                // REQ-7: readers find the bytes from here on.
                Way::Quick(_) | Way::Buffered(_) => volume.write(id, offset, bytes),
            }
            .map_err(errno)
        });
        if let Some(part) = appended {
            match &written {
                Ok(()) => part.written(),
                // Another thread will repeat it.
                Err(Errno::WOULD_BLOCK) => drop(part),
                Err(_) => part.failed(),
            }
        }
        match way {
            Way::PastCache(_) => self.drop_written_past_cache(node, range),
            Way::FromCache(..) => {}
            // It will be served again.
            Way::Quick(_) if written == Err(Errno::WOULD_BLOCK) => {}
            Way::Quick(write) => {
                // DROPS-3: it cannot overlap with a drop.
                let old = self.known.take_old(node.0, pages);
                debug_assert_eq!(old, []);
                drop(write);
            }
            Way::Buffered(before) => {
                let old = self.known.take_old(node.0, pages);
                match written {
                    Ok(()) if old.is_empty() => {}
                    Ok(()) => self.drop_old(volume, (node, id), (offset, bytes), old, before)?,
                    Err(_) => self.drop_old_of_failed(node, old),
                }
            }
        }
        written?;
        if how.sync {
            sync(volume, id, open.as_deref(), Durable::All).map_err(errno)?;
        }
        Ok(bytes.len())
    }

    /// Refuses a write that flags of a file forbid, if they were not checked when the file was opened.
    pub(super) fn may_write(&self, id: FileId) -> Result<()> {
        let flags = self.writing()?.stored_attr(id).map_err(errno)?.flags;
        if flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
            Err(Errno::PERM)
        } else {
            Ok(())
        }
    }

    /// Checks whether a range, which may be an append, may be written.
    fn may_write_to(&self, id: FileId, range: Range<u64>) -> Result<Option<Admitted<'_>>> {
        let flags = self.writing()?.stored_attr(id).map_err(errno)?.flags;
        if flags.contains(InodeFlags::IMMUTABLE) {
            return Err(Errno::PERM);
        }
        if !flags.contains(InodeFlags::APPEND) {
            return Ok(None);
        }
        let size = || Ok(self.source.inode(id)?.attr.size_bytes);
        self.appends.enter(id, range, size).map(Some)
    }

    /// Makes a file durable. A directory has no handle.
    pub(super) fn fsync(&self, node: NodeId, handle: Option<Handle>, what: Durable) -> Result<()> {
        let open = handle.and_then(|handle| self.handles.get(handle));
        let Ok(volume) = self.writing() else {
            // A read-only mount has no dirty data; ENOSYS makes the kernel stop sending fsync.
            return Err(Errno::NOSYS);
        };
        let id = self.node(node)?.id;
        let outcome = sync(volume, id, open.as_deref(), what).map_err(errno);
        if outcome.is_ok()
            && self.connection_flags.writeback_cache
            && self.handles.may_be_written(id)
        {
            // The kernel does not update the block count of a file after its own writes until the file is closed.
            self.changes.attributes(id);
        }
        outcome
    }

    pub(super) fn syncfs(&self) -> Result<()> {
        let Ok(volume) = self.writing() else {
            return Ok(());
        };
        volume.sync().map_err(errno)
    }

    pub(super) fn fallocate(
        &self,
        node: NodeId,
        (offset, len): (u64, u64),
        mode: u32,
    ) -> Result<()> {
        let keep_size = mode & KEEP_SIZE != 0;
        let how = match mode & !KEEP_SIZE {
            0 => Fallocate::Reserve { keep_size },
            PUNCH_HOLE if keep_size => Fallocate::PunchHole,
            ZERO_RANGE => Fallocate::ZeroRange { keep_size },
            _ => return Err(Errno::OPNOTSUPP),
        };
        let volume = self.writing()?;
        let id = self.node(node)?.id;
        let outcome = volume.fallocate(id, how, offset, len);
        if outcome.as_ref().is_err_and(|error| !error.is_would_block()) {
            self.drop_partly_changed(node, Span::new(offset, len));
        }
        outcome.map_err(errno)
    }

    pub(super) fn copy_file_range(&self, from: CopyEnd, to: CopyEnd, len: u64) -> Result<u64> {
        let volume = self.writing()?;
        let (src, dst) = (self.node(from.node)?.id, self.node(to.node)?.id);
        let open = self.handles.get(to.handle);
        if open.is_none() {
            self.may_write(dst)?;
        }
        self.remove_privs(volume, (to.node, dst), open.as_deref(), None)?;
        let syncs = self.live.syncs_writes() || open.as_ref().is_some_and(|open| open.sync);
        if syncs {
            nonblocking::check().map_err(|_| Errno::WOULD_BLOCK)?;
        }
        let sector_bytes = u64::from(volume.superblock().sectorsize.get());
        // Aligned copies share extents and take no time. Others copy data, and are bounded so that the request ends
        // soon.
        let shares = (from.offset | to.offset).is_multiple_of(sector_bytes);
        let len = if shares { len } else { len.min(COPY_BYTES) };
        let copied = volume.copy_range(src, from.offset, len, dst, to.offset);
        if copied.as_ref().is_err_and(|error| !error.is_would_block()) {
            self.drop_partly_changed(to.node, Span::new(to.offset, len));
        }
        let copied = copied.map_err(errno)?;
        if copied < len {
            // A failed part after the copied range may have been copied partly. The kernel drops only pages of the
            // copied range.
            let rest = Span::new(to.offset.saturating_add(copied), len - copied);
            self.drop_partly_changed(to.node, rest);
        }
        if syncs && copied > 0 {
            let synced = sync(volume, dst, open.as_deref(), Durable::All);
            if synced.is_err() {
                self.drop_partly_changed(to.node, Span::new(to.offset, copied));
            }
            synced.map_err(errno)?;
        }
        Ok(copied)
    }

    /// Searches for data or a hole. The kernel does not write back dirty pages before this request. If too many threads
    /// wait for writeback, the others get the answer that is valid for every file: all of it is data.
    pub(super) fn lseek(&self, node: NodeId, offset: u64, what: SeekFor) -> Result<u64> {
        let id = self.node(node)?.id;
        // The kernel's btrfs treats negative offsets as 0.
        let offset = if offset > MAX_OFFSET { 0 } else { offset };
        match self.search(id, offset, what) {
            Err(Errno::BUSY) => {
                let size = self.source.inode(id)?.attr.size_bytes;
                match what {
                    // With a writeback cache, only the kernel knows the size.
                    _ if offset >= size && self.connection_flags.writeback_cache => {
                        Err(Errno::BUSY)
                    }
                    _ if offset >= size => Err(Errno::NXIO),
                    SeekFor::Data => Ok(offset),
                    SeekFor::Hole => Ok(size),
                }
            }
            found => found,
        }
    }

    fn search(&self, id: FileId, offset: u64, what: SeekFor) -> Result<u64> {
        if self.handles.may_be_written(id) {
            nonblocking::check().map_err(|_| Errno::WOULD_BLOCK)?;
            self.flush(id, WHOLE_FILE, For::Search)?;
        }
        let mut found = self.found(id, offset, what)?;
        if self.connection_flags.writable && !self.gets_opens {
            // A hole with dirty pages is not a hole.
            while let Some(hole) = self.hole_at(id, offset, what, found)? {
                nonblocking::check().map_err(|_| Errno::WOULD_BLOCK)?;
                self.flush(id, hole, For::Search)?;
                match self.found(id, offset, what)? {
                    // An unchanged answer after the writeback means that the hole is real.
                    now if now == found => break,
                    now => found = now,
                }
            }
        }
        found.ok_or(Errno::NXIO)
    }

    fn found(&self, id: FileId, offset: u64, what: SeekFor) -> Result<Option<u64>> {
        match what {
            SeekFor::Data => self.source.seek_data(id, offset),
            SeekFor::Hole => self.source.seek_hole(id, offset),
        }
    }

    /// Returns offset and length of the hole that an answer to `lseek` depends on.
    fn hole_at(
        &self,
        id: FileId,
        offset: u64,
        what: SeekFor,
        found: Option<u64>,
    ) -> Result<Option<changes::Range>> {
        let size = self.source.inode(id)?.attr.size_bytes;
        let (start, end) = match what {
            SeekFor::Data => (offset, found.unwrap_or(size)),
            SeekFor::Hole => {
                let hole = found.unwrap_or(size).min(size);
                let data = if hole < size {
                    self.source.seek_data(id, hole)?
                } else {
                    None
                };
                (hole, data.unwrap_or(size))
            }
        };
        Ok((start < end).then(|| (start, Some(end - start))))
    }

    /// Returns the volume, if this mount may change it.
    pub(super) fn writing(&self) -> Result<&Arc<Volume>> {
        match self.source.volume() {
            Some(volume) if self.connection_flags.writable => Ok(volume),
            _ => Err(Errno::ROFS),
        }
    }
}

/// Makes a file durable. Each open file reports lost data once.
fn sync(
    volume: &Volume,
    id: FileId,
    open: Option<&OpenHandle>,
    what: Durable,
) -> std::result::Result<(), Error> {
    match open {
        Some(open) => open.file.sync(what),
        None => volume.sync_file(id, what),
    }
}
