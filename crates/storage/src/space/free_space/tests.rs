//! Free space, compared with a plain array of bits.

use ubtrfs_sim::{Rng, seed};

use super::*;

impl FreeSpace {
    /// Returns whether all of `len` bytes are free.
    fn is_free(&self, start: u64, len: u64) -> bool {
        self.units_of(start, len)
            .is_ok_and(|range| self.all_free(&range))
    }

    /// Returns all runs, ascending.
    fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let run = self.run_from(at)?;
            at = run.end;
            let start = self.start + run.start * self.unit_bytes;
            Some((start, (run.end - run.start) * self.unit_bytes))
        })
    }
}

const SECTOR: u64 = 4096;

/// A bit for each sector.
struct Model {
    start: u64,
    free: Vec<bool>,
}

impl Model {
    fn slice(&self, start: u64, len: u64) -> &[bool] {
        let from = ((start - self.start) / SECTOR) as usize;
        &self.free[from..from + (len / SECTOR) as usize]
    }

    fn set(&mut self, start: u64, len: u64, free: bool) {
        let from = ((start - self.start) / SECTOR) as usize;
        self.free[from..from + (len / SECTOR) as usize].fill(free);
    }

    fn runs(&self) -> Vec<(u64, u64)> {
        let mut runs = Vec::new();
        let mut at = 0;
        for run in self.free.chunk_by(|a, b| a == b) {
            if run[0] {
                runs.push((self.start + at * SECTOR, run.len() as u64 * SECTOR));
            }
            at += run.len() as u64;
        }
        runs
    }
}

impl FreeSpace {
    // Checks FREE-1, FREE-2, FREE-3 and FREE-4, and that the runs match the model.
    fn assert_sound(&self, model: &Model) {
        assert_eq!(self.ranges().collect::<Vec<_>>(), model.runs());
        let free = model.free.iter().filter(|free| **free).count() as u64;
        assert_eq!(self.free_bytes(), free * SECTOR);
        let longest = model.runs().iter().map(|run| run.1).max().unwrap_or(0);
        assert_eq!(self.max_extent_bytes(), longest);
        assert_eq!(self.run_count(), model.runs().len() as u64);
        let mut last_end = None;
        for (&start, &end) in &self.extents {
            assert!(start < end && last_end.is_none_or(|last| last < start));
            for region in self.regions(&(start..end)) {
                assert!(!self.bitmaps.contains_key(&region));
            }
            last_end = Some(end);
        }
        for region in 0..self.units.div_ceil(self.region_units) {
            let mut runs = Runs::none(self.region(region).end - self.region(region).start);
            let mut count = 0;
            self.runs_in(region, |from, to| {
                runs.push(from, to);
                count += 1;
            });
            assert_eq!(runs, self.runs.region(region as usize));
            let has_bitmap = self.bitmaps.contains_key(&region);
            assert!(has_bitmap || count <= MAX_EXTENTS);
            assert!(!has_bitmap || count > FEW_RUNS);
        }
    }
}

/// Creates a group of some regions, the last one shorter, and its model. Nothing is free.
fn group(start: u64, sectors: u64) -> (FreeSpace, Model) {
    let model = Model {
        start,
        free: vec![false; sectors as usize],
    };
    (FreeSpace::new(start, sectors * SECTOR, SECTOR), model)
}

#[test]
fn any_history_agrees_with_an_array_of_bits() {
    let mut rng = Rng::new(seed("any_history_agrees_with_an_array_of_bits"));
    for round in 0..40 {
        let sectors = 1 + rng.below(4 * REGION_UNITS);
        let (mut space, mut model) = group(64 << 10, sectors);
        // Long pieces at first, then short ones, so that regions are converted in both directions.
        for step in 0..400 {
            let longest = if step % 100 < 10 {
                sectors
            } else {
                1 + step % 7
            };
            let from = rng.below(sectors);
            let units = (1 + rng.below(longest)).min(sectors - from);
            let (start, len) = (model.start + from * SECTOR, units * SECTOR);
            let slice = model.slice(start, len);
            if rng.one_in(2) {
                let fits = !slice.contains(&true);
                assert_eq!(space.add(start, len).is_ok(), fits);
                if fits {
                    model.set(start, len, true);
                }
            } else if rng.one_in(8) {
                let free = slice.iter().filter(|free| **free).count() as u64;
                assert_eq!(space.exclude(start, len), free * SECTOR);
                model.set(start, len, false);
            } else {
                let fits = !slice.contains(&false);
                assert_eq!(space.is_free(start, len), fits);
                assert_eq!(space.remove(start, len).is_ok(), fits);
                if fits {
                    model.set(start, len, false);
                }
            }
            if step % 16 == round % 16 {
                space.assert_sound(&model);
            }
        }
        space.assert_sound(&model);
    }
}

/// Returns the aligned starts at which `bytes` are free.
fn fits(model: &Model, bytes: u64, align: u64) -> Vec<u64> {
    let pieces = model.runs().into_iter().flat_map(|(start, len)| {
        let first = start.next_multiple_of(align);
        (first..start + len)
            .step_by(align as usize)
            .take_while(move |at| at + bytes <= start + len)
    });
    pieces.collect()
}

#[test]
fn found_space_is_free_aligned_near_and_as_long_as_there_is() {
    let mut rng = Rng::new(seed("found_space_is_free"));
    for _ in 0..60 {
        let sectors = 1 + rng.below(3 * REGION_UNITS);
        // Not a multiple of the larger alignments.
        let (mut space, mut model) = group(3 * SECTOR, sectors);
        for _ in 0..rng.below(300) {
            let from = rng.below(sectors);
            let units = (1 + rng.below(30)).min(sectors - from);
            let (start, len) = (model.start + from * SECTOR, units * SECTOR);
            if space.add(start, len).is_ok() {
                model.set(start, len, true);
            }
        }
        for _ in 0..40 {
            let align = SECTOR << rng.below(4);
            let min_bytes = (1 + rng.below(12)) * SECTOR;
            let wanted = ExtentRequest {
                bytes: min_bytes + rng.below(30) * SECTOR,
                min_bytes,
                align,
                hint: (!rng.one_in(4)).then(|| rng.below((sectors + 20) * SECTOR)),
            };
            let whole = fits(&model, wanted.bytes, align);
            let Some((start, len)) = space.find(&wanted) else {
                assert_eq!(fits(&model, min_bytes, align), []);
                continue;
            };
            assert!(
                start.is_multiple_of(align) && model.slice(start, len).iter().all(|free| *free)
            );
            assert!(min_bytes <= len && len <= wanted.bytes);
            if let Some(first) = whole.first() {
                let hint = wanted.hint.unwrap_or(0);
                let near = whole.iter().find(|start| **start >= hint).unwrap_or(first);
                assert_eq!((start, len), (*near, wanted.bytes));
            } else if align == SECTOR {
                assert_eq!(len, space.max_extent_bytes().min(wanted.bytes));
            }
        }
    }
}

#[test]
fn allocating_and_freeing_all_leaves_one_run() {
    let mut rng = Rng::new(seed("allocating_and_freeing_all_leaves_one_run"));
    let sectors = 5 * REGION_UNITS + 77;
    let (mut space, mut model) = group(1 << 20, sectors);
    space.add(1 << 20, sectors * SECTOR).unwrap();
    let mut taken = Vec::new();
    loop {
        let wanted = ExtentRequest {
            bytes: (1 + rng.below(64)) * SECTOR,
            min_bytes: SECTOR,
            align: SECTOR,
            hint: rng.one_in(2).then(|| rng.below(sectors * SECTOR)),
        };
        let Some((start, len)) = space.allocate(&wanted) else {
            break;
        };
        taken.push((start, len));
    }
    assert_eq!(space.free_bytes(), 0);
    while !taken.is_empty() {
        let (start, len) = taken.swap_remove(rng.below(taken.len() as u64) as usize);
        space.add(start, len).unwrap();
        assert!(space.add(start, len).is_err());
    }
    model.free.fill(true);
    space.assert_sound(&model);
    assert!(space.bitmaps.is_empty() && space.extents.len() == 1);
}

#[test]
fn ranges_that_are_not_whole_sectors_of_the_group_are_refused() {
    let (mut space, _) = group(1 << 20, 100);
    let end = (1 << 20) + 100 * SECTOR;
    for (start, len) in [
        (0, SECTOR),
        ((1 << 20) - SECTOR, 2 * SECTOR),
        (end - SECTOR, 2 * SECTOR),
        (end, SECTOR),
        (1 << 20, 0),
        ((1 << 20) + 1, SECTOR),
        (1 << 20, 100),
        (u64::MAX - SECTOR + 1, SECTOR),
        (1 << 20, u64::MAX),
    ] {
        let outside = Err(FreeSpaceError::Outside { start, len });
        assert_eq!(space.add(start, len), outside);
        assert_eq!(space.remove(start, len), outside);
    }
    assert_eq!(space.exclude(0, u64::MAX), 0);
}

#[test]
fn memory_of_a_fragmented_group_is_bounded() {
    // Every other sector of a GiB is free: there are no extents, and the bitmaps take 32 KiB.
    let sectors = (1 << 30) / SECTOR;
    let (mut space, _) = group(0, sectors);
    for sector in (0..sectors).step_by(2) {
        space.add(sector * SECTOR, SECTOR).unwrap();
    }
    assert!(space.extents.is_empty());
    assert_eq!(space.bitmaps.len() as u64, sectors / REGION_UNITS);
    // The number of regions is bounded even for the largest group that the format allows.
    let largest = FreeSpace::new(0, u64::from(u32::MAX) << 16, SECTOR);
    assert!(largest.region(0).end >= largest.units / MAX_REGIONS);
}
