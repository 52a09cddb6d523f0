//! Relations between subvolumes, for choosing the parent of a difference.

#[cfg(test)]
mod tests;

use ubtrfs_format::item::RootItem;
use ubtrfs_format::uuid::Uuid;

/// The attributes that relate a subvolume to others, to find the best parent for sending a difference.
///
/// ```
/// use ubtrfs::{Access, SendOptions, Snapshot, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let data = volume.root().create_subvolume("/data")?;
/// let mut held = Vec::new();
/// for name in ["one", "two", "three"] {
///     data.write("/file", name)?;
///     held.push(Snapshot::open(&volume.root().snapshot("/data", name, Access::ReadOnly)?)?);
/// }
/// let (last, before) = held.split_last().expect("there are three");
/// let lineages: Vec<_> = before.iter().map(Snapshot::lineage).collect();
/// let nearest = last.lineage().nearest(&lineages).expect("they are siblings");
/// assert_eq!(nearest, 1);
/// let mut difference = Vec::new();
/// last.send(&SendOptions::new().parent(&before[nearest]), &mut difference, &mut ())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lineage {
    /// The UUID of the subvolume.
    pub uuid: Uuid,
    /// The UUID of the subvolume that it is a snapshot of.
    pub parent_uuid: Option<Uuid>,
    /// The transaction that last changed one of its files.
    pub changed_generation: u64,
}

impl Lineage {
    pub(crate) fn of(item: &RootItem) -> Lineage {
        Lineage {
            uuid: item.uuid,
            parent_uuid: Some(item.parent_uuid).filter(|uuid| !uuid.is_nil()),
            changed_generation: item.ctransid.get(),
        }
    }

    /// Chooses among others as btrfs-progs does: the subvolume's own parent, or else the sibling with the nearest time
    /// of change. Returns `None` if no other subvolume is related.
    pub fn nearest(&self, others: &[Lineage]) -> Option<usize> {
        let parent = self.parent_uuid?;
        let is_parent = |other: &Lineage| other.uuid == parent;
        others.iter().position(is_parent).or_else(|| {
            let siblings = others.iter().enumerate();
            siblings
                .filter(|(_, other)| other.parent_uuid == Some(parent))
                .min_by_key(|(_, other)| other.changed_generation.abs_diff(self.changed_generation))
                .map(|(index, _)| index)
        })
    }
}
