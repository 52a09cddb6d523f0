//! The order of an archive's nodes: by directory and name.

use std::cmp::Ordering;
use std::io;

use ubtrfs_spill::{Position, RunReader, SortRecord};

use super::node::NodeId;

/// A node with its name, which is the tail.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    pub(super) parent: NodeId,
    /// The first bytes of the name, which suffice for most comparisons.
    first: [u8; 8],
    pub(super) id: NodeId,
}

impl Named {
    pub(super) fn new(parent: NodeId, name: &[u8], id: NodeId) -> Named {
        let mut first = [0; 8];
        let known = name.len().min(first.len());
        first[..known].copy_from_slice(&name[..known]);
        Named { parent, first, id }
    }
}

impl SortRecord for Named {
    type Tail = Position;

    // SOURCE-1: the order of the walk.
    fn compare<'t>(&self, other: &Named, names: impl FnOnce() -> (&'t [u8], &'t [u8])) -> Ordering {
        let beginnings = (self.parent, self.first).cmp(&(other.parent, other.first));
        beginnings.then_with(|| {
            let (name, other) = names();
            name.cmp(other)
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.parent.to_le_bytes());
        out.extend_from_slice(&self.first);
        out.extend_from_slice(&self.id.to_le_bytes());
    }

    fn read(from: &mut RunReader) -> io::Result<Named> {
        Ok(Named {
            parent: NodeId::from_le_bytes(from.array()?),
            first: from.array()?,
            id: NodeId::from_le_bytes(from.array()?),
        })
    }
}
