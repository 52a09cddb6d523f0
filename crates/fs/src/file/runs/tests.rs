//! Runs from pieces, with sectors of 16 bytes.

use super::*;

const SECTOR: u64 = 16;

/// Fills `buf` with the file's old data.
fn old(offset: u64, buf: &mut [u8]) {
    for (at, byte) in (offset..).zip(buf) {
        *byte = at as u8;
    }
}

fn make<'a>(
    dirty_ranges: &'a DirtyRanges,
    also: &[Range<u64>],
    old_size: u64,
    reads: &mut Vec<(u64, usize)>,
) -> Vec<Run<'a>> {
    let read = &mut |offset: u64, buf: &mut [u8]| {
        reads.push((offset, buf.len()));
        old(offset, buf);
        Ok(())
    };
    runs(dirty_ranges, also, SECTOR, old_size, read).unwrap()
}

fn bytes(run: &Run<'_>) -> Vec<u8> {
    let mut scratch = Vec::new();
    run.bytes(run.range(), &mut scratch).to_vec()
}

#[test]
fn cut_sectors_are_completed_and_whole_ones_are_not_read() {
    let mut dirty_ranges = DirtyRanges::default();
    dirty_ranges.write(20, &[0xff; 40]);
    let mut reads = Vec::new();
    let runs = make(&dirty_ranges, &[], 100, &mut reads);
    assert_eq!(reads, [(16, 16), (48, 16)]);
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0].range(), 16..64);
    let mut wanted: Vec<u8> = (16..64).collect();
    wanted[4..44].fill(0xff);
    assert_eq!(bytes(&runs[0]), wanted);
}

#[test]
fn nothing_is_read_behind_the_old_end() {
    let mut dirty_ranges = DirtyRanges::default();
    dirty_ranges.write(0, &[0xff; 20]);
    dirty_ranges.write(40, &[0xff; 2]);
    let mut reads = Vec::new();
    let runs = make(&dirty_ranges, &[], 18, &mut reads);
    assert_eq!(reads, []);
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0].range(), 0..48);
    let mut wanted = vec![0; 48];
    wanted[..20].fill(0xff);
    wanted[40..42].fill(0xff);
    assert_eq!(bytes(&runs[0]), wanted);
}

#[test]
fn sectors_asked_for_are_written_as_they_were() {
    let mut dirty_ranges = DirtyRanges::default();
    dirty_ranges.write(32, &[0xff; 16]);
    let mut reads = Vec::new();
    let runs = make(&dirty_ranges, &[0..16, 32..48], 10, &mut reads);
    assert_eq!(reads, [(0, 10)]);
    let ranges: Vec<_> = runs.iter().map(Run::range).collect();
    assert_eq!(ranges, [0..16, 32..48]);
    let mut wanted: Vec<u8> = (0..16).collect();
    wanted[10..].fill(0);
    assert_eq!(bytes(&runs[0]), wanted);
}

#[test]
fn slices_of_a_run_are_those_of_its_parts() {
    let mut run = Run::new(64, Cow::Owned(vec![1; 32]));
    run.push(Cow::Owned(vec![2; 16]));
    run.push(Cow::Owned(vec![3; 16]));
    let lens = |range| run.slices(range).map(<[u8]>::len).collect::<Vec<_>>();
    assert_eq!(lens(64..128), [32, 16, 16]);
    assert_eq!(lens(80..112), [16, 16]);
    assert_eq!(lens(112..128), [16]);
    let mut scratch = Vec::new();
    assert_eq!(
        run.bytes(80..112, &mut scratch),
        [[1; 16], [2; 16]].concat()
    );
}
