//! Tables that `sfdisk` writes, whole and damaged.

use std::io::Write;
use std::process::{Command, Stdio};

use ubtrfs_device::MemDevice;

use super::*;

const MIB: u64 = 1 << 20;

/// Returns a disk with a table, or None without `sfdisk`.
fn disk(script: &str) -> Option<Vec<u8>> {
    let image = tempfile::NamedTempFile::new().expect("there is room");
    image.as_file().set_len(64 * MIB).expect("there is room");
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let command = Command::new("sfdisk")
        .env("PATH", path)
        .args(["--quiet", "--no-tell-kernel"])
        .arg(image.path())
        .stdin(Stdio::piped())
        .spawn();
    let Ok(mut command) = command else {
        ubtrfs_sim::skip("no sfdisk");
        return None;
    };
    let input = command.stdin.as_mut().expect("a pipe");
    input.write_all(script.as_bytes()).expect("it reads");
    assert!(command.wait().expect("it runs").success());
    Some(std::fs::read(image.path()).expect("readable"))
}

fn partition(number: u32, label: &str, start: u64, len: u64) -> Partition {
    Partition {
        number,
        label: label.to_owned(),
        start,
        len,
    }
}

const GPT: &str =
    "label: gpt\nstart=2048, size=8192, name=\"system\"\nstart=16384, size=4096, name=\"data\"\n";

#[test]
fn gpt_is_read_from_either_copy() {
    let Some(mut bytes) = disk(GPT) else {
        return;
    };
    let wanted = vec![
        partition(1, "system", MIB, 4 * MIB),
        partition(2, "data", 8 * MIB, 2 * MIB),
    ];
    let read = |bytes: &[u8]| gpt::read(&MemDevice::from_bytes(bytes)).expect("readable");
    assert_eq!(read(&bytes).as_ref(), Some(&wanted));
    // An entry of the first copy.
    bytes[1024 + 40] ^= 1;
    assert_eq!(read(&bytes).as_ref(), Some(&wanted), "the backup");
    bytes[512..4096].fill(0);
    assert_eq!(read(&bytes).as_ref(), Some(&wanted), "the backup");
    let end = bytes.len();
    bytes[end - 400] ^= 1;
    assert_eq!(
        read(&bytes).as_ref(),
        Some(&wanted),
        "a reserved byte has no checksum"
    );
    bytes[end - 500] ^= 1;
    assert_eq!(read(&bytes), None);
}

#[test]
fn mbr_is_read_with_logical_partitions() {
    let script = "label: dos\nstart=2048, size=4096, type=83\nstart=8192, size=90000, type=5\n\
                  start=10240, size=2048, type=fd\nstart=16384, size=2048, type=83\n";
    let Some(bytes) = disk(script) else {
        return;
    };
    let read = |bytes: &[u8]| mbr::read(&MemDevice::from_bytes(bytes)).expect("readable");
    let wanted = vec![
        partition(1, "", MIB, 2 * MIB),
        partition(5, "", 5 * MIB, MIB),
        partition(6, "", 8 * MIB, MIB),
    ];
    assert_eq!(read(&bytes), Some(wanted));
}

#[test]
fn circle_of_logical_partitions_ends() {
    let mut bytes = vec![0; 64 << 10];
    let mut entry = |at: usize, kind: u8, start: u32| {
        bytes[at + 4] = kind;
        bytes[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
        bytes[at + 12] = 8;
    };
    entry(446, 5, 4);
    // The second table names itself.
    let table = 4 * 512;
    entry(table + 446, 0x83, 1);
    entry(table + 462, 5, 0);
    for table in [0, table] {
        bytes[table + 510..table + 512].copy_from_slice(&[0x55, 0xaa]);
    }
    let partitions = mbr::read(&MemDevice::from_bytes(&bytes)).expect("readable");
    assert_eq!(partitions.expect("a table").len(), 256);
}

#[test]
fn boot_code_is_not_a_table() {
    let mut bytes = vec![0xeb; 512];
    bytes[510..].copy_from_slice(&[0x55, 0xaa]);
    let read = mbr::read(&MemDevice::from_bytes(&bytes)).expect("readable");
    assert_eq!(read, None);
}
