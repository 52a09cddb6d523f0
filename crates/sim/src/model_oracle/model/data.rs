//! Changes of the bytes of files.

use super::content::Content;
use super::inode::{Body, InodeId};
use super::{ModelFs, OpResult};
use crate::vocabulary::{Allocate, At, Data, OpError, Outcome};

/// Maximum file size; results beyond it depend on the caller.
const MAX_SIZE: u64 = i64::MAX as u64;

impl ModelFs {
    pub(super) fn write(&mut self, at: &At, offset: u64, data: &Data) -> OpResult {
        let id = self.writable(at, false)?;
        let bytes = data.bytes();
        in_range(offset, bytes.len() as u64)?;
        self.inode_mut(id).content_mut().write(offset, &bytes);
        Ok(Outcome::Done)
    }

    pub(super) fn append(&mut self, at: &At, data: &Data) -> OpResult {
        let id = self.writable(at, true)?;
        let bytes = data.bytes();
        let end = self.inode(id).size();
        in_range(end, bytes.len() as u64)?;
        self.inode_mut(id).content_mut().write(end, &bytes);
        Ok(Outcome::Done)
    }

    pub(super) fn truncate(&mut self, at: &At, size: u64) -> OpResult {
        let id = self.writable(at, false)?;
        in_range(size, 0)?;
        self.inode_mut(id).content_mut().truncate(size);
        Ok(Outcome::Done)
    }

    pub(super) fn fallocate(
        &mut self,
        at: &At,
        how: Allocate,
        offset: u64,
        len_bytes: u64,
    ) -> OpResult {
        let id = self.writable(at, false)?;
        in_range(offset, len_bytes)?;
        if len_bytes == 0 {
            return Err(OpError::InvalidArgument);
        }
        let end = offset + len_bytes;
        let content = self.inode_mut(id).content_mut();
        if matches!(
            how,
            Allocate::Punch | Allocate::Zero | Allocate::ZeroKeepSize
        ) {
            content.zero(offset, end);
        }
        if matches!(how, Allocate::Extend | Allocate::Zero) {
            content.grow_to(end);
        }
        Ok(Outcome::Done)
    }

    pub(super) fn clone_range(
        &mut self,
        (from, from_offset): (&At, u64),
        len_bytes: u64,
        (to, to_offset): (&At, u64),
    ) -> OpResult {
        let source = self.readable(from)?;
        let target = self.writable(to, false)?;
        in_range(from_offset, len_bytes)?;
        in_range(to_offset, len_bytes)?;
        if len_bytes == 0 {
            return Err(OpError::OutOfScope);
        }
        let Body::File(content) = &self.inode(source).body else {
            return Err(OpError::IsADirectory);
        };
        let content = content.clone();
        let sector_bytes = self.limits.sector_bytes;
        let is_aligned = |number: u64| number.is_multiple_of(sector_bytes);
        let from_end = from_offset + len_bytes;
        let to_end = to_offset + len_bytes;
        let ends_well = is_aligned(len_bytes)
            || (from_end == content.size() && to_end >= self.inode(target).size());
        let blocks = len_bytes.next_multiple_of(sector_bytes);
        let overlaps = source == target
            && to_offset < from_offset + blocks
            && from_offset < to_offset + blocks;
        let sums_differ = self.inode(source).nodatasum != self.inode(target).nodatasum;
        if !is_aligned(from_offset)
            || !is_aligned(to_offset)
            || from_end > content.size()
            || !ends_well
            || overlaps
            || sums_differ
        {
            return Err(OpError::InvalidArgument);
        }
        let target = self.inode_mut(target).content_mut();
        target.clone_range(&content, from_offset, len_bytes, to_offset);
        Ok(Outcome::Done)
    }

    pub(super) fn copy_range(
        &mut self,
        (from, from_offset): (&At, u64),
        len_bytes: u64,
        (to, to_offset): (&At, u64),
    ) -> OpResult {
        let source = self.readable(from)?;
        let target = self.writable(to, false)?;
        in_range(from_offset, len_bytes)?;
        in_range(to_offset, len_bytes)?;
        let Body::File(content) = &self.inode(source).body else {
            return Err(OpError::IsADirectory);
        };
        let len = len_bytes.min(content.size().saturating_sub(from_offset));
        if source == target && from_offset.abs_diff(to_offset) < len {
            return Err(OpError::InvalidArgument);
        }
        if len > 0 {
            let bytes = content.read(from_offset, len as usize);
            let target = self.inode_mut(target).content_mut();
            target.write(to_offset, &bytes);
        }
        Ok(Outcome::Copied(len))
    }

    /// Deduplicates a range. No bytes or times change. If a range ends within a sector, and not at the end of both
    /// files, the kernel omits its last partial sector.
    pub(super) fn dedupe(
        &mut self,
        (from, from_offset): (&At, u64),
        len_bytes: u64,
        (to, to_offset): (&At, u64),
    ) -> OpResult {
        let source = self.readable(from)?;
        let target = self.writable(to, false)?;
        in_range(from_offset, len_bytes)?;
        in_range(to_offset, len_bytes)?;
        if len_bytes == 0 {
            return Err(OpError::OutOfScope);
        }
        let (one, other) = match (&self.inode(source).body, &self.inode(target).body) {
            (Body::File(one), Body::File(other)) => (one, other),
            _ => return Err(OpError::IsADirectory),
        };
        let sector_bytes = self.limits.sector_bytes;
        let is_aligned = |number: u64| number.is_multiple_of(sector_bytes);
        let from_end = from_offset + len_bytes;
        let to_end = to_offset + len_bytes;
        let compared = if from_end == one.size() && to_end == other.size() {
            len_bytes
        } else {
            len_bytes - len_bytes % sector_bytes
        };
        let overlaps = source == target
            && from_offset.abs_diff(to_offset) < compared.next_multiple_of(sector_bytes);
        let sums_differ = self.inode(source).nodatasum != self.inode(target).nodatasum;
        if !is_aligned(from_offset)
            || !is_aligned(to_offset)
            || from_end > one.size()
            || to_end > other.size()
            || overlaps
            || sums_differ
        {
            return Err(OpError::InvalidArgument);
        }
        let bytes = |content: &Content, offset| content.read(offset, compared as usize);
        let are_equal = bytes(one, from_offset) == bytes(other, to_offset);
        Ok(Outcome::Shared(are_equal))
    }

    pub(super) fn read(&self, at: &At, offset: u64, len_bytes: usize) -> OpResult {
        let id = self.readable(at)?;
        in_range(offset, len_bytes as u64)?;
        match &self.inode(id).body {
            Body::File(content) => Ok(Outcome::Bytes(content.read(offset, len_bytes))),
            _ => Err(OpError::IsADirectory),
        }
    }

    /// Makes one file durable; symlinks and special files are out of scope.
    pub(super) fn fsync(&self, at: &At) -> OpResult {
        self.readable(at)?;
        Ok(Outcome::Done)
    }

    /// Marks the modification time as unknown, after a change that was started and failed.
    pub(crate) fn touch(&mut self, at: &At) {
        if let Ok(id) = self.at(at) {
            self.inode_mut(id).mtime = None;
        }
    }

    fn readable(&self, at: &At) -> Result<InodeId, OpError> {
        let id = self.at(at)?;
        match self.inode(id).body {
            Body::File(_) | Body::Dir(_) => Ok(id),
            Body::Symlink(_) | Body::Special(_) => Err(OpError::OutOfScope),
        }
    }

    /// Finds the file for a write. Writes that became forbidden after the file was opened are out of scope.
    fn writable(&self, at: &At, appends: bool) -> Result<InodeId, OpError> {
        let id = self.at(at)?;
        match (self.may_open_for_writing(id, appends), at) {
            (Ok(()), _) => Ok(id),
            (Err(error), At::Path(_)) => Err(error),
            (Err(_), At::Slot(_)) => Err(OpError::OutOfScope),
        }
    }
}

fn in_range(offset: u64, len_bytes: u64) -> Result<(), OpError> {
    match offset.checked_add(len_bytes) {
        Some(end) if end <= MAX_SIZE => Ok(()),
        _ => Err(OpError::OutOfScope),
    }
}
