//! Directory listings: `readdir` and `readdirplus`.
//!
//! An offset is the position to continue from: 0 before `.`, 1 before `..`, then the index of the next entry. Indexes
//! grow from 2 and are never reused, so a listing continues correctly regardless of concurrent inserts and removals.
//!
//! A listing ends before entries that were created after it began. Otherwise a program that renames each file it finds
//! would never reach the end, and a concurrent rename could list a name twice. Opens of directories are not sent to
//! this mount, so the offset identifies the listing:
//!
//! | bit 62 | bit 61 | other bits | for |
//! |---|---|---|---|
//! | 0 | 0 | 7 of tag, 24 of index | listings with a stored end below 2^24 (`ListingEnds`); tag 0: no end |
//! | 1 | | 30 of end, 32 of index | ends from 2^24 to 2^30 |
//! | 0 | 1 | 61 of index | larger indexes, without an end |
//!
//! The first form gives small offsets, because programs without large-file support read 31 bits of them.

use std::ops::ControlFlow;

use ubtrfs_fuse_server::request::{
    DirEntry, DirPlusSink, DirSink, Errno, FileKind, NodeId, Result, Room,
};

use super::listing_ends::ListingEnds;
use super::nodes::Listed;
use super::source::{Child, FileId, Source};
use super::{Adapter, Node};

const BEFORE_DOT_DOT: u64 = 1;
const FIRST_INDEX: u64 = 2;

const TAG_SHIFT: u32 = 24;
const TAGGED: u64 = 1 << 31;
const BOUNDED: u64 = 1 << 62;
const END_SHIFT: u32 = 32;
const FAR: u64 = 1 << 61;

/// The entries that a listing leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Nothing,
    /// The entries from the end stored under this tag.
    Tag(u8),
    /// The entries from this index on.
    End(u64),
}

/// The position of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    index: u64,
    bound: Bound,
}

impl Position {
    fn from_offset(offset: u64) -> Self {
        let (index, bound) = if offset < TAGGED {
            let bound = match (offset >> TAG_SHIFT) as u8 {
                0 => Bound::Nothing,
                tag => Bound::Tag(tag),
            };
            (offset & ((1 << TAG_SHIFT) - 1), bound)
        } else if offset & BOUNDED != 0 {
            let end = (offset & !BOUNDED) >> END_SHIFT;
            (offset & ((1 << END_SHIFT) - 1), Bound::End(end))
        } else {
            (offset & !FAR, Bound::Nothing)
        };
        Self { index, bound }
    }

    /// Returns the directory offset, or `None` if the position is too large for one.
    fn offset(self) -> Option<u64> {
        Some(match self.bound {
            Bound::Tag(tag) => u64::from(tag) << TAG_SHIFT | self.index,
            Bound::End(end) => BOUNDED | end << END_SHIFT | self.index,
            Bound::Nothing if self.index < 1 << TAG_SHIFT => self.index,
            Bound::Nothing if self.index < FAR => FAR | self.index,
            Bound::Nothing => return None,
        })
    }

    fn at(self, index: u64) -> Self {
        Self { index, ..self }
    }
}

/// A callback for an entry, with the child itself unless the entry is `.` or `..`.
type Emit<'a> = &'a mut dyn FnMut(&DirEntry<'_>, Option<FileId>) -> Result<Room>;

impl<S: Source> Adapter<S> {
    pub(super) fn readdir(&self, dir: NodeId, offset: u64, sink: &mut dyn DirSink) -> Result<()> {
        let dir = self.node(dir)?;
        self.each_entry(&dir, offset, &mut |entry, _| Ok(sink.push(entry)))
    }

    pub(super) fn readdirplus(
        &self,
        dir: NodeId,
        offset: u64,
        sink: &mut dyn DirPlusSink,
    ) -> Result<()> {
        let dir = self.node(dir)?;
        self.each_entry(&dir, offset, &mut |entry, child| match child {
            None => Ok(sink.push(entry, None)),
            Some(child) => self.push_with_attributes(&dir, entry, child, sink),
        })
    }

    fn push_with_attributes(
        &self,
        dir: &Node,
        entry: &DirEntry<'_>,
        child: FileId,
        sink: &mut dyn DirPlusSink,
    ) -> Result<Room> {
        let inode = self
            .reachable(child)
            .and_then(|()| self.source.inode(child));
        let inode = match inode {
            Ok(inode) => inode,
            Err(Errno::WOULD_BLOCK) => return Err(Errno::WOULD_BLOCK),
            // The name is listed. A program that needs more looks it up, and gets the error. Made-up attributes would
            // look like another generation to the kernel, and break files that are open.
            Err(_) => return Ok(sink.push(entry, None)),
        };
        let number = self.look_up_number(dir, entry.name, child, inode.attr.kind);
        let found = self.entry_of(number, &inode);
        let entry = DirEntry {
            ino: number,
            ..*entry
        };
        let room = sink.push(&entry, Some(&found));
        // An entry that did not fit is no lookup for the kernel (REQ-2).
        if room == Room::Full {
            self.forget(NodeId(number), 1);
        }
        Ok(room)
    }

    fn each_entry(&self, dir: &Node, offset: u64, emit: Emit<'_>) -> Result<()> {
        let (position, end) = self.position(dir, offset)?;
        for (at, name) in [(0, &b"."[..]), (BEFORE_DOT_DOT, b"..")] {
            if position.index > at {
                continue;
            }
            let dot = DirEntry {
                ino: if at == 0 {
                    dir.number
                } else {
                    self.parent_number(dir)
                },
                kind: FileKind::Directory,
                name,
                next_offset: position.at(at + 1).offset().ok_or(Errno::OVERFLOW)?,
            };
            if emit(&dot, None)? == Room::Full {
                return Ok(());
            }
        }
        if dir.is_empty_subvolume_dir() {
            return Ok(());
        }
        // The access time is updated once, at the start of a listing.
        if offset == 0 {
            self.note_read(dir.id, self.live.dir_atime());
        }
        let from = position.index.max(FIRST_INDEX);
        // After at least one entry an error waits for the next request (REQ-4).
        let mut taken = position.index < FIRST_INDEX;
        let mut failed = None;
        let outcome = self.source.readdir(dir.id, from, &mut |child| {
            if child.index >= end {
                return ControlFlow::Break(());
            }
            match self.emit_child(dir, &child, position, emit) {
                Ok(Room::Taken) => {
                    taken = true;
                    ControlFlow::Continue(())
                }
                Ok(Room::Full) => ControlFlow::Break(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        });
        match failed.map_or(outcome, Err) {
            Err(error) if !taken => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the position for a listing that continues at `offset`, and the index at which it ends.
    fn position(&self, dir: &Node, offset: u64) -> Result<(Position, u64)> {
        let position = Position::from_offset(offset);
        match position.bound {
            _ if dir.is_empty_subvolume_dir() => Ok((position, u64::MAX)),
            Bound::Nothing if offset != 0 => Ok((position, u64::MAX)),
            Bound::End(end) => Ok((position, end)),
            Bound::Nothing => {
                let end = self.source.dir_end(dir.id)?;
                let bound = self.bound(dir, end);
                Ok((Position { bound, ..position }, end))
            }
            Bound::Tag(tag) => {
                let known = |ends: &mut ListingEnds| ends.end(tag);
                let known = self.known.with_listing_ends(dir.number, known);
                if let Some(end) = known.flatten() {
                    return Ok((position, end.into()));
                }
                // The node or the tag was forgotten in between. The listing continues with a new end, so that it still
                // terminates.
                let end = self.source.dir_end(dir.id)?;
                if let Ok(end) = u32::try_from(end) {
                    let set = |ends: &mut ListingEnds| ends.set(tag, end);
                    self.known.with_listing_ends(dir.number, set);
                }
                Ok((position, end))
            }
        }
    }

    /// Returns the bound of a new listing.
    fn bound(&self, dir: &Node, end: u64) -> Bound {
        match u32::try_from(end) {
            Ok(end) if end < 1 << TAG_SHIFT => {
                let begin = |ends: &mut ListingEnds| ends.begin(end);
                let tag = self.known.with_listing_ends(dir.number, begin);
                tag.map_or(Bound::Nothing, Bound::Tag)
            }
            Ok(end) if end < 1 << (BOUNDED.trailing_zeros() - END_SHIFT) => Bound::End(end.into()),
            _ => Bound::Nothing,
        }
    }

    fn emit_child(
        &self,
        dir: &Node,
        child: &Child<'_>,
        position: Position,
        emit: Emit<'_>,
    ) -> Result<Room> {
        let next = child.index.checked_add(1);
        let next_offset = next.and_then(|next| position.at(next).offset());
        let entry = DirEntry {
            ino: self.shown_number(dir, child.name, child.id),
            kind: child.kind,
            name: child.name,
            next_offset: next_offset.ok_or(Errno::OVERFLOW)?,
        };
        emit(&entry, Some(child.id))
    }

    /// Returns the number of `..`. A listing does not fail for it: no program depends on it.
    fn parent_number(&self, dir: &Node) -> u64 {
        if dir.id == self.root {
            return dir.number;
        }
        let parent = match &dir.listed {
            Some(Listed::EmptySubvolumeDir { dir, .. }) => Ok(*dir),
            _ => self.source.parent(dir.id),
        };
        parent
            .ok()
            .and_then(|parent| self.numbering.number(parent))
            .unwrap_or(dir.number)
    }
}
