//! Reading and verifying strips: parts of one stripe, at most `STRIPE_LEN` long.

use ubtrfs_device::{BlockDevice, DeviceRead, ScrubCounts};
use ubtrfs_storage::Result;
use ubtrfs_storage::roots::{CommittedState, Roots};

use super::extents::{Content, Extent};
use super::unit::{Defect, Unit, UnitKind, Verifier, block_unit, data_units};

/// A part of a stripe that is contiguous in the volume and on the device.
#[derive(Clone, Debug)]
pub(super) struct Strip {
    pub(super) logical: u64,
    pub(super) len: u64,
    pub(super) physical: u64,
    /// The units that begin in it, in ascending order.
    pub(super) units: Vec<Unit>,
}

/// A unit with a defect.
#[derive(Debug)]
pub(super) struct Bad {
    pub(super) unit: Unit,
    pub(super) defect: Defect,
}

impl Strip {
    pub(super) fn new(logical: u64, len: u64, physical: u64) -> Strip {
        Strip {
            logical,
            len,
            physical,
            units: Vec::new(),
        }
    }

    pub(super) fn end(&self) -> u64 {
        self.logical + self.len
    }

    /// Lists and counts the units of the extents in the strip. `extents` may have others, too.
    pub(super) fn list(
        &mut self,
        roots: &Roots,
        state: &CommittedState,
        extents: &[Extent],
        counts: &mut ScrubCounts,
    ) -> Result<()> {
        let first = extents.partition_point(|extent| extent.end() <= self.logical);
        let mut run: Option<std::ops::Range<u64>> = None;
        for extent in &extents[first..] {
            if extent.start >= self.end() {
                break;
            }
            if extent.content == Content::Data {
                let part = extent.start.max(self.logical)..extent.end().min(self.end());
                counts.data_extents += 1;
                counts.data_bytes += part.end - part.start;
                match &mut run {
                    Some(run) if run.end == part.start => run.end = part.end,
                    _ => {
                        if let Some(run) = run.replace(part) {
                            data_units(roots, state, run, &mut self.units)?;
                        }
                    }
                }
            } else if extent.start >= self.logical
                && let Some(unit) = block_unit(extent)
            {
                if let Some(run) = run.take() {
                    data_units(roots, state, run, &mut self.units)?;
                }
                counts.tree_extents += 1;
                counts.tree_bytes += extent.len;
                self.units.push(unit);
            }
        }
        if let Some(run) = run {
            data_units(roots, state, run, &mut self.units)?;
        }
        let unsummed = |unit: &&Unit| matches!(unit.kind, UnitKind::Unsummed);
        counts.no_csum += self.units.iter().filter(unsummed).count() as u64;
        Ok(())
    }

    /// Returns whether a unit reaches beyond the strip, so that its rest is on another stripe.
    pub(super) fn is_cut(&self, unit: &Unit) -> bool {
        unit.end() > self.end()
    }

    /// Returns the units within the strip, joined where they touch, as offsets from its start.
    fn runs(&self) -> Vec<std::ops::Range<usize>> {
        let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
        for unit in self.units.iter().filter(|unit| !self.is_cut(unit)) {
            let start = (unit.logical - self.logical) as usize;
            let end = start + unit.len;
            match runs.last_mut() {
                Some(run) if run.end == start => run.end = end,
                _ => runs.push(start..end),
            }
        }
        runs
    }
}

/// The bytes of strips, and the sectors that could not be read.
#[derive(Debug)]
pub(super) struct StripBytes {
    /// The buffer of each strip.
    pub(super) buffers: Vec<Vec<u8>>,
    unread: Vec<Vec<bool>>,
    sectorsize: usize,
}

impl StripBytes {
    /// Reads the units of all strips from a device.
    pub(super) fn read(block: &dyn BlockDevice, strips: &[Strip], sectorsize: u64) -> StripBytes {
        let sectorsize = sectorsize as usize;
        let mut buffers: Vec<Vec<u8>> = strips.iter().map(|s| vec![0; s.len as usize]).collect();
        let mut unread: Vec<Vec<bool>> = Vec::with_capacity(strips.len());
        let mut reads = Vec::new();
        let mut places = Vec::new();
        for (index, (strip, buffer)) in strips.iter().zip(&mut buffers).enumerate() {
            unread.push(vec![false; strip.len as usize / sectorsize]);
            let mut rest: &mut [u8] = buffer;
            let mut at = 0;
            for run in strip.runs() {
                let (_, from) = rest.split_at_mut(run.start - at);
                let (part, after) = from.split_at_mut(run.len());
                at = run.end;
                rest = after;
                reads.push(DeviceRead::new(strip.physical + run.start as u64, part));
                places.push((index, run));
            }
        }
        block.read_batch(&mut reads);
        let outcomes = reads.into_iter().map(|read| read.result.is_err());
        let failed: Vec<_> = places
            .into_iter()
            .zip(outcomes)
            .filter_map(|(place, is_failed)| is_failed.then_some(place))
            .collect();
        for (index, run) in failed {
            for at in run.step_by(sectorsize) {
                let sector = &mut buffers[index][at..at + sectorsize];
                let physical = strips[index].physical + at as u64;
                unread[index][at / sectorsize] = block.read_at(sector, physical).is_err();
            }
        }
        StripBytes {
            buffers,
            unread,
            sectorsize,
        }
    }

    /// Returns the units of a strip with defects. A unit that is cut by the end of the strip is not examined.
    pub(super) fn bad_units(
        &self,
        index: usize,
        strip: &Strip,
        verifier: &Verifier<'_>,
    ) -> Vec<Bad> {
        let mut found = Vec::new();
        for unit in strip.units.iter().filter(|unit| !strip.is_cut(unit)) {
            let start = (unit.logical - strip.logical) as usize;
            let sectors = start / self.sectorsize..(start + unit.len) / self.sectorsize;
            let unread = self.unread[index][sectors].iter().filter(|of| **of).count();
            let defect = if unread > 0 {
                Some(Defect::Read {
                    sectors: unread as u64,
                })
            } else {
                verifier.defect(unit, &self.buffers[index][start..start + unit.len])
            };
            if let Some(defect) = defect {
                found.push(Bad {
                    unit: unit.clone(),
                    defect,
                });
            }
        }
        found
    }
}
