//! The allocation of object ids in a tree.

use std::sync::atomic::{AtomicU64, Ordering};

use ubtrfs_format::ids::RootId;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_tree::View;

use crate::error::{Error, Result};

#[derive(Debug, Default)]
pub(super) struct ObjectIds {
    /// The next id; 0 until the tree is written to.
    next: AtomicU64,
}

impl ObjectIds {
    /// Allocates an id greater than all in `view` at the first call, and than all allocated since.
    pub(super) fn take(&self, view: &View) -> Result<u64> {
        self.note(view)?;
        let give_out = |id: u64| (id <= RootId::LAST_FREE).then(|| id + 1);
        self.next
            .try_update(Ordering::Relaxed, Ordering::Relaxed, give_out)
            .map_err(|_| Error::NoSpace)
    }

    /// Notes the highest id in use.
    pub(super) fn note(&self, view: &View) -> Result<()> {
        if self.next.load(Ordering::Relaxed) != 0 {
            return Ok(());
        }
        let above = highest(view)?.saturating_add(1);
        let first = above.max(RootId::FIRST_FREE);
        // Another thread may have set it first.
        let _ = self
            .next
            .compare_exchange(0, first, Ordering::Relaxed, Ordering::Relaxed);
        Ok(())
    }
}

fn highest(view: &View) -> Result<u64> {
    let mut cursor = view.cursor();
    let end = Key::new(RootId::LAST_FREE, KeyType(u8::MAX), u64::MAX);
    cursor.seek_floor(&end)?;
    Ok(cursor.current().map_or(0, |(key, _)| key.objectid))
}
