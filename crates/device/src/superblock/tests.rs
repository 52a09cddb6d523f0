//! Which copy is believed, and what is said when none is.

use super::*;
use crate::memory::MemDevice;
use crate::test_volume::{DEVICE_BYTES, superblock};
use ubtrfs_format::superblock::{MAGIC_TEMPORARY, SUPERBLOCK_OFFSETS};

fn path() -> &'static Path {
    Path::new("image")
}

fn device_with(copies: [Option<Superblock>; 2]) -> MemDevice {
    let device = MemDevice::new(DEVICE_BYTES);
    for (copy, offset) in copies.into_iter().zip(SUPERBLOCK_OFFSETS) {
        if let Some(mut copy) = copy {
            copy.bytenr = offset.into();
            copy.seal();
            device.write_at(copy.as_bytes(), offset).unwrap();
        }
    }
    device
}

fn at_generation(generation: u64) -> Superblock {
    let mut sb = superblock(1, 1);
    sb.generation = generation.into();
    sb
}

#[test]
fn newest_copy_wins_and_the_first_among_equals() {
    let best = |a, b| {
        let copies = [Some(at_generation(a)), Some(at_generation(b))];
        let found = DeviceSuperblocks::read(&device_with(copies));
        let best = found.best().unwrap();
        (best.generation.get(), best.bytenr.get())
    };
    assert_eq!(best(11, 12), (12, SUPERBLOCK_OFFSETS[1]));
    assert_eq!(best(12, 11), (12, SUPERBLOCK_OFFSETS[0]));
    assert_eq!(best(12, 12), (12, SUPERBLOCK_OFFSETS[0]));
}

#[test]
fn damaged_first_copy_is_reported_and_replaced() {
    let device = device_with([Some(at_generation(12)), Some(at_generation(12))]);
    device
        .write_at(&[1; 8], SUPERBLOCK_OFFSETS[0] + 200)
        .unwrap();
    let found = DeviceSuperblocks::read(&device);
    assert_eq!(found.best().unwrap().bytenr.get(), SUPERBLOCK_OFFSETS[1]);
    let bad: Vec<_> = found.bad_copies().map(|(copy, _)| copy.mirror).collect();
    assert_eq!(bad, [0]);
    assert!(found.first_has_magic());
    assert!(
        found.copies[0].block.is_some(),
        "its bytes can still be shown"
    );
}

#[test]
fn copy_of_an_older_volume_is_never_chosen() {
    let mut old = at_generation(99);
    old.fsid = Uuid([7; 16]);
    old.dev_item.fsid = old.fsid;
    let device = device_with([Some(at_generation(12)), Some(old)]);
    let found = DeviceSuperblocks::read(&device);
    assert_eq!(found.best().unwrap().generation.get(), 12);
    assert!(matches!(
        found.copies[1].problem,
        Some(CopyProblem::OtherVolume(Uuid([7, ..])))
    ));
}

#[test]
fn each_kind_of_non_volume_has_its_error() {
    let error = |device: &MemDevice| DeviceSuperblocks::read(device).require(path()).unwrap_err();
    for len in [0, 4096, 65536, 68 << 10, 100 << 20] {
        let error = error(&MemDevice::new(len));
        assert!(
            matches!(error, DeviceError::NotBtrfs { .. }),
            "{len}: {error}"
        );
    }
    let mut unfinished = at_generation(1);
    unfinished.magic = MAGIC_TEMPORARY;
    let device = device_with([Some(unfinished), None]);
    assert!(matches!(error(&device), DeviceError::Incomplete { .. }));

    let device = device_with([Some(at_generation(1)), None]);
    device.write_at(&[1], SUPERBLOCK_OFFSETS[0] + 3000).unwrap();
    assert!(matches!(
        error(&device),
        DeviceError::Superblock {
            source: SuperblockError::Csum(_),
            ..
        }
    ));
}

#[test]
fn written_copies_are_all_valid() {
    let len_bytes = (256 << 30) + 4096;
    let device = MemDevice::new(len_bytes);
    let mut superblock = at_generation(12);
    superblock.dev_item.total_bytes = len_bytes.into();
    write_superblocks(&device, path(), &superblock).unwrap();
    let found = DeviceSuperblocks::read(&device);
    assert_eq!(found.copies.len(), 3);
    assert_eq!(found.bad_copies().count(), 0);
}

#[test]
fn no_copy_is_written_behind_the_volume() {
    let device = MemDevice::new(1 << 30);
    let mut superblock = at_generation(12);
    superblock.dev_item.total_bytes = (16u64 << 20).into();
    write_superblocks(&device, path(), &superblock).unwrap();
    let found = DeviceSuperblocks::read(&device);
    let valid = found.copies.iter().filter(|copy| copy.problem.is_none());
    assert_eq!(valid.count(), 1);
}
