//! `DirtyRanges`, compared with a plain byte array.

use ubtrfs_sim::{Rng, seed};

use super::*;

const LEN: u64 = 3 * WINDOW_BYTES;

/// The byte at each offset, or None.
struct Model(Vec<Option<u8>>);

impl Model {
    fn slice(&mut self, range: Range<u64>) -> &mut [Option<u8>] {
        &mut self.0[range.start as usize..range.end as usize]
    }

    fn gaps(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps: Vec<Range<u64>> = Vec::new();
        for at in range {
            if self.0[at as usize].is_some() {
                continue;
            }
            match gaps.last_mut() {
                Some(gap) if gap.end == at => gap.end += 1,
                _ => gaps.push(at..at + 1),
            }
        }
        gaps
    }
}

/// Asserts DIRTY-RANGES-1, DIRTY-RANGES-2, and that the pool counts the right number of bytes.
fn assert_sound(dirty_ranges: &DirtyRanges, buffer_pool: &BufferPool) {
    let mut last_end = None;
    let mut bytes = 0;
    for (start, piece) in dirty_ranges.iter() {
        let end = start + piece.len() as u64;
        assert!(!piece.is_empty());
        assert_eq!(start / WINDOW_BYTES, (end - 1) / WINDOW_BYTES);
        let touches = last_end == Some(start) && start % WINDOW_BYTES != 0;
        assert!(!touches && last_end.is_none_or(|last| last <= start));
        last_end = Some(end);
        bytes += piece.len() as u64;
    }
    assert_eq!(buffer_pool.buffered_bytes(), bytes);
    assert_eq!(dirty_ranges.end(), last_end);
}

#[test]
fn any_writes_agree_with_an_array() {
    let mut rng = Rng::new(seed("any_writes_agree_with_an_array"));
    for _ in 0..6 {
        let buffer_pool = Arc::new(BufferPool::new(64 * WINDOW_BYTES));
        let mut dirty_ranges = DirtyRanges::new(&buffer_pool);
        let mut model = Model(vec![None; LEN as usize]);
        for step in 0..100 {
            let longest = if step % 10 == 0 { LEN } else { 3000 };
            let start = match rng.below(3) {
                0 => WINDOW_BYTES - rng.below(1000),
                _ => rng.below(LEN),
            };
            let end = (start + 1 + rng.below(longest)).min(LEN);
            let range = start..end;
            if rng.one_in(4) {
                dirty_ranges.clear(range.clone());
                model.slice(range.clone()).fill(None);
            } else {
                let mut bytes = vec![0; (end - start) as usize];
                rng.fill(&mut bytes);
                dirty_ranges.write(start, &bytes);
                let written = bytes.iter().map(|&byte| Some(byte));
                let slice = model.slice(range.clone());
                slice.iter_mut().zip(written).for_each(|(a, b)| *a = b);
            }
            assert_sound(&dirty_ranges, &buffer_pool);
            let seen = rng.below(LEN)..LEN;
            let mut gaps = vec![seen.clone()];
            dirty_ranges.subtract_from(&mut gaps);
            assert_eq!(gaps, model.gaps(seen.clone()));
            let mut buf = vec![0; (seen.end - seen.start) as usize];
            dirty_ranges.copy_to(seen.start, &mut buf);
            let known: Vec<u8> = model
                .slice(seen)
                .iter()
                .map(|byte| byte.unwrap_or(0))
                .collect();
            assert!(buf == known);
        }
        drop(dirty_ranges);
        assert_eq!(buffer_pool.buffered_bytes(), 0);
    }
}

#[test]
fn sectors_count_once_however_many_pieces_touch_them() {
    let mut dirty_ranges = DirtyRanges::default();
    dirty_ranges.write(10, &[1; 10]);
    dirty_ranges.write(100, &[1; 10]);
    dirty_ranges.write(5000, &[1; 4000]);
    assert_eq!(dirty_ranges.sector_bytes(0..4096, 4096), 4096);
    assert_eq!(dirty_ranges.sector_bytes(0..16384, 4096), 12288);
    assert_eq!(dirty_ranges.sector_bytes(4096..8192, 4096), 4096);
    assert_eq!(dirty_ranges.sector_bytes(12288..16384, 4096), 0);
}

#[test]
fn memory_of_full_windows_serves_the_next_file() {
    let buffer_pool = Arc::new(BufferPool::new(64 * WINDOW_BYTES));
    let mut taken = Vec::new();
    for _ in 0..2 {
        let mut dirty_ranges = DirtyRanges::new(&buffer_pool);
        for block in 0..3 * WINDOW_BYTES / 4096 {
            dirty_ranges.write(block * 4096, &[1; 4096]);
        }
        let places: Vec<_> = dirty_ranges
            .iter()
            .map(|(_, bytes)| bytes.as_ptr())
            .collect();
        assert_eq!(places.len(), 3);
        taken.push(places[1..].to_vec());
    }
    taken[1].reverse();
    let again = taken[0].iter().filter(|&place| taken[1].contains(place));
    assert_eq!(again.count(), 2);
}
