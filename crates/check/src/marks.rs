//! Counts of the marks of NAS makers on the volume.

use ubtrfs_format::maker::{MARKS, Marks, Place};
use ubtrfs_format::node::Node;

use crate::report::MakerMark;

/// A count for each row of [`MARKS`].
#[derive(Debug)]
pub(crate) struct MarkCounts([u64; MOST]);

const MOST: usize = u64::BITS as usize;

impl MarkCounts {
    pub(crate) fn new() -> MarkCounts {
        MarkCounts([0; MOST])
    }

    pub(crate) fn add(&mut self, marks: Marks) {
        let mut rest = marks.bits();
        while rest != 0 {
            let index = rest.trailing_zeros() as usize;
            self.0[index] = self.0[index].saturating_add(1);
            rest &= rest - 1;
        }
    }

    /// Counts the marks of the items in a leaf.
    pub(crate) fn add_items(&mut self, leaf: Node<'_>) {
        Marks::for_each_item(leaf, &mut |marks| self.add(marks));
    }

    /// Returns the marks with a count, in the order of the table.
    pub(crate) fn found(&self) -> Vec<MakerMark> {
        let counted = MARKS.iter().zip(self.0).filter(|(_, count)| *count > 0);
        let marks = counted.map(|(mark, count)| MakerMark {
            maker: mark.maker.name(),
            name: mark.name,
            description: mark.to_string(),
            count,
            is_tree: matches!(mark.place, Place::Tree(_)),
        });
        marks.collect()
    }
}
