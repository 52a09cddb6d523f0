//! Consistency of the free-space tree and the extent tree.
//!
//! Both give the free runs of a block group in order, so that counts and hashes show whether they agree. Only block
//! groups with a difference are read again, from both trees in parallel.

use ubtrfs_format::features::CompatRo;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{FREE_SPACE_USING_BITMAPS, FreeSpaceInfo};
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::Cursor;
use zerocopy::FromBytes;

use crate::error::CheckError;
use crate::fault::Fault;
use crate::issue::Place;
use crate::item_reader::ItemReader;
use crate::roots::Roots;
use crate::space::{FreeRuns, Spaces};
use crate::state::State;
use crate::tree_root::TreeRoot;
use crate::volume::CheckedVolume;
use crate::walk::walk;

/// mkfs.btrfs uses temporary chunks below this address and leaves their free-space infos behind.
const MKFS_CHUNKS_END: u64 = 21 << 20;

/// A range of addresses.
type Run = (u64, u64);

pub(crate) fn check(
    state: &mut State<'_>,
    volume: &CheckedVolume,
    roots: &Roots,
    spaces: &Spaces,
) -> Result<(), CheckError> {
    let Some(root) = roots.tree_root(RootId::FREE_SPACE_TREE) else {
        return Ok(());
    };
    let features = volume.superblock().compat_ro();
    let is_valid = features.contains(CompatRo::FREE_SPACE_TREE | CompatRo::FREE_SPACE_TREE_VALID);
    let mut reader = Reader {
        state,
        spaces,
        sectorsize: u64::from(volume.sectorsize()),
        is_valid,
        group: None,
        has_info: vec![false; spaces.all().len()],
        differing: Vec::new(),
    };
    walk(volume, &[root], &mut reader)?;
    let (has_info, differing) = (reader.has_info, reader.differing);
    if !is_valid {
        return Ok(());
    }
    for (space, has_info) in spaces.all().iter().zip(has_info) {
        if space.group.is_some() && !has_info {
            let lost = state.may_have_lost(RootId::FREE_SPACE_TREE, space.start);
            let at = Place::tree(RootId::FREE_SPACE_TREE).at(space.start);
            state.add_unless(lost, at, Fault::FreeSpaceInfoMissing {});
        }
    }
    if let Some(extents) = roots.tree_root(RootId::EXTENT_TREE) {
        for group in differing {
            compare(state, volume, (&extents, &root), group);
        }
    }
    Ok(())
}

/// The block group whose items are being read.
struct Group {
    /// The index of its chunk, if there is one.
    index: Option<usize>,
    key: Key,
    recorded: u64,
    bitmaps: bool,
    runs: FreeRuns,
    /// The last run, which the next one may extend.
    open: Option<Run>,
    end: u64,
}

impl Group {
    fn add(&mut self, start: u64, end: u64) {
        match &mut self.open {
            Some(open) if open.1 == start => open.1 = end,
            open => {
                if let Some((start, end)) = open.replace((start, end)) {
                    self.runs.add(start, end - start);
                }
            }
        }
    }
}

struct Reader<'s, 'a> {
    state: &'s mut State<'a>,
    spaces: &'s Spaces,
    sectorsize: u64,
    is_valid: bool,
    group: Option<Group>,
    has_info: Vec<bool>,
    /// Start and end of block groups with a difference.
    differing: Vec<Run>,
}

impl<'a> ItemReader<'a> for Reader<'_, 'a> {
    fn state(&mut self) -> &mut State<'a> {
        self.state
    }

    fn item(&mut self, key: Key, bytes: &[u8]) -> Result<(), CheckError> {
        if !self.is_valid {
            return Ok(());
        }
        match key.item_type {
            KeyType::FREE_SPACE_INFO => {
                self.finish_group();
                self.begin_group(key, bytes);
            }
            KeyType::FREE_SPACE_EXTENT | KeyType::FREE_SPACE_BITMAP => self.space(key, bytes),
            // The kernel stops at such an item, and treats the space after it as used.
            _ => {
                let at = Place::item(RootId::FREE_SPACE_TREE, key);
                self.state.add(at, Fault::FreeSpaceForm {});
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), CheckError> {
        self.finish_group();
        Ok(())
    }
}

impl Reader<'_, '_> {
    fn begin_group(&mut self, key: Key, bytes: &[u8]) {
        let Ok(info) = FreeSpaceInfo::ref_from_bytes(bytes) else {
            return;
        };
        let index = self.spaces.index_of(key.objectid).filter(|&index| {
            let space = &self.spaces.all()[index];
            (space.start, space.length) == (key.objectid, key.offset) && space.may_have_group()
        });
        match index {
            Some(index) => self.has_info[index] = true,
            None if key.objectid.saturating_add(key.offset) <= MKFS_CHUNKS_END => {}
            None => self.unowned(key),
        }
        self.group = Some(Group {
            index,
            key,
            recorded: u64::from(info.extent_count.get()),
            bitmaps: info.flags.get() & FREE_SPACE_USING_BITMAPS != 0,
            runs: FreeRuns::default(),
            open: None,
            end: key.objectid,
        });
    }

    fn unowned(&mut self, key: Key) {
        let lost = [RootId::CHUNK_TREE, RootId::BLOCK_GROUP_TREE]
            .into_iter()
            .any(|tree| self.state.has_lost(tree));
        let at = Place::item(RootId::FREE_SPACE_TREE, key).at(key.objectid);
        let length = key.offset;
        self.state
            .add_unless(lost, at, Fault::FreeSpaceUnowned { length });
    }

    fn space(&mut self, key: Key, bytes: &[u8]) {
        let (start, end) = (key.objectid, key.objectid.saturating_add(key.offset));
        let is_bitmap = key.item_type == KeyType::FREE_SPACE_BITMAP;
        let sectorsize = self.sectorsize;
        let fits = self.group.as_ref().is_some_and(|group| {
            let group_end = group.key.objectid.saturating_add(group.key.offset);
            is_bitmap == group.bitmaps && group.end <= start && end <= group_end
        });
        let Some(group) = self.group.as_mut().filter(|_| fits) else {
            let tree = RootId::FREE_SPACE_TREE;
            let lost = self.state.may_have_lost(tree, start);
            let at = Place::item(tree, key).at(start);
            self.state.add_unless(lost, at, Fault::FreeSpaceForm {});
            return;
        };
        group.end = end;
        if is_bitmap {
            bitmap_runs(key, bytes, sectorsize, &mut |start, end| {
                group.add(start, end);
            })
        } else {
            group.add(start, end)
        }
    }

    fn finish_group(&mut self) {
        let Some(mut group) = self.group.take() else {
            return;
        };
        if let Some((start, end)) = group.open.take() {
            group.runs.add(start, end - start);
        }
        let Some(space) = group.index.map(|index| &self.spaces.all()[index]) else {
            return;
        };
        let (start, end) = (space.start, space.end());
        let lost = |tree| {
            let lost = self.state.lost_keys.get(&tree);
            lost.is_some_and(|lost| lost.overlaps(start, end - 1))
        };
        if lost(RootId::FREE_SPACE_TREE) {
            self.state.suppress();
            return;
        }
        let extents_lost = lost(RootId::EXTENT_TREE);
        if group.recorded != group.runs.count {
            let at = Place::item(RootId::FREE_SPACE_TREE, group.key).at(start);
            let fault = Fault::FreeSpaceCount {
                recorded: group.recorded,
                found: group.runs.count,
            };
            self.state.add(at, fault);
        }
        if group.runs != space.free {
            if extents_lost {
                self.state.suppress()
            } else {
                self.differing.push((start, end))
            }
        }
    }
}

fn bitmap_runs(key: Key, bytes: &[u8], sectorsize: u64, each: &mut dyn FnMut(u64, u64)) {
    let sectors = key.offset / sectorsize;
    let is_set = |sector: u64| {
        let byte = bytes.get((sector / 8) as usize).copied().unwrap_or(0);
        byte >> (sector % 8) & 1 == 1
    };
    let mut sector = 0;
    while sector < sectors {
        if !is_set(sector) {
            sector += 1;
            continue;
        }
        let first = sector;
        while sector < sectors && is_set(sector) {
            sector += 1;
        }
        let at = |sector: u64| key.objectid.saturating_add(sector * sectorsize);
        each(at(first), at(sector));
    }
}

/// Reports the ranges that differ between the two trees.
fn compare(
    state: &mut State<'_>,
    volume: &CheckedVolume,
    (extents, free_space): (&TreeRoot, &TreeRoot),
    (start, end): Run,
) {
    let extent_view = volume.view(extents);
    let free_view = volume.view(free_space);
    let from = Key::new(start, KeyType(0), 0);
    let mut gaps = Gaps {
        items: Items::new(extent_view.cursor().sequential(), from, end),
        nodesize: volume.nodesize() as u64,
        at: start,
        end,
    };
    let mut listed = Listed {
        items: Items::new(free_view.cursor().sequential(), from, end),
        sectorsize: u64::from(volume.sectorsize()),
        runs: Vec::new(),
    };
    let at = Place::tree(RootId::FREE_SPACE_TREE).at(start);
    let missing = |state: &mut State<'_>, start: u64, end: u64| {
        let length = end - start;
        state.add(at, Fault::FreeSpaceMissing { start, length });
    };
    let in_use = |state: &mut State<'_>, start: u64, end: u64| {
        let length = end - start;
        state.add(at, Fault::FreeSpaceInUse { start, length });
    };
    let (mut gap, mut run) = (gaps.next(), listed.next());
    loop {
        match (gap, run) {
            (None, None) => return,
            (Some(g), r) if r.is_none_or(|r| g.1 <= r.0) => {
                missing(state, g.0, g.1);
                gap = gaps.next();
            }
            (g, Some(r)) if g.is_none_or(|g| r.1 <= g.0) => {
                in_use(state, r.0, r.1);
                run = listed.next();
            }
            (Some(g), Some(r)) => {
                if g.0 < r.0 {
                    missing(state, g.0, r.0);
                } else if r.0 < g.0 {
                    in_use(state, r.0, g.0);
                }
                let same = g.1.min(r.1);
                gap = if g.1 > same {
                    Some((same, g.1))
                } else {
                    gaps.next()
                };
                run = if r.1 > same {
                    Some((same, r.1))
                } else {
                    listed.next()
                };
            }
            // Handled by the guards above.
            (Some(_), None) | (None, Some(_)) => return,
        }
    }
}

/// An iterator over the items from a key up to an address. Ends early at an unreadable block, which was already
/// reported.
struct Items<'v> {
    cursor: Cursor<'v>,
    from: Option<Key>,
    end: u64,
}

impl<'v> Items<'v> {
    fn new(cursor: Cursor<'v>, from: Key, end: u64) -> Items<'v> {
        Items {
            cursor,
            from: Some(from),
            end,
        }
    }

    fn next(&mut self) -> Option<(Key, &[u8])> {
        let moved = match self.from.take() {
            Some(from) => self.cursor.seek(&from),
            None => self.cursor.advance(),
        };
        if !moved.unwrap_or(false) {
            return None;
        }
        let (key, bytes) = self.cursor.current()?;
        (key.objectid < self.end).then_some((key, bytes))
    }
}

/// An iterator over the gaps between extents.
struct Gaps<'v> {
    items: Items<'v>,
    nodesize: u64,
    at: u64,
    end: u64,
}

impl Gaps<'_> {
    fn next(&mut self) -> Option<Run> {
        while self.at < self.end {
            let Some((key, _)) = self.items.next() else {
                let rest = (self.at, self.end);
                self.at = self.end;
                return Some(rest);
            };
            let length = match key.item_type {
                KeyType::EXTENT_ITEM => key.offset,
                KeyType::METADATA_ITEM => self.nodesize,
                _ => continue,
            };
            let before = self.at;
            self.at = self.at.max(key.objectid.saturating_add(length));
            if key.objectid > before {
                return Some((before, key.objectid));
            }
        }
        None
    }
}

/// An iterator over the free runs in the free-space tree.
struct Listed<'v> {
    items: Items<'v>,
    sectorsize: u64,
    /// The remaining runs of the last bitmap, in reverse order.
    runs: Vec<Run>,
}

impl Listed<'_> {
    fn next(&mut self) -> Option<Run> {
        loop {
            if let Some(run) = self.runs.pop() {
                return Some(run);
            }
            let (key, bytes) = self.items.next()?;
            match key.item_type {
                KeyType::FREE_SPACE_EXTENT => {
                    return Some((key.objectid, key.objectid.saturating_add(key.offset)));
                }
                KeyType::FREE_SPACE_BITMAP => {
                    let runs = &mut self.runs;
                    bitmap_runs(key, bytes, self.sectorsize, &mut |start, end| {
                        runs.push((start, end));
                    });
                    runs.reverse();
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_read_from_the_lowest_on() {
        let key = Key::new(1 << 20, KeyType::FREE_SPACE_BITMAP, 16 * 4096);
        let mut runs = Vec::new();
        bitmap_runs(key, &[0b1000_0110, 0b1000_0001], 4096, &mut |start, end| {
            runs.push(((start - (1 << 20)) / 4096, (end - (1 << 20)) / 4096));
        });
        assert_eq!(runs, [(1, 3), (7, 9), (15, 16)]);
    }
}
