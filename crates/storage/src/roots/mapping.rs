//! Consistency of chunks, block groups and device extents, which describe the same space. It is checked before the
//! first write, as the kernel does at mount. Otherwise used space could be allocated.

use std::collections::BTreeMap;

use ubtrfs_format::block_group_flags::BlockGroupFlags;
use ubtrfs_format::ids::{DevId, Logical, Physical, RootId};
use ubtrfs_format::item::DevExtent;
use ubtrfs_format::key::{Key, KeyType};
use zerocopy::FromBytes;

use super::Roots;
use super::block_groups::BlockGroupRecord;
use crate::error::{CorruptItem, Error, Result};

/// A device extent of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PlacedExtent {
    pub(crate) devid: DevId,
    pub(crate) physical: Physical,
    pub(crate) len: u64,
    pub(crate) chunk: Logical,
}

impl Roots {
    /// Returns all device extents, sorted by device and offset.
    pub(crate) fn device_extents(&self) -> Result<Vec<PlacedExtent>> {
        let tree = self.tree(RootId::DEV_TREE)?;
        let mut found = Vec::new();
        let mut cursor = tree.view.cursor().sequential();
        let mut more = cursor.seek(&Key::MIN)?;
        while more && let Some((key, bytes)) = cursor.current() {
            if key.item_type == KeyType::DEV_EXTENT {
                let (extent, _) =
                    DevExtent::ref_from_prefix(bytes).map_err(|_| Error::Corrupt {
                        tree: RootId::DEV_TREE,
                        key,
                        what: CorruptItem::Undecodable,
                    })?;
                found.push(PlacedExtent {
                    devid: DevId(key.objectid),
                    physical: Physical(key.offset),
                    len: extent.length.get(),
                    chunk: Logical(extent.chunk_offset.get()),
                });
            }
            more = cursor.advance()?;
        }
        Ok(found)
    }

    /// Fails if chunks, block groups and device extents do not match.
    pub(crate) fn check_mapping(
        &self,
        groups: &[BlockGroupRecord],
        extents: &[PlacedExtent],
    ) -> Result<()> {
        let chunks = self.pool.chunk_map().all();
        let mut mapped: BTreeMap<Logical, (u64, BlockGroupFlags)> = BTreeMap::new();
        let mut stripes = Vec::new();
        for chunk in chunks.iter() {
            let kind = chunk.flags() & BlockGroupFlags::TYPE_MASK;
            mapped.insert(chunk.logical(), (chunk.len_bytes(), kind));
            stripes.extend(chunk.stripes().iter().map(|stripe| PlacedExtent {
                devid: stripe.devid,
                physical: stripe.physical,
                len: chunk.stripe_bytes(),
                chunk: chunk.logical(),
            }));
        }
        for group in groups {
            let kind = group.flags & BlockGroupFlags::TYPE_MASK;
            if mapped.remove(&group.start) != Some((group.length, kind)) {
                return refuse(format!("block group {} is no chunk", group.start));
            }
        }
        if let Some(start) = mapped.keys().next() {
            return refuse(format!("chunk {start} has no block group"));
        }
        stripes.sort_unstable();
        let mut extents = extents.to_vec();
        extents.sort_unstable();
        if stripes != extents {
            let differs = stripes
                .iter()
                .zip(&extents)
                .find(|(one, other)| one != other);
            let shorter = stripes.len().min(extents.len());
            let one = differs.map(|(stripe, extent)| stripe.min(extent));
            let one = one.or(stripes.get(shorter)).or(extents.get(shorter));
            let (devid, physical) = one.map_or((0, 0), |one| (one.devid.0, one.physical.0));
            return refuse(format!(
                "chunks and extents of device {devid} differ at {physical}"
            ));
        }
        let overlapping = extents.windows(2).find(|pair| {
            pair[0].devid == pair[1].devid
                && pair[0].physical.0.saturating_add(pair[0].len) > pair[1].physical.0
        });
        match overlapping {
            None => Ok(()),
            Some(pair) => refuse(format!(
                "chunks {} and {} overlap on device {}",
                pair[0].chunk, pair[1].chunk, pair[0].devid
            )),
        }
    }
}

fn refuse(why: String) -> Result<()> {
    Err(Error::Unwritable(why))
}
