//! RAID10: near, far and offset copies, in any combination.
//!
//! Source: `__raid10_find_phys`, `setup_geo` and `calc_sectors` of Linux.

use std::sync::Arc;

use ubtrfs_device::BlockDevice;

use crate::copies::{CopyMap, Place};
use crate::fan_out::Devices;

/// The layout of copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Raid10Layout {
    near: u64,
    far: u64,
    /// Whether far copies are in the next row and not in the next section of the members.
    is_offset: bool,
    /// Number of members that share far copies.
    far_set: u64,
}

impl Raid10Layout {
    /// Decodes the layout field of a superblock. Returns None if it is unknown.
    pub(crate) fn decode(layout: u32, members: u64) -> Option<Raid10Layout> {
        const OFFSET: u32 = 1 << 16;
        let (near, far) = (u64::from(layout & 0xff), u64::from(layout >> 8 & 0xff));
        if near == 0 || far == 0 || near * far > members {
            return None;
        }
        let far_set = match layout >> 17 {
            0 => members,
            1 => members / far,
            2 => far * near,
            _ => return None,
        };
        let is_offset = layout & OFFSET != 0;
        (far_set != 0).then_some(Raid10Layout {
            near,
            far,
            is_offset,
            far_set,
        })
    }

    /// Returns the number of copies of every byte.
    pub(crate) fn copies(&self) -> u64 {
        self.near * self.far
    }

    /// Returns the member with the next far copy after one on `member`.
    fn next_far(&self, member: u64, members: u64) -> u64 {
        let sets = members / self.far_set;
        let last_start = (sets - 1) * self.far_set;
        let last_len = self.far_set + members % self.far_set;
        if !members.is_multiple_of(self.far_set) && member + self.near > last_start {
            let after = member + self.near;
            last_start + (after - last_start) % last_len
        } else {
            let set = member / self.far_set;
            (member + self.near) % self.far_set + self.far_set * set
        }
    }
}

#[derive(Debug)]
pub(crate) struct Raid10 {
    members: Vec<Option<Arc<dyn BlockDevice>>>,
    layout: Raid10Layout,
    chunk_bytes: u64,
    /// Distance of far copies on a member.
    stride: u64,
    len_bytes: u64,
}

impl Raid10 {
    /// Creates an array whose members have `member_bytes` each. Returns None if it is too large.
    pub(crate) fn new(
        members: Vec<Option<Arc<dyn BlockDevice>>>,
        layout: Raid10Layout,
        chunk_bytes: u64,
        member_bytes: u64,
    ) -> Option<Raid10> {
        let count = members.len() as u64;
        let chunks = member_bytes / chunk_bytes / layout.far;
        let chunks = chunks.checked_mul(count)? / layout.near;
        let used = chunks.checked_mul(layout.copies())?.div_ceil(count);
        let stride = if layout.is_offset {
            chunk_bytes
        } else {
            (used / layout.far).checked_mul(chunk_bytes)?
        };
        // The kernel computes the places of a chunk by a product with the number of its near copies.
        chunks.checked_mul(layout.near)?.checked_mul(layout.far)?;
        Some(Raid10 {
            members,
            layout,
            chunk_bytes,
            stride,
            len_bytes: chunks.checked_mul(chunk_bytes)?,
        })
    }

    /// Returns whether every chunk has a copy on a member that is present.
    pub(crate) fn is_complete(&self) -> bool {
        let chunks = self.len_bytes / self.chunk_bytes;
        let mut period = 0..chunks.min(self.members.len() as u64);
        period.all(|chunk| {
            let mut copies = 0..CopyMap::copies(self);
            copies.any(|copy| {
                let place = self.place(chunk * self.chunk_bytes, copy);
                self.members[place.device].is_some()
            })
        })
    }
}

impl CopyMap for Raid10 {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn devices(&self) -> &Devices {
        &self.members
    }

    fn copies(&self) -> usize {
        self.layout.copies() as usize
    }

    fn place(&self, offset: u64, copy: usize) -> Place {
        let members = self.members.len() as u64;
        let (chunk, within) = (offset / self.chunk_bytes, offset % self.chunk_bytes);
        let (near, far) = (
            copy as u64 % self.layout.near,
            copy as u64 / self.layout.near,
        );
        // Near copies are consecutive chunks, which may continue in the next row.
        let slot = chunk * self.layout.near + near;
        let first = chunk * self.layout.near / members;
        let (mut row, mut member) = (slot / members, slot % members);
        if self.layout.is_offset {
            row = first * self.layout.far + (row - first);
        }
        for _ in 0..far {
            member = self.layout.next_far(member, members);
        }
        Place {
            device: member as usize,
            offset: row * self.chunk_bytes + far * self.stride + within,
            len: self.chunk_bytes - within,
        }
    }
}
