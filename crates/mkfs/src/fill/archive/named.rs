//! The order of an archive's nodes: by directory and name.

use std::io;

use ubtrfs_spill::{RunReader, SortRecord};

use super::node::NodeId;

/// Bytes of the allocator for a name.
const ALLOCATION_BYTES: usize = 16;

/// A node with its name.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Named {
    pub(super) parent: NodeId,
    /// The first bytes of the name, which suffice for most comparisons.
    first: [u8; 8],
    pub(super) name: Box<[u8]>,
    pub(super) id: NodeId,
}

impl Named {
    // SOURCE-1: the order of the fields is the order of the walk.
    pub(super) fn new(parent: NodeId, name: Vec<u8>, id: NodeId) -> Named {
        let mut first = [0; 8];
        let known = name.len().min(first.len());
        first[..known].copy_from_slice(&name[..known]);
        Named {
            parent,
            first,
            name: name.into(),
            id,
        }
    }
}

impl SortRecord for Named {
    fn heap_bytes(&self) -> usize {
        self.name.len() + ALLOCATION_BYTES
    }

    fn write(&self, out: &mut Vec<u8>) {
        for field in [self.parent, self.id, self.name.len() as u32] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&self.name);
    }

    fn read(from: &mut RunReader) -> io::Result<Named> {
        let parent = NodeId::from_le_bytes(from.array()?);
        let id = NodeId::from_le_bytes(from.array()?);
        let len = u32::from_le_bytes(from.array()?);
        Ok(Named::new(parent, from.bytes(len as usize)?, id))
    }
}
