//! Consistency of block groups and chunks.
//!
//! Block groups are in their own tree, or in the extent tree, or in both during a conversion.

use std::collections::BTreeMap;

use ubtrfs_format::features::CompatRo;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::BlockGroupItem;
use ubtrfs_format::key::{Key, KeyType};
use zerocopy::FromBytes;

use crate::error::CheckError;
use crate::fault::Fault;
use crate::issue::Place;
use crate::item_reader::ItemReader;
use crate::roots::Roots;
use crate::space::{GroupItem, Spaces};
use crate::state::State;
use crate::tree_root::TreeRoot;
use crate::volume::CheckedVolume;
use crate::walk::walk;

/// Assigns each chunk its block group, and reports mismatches.
pub(crate) fn check(
    state: &mut State<'_>,
    volume: &CheckedVolume,
    roots: &Roots,
    spaces: &mut Spaces,
) -> Result<(), CheckError> {
    let groups = read(state, volume, roots, spaces)?;
    compare(state, spaces, groups);
    Ok(())
}

type Groups = BTreeMap<u64, GroupItem>;

fn read(
    state: &mut State<'_>,
    volume: &CheckedVolume,
    roots: &Roots,
    spaces: &mut Spaces,
) -> Result<Groups, CheckError> {
    let mut groups = Groups::new();
    let features = volume.superblock().compat_ro();
    let has_tree = features.contains(CompatRo::BLOCK_GROUP_TREE);
    let own_tree = roots.tree_root(RootId::BLOCK_GROUP_TREE);
    let extent_tree = roots.tree_root(RootId::EXTENT_TREE);
    if let (Some(root), false) = (&extent_tree, has_tree) {
        seek(volume, root, spaces, &mut groups);
    }
    if let Some(root) = own_tree {
        let mut reader = GroupReader {
            state,
            groups: &mut groups,
        };
        walk(volume, &[root], &mut reader)?;
    }
    let has_none = if has_tree { own_tree } else { extent_tree }.is_none();
    for space in spaces.all_mut() {
        space.is_group_lost |=
            has_none || state.may_have_lost(RootId::BLOCK_GROUP_TREE, space.start);
    }
    Ok(groups)
}

/// Looks up the block group of each chunk, with one search per chunk, so that the extent items are not read yet.
/// Unreadable blocks are reported when the extents are read.
fn seek(volume: &CheckedVolume, root: &TreeRoot, spaces: &mut Spaces, groups: &mut Groups) {
    let view = volume.view(root);
    let mut cursor = view.cursor();
    for space in spaces.all_mut() {
        let start = space.start;
        let from = Key::new(start, KeyType::BLOCK_GROUP_ITEM, 0);
        match cursor.seek(&from) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(_) => {
                space.is_group_lost = true;
                continue;
            }
        }
        if let Some((key, bytes)) = cursor.current()
            && (key.objectid, key.item_type) == (start, KeyType::BLOCK_GROUP_ITEM)
            && let Some(group) = decode(key, bytes)
        {
            groups.insert(start, group);
        }
    }
}

fn decode(key: Key, bytes: &[u8]) -> Option<GroupItem> {
    let item = BlockGroupItem::ref_from_bytes(bytes).ok()?;
    Some(GroupItem {
        length: key.offset,
        used: item.used.get(),
        flags: item.flags(),
    })
}

struct GroupReader<'s, 'a> {
    state: &'s mut State<'a>,
    groups: &'s mut Groups,
}

impl<'a> ItemReader<'a> for GroupReader<'_, 'a> {
    fn state(&mut self) -> &mut State<'a> {
        self.state
    }

    fn item(&mut self, key: Key, bytes: &[u8]) -> Result<(), CheckError> {
        if key.item_type == KeyType::BLOCK_GROUP_ITEM
            && let Some(group) = decode(key, bytes)
        {
            self.groups.insert(key.objectid, group);
        }
        Ok(())
    }
}

fn compare(state: &mut State<'_>, spaces: &mut Spaces, groups: Groups) {
    let chunks_lost = state.has_lost(RootId::CHUNK_TREE);
    let mut before: Option<(u64, u64)> = None;
    for (start, group) in groups {
        let at = Place::bytenr(start);
        if let Some((other, _)) = before.filter(|(_, end)| *end > start) {
            state.add(at, Fault::BlockGroupOverlap { other });
            continue;
        }
        before = Some((start, start.saturating_add(group.length)));
        let index = spaces.index_of(start);
        let space = index.map(|index| &mut spaces.all_mut()[index]);
        let Some(space) = space.filter(|space| space.start == start) else {
            let length = group.length;
            state.add_unless(chunks_lost, at, Fault::BlockGroupWithoutChunk { length });
            continue;
        };
        space.group = Some(group);
        if (space.length, space.flags) != (group.length, group.flags) {
            let fault = Fault::BlockGroupDiffers {
                length: group.length,
                flags: group.flags.bits(),
                chunk_length: space.length,
                chunk_flags: space.flags.bits(),
            };
            state.add(at, fault);
        }
    }
    for space in spaces.all().iter().filter(|space| space.group.is_none()) {
        let fault = Fault::ChunkWithoutBlockGroup {
            length: space.length,
        };
        let at = Place::bytenr(space.start);
        state.add_unless(space.is_group_lost, at, fault);
    }
}
