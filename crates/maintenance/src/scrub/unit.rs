//! The units of verification: data sectors and tree blocks.

use ubtrfs_format::check::{BlockContext, CorruptBlock, Expect, check_block};
use ubtrfs_format::csum::{Csum, CsumType};
use ubtrfs_format::ids::{Logical, RootId};
use ubtrfs_storage::Result;
use ubtrfs_storage::csum_tree::data_csums_of;
use ubtrfs_storage::roots::{CommittedState, Roots};

use super::extents::{Content, Extent};
use super::report::DamageKind;

/// A sector of data, or a tree block.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub(super) logical: u64,
    pub(super) len: usize,
    pub(super) kind: UnitKind,
}

#[derive(Clone, Debug)]
pub(super) enum UnitKind {
    /// Data with its checksum.
    Summed(Csum),
    /// Data without a checksum.
    Unsummed,
    Block(Expect),
}

/// A defect of a unit.
#[derive(Clone, Debug)]
pub(super) enum Defect {
    /// Sectors that cannot be read.
    Read {
        sectors: u64,
    },
    Csum,
    Block(CorruptBlock),
}

impl Unit {
    pub(super) fn end(&self) -> u64 {
        self.logical + self.len as u64
    }

    pub(super) fn damage_kind(&self) -> DamageKind {
        match &self.kind {
            UnitKind::Block(expect) => DamageKind::TreeBlock {
                tree: expect.owner.map(|RootId(id)| id),
            },
            UnitKind::Summed(_) | UnitKind::Unsummed => DamageKind::Data,
        }
    }
}

impl Defect {
    pub(super) fn message(&self) -> String {
        match self {
            Defect::Read { .. } => "it cannot be read".to_owned(),
            Defect::Csum => "its checksum does not match".to_owned(),
            Defect::Block(corrupt) => corrupt.to_string(),
        }
    }
}

/// Verifies units by the properties of the volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verifier<'v> {
    pub(super) context: BlockContext<'v>,
}

impl Verifier<'_> {
    fn csum_type(&self) -> CsumType {
        self.context.csum_type
    }

    /// Returns the defect of a unit, or None.
    pub(super) fn defect(&self, unit: &Unit, bytes: &[u8]) -> Option<Defect> {
        match &unit.kind {
            UnitKind::Unsummed => None,
            UnitKind::Summed(wanted) => {
                let kind = self.csum_type();
                let found = kind.compute(bytes);
                (found.significant(kind) != wanted.significant(kind)).then_some(Defect::Csum)
            }
            UnitKind::Block(expect) => check_block(bytes, &self.context, expect)
                .err()
                .map(Defect::Block),
        }
    }
}

/// Appends the sectors of a data extent that are in a range, with their checksums.
pub(super) fn data_units(
    roots: &Roots,
    state: &CommittedState,
    range: std::ops::Range<u64>,
    units: &mut Vec<Unit>,
) -> Result<()> {
    let sectorsize = roots.sectorsize();
    let sectors = ((range.end - range.start) / sectorsize) as usize;
    let sums = data_csums_of(roots, state, Logical(range.start), sectors)?;
    let size = roots.csum_bytes() as usize;
    for index in 0..sectors {
        let kind = if sums.has(index) {
            UnitKind::Summed(Csum::from_prefix(&sums.bytes()[index * size..][..size]))
        } else {
            UnitKind::Unsummed
        };
        units.push(Unit {
            logical: range.start + index as u64 * sectorsize,
            len: sectorsize as usize,
            kind,
        });
    }
    Ok(())
}

/// Returns the tree block of an extent, if it is one.
pub(super) fn block_unit(extent: &Extent) -> Option<Unit> {
    match extent.content {
        Content::Data => None,
        Content::Block(expect) => Some(Unit {
            logical: extent.start,
            len: extent.len as usize,
            kind: UnitKind::Block(expect),
        }),
    }
}
