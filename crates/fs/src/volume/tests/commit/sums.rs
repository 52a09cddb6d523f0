//! Long checksums: for a large extent they fill many leaves.

use ubtrfs_format::csum::CsumType;

use super::*;
use crate::{Fallocate, Result};

const EXTENT: u64 = 32 * MIB;

fn device() -> Arc<MemDevice> {
    let options = MkfsOptions {
        csum_type: CsumType::Sha256,
        ..MkfsOptions::default()
    };
    device_of(DEVICE_BYTES, options)
}

/// Returns false on ENOSPC, and panics on any other error.
fn was_done(result: Result<()>) -> bool {
    match result {
        Err(error) if error.is_no_space() => false,
        result => {
            result.unwrap();
            true
        }
    }
}

#[test]
fn sums_of_what_is_written_into_reserved_space_are_counted() {
    let mut place = Place::empty(device(), 0);
    let volume = Arc::clone(&place.volume);
    let keep = Fallocate::Reserve { keep_size: true };
    volume.fallocate(place.file, keep, 0, 8 * EXTENT).unwrap();
    volume.sync().unwrap();
    place.leave(3 * MIB / 2);
    let bytes = vec![7; EXTENT as usize];
    let done = (0..8)
        .take_while(|number| was_done(volume.write(place.file, number * EXTENT, &bytes)))
        .count();
    volume.sync().unwrap();
    assert!((1..8).contains(&done), "{done}");
    volume
        .unlink(volume.root_dir(place.file.root).unwrap(), b"file")
        .unwrap();
    place.assert_sound();
}

#[test]
fn sums_of_new_data_are_edits() {
    let place = Place::empty(device(), 0);
    let volume = &place.volume;
    let edits = || volume.inodes.transactions().unwrap().running_edits();
    let before = edits();
    volume
        .write(place.file, 0, &vec![7; EXTENT as usize])
        .unwrap();
    let entered = edits() - before;
    let reserved = volume.inodes.cost_of_data(EXTENT).counts.items;
    assert!(reserved >= entered, "{reserved}, {entered}");
}

/// Fills the buffer of a volume whose free space consists of single sectors and one run of `longest` bytes.
fn writes_in_pieces(longest: u64) {
    let mut place = Place::empty(new_device(DEVICE_BYTES / 3, ""), 0);
    let volume = Arc::clone(&place.volume);
    let space = place.space();
    place.leave(3 * MIB);
    let running = volume.inodes.transactions().unwrap().running_transid();
    let mut taken = Vec::new();
    for number in 0..reserve_all(&space) / SECTOR {
        let (start, _) = space.allocate_data(SECTOR, SECTOR, None, running).unwrap();
        taken.push((number, start));
    }
    taken.retain(|(number, start)| {
        let is_free = number % 2 == 0 || *number < longest / SECTOR;
        if is_free {
            space.release(*start, SECTOR);
        }
        !is_free
    });
    // Partial sectors, so that each write is buffered.
    let bytes = vec![7; MIB as usize - 1];
    let done = (0..200)
        .take_while(|number| was_done(volume.write(place.file, number * MIB, &bytes)))
        .count();
    assert!((1..200).contains(&done), "{done}");
    was_done(volume.sync());
    volume.sync().unwrap();
    for (_, start) in taken {
        space.release(start, SECTOR);
    }
    place.assert_sound();
}

#[test]
fn data_in_many_pieces_is_counted() {
    writes_in_pieces(SECTOR);
}

#[test]
fn data_in_more_pieces_than_was_thought_is_counted() {
    writes_in_pieces(MIB);
}
