//! The item of one extent with all of its references, for readers.

use ubtrfs_format::ids::{Logical, Transid};
use ubtrfs_format::item::ExtentFlags;
use ubtrfs_tree::{Cursor, View};

use super::item::ref_key;
use super::{Found, find, keyed, undecodable};
use crate::error::{ExtentShape, RefKey, Result};

/// An extent and its references, inline and keyed.
#[derive(Clone, Debug)]
pub(crate) struct ExtentRecord {
    pub(crate) shape: ExtentShape,
    /// The transaction that created it.
    pub(crate) generation: Transid,
    /// Whether a tree block itself refers to its children.
    pub(crate) full_backref: bool,
    /// Each reference with its count.
    pub(crate) refs: Vec<(RefKey, u64)>,
}

impl ExtentRecord {
    /// Reads the items of the extent at `bytenr`. Returns None if there is no such extent.
    pub(crate) fn read(view: &View, bytenr: Logical) -> Result<Option<ExtentRecord>> {
        let mut cursor = view.cursor();
        let Found::Item(item, has_keyed) = find(bytenr, &mut cursor)? else {
            return Ok(None);
        };
        let shape = if item.flags.contains(ExtentFlags::DATA) {
            ExtentShape::Data {
                len: item.key.offset,
            }
        } else {
            // A skinny item has the level in its key.
            let level = item
                .tree_block
                .map_or(item.key.offset as u8, |info| info.level);
            ExtentShape::Block { level }
        };
        let inline = item.inline.iter();
        let mut refs: Vec<(RefKey, u64)> = inline
            .filter_map(|reference| Some((ref_key(reference)?, reference.count())))
            .collect();
        if has_keyed {
            read_keyed(bytenr, &mut cursor, &mut refs)?;
        }
        Ok(Some(ExtentRecord {
            shape,
            generation: item.generation,
            full_backref: item.flags.contains(ExtentFlags::FULL_BACKREF),
            refs,
        }))
    }

    /// Returns the number of references.
    pub(crate) fn ref_count(&self) -> u64 {
        self.refs.iter().map(|(_, count)| count).sum()
    }
}

/// Adds the keyed references from the position of the cursor on.
fn read_keyed(
    bytenr: Logical,
    cursor: &mut Cursor<'_>,
    refs: &mut Vec<(RefKey, u64)>,
) -> Result<()> {
    let mut more = true;
    while more && let Some((key, bytes)) = cursor.current() {
        if key.objectid != bytenr.0 || !keyed::is_keyed_ref(key.item_type) {
            break;
        }
        refs.push(keyed::decode(key, bytes).ok_or_else(|| undecodable(key))?);
        more = cursor.advance()?;
    }
    Ok(())
}
