//! Copies of data extents, verified where there are checksums.
//!
//! A sector that matches its checksum on no device is copied as it is. Its checksum moves with it, so the damage stays
//! visible at the same place of the file.

use ubtrfs_format::ids::Logical;

use super::CopiedExtent;
use crate::csum_tree::{RangeCsums, data_csums};
use crate::error::Result;
use crate::transaction::manager::TransactionManager;

/// The length of one read and one write.
const COPY_BYTES: u64 = 1 << 20;

impl TransactionManager {
    /// Copies a data extent of a closed group to newly allocated space. Returns the copy and the damaged sectors.
    pub(super) fn copy_extent(
        &self,
        old: Logical,
        len: u64,
    ) -> Result<(CopiedExtent, Vec<Logical>)> {
        self.release_freed();
        self.space.reserve_data(len)?;
        let allocated = self
            .space
            .allocate_data(len, len, None, self.running_transid());
        let (new, _) = allocated.inspect_err(|_| self.space.release_data(len))?;
        let copy = CopiedExtent { old, new, len };
        match self.copy_bytes(copy) {
            Ok(damaged) => Ok((copy, damaged)),
            Err(error) => {
                // RELOCATION-1
                self.space.release(new, len);
                Err(error)
            }
        }
    }

    fn copy_bytes(&self, copy: CopiedExtent) -> Result<Vec<Logical>> {
        let sectorsize = self.roots.sectorsize();
        let mut damaged = Vec::new();
        let mut buf = Vec::new();
        let mut done = 0;
        while done < copy.len {
            let part = (copy.len - done).min(COPY_BYTES);
            buf.resize(part as usize, 0);
            let from = Logical(copy.old.0 + done);
            // If the extent is freed now, its space is not discarded between the two reads.
            let _epoch = self.roots.node_store().epoch();
            // The group is closed and its extents are referenced, so neither the data nor its sums change.
            let csums = data_csums(&self.roots, from, (part / sectorsize) as usize)?;
            self.read_part(from, &csums, &mut buf, &mut damaged)?;
            let to = Logical(copy.new.0 + done);
            let writes: [(Logical, &[u8]); 1] = [(to, &buf)];
            if csums.first_missing().is_none() {
                self.write_data(&writes)?;
            } else {
                self.write_unsummed_data(&writes)?;
            }
            self.counters.count_data(part);
            done += part;
        }
        Ok(damaged)
    }

    /// Reads a part of an extent. Adds sectors without a sound copy to `damaged`.
    fn read_part(
        &self,
        from: Logical,
        csums: &RangeCsums,
        buf: &mut [u8],
        damaged: &mut Vec<Logical>,
    ) -> Result<()> {
        let pool = self.roots.pool();
        let sectorsize = self.roots.sectorsize() as usize;
        let mut is_good =
            |index: usize, sector: &[u8]| !csums.has(index) || csums.matches(index, sector);
        if pool
            .read_checked(from, buf, sectorsize, &mut is_good)
            .is_ok()
        {
            return Ok(());
        }
        for (index, sector) in buf.chunks_mut(sectorsize).enumerate() {
            let at = Logical(from.0 + (index * sectorsize) as u64);
            let mut is_good =
                |_: usize, sector: &[u8]| !csums.has(index) || csums.matches(index, sector);
            if pool
                .read_checked(at, sector, sectorsize, &mut is_good)
                .is_ok()
            {
                continue;
            }
            self.read_damaged(at, sector, csums.has(index))?;
            damaged.push(at);
        }
        Ok(())
    }

    /// Reads a sector from any device, without verification. If no device returns it, a sector with a checksum becomes
    /// zeros, which do not match it.
    fn read_damaged(&self, at: Logical, sector: &mut [u8], has_csum: bool) -> Result<()> {
        let pool = self.roots.pool();
        let mut failure = None;
        for mirror in 1..=pool.mirrors(at)? {
            match pool.read_mirror(at, sector, mirror) {
                Ok(()) => return Ok(()),
                Err(error) => failure = Some(error),
            }
        }
        sector.fill(0);
        match failure {
            Some(error) if !has_csum => Err(error.into()),
            _ => Ok(()),
        }
    }
}
