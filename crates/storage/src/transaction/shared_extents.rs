//! Data extents with references that clones have added and that may be missing from the extent tree.

use std::collections::HashMap;

use parking_lot::Mutex;
use ubtrfs_format::ids::{Logical, Transid};

/// Extents to which a clone has added a reference, with its transaction, until that is committed.
#[derive(Debug, Default)]
pub struct SharedExtents {
    added: Mutex<HashMap<Logical, Transid>>,
}

impl SharedExtents {
    pub fn add(&self, extent: Logical, transid: Transid) {
        self.added.lock().insert(extent, transid);
    }

    /// Removes the additions of transactions up to `committed`, because the published extent tree contains them.
    pub(super) fn forget(&self, committed: Transid) {
        let mut added = self.added.lock();
        added.retain(|_, transid| *transid > committed);
        added.shrink_to_fit();
    }

    /// Returns whether there is a reference that the extent tree may lack.
    pub fn contains(&self, extent: Logical) -> bool {
        self.added.lock().contains_key(&extent)
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn len(&self) -> usize {
        self.added.lock().len()
    }
}
