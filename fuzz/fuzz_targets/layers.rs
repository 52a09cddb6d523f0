//! Any bytes as disks with partitions, md superblocks and LVM metadata. Checksums are corrected where a mark of a format
//! is, so that the checks of the fields are reached.
//!
//! The input is split into up to four disks of 64 KiB. If the second half of one begins like a superblock of md metadata
//! 0.90, the disk is extended, and the superblock moved to its place. Everything that is found is read at some places.

#![no_main]

use std::path::PathBuf;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use ubtrfs_assemble::{Assembly, Disk, LayerKind};
use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_sim::{seal_gpt, seal_lvm, seal_md};

const DISK_BYTES: usize = 64 << 10;
const MAX_DISKS: usize = 4;
const READ_BYTES: usize = 40 << 10;

fuzz_target!(|data: &[u8]| {
    let disks = data.chunks(DISK_BYTES).take(MAX_DISKS);
    let assembly = Assembly::of(disks.enumerate().map(|(number, bytes)| {
        let mut bytes = bytes.to_vec();
        bytes.resize(DISK_BYTES, 0);
        seal(&mut bytes);
        add_version0(&mut bytes);
        Disk {
            path: PathBuf::from(number.to_string()),
            device: Arc::new(MemDevice::from_bytes(&bytes)),
        }
    }));
    for layer in assembly.layers() {
        let _ = (layer.kind.to_string(), layer.is_degraded());
        if let Some(device) = layer.device() {
            look(&**device);
            // Disks belong to the caller.
            assert!(layer.kind == LayerKind::Disk || device.write_at(&[0], 0).is_err());
        }
    }
    for top in assembly.tops() {
        assert!(assembly.closure(top).contains(&top));
    }
    for volume in assembly.volumes() {
        assert!(!assembly.devices(&volume).is_empty());
    }
});

/// Corrects the checksums of metadata at its usual places.
fn seal(disk: &mut [u8]) {
    // Versions 1.1, 1.2 and 1.0.
    for start in [0, 4096, DISK_BYTES - 8192] {
        let roles = &disk[start + 220..start + 224];
        let roles = u32::from_le_bytes([roles[0], roles[1], roles[2], roles[3]]) as usize;
        if disk[start..].starts_with(&0xa92b_4efc_u32.to_le_bytes()) && roles <= 1920 {
            seal_md(&mut disk[start..start + 256 + 2 * roles]);
        }
    }
    if disk[512..].starts_with(b"EFI PART") {
        seal_gpt(disk);
    }
    if disk[512..].starts_with(b"LABELONE") {
        seal_lvm(disk);
    }
}

/// Moves a superblock of metadata 0.90 to its place, which is the last whole 64 KiB.
fn add_version0(disk: &mut Vec<u8>) {
    const HALF: usize = DISK_BYTES / 2;
    let magic = [&0xa92b_4efc_u32.to_le_bytes()[..], &[0; 4]].concat();
    if disk[HALF..].starts_with(&magic) {
        let mut superblock = disk.split_off(HALF);
        seal_md(&mut superblock[..4096]);
        disk.resize(DISK_BYTES, 0);
        disk.extend(superblock);
        disk.resize(2 * DISK_BYTES, 0);
    }
}

/// Reads the start, the end and the middle of a device.
fn look(device: &dyn BlockDevice) {
    let len_bytes = device.len_bytes();
    let mut buf = vec![0; READ_BYTES.min(usize::try_from(len_bytes).unwrap_or(READ_BYTES))];
    let last = len_bytes - buf.len() as u64;
    for offset in [0, last / 2, last] {
        let _ = device.read_at(&mut buf, offset);
    }
}
