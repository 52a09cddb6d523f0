//! A cache for `statfs`.
//!
//! Not here: the computation (`inspect`).

use parking_lot::Mutex;
use ubtrfs_format::ids::Transid;
use ubtrfs_storage::TransactionManager;
use ubtrfs_storage::space::SpaceTotals;

use crate::error::Result;

/// Sizes in bytes, as `statfs` reports them for btrfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    pub block_size: u32,
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub available_bytes: u64,
}

/// The state of a writable volume that a cached result depends on.
#[derive(Clone, Debug)]
struct AsOf {
    committed: Transid,
    totals: Vec<SpaceTotals>,
}

impl PartialEq for AsOf {
    fn eq(&self, other: &AsOf) -> bool {
        // Ignores reservations, which change with each operation.
        let shown = |sums: &SpaceTotals| {
            (
                sums.kind,
                sums.total,
                sums.used,
                sums.pinned,
                sums.free_bytes,
            )
        };
        let same = |(a, b): (&SpaceTotals, &SpaceTotals)| shown(a) == shown(b);
        self.committed == other.committed
            && self.totals.len() == other.totals.len()
            && self.totals.iter().zip(&other.totals).all(same)
    }
}

/// The last result of `statfs`. Programs call it repeatedly, and there may be thousands of block groups.
#[derive(Debug, Default)]
pub(crate) struct KnownStatFs(Mutex<Option<(Option<AsOf>, StatFs)>>);

impl KnownStatFs {
    /// Returns the cached result, or calls `compute` if the space has changed since. `manager` is the manager of a
    /// writable volume.
    pub(crate) fn get_or(
        &self,
        manager: Option<&TransactionManager>,
        compute: impl FnOnce() -> Result<StatFs>,
    ) -> Result<StatFs> {
        let as_of = manager.map(|manager| AsOf {
            committed: manager.committed(),
            totals: manager.space.totals(),
        });
        if let Some((known, statfs)) = &*self.0.lock()
            && *known == as_of
        {
            return Ok(*statfs);
        }
        let statfs = compute()?;
        *self.0.lock() = Some((as_of, statfs));
        Ok(statfs)
    }
}
