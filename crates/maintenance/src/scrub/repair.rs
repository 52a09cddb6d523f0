//! Repair of damaged units from other copies, or from the other members of their row.

use ubtrfs_device::{MappedChunk, STRIPE_LEN, ScrubCounts};
use ubtrfs_format::ids::{DevId, Logical, Physical};

use super::report::{Damage, DamageKind};
use super::shared::Shared;
use super::unit::{UnitKind, Verifier};
use super::window::Bad;

/// The copy that is scrubbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copy {
    /// A mirror, counted from 1.
    Mirror(usize),
    /// The direct copy of data in a chunk with parity.
    Direct,
}

/// The place of the damaged units of one strip.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'p> {
    pub(super) chunk: &'p MappedChunk,
    pub(super) copy: Copy,
    pub(super) devid: DevId,
    /// Address and offset on the device of the strip.
    pub(super) logical: u64,
    pub(super) physical: u64,
}

/// A repaired unit: its address, and its bytes.
pub(super) type Repaired = (u64, Vec<u8>);

impl Shared<'_> {
    /// Repairs the damaged units of a strip, and counts and lists the results. Returns the units with good bytes, written
    /// or not.
    pub(super) fn repair(
        &self,
        place: &Place<'_>,
        bad: &[Bad],
        verifier: &Verifier<'_>,
        counts: &mut ScrubCounts,
    ) -> Vec<Repaired> {
        let mut repaired = Vec::new();
        let mut rest = bad;
        while !rest.is_empty() {
            let joined = rest
                .windows(2)
                .take_while(|pair| pair[0].unit.end() == pair[1].unit.logical)
                .count();
            let (run, after) = rest.split_at(joined + 1);
            rest = after;
            let good = self.find_good(place, run, verifier);
            self.write_run(place, run, &good, counts);
            let pairs = run.iter().zip(good);
            repaired.extend(pairs.filter_map(|(bad, good)| Some((bad.unit.logical, good?))));
        }
        repaired
    }

    /// Returns the good bytes of adjacent units, as far as another copy has them.
    fn find_good(
        &self,
        place: &Place<'_>,
        run: &[Bad],
        verifier: &Verifier<'_>,
    ) -> Vec<Option<Vec<u8>>> {
        let start = run[0].unit.logical;
        let len = (run[run.len() - 1].unit.end() - start) as usize;
        let mut found: Vec<Option<Vec<u8>>> = vec![None; run.len()];
        let mut buffer = vec![0; len];
        let skipped = match place.copy {
            Copy::Mirror(own) => own,
            Copy::Direct => 1,
        };
        for mirror in (1..=place.chunk.mirrors()).filter(|mirror| *mirror != skipped) {
            if found.iter().all(Option::is_some) {
                break;
            }
            let read = self.pool().read_mirror(Logical(start), &mut buffer, mirror);
            for (bad, found) in run.iter().zip(&mut found) {
                if found.is_some() {
                    continue;
                }
                let unit = &bad.unit;
                let at = (unit.logical - start) as usize;
                let bytes = &mut buffer[at..at + unit.len];
                // A sector that cannot be read must not hide the other ones.
                let is_read = read.is_ok()
                    || self
                        .pool()
                        .read_mirror(Logical(unit.logical), bytes, mirror)
                        .is_ok();
                // SCRUB-2
                let is_accepted = match unit.kind {
                    UnitKind::Unsummed => self.is_exclusive,
                    _ => verifier.defect(unit, bytes).is_none(),
                };
                if is_read && is_accepted {
                    *found = Some(bytes.to_vec());
                }
            }
        }
        found
    }

    /// Writes the good units, and counts and lists all.
    fn write_run(
        &self,
        place: &Place<'_>,
        run: &[Bad],
        good: &[Option<Vec<u8>>],
        counts: &mut ScrubCounts,
    ) {
        for (bad, good) in run.iter().zip(good) {
            let sectors = self.count(place.devid, &bad.unit, &bad.defect, counts);
            let is_repaired = match good {
                None => false,
                // SCRUB-3
                Some(_) if !self.writes() => true,
                Some(bytes) => self.write(place, bad.unit.logical, bytes),
            };
            if is_repaired {
                counts.corrected_errors += sectors;
                continue;
            }
            counts.uncorrectable_errors += sectors;
            let physical = Physical(place.physical + (bad.unit.logical - place.logical));
            self.add_damage(place.devid, physical, &bad.unit, &bad.defect);
        }
    }

    /// Writes good bytes to the scrubbed copy. Returns whether they are written.
    fn write(&self, place: &Place<'_>, logical: u64, bytes: &[u8]) -> bool {
        // A mark of a maker, found in a tree since the scrub began, forbids writes.
        if self.roots.refuse_marks().is_err() {
            return false;
        }
        let written = match place.copy {
            Copy::Mirror(mirror) => self.pool().repair_mirror(Logical(logical), bytes, mirror),
            // MIRROR-REPAIR-4
            Copy::Direct if !self.is_exclusive => Ok(false),
            Copy::Direct => {
                let offset = logical - place.chunk.logical().0;
                let member = place.chunk.row_member(offset);
                let within = offset % STRIPE_LEN;
                self.pool()
                    .repair_row_member(Logical(logical), member, within, bytes)
            }
        };
        match written {
            Ok(is_written) => is_written,
            Err(error) => {
                tracing::warn!(logical, %error, "a damaged copy stays damaged");
                false
            }
        }
    }

    /// Counts and lists a range that cannot be verified, because its extents or checksums are unreadable.
    pub(super) fn add_unverified(
        &self,
        place: (DevId, u64, u64, u64),
        error: &ubtrfs_storage::Error,
        counts: &mut ScrubCounts,
    ) {
        let (devid, logical, len, physical) = place;
        counts.unverified_errors += len / self.roots.sectorsize();
        self.damage.lock().push(Damage {
            kind: DamageKind::Unverified,
            logical,
            len_bytes: len,
            device_id: devid.0,
            physical,
            message: error.to_string(),
        });
    }
}
