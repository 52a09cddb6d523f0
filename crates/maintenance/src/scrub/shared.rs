//! State that the threads of a scrub share.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use ubtrfs_device::{ErrorCounts, Pool, ScrubCounts};
use ubtrfs_format::check::CorruptBlock;
use ubtrfs_format::ids::{DevId, Physical};
use ubtrfs_storage::roots::Roots;

use super::options::ScrubOptions;
use super::report::{Damage, DamageList};
use super::unit::{Defect, Unit};

const READ: usize = 1;
const CORRUPTION: usize = 3;
const GENERATION: usize = 4;

/// The volume, the options and the findings.
#[derive(Debug)]
pub(super) struct Shared<'s> {
    pub(super) roots: &'s Arc<Roots>,
    pub(super) options: &'s ScrubOptions,
    /// Whether nothing else writes to the volume.
    pub(super) is_exclusive: bool,
    pub(super) damage: Mutex<DamageList>,
    /// Errors to add to the counts of the devices.
    pub(super) errors: Mutex<BTreeMap<DevId, ErrorCounts>>,
}

impl Shared<'_> {
    pub(super) fn pool(&self) -> &Pool {
        self.roots.pool()
    }

    pub(super) fn writes(&self) -> bool {
        !self.options.read_only
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.options.control.is_cancelled()
    }

    /// Adds the counts of a part of a device, which ends at `physical`.
    pub(super) fn advance(&self, devid: DevId, counts: &ScrubCounts, physical: u64) {
        self.options.control.update(devid.0, |device| {
            device.counts = device.counts.plus(counts);
            device.counts.last_physical = device.counts.last_physical.max(physical);
        });
    }

    /// Counts a defect in the counts of the scrub and of the device. Returns the number of damaged sectors.
    pub(super) fn count(
        &self,
        devid: DevId,
        unit: &Unit,
        defect: &Defect,
        counts: &mut ScrubCounts,
    ) -> u64 {
        let sectors = unit.len as u64 / self.roots.sectorsize();
        let (kind, errors) = match defect {
            Defect::Read { sectors } => {
                counts.read_errors += sectors;
                (READ, *sectors)
            }
            Defect::Csum => {
                counts.csum_errors += sectors;
                (CORRUPTION, sectors)
            }
            Defect::Block(corrupt) => {
                counts.verify_errors += sectors;
                match corrupt {
                    CorruptBlock::Generation { .. } => (GENERATION, 1),
                    _ => (CORRUPTION, 1),
                }
            }
        };
        self.add_errors(devid, kind, errors);
        match defect {
            Defect::Read { sectors } => *sectors,
            _ => sectors,
        }
    }

    pub(super) fn add_corruption(&self, devid: DevId) {
        self.add_errors(devid, CORRUPTION, 1);
    }

    fn add_errors(&self, devid: DevId, kind: usize, added: u64) {
        let mut errors = self.errors.lock();
        errors.entry(devid).or_default()[kind] += added;
    }

    /// Lists a unit that stays damaged.
    pub(super) fn add_damage(
        &self,
        devid: DevId,
        physical: Physical,
        unit: &Unit,
        defect: &Defect,
    ) {
        self.damage.lock().push(Damage {
            kind: unit.damage_kind(),
            logical: unit.logical,
            len_bytes: unit.len as u64,
            device_id: devid.0,
            physical: physical.0,
            message: defect.message(),
        });
    }
}
