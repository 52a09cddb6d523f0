//! Checksum items: merging of neighbours, and removal of the sums of freed extents.
//!
//! Write-back inserts an item for each extent. A commit joins adjacent runs of its transaction with each other and with
//! the committed item before them. A joined item grows up to the kernel's limit for an item.
//!
//! Not here: computing the sums.

use ubtrfs_format::ids::objectid;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::{FrozenSet, View};

use super::{CsumShape, csum_key};
use crate::error::Result;

/// Number of keys whose leaves are read ahead in one batch.
const PREFETCHED: usize = 1024;

type Changes = Vec<(Key, Option<Vec<u8>>)>;

/// Joins neighbouring items of a transaction's batch. `view` is the tree before the transaction.
pub(crate) fn join(frozen: &FrozenSet, view: &View, shape: CsumShape) -> Result<Changes> {
    let mut changes: Changes = Vec::new();
    let limit = shape.max_sums * shape.size_bytes;
    let keys: Vec<Key> = frozen.iter().map(|(key, _)| key).collect();
    for (number, (key, value)) in frozen.iter().enumerate() {
        prefetch(view, number, &keys, |key| *key);
        let Some(mut sums) = value else {
            drop_item(&mut changes, key);
            continue;
        };
        let mut at = key.offset;
        // Log replay replaces committed sums in place. Merging such an item into its neighbour would leave the stale
        // committed item behind.
        if view.get(&key)?.is_some() {
            changes.push((key, Some(Vec::new())));
        } else if !follows(changes.last(), at, shape)
            && let Some(before) = committed_before(view, at, shape)?
            && changes.last().is_none_or(|(last, _)| *last < before.0)
        {
            // Extend the committed item instead of beginning a new one.
            changes.push(before);
        }
        while !sums.is_empty() {
            let room = match changes.last() {
                Some((_, Some(last))) if follows(changes.last(), at, shape) => {
                    limit.saturating_sub(last.len())
                }
                _ => 0,
            };
            if room == 0 {
                // The last item is full or not adjacent, so begin a new one.
                changes.push((csum_key(at), Some(Vec::new())));
                continue_run(&mut changes, &mut sums, &mut at, limit, shape);
            } else {
                continue_run(&mut changes, &mut sums, &mut at, room, shape);
            }
        }
    }
    Ok(changes)
}

/// Deletes an item, unless the split of a run has just put an item at its key.
fn drop_item(changes: &mut Changes, key: Key) {
    if let Err(place) = changes.binary_search_by_key(&key, |(key, _)| *key) {
        changes.insert(place, (key, None));
    }
}

fn continue_run(
    changes: &mut Changes,
    sums: &mut &[u8],
    at: &mut u64,
    room: usize,
    shape: CsumShape,
) {
    let (part, rest) = sums.split_at(room.min(sums.len()));
    if let Some((_, Some(last))) = changes.last_mut() {
        last.extend_from_slice(part);
    }
    *at += shape.covered(part.len());
    *sums = rest;
}

/// Returns whether the last run ends at `at`.
fn follows(last: Option<&(Key, Option<Vec<u8>>)>, at: u64, shape: CsumShape) -> bool {
    match last {
        Some((key, Some(sums))) => key.offset + shape.covered(sums.len()) == at,
        _ => false,
    }
}

/// Returns the committed item that ends at `at`, if it can take more sums.
fn committed_before(
    view: &View,
    at: u64,
    shape: CsumShape,
) -> Result<Option<(Key, Option<Vec<u8>>)>> {
    let Some(before) = at.checked_sub(1) else {
        return Ok(None);
    };
    let mut cursor = view.cursor();
    if !cursor.seek_floor(&csum_key(before))? {
        return Ok(None);
    }
    let Some((key, sums)) = cursor.current() else {
        return Ok(None);
    };
    let is_csum = (key.objectid, key.item_type) == (objectid::EXTENT_CSUM, KeyType::EXTENT_CSUM);
    let ends_here = key.offset.checked_add(shape.covered(sums.len())) == Some(at);
    let has_room = sums.len() < shape.max_sums * shape.size_bytes;
    Ok((is_csum && ends_here && has_room).then(|| (key, Some(sums.to_vec()))))
}

/// Returns the changes that remove the sums of `ranges`, which ascend and do not overlap.
pub fn remove(view: &View, ranges: &[(u64, u64)], shape: CsumShape) -> Result<Changes> {
    let mut changes: Changes = Vec::new();
    let mut cursor = view.cursor();
    let mut next = 0;
    let mut portion = 0;
    'range: while let Some(&(mut start, len)) = ranges.get(next) {
        while portion <= next {
            prefetch(view, portion, ranges, |(start, _)| csum_key(*start));
            portion += PREFETCHED;
        }
        let mut end = start.saturating_add(len);
        let mut more = cursor.seek_floor(&csum_key(start))? || cursor.seek(&csum_key(start))?;
        while more && let Some((key, sums)) = cursor.current() {
            let item_end = key.offset.saturating_add(shape.covered(sums.len()));
            if key < csum_key(0) || item_end <= start {
                more = cursor.advance()?;
                continue;
            }
            if key >= csum_key(end) {
                break;
            }
            let behind = next + ranges[next..].partition_point(|&(start, _)| start < item_end);
            cut(key, sums, &ranges[next..behind], shape, &mut changes);
            while next < behind && ranges[next].0.saturating_add(ranges[next].1) <= item_end {
                next += 1;
            }
            if next == behind {
                // All ranges that reach into this item are done: search for the item of the next range.
                continue 'range;
            }
            // This range continues after the item.
            start = ranges[next].0;
            end = start.saturating_add(ranges[next].1);
            more = cursor.advance()?;
        }
        next += 1;
    }
    Ok(changes)
}

/// Reads ahead the leaves of the next [`PREFETCHED`] keys, once every [`PREFETCHED`] keys.
fn prefetch<T>(view: &View, number: usize, places: &[T], key: impl Fn(&T) -> Key) {
    if number.is_multiple_of(PREFETCHED) {
        let coming = places[number..].iter().take(PREFETCHED);
        let keys: Vec<Key> = coming.map(key).collect();
        if keys.len() > 1 {
            view.prefetch(&keys);
        }
    }
}

/// Replaces one item by the parts that `ranges` do not cover.
fn cut(key: Key, sums: &[u8], ranges: &[(u64, u64)], shape: CsumShape, changes: &mut Changes) {
    let end = key.offset + shape.covered(sums.len());
    let mut at = key.offset;
    let mut kept_first = false;
    let mut parts: Changes = Vec::new();
    let mut keep = |from: u64, to: u64| {
        if from < to {
            let index = |logical: u64| ((logical - key.offset) / shape.sectorsize) as usize;
            let bytes = &sums[index(from) * shape.size_bytes..index(to) * shape.size_bytes];
            kept_first |= from == key.offset;
            parts.push((csum_key(from), Some(bytes.to_vec())));
        }
    };
    for &(start, len) in ranges {
        keep(at, start.clamp(at, end));
        at = start.saturating_add(len).clamp(at, end);
    }
    keep(at, end);
    if !kept_first {
        changes.push((key, None));
    }
    changes.append(&mut parts);
}
