//! The trees of a log that was not replayed yet: their blocks are sound, and nobody else has their space.
//!
//! No extent tells of them, and what they hold counts from the replay on: it is not judged here.

use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::item::RootItem;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::View;

use crate::error::CheckError;
use crate::fault::Fault;
use crate::issue::Place;
use crate::roots::Roots;
use crate::state::State;
use crate::volume::CheckedVolume;
use crate::walk::{Lost, TreeRoot, Visited, Visitor, walk};

pub(crate) fn check(
    state: &mut State<'_>,
    volume: &CheckedVolume,
    roots: &Roots,
) -> Result<(), CheckError> {
    let superblock = volume.superblock();
    let extents = roots.tree_root(RootId::EXTENT_TREE);
    if superblock.log_root.get() == 0 || !volume.is_current() {
        return Ok(());
    }
    let mut reader = Reader {
        state,
        extents: extents.map(|root| volume.view(&root)),
        logs: Vec::new(),
    };
    let log_root = TreeRoot {
        tree: RootId::TREE_LOG,
        bytenr: Logical(superblock.log_root.get()),
        level: superblock.log_root_level,
        generation: Some(Transid(superblock.generation.get().saturating_add(1))),
        dropped: None,
    };
    walk(volume, &[log_root], &mut reader)?;
    let logs = std::mem::take(&mut reader.logs);
    walk(volume, &logs, &mut reader)
}

struct Reader<'s, 'a> {
    state: &'s mut State<'a>,
    extents: Option<View>,
    /// What the tree of log roots names.
    logs: Vec<TreeRoot>,
}

impl Visitor for Reader<'_, '_> {
    fn block(&mut self, root: &TreeRoot, block: Visited<'_>) -> Result<(), CheckError> {
        let bytenr = block.node.bytenr().0;
        if self.is_allocated(bytenr) {
            let at = Place::tree(root.tree).at(bytenr);
            self.state.add(at, Fault::LogBlockAllocated {});
        }
        for (key, bytes) in block.node.items() {
            if (key.objectid, key.item_type) == (RootId::TREE_LOG.0, KeyType::ROOT_ITEM)
                && let Some(item) = RootItem::decode(bytes)
            {
                self.logs.push(TreeRoot {
                    tree: RootId::TREE_LOG,
                    bytenr: item.bytenr(),
                    level: item.level,
                    generation: Some(item.transid()),
                    dropped: None,
                });
            }
        }
        Ok(())
    }

    /// What the log says is lost with it; the trees that the next mount begins with are whole.
    fn lost(&mut self, _: &TreeRoot, lost: Lost) -> Result<(), CheckError> {
        self.state
            .add(Place::tree(lost.tree).at(lost.bytenr.0), lost.fault);
        Ok(())
    }
}

impl Reader<'_, '_> {
    /// Whether an extent begins there. A block that cannot be read is told elsewhere.
    fn is_allocated(&self, bytenr: u64) -> bool {
        let Some(view) = &self.extents else {
            return false;
        };
        let mut cursor = view.cursor();
        let from = Key::new(bytenr, KeyType::EXTENT_ITEM, 0);
        cursor.seek(&from).unwrap_or(false)
            && cursor.current().is_some_and(|(key, _)| {
                let is_extent =
                    matches!(key.item_type, KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM);
                key.objectid == bytenr && is_extent
            })
    }
}
