//! The choice between copies, and the errors without a valid one.

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

fn require(device: &MemDevice, choice: CopyChoice) -> Result<(u64, u64), DeviceError> {
    let found = DeviceSuperblocks::read(device);
    let superblock = found.require(device, path(), choice)?;
    Ok((superblock.generation.get(), superblock.bytenr.get()))
}

// COPIES-1
#[test]
fn valid_first_copy_is_the_superblock_whatever_the_others_say() {
    for other in [11, 12, 13] {
        let copies = [Some(at_generation(12)), Some(at_generation(other))];
        let device = device_with(copies);
        for choice in [CopyChoice::First, CopyChoice::Any] {
            let found = require(&device, choice).unwrap();
            assert_eq!(found, (12, SUPERBLOCK_OFFSETS[0]));
        }
    }
}

// COPIES-2
#[test]
fn another_copy_is_taken_on_request_only() {
    let magic = |device: &MemDevice| device.write_at(&[0; 8], SUPERBLOCK_OFFSETS[0] + 64);
    let contents = |device: &MemDevice| device.write_at(&[1; 8], SUPERBLOCK_OFFSETS[0] + 200);
    let all = |device: &MemDevice| device.write_at(&[0; 4096], SUPERBLOCK_OFFSETS[0]);
    for damage in [magic, contents, all] {
        let device = device_with([Some(at_generation(12)), Some(at_generation(11))]);
        damage(&device).unwrap();
        let error = require(&device, CopyChoice::First).unwrap_err();
        match &error {
            DeviceError::FirstSuperblock { copy, .. } => {
                let SoundCopy {
                    mirror, generation, ..
                } = copy;
                assert_eq!((*mirror, *generation), (1, 11));
            }
            other => panic!("{other}"),
        }
        assert!(error.to_string().contains("rescue=usebackuproot"));
        let found = require(&device, CopyChoice::Any).unwrap();
        assert_eq!(found, (11, SUPERBLOCK_OFFSETS[1]));
    }
}

/// Fields that the kernel rejects: the copy is intact but unusable.
#[test]
fn first_copy_with_a_bad_field_is_not_replaced_by_another() {
    type Edit = fn(&mut Superblock);
    let edits: [Edit; 8] = [
        |sb| sb.stripesize = 3000.into(),
        |sb| sb.unused_leafsize = 4096.into(),
        |sb| sb.num_devices = 0.into(),
        |sb| sb.sys_chunk_array_size = 0.into(),
        |sb| sb.sys_chunk_array[17] = 1,
        |sb| sb.sectorsize = 512.into(),
        |sb| sb.root_level = 8,
        |sb| sb.bytes_used = 0.into(),
    ];
    for (number, edit) in edits.into_iter().enumerate() {
        let mut bad = at_generation(12);
        edit(&mut bad);
        let device = device_with([Some(bad), Some(at_generation(12))]);
        let error = require(&device, CopyChoice::First).unwrap_err();
        match error {
            DeviceError::FirstSuperblock { problem, .. } => {
                assert!(
                    matches!(*problem, DeviceError::Superblock { .. }),
                    "{number}"
                );
            }
            other => panic!("{number}: {other}"),
        }
    }
}

#[test]
fn no_copy_is_taken_of_a_device_that_holds_something_else() {
    for (mark, offset, name) in [
        (&b"XFSB"[..], 0, "xfs"),
        (b"SWAPSPACE2", 4086, "swap"),
        (b"LVM2 001", 536, "LVM2_member"),
        (b"EFI PART", 512, "gpt"),
    ] {
        let device = device_with([None, Some(at_generation(12))]);
        device.write_at(mark, offset).unwrap();
        for choice in [CopyChoice::First, CopyChoice::Any] {
            let error = require(&device, choice).unwrap_err();
            assert!(
                matches!(error, DeviceError::NotBtrfs { holds: Some(_), .. }),
                "{error}"
            );
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}

#[test]
fn mark_within_the_volume_may_be_a_file_and_does_not_count() {
    let device = device_with([Some(at_generation(12)), None]);
    let raid = b"\xfc\x4e\x2b\xa9\x01\0\0\0";
    let place = DEVICE_BYTES - (8 << 10);
    device.write_at(raid, place).unwrap();
    let mut superblock = at_generation(12);
    refuse_foreign(&device, path(), &superblock).unwrap();
    // The volume ends before the mark: a mirror of an array with the superblock at the end.
    superblock.dev_item.total_bytes = place.into();
    let refused = refuse_foreign(&device, path(), &superblock).unwrap_err();
    assert!(
        matches!(refused, DeviceError::Foreign { offset, .. } if offset == place),
        "{refused}"
    );
}

#[test]
fn damaged_first_copy_is_reported_and_can_be_shown() {
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
    let error = |device: &MemDevice| require(device, CopyChoice::First).unwrap_err();
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
    let len_bytes = (256 << 30) + 8192;
    let device = MemDevice::new(len_bytes);
    let mut superblock = at_generation(12);
    superblock.dev_item.total_bytes = len_bytes.into();
    write_superblocks(&device, path(), &superblock).unwrap();
    let found = DeviceSuperblocks::read(&device);
    assert_eq!(found.copies.len(), 3);
    assert_eq!(found.bad_copies().count(), 0);
}

#[test]
fn copy_that_would_end_with_the_device_is_not_written() {
    for (beyond, copies) in [(4096, 1), (8192, 2)] {
        let len_bytes = SUPERBLOCK_OFFSETS[1] + beyond;
        let device = MemDevice::new(len_bytes);
        let mut superblock = at_generation(12);
        superblock.dev_item.total_bytes = len_bytes.into();
        write_superblocks(&device, path(), &superblock).unwrap();
        let found = DeviceSuperblocks::read(&device);
        let valid = found.copies.iter().filter(|copy| copy.problem.is_none());
        assert_eq!(valid.count(), copies);
    }
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
