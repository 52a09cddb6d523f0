//! Directory listings: `readdir` and `readdirplus`.
//!
//! Offsets are those of the kernel's btrfs: 0 before `.`, 1 before `..`, then the index of the entry
//! that comes next (indexes grow from 2 and are never reused), so a listing goes on at the right place
//! whatever came and went in between. They are small, because programs without large files read 31 bits of them.
//!
//! A listing ends before what is made after it began: a program that renames each file that it meets would never see
//! the end. The end is kept with the directory's node (`KnownNodes`), as opens of directories are not sent. A listing
//! that begins, or an offset behind the end, moves it.

use std::ops::ControlFlow;

use super::nodes::Listed;
use super::source::{Child, FileId, Source};
use super::{Adapter, Node};
use crate::request::{DirEntry, DirPlusSink, DirSink, Errno, FileKind, NodeId, Result, Room};

const BEFORE_DOT_DOT: u64 = 1;
const FIRST_INDEX: u64 = 2;
/// The C library's offsets are signed.
const LAST_OFFSET: u64 = i64::MAX as u64;

/// Takes an entry, and the child itself unless it is `.` or `..`.
type Emit<'a> = &'a mut dyn FnMut(&DirEntry<'_>, Option<FileId>) -> Result<Room>;

impl<S: Source> Adapter<S> {
    pub(super) fn list(&self, dir: NodeId, offset: u64, sink: &mut dyn DirSink) -> Result<()> {
        let dir = self.node(dir)?;
        self.each_entry(&dir, offset, &mut |entry, _| Ok(sink.push(entry)))
    }

    pub(super) fn list_plus(
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
            Err(Errno::WOULD_WAIT) => return Err(Errno::WOULD_WAIT),
            // The name is listed; whoever wants more of it looks it up, and gets the error. Attributes that are made
            // up would be those of another generation to the kernel, and end a file that is open.
            Err(_) => return Ok(sink.push(entry, None)),
        };
        let number = self.look_up_number(dir, entry.name, child, inode.attr.kind);
        let found = self.entry_of(number, &inode);
        let entry = DirEntry {
            ino: number,
            ..*entry
        };
        let room = sink.push(&entry, Some(&found));
        if room == Room::Full {
            self.forget_number(number, 1);
        }
        Ok(room)
    }

    fn each_entry(&self, dir: &Node, offset: u64, emit: Emit<'_>) -> Result<()> {
        for (at, name) in [(0, &b"."[..]), (BEFORE_DOT_DOT, b"..")] {
            if offset > at {
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
                next_offset: at + 1,
            };
            if emit(&dot, None)? == Room::Full {
                return Ok(());
            }
        }
        if dir.is_stub() {
            return Ok(());
        }
        let end = self.listing_end(dir, offset)?;
        if offset == 0 {
            self.note_read(dir.id, self.live.dir_atime());
        }
        let mut taken = offset < FIRST_INDEX;
        let mut failed = None;
        let outcome = self
            .source
            .readdir(dir.id, offset.max(FIRST_INDEX), &mut |child| match self
                .emit_child(dir, &child, end, emit)
            {
                Ok(Room::Taken) => {
                    taken = true;
                    ControlFlow::Continue(())
                }
                Ok(Room::Full) => ControlFlow::Break(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            });
        match failed.map_or(outcome, Err) {
            Err(error) if !taken => Err(error),
            _ => Ok(()),
        }
    }

    /// The index at which a listing that reads from `offset` ends.
    fn listing_end(&self, dir: &Node, offset: u64) -> Result<u64> {
        let known = self.known.listing_end(dir.number);
        if let Some(end) = known.filter(|&end| (1..=end).contains(&offset)) {
            return Ok(end);
        }
        let end = self.source.dir_end(dir.id)?;
        self.known.set_listing_end(dir.number, end);
        Ok(end)
    }

    fn emit_child(&self, dir: &Node, child: &Child<'_>, end: u64, emit: Emit<'_>) -> Result<Room> {
        if child.index >= end {
            return Ok(Room::Full);
        }
        if child.index >= LAST_OFFSET {
            return Err(Errno::OVERFLOW);
        }
        let next_offset = child.index + 1;
        let entry = DirEntry {
            ino: self.shown_number(dir, child.name, child.id),
            kind: child.kind,
            name: child.name,
            next_offset,
        };
        emit(&entry, Some(child.id))
    }

    /// The number of `..`. A listing does not fail for it: no program depends on it.
    fn parent_number(&self, dir: &Node) -> u64 {
        if dir.id == self.root {
            return dir.number;
        }
        let parent = match &dir.listed {
            Some(Listed::Stub { dir, .. }) => Ok(*dir),
            _ => self.source.parent(dir.id),
        };
        parent
            .ok()
            .and_then(|parent| self.numbering.number(parent))
            .unwrap_or(dir.number)
    }
}
