//! What `statfs` says.

use parking_lot::Mutex;
use ubtrfs_format::ids::Transid;

use super::Volume;
use crate::error::Result;
use crate::inspect::data_copies;
use crate::space::SpaceTotals;

/// Sizes in bytes, as `statfs` reports them for btrfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    pub block_size: u32,
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub available_bytes: u64,
}

/// What `statfs` follows from on a volume that is open for writing.
#[derive(Clone, Debug)]
struct AsOf {
    committed: Transid,
    totals: Vec<SpaceTotals>,
}

impl PartialEq for AsOf {
    fn eq(&self, other: &AsOf) -> bool {
        // Not what is reserved, which changes with each operation.
        let shown = |sums: &SpaceTotals| (sums.kind, sums.total, sums.used, sums.pinned, sums.room);
        let same = |(a, b): (&SpaceTotals, &SpaceTotals)| shown(a) == shown(b);
        self.committed == other.committed
            && self.totals.len() == other.totals.len()
            && self.totals.iter().zip(&other.totals).all(same)
    }
}

/// What `statfs` said last: programs ask again and again, and there may be thousands of block groups.
#[derive(Debug, Default)]
pub(super) struct KnownStatFs(Mutex<Option<(Option<AsOf>, StatFs)>>);

impl Volume {
    /// What `statfs` shows on a mount by the kernel: sizes divided by the copies that data has, the reserve
    /// for deletions counted as used.
    pub fn statfs(&self) -> Result<StatFs> {
        let as_of = self.writer().ok().map(|writer| AsOf {
            committed: writer.committed(),
            totals: writer.space.totals(),
        });
        if let Some((known, statfs)) = &*self.known_statfs.0.lock()
            && *known == as_of
        {
            return Ok(*statfs);
        }
        let statfs = self.statfs_anew()?;
        *self.known_statfs.0.lock() = Some((as_of, statfs));
        Ok(statfs)
    }

    fn statfs_anew(&self) -> Result<StatFs> {
        match self.statfs_by_groups() {
            // The trees that tell are not needed to read files.
            Err(error) if self.data.rescue.goes_on_without(&error) => {
                let superblock = self.superblock();
                let (total, used) = (superblock.total_bytes.get(), superblock.bytes_used.get());
                Ok(StatFs {
                    block_size: superblock.sectorsize.get(),
                    total_bytes: total,
                    free_bytes: total.saturating_sub(used),
                    available_bytes: 0,
                })
            }
            outcome => outcome,
        }
    }

    fn statfs_by_groups(&self) -> Result<StatFs> {
        let infos = self.space_infos()?;
        let copies = data_copies(&infos);
        let used = infos.iter().fold(0u64, |sum, info| {
            sum.saturating_add(info.used.saturating_mul(info.copies()))
        });
        let block_size = self.superblock().sectorsize.get();
        let whole = |bytes: u64| bytes - bytes % u64::from(block_size);
        let total = whole(self.superblock().total_bytes.get() / copies);
        let free = total.saturating_sub(whole(used / copies));
        Ok(StatFs {
            block_size,
            total_bytes: total,
            free_bytes: free.saturating_sub(whole(self.global_reserve_bytes()?)),
            available_bytes: whole(self.available_bytes(&infos)),
        })
    }
}
