//! The checksums of moved data.

use ubtrfs_format::ids::{Logical, objectid};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::View;

use super::{CsumShape, csum_key};
use crate::error::Result;

/// Returns the items that the sums of `len` bytes of data at `old` have at `new`. Data without sums has no items.
pub(crate) fn moved(
    view: &View,
    old: Logical,
    new: Logical,
    len: u64,
    shape: CsumShape,
) -> Result<Vec<(Key, Option<Vec<u8>>)>> {
    let mut items = Vec::new();
    let range = old..Logical(old.0.saturating_add(len));
    let mut cursor = view.cursor();
    let from = csum_key(old.0);
    let mut more = cursor.seek_floor(&from)? || cursor.seek(&from)?;
    while more && let Some((key, sums)) = cursor.current() {
        if key >= csum_key(range.end.0) {
            break;
        }
        let is_csum =
            (key.objectid, key.item_type) == (objectid::EXTENT_CSUM, KeyType::EXTENT_CSUM);
        if is_csum && let Some((at, part)) = shape.part(key.offset, sums, &range) {
            let place = Logical(at.0 - old.0 + new.0);
            let moved = shape.items(place, part);
            items.extend(moved.map(|(key, sums)| (key, Some(sums.to_vec()))));
        }
        more = cursor.advance()?;
    }
    Ok(items)
}
