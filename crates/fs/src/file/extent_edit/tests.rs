//! Tests of extent edits and their references, against a model of sectors.

use std::sync::Arc;

use ubtrfs_format::compress::Compression;
use ubtrfs_format::ids::{InodeNr, RootId};
use ubtrfs_sim::{Rng, seed};

use super::*;
use crate::file::extent::{DiskPart, InlineExtent};

const SECTOR: u64 = 4096;

fn file() -> FileId {
    FileId::new(RootId::FS_TREE, InodeNr(257))
}

fn part(disk: u64, disk_sectors: u64, offset: u64, sectors: u64) -> DiskPart {
    DiskPart {
        generation: 7,
        ram_bytes: disk_sectors * SECTOR,
        compression: Compression::None,
        prealloc: false,
        disk: DiskExtent {
            start: Logical(disk),
            len: disk_sectors * SECTOR,
        },
        offset: offset * SECTOR,
        len: sectors * SECTOR,
    }
}

fn extent_edit(extents: &[(u64, Extent)]) -> ExtentEdit {
    let mut extent_edit = ExtentEdit::new(file(), SECTOR);
    for (sector, extent) in extents {
        extent_edit.before.insert(sector * SECTOR, extent.clone());
    }
    extent_edit.loaded().unwrap()
}

/// Returns the changes of references by disk start and offset, in sectors.
fn refs(extent_edit: &ExtentEdit) -> Vec<(u64, i64, i64)> {
    let change = |(disk, data, delta): (DiskExtent, DataRef, i64)| {
        (disk.start.0, data.offset as i64 / SECTOR as i64, delta)
    };
    extent_edit.ref_changes().into_iter().map(change).collect()
}

fn sectors(range: Range<u64>) -> Range<u64> {
    range.start * SECTOR..range.end * SECTOR
}

#[test]
fn splitting_adds_a_reference_and_only_the_last_piece_drops_one() {
    let extent = Extent::Disk(part(1 << 20, 8, 0, 8));
    let mut extent_edit = extent_edit(&[(10, extent)]);
    extent_edit.clear(sectors(12..14)).unwrap();
    assert_eq!(refs(&extent_edit), [(1 << 20, 10, 1)]);
    assert_eq!(extent_edit.nbytes_delta(), -2 * SECTOR as i64);
    extent_edit.clear(sectors(10..12)).unwrap();
    assert_eq!(refs(&extent_edit), []);
    extent_edit.clear(sectors(0..100)).unwrap();
    assert_eq!(refs(&extent_edit), [(1 << 20, 10, -1)]);
    assert!(matches!(extent_edit.edits()[..], [Edit::Delete(_)]));
}

#[test]
fn compressed_extents_keep_their_sizes_when_they_are_cut() {
    let compressed = DiskPart {
        compression: Compression::Zstd,
        disk: DiskExtent {
            start: Logical(1 << 20),
            len: SECTOR,
        },
        ..part(1 << 20, 32, 0, 32)
    };
    let mut extent_edit = extent_edit(&[(0, Extent::Disk(compressed.clone()))]);
    extent_edit.clear(sectors(4..5)).unwrap();
    let extents: Vec<_> = extent_edit
        .extents()
        .map(|(_, extent)| extent.clone())
        .collect();
    let [Extent::Disk(head), Extent::Disk(tail)] = &extents[..] else {
        panic!("{extents:?}");
    };
    for piece in [head, tail] {
        assert_eq!(
            (piece.ram_bytes, piece.disk),
            (compressed.ram_bytes, compressed.disk)
        );
    }
    assert_eq!((head.offset, head.len), (0, 4 * SECTOR));
    assert_eq!((tail.offset, tail.len), (5 * SECTOR, 27 * SECTOR));
    assert_eq!(refs(&extent_edit), [(1 << 20, 0, 1)]);
}

#[test]
fn pieces_of_one_extent_join_and_those_of_others_do_not() {
    let mut extent_edit = extent_edit(&[(0, Extent::Disk(part(1 << 20, 8, 0, 3)))]);
    extent_edit.put(3 * SECTOR, Extent::Disk(part(1 << 20, 8, 3, 5)));
    assert_eq!(extent_edit.extents().count(), 1);
    assert_eq!(refs(&extent_edit), []);
    extent_edit.put(8 * SECTOR, Extent::Disk(part(2 << 20, 8, 0, 8)));
    assert_eq!(extent_edit.extents().count(), 2);
    assert_eq!(refs(&extent_edit), [(2 << 20, 8, 1)]);
}

#[test]
fn an_unchanged_state_has_no_edits() {
    let mut extent_edit = extent_edit(&[
        (0, Extent::Disk(part(1 << 20, 8, 0, 8))),
        (8, Extent::Disk(part(2 << 20, 8, 0, 8))),
    ]);
    extent_edit.clear(sectors(4..8)).unwrap();
    extent_edit.put(4 * SECTOR, Extent::Disk(part(1 << 20, 8, 4, 4)));
    assert!(extent_edit.is_idle());
    assert!(extent_edit.edits().is_empty() && refs(&extent_edit).is_empty());
}

#[test]
fn holes_fill_what_nothing_covers_and_join() {
    let hole = |sectors: u64| Extent::Hole {
        generation: 7,
        len: sectors * SECTOR,
    };
    let mut extent_edit = extent_edit(&[(0, hole(2)), (4, Extent::Disk(part(1 << 20, 2, 0, 2)))]);
    extent_edit.fill_holes(sectors(0..10), 7);
    let places: Vec<_> = extent_edit.extents().map(|(range, _)| range).collect();
    assert_eq!(places, [sectors(0..4), sectors(4..6), sectors(6..10)]);
    assert_eq!(extent_edit.nbytes_delta(), 0);
}

// EXTENT-EDIT-2
#[test]
fn inline_data_cannot_be_cut() {
    let inline = Extent::Inline(InlineExtent {
        generation: 7,
        ram_bytes: 2 * SECTOR,
        compression: Compression::Zlib,
        stored: Arc::from(&[0; 100][..]),
    });
    let mut whole = extent_edit(&[(0, inline.clone())]);
    assert!(whole.clear(sectors(0..1)).is_err());
    let mut whole = extent_edit(&[(0, inline)]);
    whole.clear(sectors(0..2)).unwrap();
    assert_eq!(whole.nbytes_delta(), -2 * SECTOR as i64);
}

/// The source of each sector of the file: an extent, and a sector in it.
type Shown = Vec<Option<(u64, u64)>>;

fn shown(extent_edit: &ExtentEdit, sectors: usize) -> Shown {
    let mut shown = vec![None; sectors];
    for (range, extent) in extent_edit.extents() {
        if let Extent::Disk(part) = extent {
            for at in (range.start..range.end).step_by(SECTOR as usize) {
                let within = (part.offset + at - range.start) / SECTOR;
                shown[(at / SECTOR) as usize] = Some((part.disk.start.0, within));
            }
        }
    }
    shown
}

/// EXTENT-EDIT-1
#[test]
fn any_replacements_show_what_was_put_last() {
    let mut rng = Rng::new(seed("any_replacements_show_what_was_put_last"));
    for _ in 0..200 {
        let mut state = extent_edit(&[]);
        let mut model: Shown = vec![None; 64];
        for number in 1..40u64 {
            let start = rng.below(60);
            let len = 1 + rng.below(64 - start).min(1 + rng.below(20));
            let range = sectors(start..start + len);
            let slots = &mut model[start as usize..(start + len) as usize];
            if rng.one_in(3) {
                state.clear(range).unwrap();
                slots.fill(None);
            } else {
                let disk = number << 20;
                let extent = Extent::Disk(part(disk, len, 0, len));
                state.replace(range.start, extent).unwrap();
                for (within, slot) in slots.iter_mut().enumerate() {
                    *slot = Some((disk, within as u64));
                }
            }
            if rng.one_in(4) {
                state.before = state.after.clone();
            }
            assert_eq!(shown(&state, 64), model);
            let gaps: u64 = state
                .gaps(sectors(0..64))
                .iter()
                .map(|gap| gap.end - gap.start)
                .sum();
            let empty = model.iter().filter(|slot| slot.is_none()).count() as u64;
            assert_eq!(gaps, empty * SECTOR);
        }
    }
}
