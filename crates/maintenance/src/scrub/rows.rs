//! The scrub of RAID5 and RAID6: each row is read once, its data is verified, then its parity is compared.
//!
//! P and Q of a column of sectors are only compared, and only written, if all data of the column is good. Parity computed
//! from damaged data would destroy the means of its repair.

use std::ops::ControlFlow;
use std::sync::Arc;

use ubtrfs_device::{BlockDevice, MappedChunk, Row, STRIPE_LEN, ScrubCounts, parity};
use ubtrfs_format::ids::{DevId, Logical};

use super::device_pass::DevicePass;
use super::extents::{Extent, extents_in};
use super::repair::{Copy, Place};
use super::unit::Verifier;
use super::window::{Strip, StripBytes};

/// A member of a row.
struct Member {
    devid: DevId,
    physical: u64,
    block: Option<Arc<dyn BlockDevice>>,
    bytes: Vec<u8>,
    /// For each sector: whether its bytes are good.
    is_good: Vec<bool>,
    /// For each sector: whether an extent uses it.
    is_used: Vec<bool>,
    counts: ScrubCounts,
}

impl DevicePass<'_> {
    pub(super) fn scrub_rows(&mut self, chunk: &MappedChunk, index: usize) -> ControlFlow<()> {
        let own = chunk.stripes()[index].physical.0;
        let row_bytes = chunk.data_stripes() as u64 * STRIPE_LEN;
        let rows = chunk.len_bytes().div_ceil(row_bytes);
        let done = self.start.saturating_sub(own) / STRIPE_LEN;
        for number in done.min(rows)..rows {
            if self.shared.is_cancelled() {
                return ControlFlow::Break(());
            }
            self.scrub_row(chunk, number * row_bytes);
        }
        ControlFlow::Continue(())
    }

    fn scrub_row(&mut self, chunk: &MappedChunk, offset: u64) {
        let shared = self.shared;
        let roots = shared.roots;
        let row = chunk.row(offset);
        let start = chunk.logical().0 + offset;
        let end = (start + row.data as u64 * STRIPE_LEN).min(chunk.end().0);
        // SCRUB-1
        let state = roots.committed_state();
        let nodesize = roots.node_store().nodesize() as u64;
        let extents = match extents_in(&state, nodesize, &(start..end)) {
            Ok(extents) if extents.is_empty() => return,
            Ok(extents) => extents,
            Err(error) => {
                let (devid, physical) = chunk.row_place(row, 0, 0);
                let mut counts = ScrubCounts::default();
                let place = (devid, start, end - start, physical.0);
                shared.add_unverified(place, &error, &mut counts);
                shared.advance(devid, &counts, 0);
                return;
            }
        };
        let mut members = self.members(chunk, row);
        let verifier = Verifier {
            context: roots.node_store().context(),
        };
        let mut is_listed = true;
        for (number, member) in members.iter_mut().take(row.data).enumerate() {
            let logical = start + number as u64 * STRIPE_LEN;
            if logical >= end {
                break;
            }
            let mut strip = Strip::new(logical, STRIPE_LEN.min(end - logical), member.physical);
            if let Err(error) = strip.list(roots, &state, &extents, &mut member.counts) {
                let place = (member.devid, logical, strip.len, strip.physical);
                shared.add_unverified(place, &error, &mut member.counts);
                is_listed = false;
                continue;
            }
            self.scrub_member(chunk, &strip, &extents, member, &verifier);
        }
        if is_listed && end - start == row.data as u64 * STRIPE_LEN {
            self.check_parity(Logical(start), row, &mut members);
        }
        drop(state);
        let mut read = 0;
        for member in &members {
            read += member.counts.data_bytes + member.counts.tree_bytes;
            // The others have a place of their own, in stripes without parity.
            let is_own = member.devid == self.devid;
            let physical = if is_own {
                member.physical + STRIPE_LEN
            } else {
                0
            };
            shared.advance(member.devid, &member.counts, physical);
        }
        self.pace.wait(read, &shared.options.control);
    }

    /// Reads all members of a row.
    fn members(&self, chunk: &MappedChunk, row: Row) -> Vec<Member> {
        let sectorsize = self.shared.roots.sectorsize() as usize;
        let sectors = STRIPE_LEN as usize / sectorsize;
        let members = (0..row.members).map(|number| {
            let (devid, physical) = chunk.row_place(row, number, 0);
            let stripe = &chunk.stripes()[row.stripe(number)];
            let block = self.shared.pool().stripe_device(stripe);
            let mut bytes = vec![0; STRIPE_LEN as usize];
            let mut is_good = vec![block.is_some(); sectors];
            if let Some(block) = &block
                && block.read_at(&mut bytes, physical.0).is_err()
            {
                for (at, sector) in bytes.chunks_mut(sectorsize).enumerate() {
                    let at_physical = physical.0 + (at * sectorsize) as u64;
                    is_good[at] = block.read_at(sector, at_physical).is_ok();
                }
            }
            Member {
                devid,
                physical: physical.0,
                block,
                bytes,
                is_good,
                is_used: vec![false; sectors],
                counts: ScrubCounts::default(),
            }
        });
        members.collect()
    }

    /// Verifies and repairs the units of a data member.
    fn scrub_member(
        &self,
        chunk: &MappedChunk,
        strip: &Strip,
        extents: &[Extent],
        member: &mut Member,
        verifier: &Verifier<'_>,
    ) {
        let sectorsize = self.shared.roots.sectorsize();
        let at = |logical: u64| ((logical - strip.logical) / sectorsize) as usize;
        for extent in extents {
            let (from, to) = (
                extent.start.max(strip.logical),
                extent.end().min(strip.end()),
            );
            if from < to {
                member.is_used[at(from)..at(to)].fill(true);
            }
        }
        let Some(block) = &member.block else {
            // A missing device has no copy that could be scrubbed.
            member.counts = ScrubCounts::default();
            return;
        };
        let strips = std::slice::from_ref(strip);
        let bytes = StripBytes::read(&**block, strips, sectorsize);
        let bad = bytes.bad_units(0, strip, verifier);
        for bad in &bad {
            member.is_good[at(bad.unit.logical)..at(bad.unit.end())].fill(false);
        }
        let place = Place {
            chunk,
            copy: Copy::Direct,
            devid: member.devid,
            logical: strip.logical,
            physical: strip.physical,
        };
        let repaired = self
            .shared
            .repair(&place, &bad, verifier, &mut member.counts);
        for (logical, good) in repaired {
            let from = (logical - strip.logical) as usize;
            member.bytes[from..from + good.len()].copy_from_slice(&good);
            member.is_good[at(logical)..at(logical + good.len() as u64)].fill(true);
        }
    }

    /// Compares P and Q with the data, in the columns that an extent uses.
    fn check_parity(&self, logical: Logical, row: Row, members: &mut [Member]) {
        let (data, parities) = members.split_at_mut(row.data);
        let sectorsize = self.shared.roots.sectorsize() as usize;
        let contents: Vec<Vec<u8>> = data
            .iter_mut()
            .map(|member| std::mem::take(&mut member.bytes))
            .collect();
        let wanted = parity(&contents, parities.len());
        for sector in 0..STRIPE_LEN as usize / sectorsize {
            let is_used = data.iter().any(|member| member.is_used[sector]);
            let is_known = data.iter().all(|member| member.is_good[sector]);
            if !is_used || !is_known {
                continue;
            }
            let bytes = sector * sectorsize..(sector + 1) * sectorsize;
            for (number, member) in parities.iter_mut().enumerate() {
                let wanted = &wanted[number][bytes.clone()];
                if member.block.is_none()
                    || member.is_good[sector] && member.bytes[bytes.clone()] == *wanted
                {
                    continue;
                }
                match number {
                    0 => member.counts.p_errors += 1,
                    _ => member.counts.q_errors += 1,
                }
                self.shared.add_corruption(member.devid);
                let place = (row.data + number, bytes.start as u64);
                if self.repair_parity(logical, place, wanted) {
                    member.counts.parity_corrected += 1;
                }
            }
        }
    }

    /// Writes a sector of parity. Returns whether it is repaired, or would be by a scrub that writes.
    fn repair_parity(&self, logical: Logical, place: (usize, u64), wanted: &[u8]) -> bool {
        // SCRUB-3
        if !self.shared.writes() {
            return true;
        }
        // MIRROR-REPAIR-4
        if !self.shared.is_exclusive {
            return false;
        }
        let (member, within) = place;
        let pool = self.shared.pool();
        match pool.repair_row_member(logical, member, within, wanted) {
            Ok(is_written) => is_written,
            Err(error) => {
                tracing::warn!(%logical, %error, "damaged parity stays damaged");
                false
            }
        }
    }
}
