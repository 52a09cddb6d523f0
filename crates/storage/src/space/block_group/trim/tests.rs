//! States of free space, compared with a list of sectors.

use std::sync::Arc;

use ubtrfs_format::ids::Transid;
use ubtrfs_sim::{Rng, seed};

use super::*;
use crate::space::block_group::NewGroup;
use crate::space::free_space::ExtentRequest;
use crate::space::space_info::SpaceInfo;
use crate::space::test_volume::{FakeSource, MIB, SECTOR};

const START: u64 = 64 * MIB;
const LEN: u64 = 32 * MIB;
const SECTORS: usize = (LEN / SECTOR) as usize;
const SUPERBLOCK: Range<u64> = START + MIB..START + MIB + (64 << 10);

/// The state of a sector in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sector {
    Used,
    Pinned,
    Trimmed,
    Untrimmed,
    Out,
    Superblock,
}

struct Rig {
    group: Arc<BlockGroup>,
    info: Arc<SpaceInfo>,
    source: FakeSource,
    sectors: Vec<Sector>,
    saved: u64,
}

fn sectors_of(range: &Range<u64>) -> Range<usize> {
    ((range.start - START) / SECTOR) as usize..((range.end - START) / SECTOR) as usize
}

impl Rig {
    fn new(flags: BlockGroupFlags) -> Rig {
        let info: Arc<SpaceInfo> = Arc::default();
        info.trims.set_tracks(true, false);
        let new = NewGroup {
            start: Logical(START),
            len: LEN,
            flags,
            used: 0,
            superblocks: vec![SUPERBLOCK],
        };
        let group = BlockGroup::new(new, Some(Transid(7)), SECTOR, Arc::clone(&info));
        let mut sectors = vec![Sector::Trimmed; SECTORS];
        sectors[sectors_of(&SUPERBLOCK)].fill(Sector::Superblock);
        Rig {
            group,
            info,
            source: FakeSource::default(),
            sectors,
            saved: 0,
        }
    }

    fn runs_of(&self, is_of: impl Fn(Sector) -> bool) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (index, &sector) in self.sectors.iter().enumerate() {
            let at = START + index as u64 * SECTOR;
            if is_of(sector) {
                match runs.last_mut() {
                    Some(last) if last.end == at => last.end += SECTOR,
                    _ => runs.push(at..at + SECTOR),
                }
            }
        }
        runs
    }

    fn set(&mut self, range: &Range<u64>, from: &[Sector], to: Sector) {
        for sector in &mut self.sectors[sectors_of(range)] {
            assert!(from.contains(sector), "{sector:?} becomes {to:?}");
            *sector = to;
        }
    }

    fn allocate(&mut self, wanted: &ExtentRequest) -> Option<Range<u64>> {
        let (start, len) = self.group.allocate(wanted, &self.source)?;
        let range = start..start + len;
        let taken = &self.sectors[sectors_of(&range)];
        let untrimmed = taken.iter().filter(|&&sector| sector == Sector::Untrimmed);
        self.saved += untrimmed.count() as u64 * SECTOR;
        self.set(&range, &[Sector::Trimmed, Sector::Untrimmed], Sector::Used);
        Some(range)
    }

    fn check(&self) {
        let bytes = |is_of: fn(Sector) -> bool| -> u64 {
            let runs = self.runs_of(is_of);
            runs.iter().map(|run| run.end - run.start).sum()
        };
        let untrimmed = self.runs_of(|sector| sector == Sector::Untrimmed);
        let trims = &self.info.trims;
        let get = |number: &std::sync::atomic::AtomicU64| number.load(Ordering::Relaxed);
        // TRIM-TOTALS-1
        assert_eq!(get(&trims.extents), untrimmed.len() as u64);
        assert_eq!(
            get(&trims.bytes),
            bytes(|sector| sector == Sector::Untrimmed)
        );
        assert_eq!(get(&trims.saved), self.saved);
        // TRIM-3
        let room =
            bytes(|sector| matches!(sector, Sector::Trimmed | Sector::Untrimmed | Sector::Out));
        assert_eq!(self.info.free_bytes(), room);
        let state = self.group.state.lock();
        // TRIM-1
        assert_eq!(waiting_runs(&state.trim.waiting), untrimmed);
        let Free::Loaded(free) = &state.free else {
            panic!("it was made loaded");
        };
        let free_runs =
            self.runs_of(|sector| matches!(sector, Sector::Trimmed | Sector::Untrimmed));
        assert_eq!(runs(free), free_runs);
    }
}

fn waiting_runs(waiting: &Waiting) -> Vec<Range<u64>> {
    match waiting {
        Waiting::Few { ranges, .. } => ranges.iter().collect(),
        Waiting::Many(free) => runs(free),
    }
}

fn runs(space: &FreeSpace) -> Vec<Range<u64>> {
    let mut runs = Vec::new();
    let mut from = START;
    while let Some((start, len)) = space.next_run(from, SECTOR) {
        from = start + len;
        runs.push(start..from);
    }
    runs
}

// TRIM-2, and everything that `Rig::check` compares.
#[test]
fn states_agree_with_a_list_of_sectors() {
    let mut rng = Rng::new(seed("states_agree_with_a_list_of_sectors"));
    let mut rig = Rig::new(BlockGroupFlags::DATA);
    let mut used: Vec<Range<u64>> = Vec::new();
    let mut pinned: Vec<Range<u64>> = Vec::new();
    let mut out: Vec<TrimRegion> = Vec::new();
    for round in 0..4000 {
        match rng.below(10) {
            0..=3 => {
                let most = if round % 400 < 200 { 8 } else { 300 };
                let wanted = ExtentRequest {
                    bytes: (1 + rng.below(most)) * SECTOR,
                    min_bytes: SECTOR,
                    align: SECTOR,
                    hint: Some(START + rng.below(LEN)),
                };
                used.extend(rig.allocate(&wanted));
            }
            4..=6 if !used.is_empty() => {
                let range = used.swap_remove(rng.below(used.len() as u64) as usize);
                if rng.one_in(3) {
                    rig.group.release(range.start, range.end - range.start);
                    rig.set(&range, &[Sector::Used], Sector::Untrimmed);
                } else {
                    rig.group.pin(range.start, range.end - range.start);
                    rig.set(&range, &[Sector::Used], Sector::Pinned);
                    pinned.push(range);
                }
            }
            7 => {
                pinned.sort_by_key(|range| range.start);
                rig.group.unpin(&pinned);
                for range in pinned.drain(..) {
                    rig.set(&range, &[Sector::Pinned], Sector::Untrimmed);
                }
            }
            8 => {
                let max = (1 + rng.below(64)) * SECTOR;
                let min = rng.below(16) * SECTOR;
                let untrimmed = rig.runs_of(|sector| sector == Sector::Untrimmed);
                let longest = untrimmed.iter().map(|run| run.end - run.start).max();
                let region = if rng.one_in(4) {
                    let from = START + rng.below(LEN);
                    let range = from..START + LEN;
                    rig.group.take_free_run(&range, min, max, &rig.source)
                } else {
                    let taken = rig.group.take_longest_untrimmed(min, max, &rig.source);
                    assert_eq!(taken.is_some(), longest.is_some_and(|len| len >= min));
                    taken
                };
                if let Some(region) = region {
                    assert!(region.len <= max + SHORT_REST);
                    let range = region.start.0..region.end();
                    let free = [Sector::Trimmed, Sector::Untrimmed];
                    rig.set(&range, &free, Sector::Out);
                    out.push(region);
                }
            }
            _ if !out.is_empty() => {
                let region = out.swap_remove(rng.below(out.len() as u64) as usize);
                let is_trimmed = !rng.one_in(4);
                rig.group.put_back(&region, is_trimmed);
                let range = region.start.0..region.end();
                let to = if is_trimmed {
                    Sector::Trimmed
                } else {
                    Sector::Untrimmed
                };
                rig.set(&range, &[Sector::Out], to);
            }
            _ => {}
        }
        rig.check();
    }
    for region in out {
        rig.group.put_back(&region, true);
        rig.set(
            &(region.start.0..region.end()),
            &[Sector::Out],
            Sector::Trimmed,
        );
    }
    while let Some(region) = rig.group.take_longest_untrimmed(0, 0, &rig.source) {
        rig.group.put_back(&region, true);
        rig.set(
            &(region.start.0..region.end()),
            &[Sector::Untrimmed],
            Sector::Trimmed,
        );
    }
    rig.check();
    assert!(rig.group.state.lock().trim.waiting.is_empty());
}

fn wanted(bytes: u64) -> ExtentRequest {
    ExtentRequest {
        bytes,
        min_bytes: bytes,
        align: SECTOR,
        hint: None,
    }
}

#[test]
fn group_is_listed_once_until_it_was_looked_at_to_the_end() {
    let mut rig = Rig::new(BlockGroupFlags::DATA);
    let first = rig.allocate(&wanted(2 * MIB)).unwrap();
    let second = rig.allocate(&wanted(2 * MIB)).unwrap();
    let last = rig.allocate(&wanted(MIB)).unwrap();
    rig.group.release(first.start, 2 * MIB);
    rig.group.release(second.start, 2 * MIB);
    assert_eq!(rig.info.trims.take_listed(), [Logical(START)]);
    let region = rig.group.take_longest_untrimmed(MIB, 0, &rig.source);
    rig.group.put_back(&region.unwrap(), true);
    rig.group.release(last.start, MIB / 2);
    assert!(!rig.info.trims.has_listed());
    assert_eq!(rig.group.take_longest_untrimmed(MIB, 0, &rig.source), None);
    rig.group.release(last.start + MIB / 2, MIB / 2);
    assert_eq!(rig.info.trims.take_listed(), [Logical(START)]);
}

#[test]
fn metadata_is_kept_only_if_asked_for_but_listed_once_empty() {
    let mut rig = Rig::new(BlockGroupFlags::METADATA);
    let first = rig.allocate(&wanted(MIB)).unwrap();
    let second = rig.allocate(&wanted(MIB)).unwrap();
    rig.group.release(first.start, MIB);
    assert!(!rig.info.trims.has_listed());
    assert_eq!(rig.group.longest_untrimmed(), 0);
    rig.group.release(second.start, MIB);
    assert_eq!(rig.info.trims.take_listed(), [Logical(START)]);
    rig.group.queue_unproven(&rig.source);
    assert_eq!(rig.group.longest_untrimmed(), START + LEN - SUPERBLOCK.end);
    rig.info.trims.set_tracks(true, true);
    assert_eq!(rig.group.take_longest_untrimmed(LEN, 0, &rig.source), None);
    let (again, _) = rig.group.allocate(&wanted(MIB), &rig.source).unwrap();
    rig.group.release(again, MIB);
    assert!(rig.info.trims.has_listed());
}

#[test]
fn space_freed_while_nothing_is_kept_makes_the_group_unproven() {
    let mut rig = Rig::new(BlockGroupFlags::DATA);
    let range = rig.allocate(&wanted(MIB)).unwrap();
    rig.info.trims.set_tracks(false, false);
    rig.group.release(range.start, MIB);
    assert_eq!(rig.group.longest_untrimmed(), 0);
    assert!(rig.group.may_be_untrimmed());
    rig.info.trims.set_tracks(true, false);
    rig.group.queue_unproven(&rig.source);
    assert_eq!(rig.group.longest_untrimmed(), START + LEN - SUPERBLOCK.end);
}

#[test]
fn space_freed_before_its_group_is_loaded_waits_as_well() {
    let info: Arc<SpaceInfo> = Arc::default();
    info.trims.set_tracks(true, false);
    let new = NewGroup {
        start: Logical(START),
        len: LEN,
        flags: BlockGroupFlags::DATA,
        used: 3 * MIB,
        superblocks: vec![SUPERBLOCK],
    };
    let source = FakeSource::default();
    source.set_used(START + 4 * MIB, MIB);
    source.set_used(START + 8 * MIB, 2 * MIB);
    let group = BlockGroup::new(new, Some(Transid(0)), SECTOR, info);
    group.pin(START + 4 * MIB, MIB);
    group.change_used(-(MIB as i64));
    source.set_free(START + 4 * MIB);
    let freed = START + 4 * MIB..START + 5 * MIB;
    group.unpin(std::slice::from_ref(&freed));
    let region = group.take_longest_untrimmed(0, 0, &source).unwrap();
    assert_eq!(region.start.0..region.end(), freed);
    assert_eq!(group.take_longest_untrimmed(0, 0, &source), None);
    group.put_back(&region, true);
    // The untrimmed space from an earlier mount.
    group.queue_unproven(&source);
    let region = group.take_longest_untrimmed(0, 0, &source).unwrap();
    assert_eq!(region.start.0..region.end(), START + 10 * MIB..START + LEN);
}

#[test]
fn free_runs_within_a_range_come_in_order_and_are_cut_there() {
    let rig = Rig::new(BlockGroupFlags::DATA);
    let everything = START..START + LEN;
    let next = |range: &Range<u64>, min| {
        let region = rig.group.take_free_run(range, min, 0, &rig.source)?;
        rig.group.put_back(&region, true);
        Some(region.start.0..region.end())
    };
    assert_eq!(next(&everything, SECTOR), Some(START..SUPERBLOCK.start));
    assert_eq!(
        next(&everything, 2 * MIB),
        Some(SUPERBLOCK.end..START + LEN)
    );
    let part = START + MIB / 2..START + 4 * MIB;
    assert_eq!(next(&part, SECTOR), Some(part.start..SUPERBLOCK.start));
    assert_eq!(next(&part, 2 * MIB), Some(SUPERBLOCK.end..part.end));
    assert_eq!(next(&part, 3 * MIB), None);
    assert_eq!(next(&everything, LEN), None);
}
