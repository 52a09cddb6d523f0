//! The scrub of one device: its superblocks, then its stripes in physical order.

use std::ops::ControlFlow;
use std::sync::Arc;

use ubtrfs_device::{BlockDevice, ChunkStripe, MappedChunk, STRIPE_LEN, ScrubCounts};
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::ids::{DevId, Logical};

use super::extents::extents_in;
use super::pace::Pace;
use super::repair::{Copy, Place};
use super::shared::Shared;
use super::unit::{Defect, Unit, Verifier};
use super::window::{Bad, Strip, StripBytes};

/// Number of strips that are listed and read together.
const STRIPS: u64 = 16;

/// The scrub of one device in progress.
#[derive(Debug)]
pub(super) struct DevicePass<'s> {
    pub(super) shared: &'s Shared<'s>,
    pub(super) devid: DevId,
    pub(super) block: Arc<dyn BlockDevice>,
    /// Everything before this offset is scrubbed.
    pub(super) start: u64,
    pub(super) pace: Pace,
}

impl<'s> DevicePass<'s> {
    pub(super) fn new(
        shared: &'s Shared<'s>,
        devid: DevId,
        block: Arc<dyn BlockDevice>,
        start: u64,
    ) -> DevicePass<'s> {
        DevicePass {
            shared,
            devid,
            block,
            start,
            pace: Pace::new(),
        }
    }

    /// Scrubs the device. Breaks if the scrub was cancelled.
    pub(super) fn run(mut self) -> ControlFlow<()> {
        self.check_superblocks();
        let mut from = 0;
        while let Some((chunk, index)) = self.next_stripe(from) {
            let physical = chunk.stripes()[index].physical.0;
            if chunk.has_parity() {
                self.scrub_rows(&chunk, index)?;
            } else {
                self.scrub_stripe(&chunk, index)?;
            }
            from = physical + 1;
        }
        ControlFlow::Continue(())
    }

    /// Returns the first stripe of the device at or after an offset. Chunks may be added and removed during the scrub.
    fn next_stripe(&self, from: u64) -> Option<(Arc<MappedChunk>, usize)> {
        let chunks = self.shared.pool().chunk_map().all();
        let mut next: Option<(u64, Arc<MappedChunk>, usize)> = None;
        for chunk in chunks.iter() {
            for (index, stripe) in chunk.stripes().iter().enumerate() {
                let physical = stripe.physical.0;
                let is_ahead = physical >= from
                    && physical + chunk.stripe_bytes() > self.start
                    && next.as_ref().is_none_or(|(least, ..)| physical < *least);
                if stripe.devid == self.devid && is_ahead && self.is_scrubbed_here(chunk, stripe) {
                    next = Some((physical, Arc::clone(chunk), index));
                }
            }
        }
        next.map(|(_, chunk, index)| (chunk, index))
    }

    /// Returns whether this thread scrubs a stripe. The rows of a chunk with parity are scrubbed once, by the first
    /// scrubbed device that has a stripe of it.
    fn is_scrubbed_here(&self, chunk: &MappedChunk, stripe: &ChunkStripe) -> bool {
        if !chunk.has_parity() {
            return true;
        }
        let stripes = chunk.stripes().iter();
        let first = stripes
            .filter(|of| self.shared.is_scrubbed(of.devid))
            .filter(|of| self.shared.pool().stripe_device(of).is_some())
            .map(|of| of.devid)
            .min();
        first == Some(stripe.devid)
    }

    fn scrub_stripe(&mut self, chunk: &MappedChunk, index: usize) -> ControlFlow<()> {
        let stripe = &chunk.stripes()[index];
        let (mirror, unit) = match chunk.profile() {
            Profile::Raid0 => (1, index as u64),
            Profile::Raid10 => (index % 2 + 1, index as u64 / 2),
            _ => (index + 1, 0),
        };
        let data = chunk.data_stripes() as u64;
        let rows = chunk.stripe_bytes().div_ceil(STRIPE_LEN);
        let done = self.start.saturating_sub(stripe.physical.0) / STRIPE_LEN;
        let mut row = done.min(rows);
        while row < rows {
            let strips = (row..rows.min(row + STRIPS)).filter_map(|row| {
                let offset = (row * data + unit) * STRIPE_LEN;
                let left = chunk.len_bytes().checked_sub(offset)?;
                let physical = stripe.physical.0 + row * STRIPE_LEN;
                let logical = chunk.logical().0 + offset;
                (left > 0).then(|| Strip::new(logical, left.min(STRIPE_LEN), physical))
            });
            let strips: Vec<Strip> = strips.collect();
            if self.shared.is_cancelled() {
                return ControlFlow::Break(());
            }
            self.scrub_strips(chunk, mirror, strips);
            row += STRIPS;
        }
        ControlFlow::Continue(())
    }

    fn scrub_strips(&mut self, chunk: &MappedChunk, mirror: usize, mut strips: Vec<Strip>) {
        let (Some(first), Some(last)) = (strips.first(), strips.last()) else {
            return;
        };
        let shared = self.shared;
        let roots = shared.roots;
        // SCRUB-1
        let state = roots.committed_state();
        let mut counts = ScrubCounts::default();
        let nodesize = roots.node_store().nodesize() as u64;
        let range = first.logical..last.end();
        let extents = match extents_in(&state, nodesize, &range) {
            Ok(extents) => extents,
            Err(error) => {
                for strip in &strips {
                    let place = (self.devid, strip.logical, strip.len, strip.physical);
                    shared.add_unverified(place, &error, &mut counts);
                }
                Vec::new()
            }
        };
        for strip in &mut strips {
            if let Err(error) = strip.list(roots, &state, &extents, &mut counts) {
                let place = (self.devid, strip.logical, strip.len, strip.physical);
                shared.add_unverified(place, &error, &mut counts);
            }
        }
        strips.retain(|strip| !strip.units.is_empty());
        let end = strips.last().map_or(0, |strip| strip.physical + strip.len);
        let bytes = StripBytes::read(&*self.block, &strips, roots.sectorsize());
        let verifier = Verifier {
            context: roots.node_store().context(),
        };
        for (index, strip) in strips.iter().enumerate() {
            let mut bad = bytes.bad_units(index, strip, &verifier);
            bad.extend(self.bad_cut_units(strip, mirror, &verifier));
            let place = Place {
                chunk,
                copy: Copy::Mirror(mirror),
                devid: self.devid,
                logical: strip.logical,
                physical: strip.physical,
            };
            shared.repair(&place, &bad, &verifier, &mut counts);
        }
        drop(state);
        shared.advance(self.devid, &counts, end);
        let read = counts.data_bytes + counts.tree_bytes;
        self.pace.wait(read, &shared.options.control);
    }

    /// Verifies tree blocks that continue on another stripe, which only volumes converted from others have.
    fn bad_cut_units(&self, strip: &Strip, mirror: usize, verifier: &Verifier<'_>) -> Vec<Bad> {
        let cut = strip.units.iter().filter(|unit| strip.is_cut(unit));
        let bad = cut.filter_map(|unit: &Unit| {
            let mut bytes = vec![0; unit.len];
            let pool = self.shared.pool();
            let read = pool.read_mirror(Logical(unit.logical), &mut bytes, mirror);
            let defect = match read {
                Ok(()) => verifier.defect(unit, &bytes)?,
                Err(_) => Defect::Read {
                    sectors: unit.len as u64 / self.shared.roots.sectorsize(),
                },
            };
            Some(Bad {
                unit: unit.clone(),
                defect,
            })
        });
        bad.collect()
    }
}
