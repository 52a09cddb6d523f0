//! Any commands of a send stream, received into a volume in memory. A file outside of the new subvolumes does not
//! change, and the volume stays sound.

#![no_main]

use std::path::PathBuf;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use ubtrfs_check::{CheckOptions, check_devices};
use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::Timespec;
use ubtrfs_format::name_hash::crc32c;
use ubtrfs_fs::{NewInode, OpenOptions, Volume};
use ubtrfs_mkfs::{Identity, MkfsOptions, Plan};
use ubtrfs_stream::{ReceiveOptions, Receiver, StreamReader, VolumeTarget};

const DEVICE_BYTES: u64 = 128 << 20;
const KEPT: &[u8] = b"kept";

fuzz_target!(|input: &[u8]| {
    let device = Arc::new(volume());
    let options = OpenOptions::new().writable(true).commit_interval(None);
    let devices = vec![(
        PathBuf::from("memory"),
        device.clone() as Arc<dyn BlockDevice>,
    )];
    let volume = Volume::from_devices(devices, &options).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let outside = volume
        .create(top, b"outside", &NewInode::file(0o600))
        .unwrap();
    volume.write(outside, 0, KEPT).unwrap();
    let dir = volume
        .create(top, b"dir", &NewInode::directory(0o700))
        .unwrap();
    let stream = mended(input);
    let mut target = VolumeTarget::new(&volume, dir);
    let mut observer = ();
    let options = ReceiveOptions {
        max_errors: 0,
        ..ReceiveOptions::default()
    };
    let mut receiver = Receiver::new(&mut target, &mut observer, options);
    if let Ok(mut stream) = StreamReader::open(&*stream) {
        let _ = receiver.receive(&mut stream);
    }
    let mut bytes = [0; 8];
    assert_eq!(volume.read(outside, 0, &mut bytes).unwrap(), KEPT.len());
    assert!(bytes.starts_with(KEPT));
    volume.sync().unwrap();
    drop(volume);
    let devices = vec![(PathBuf::from("memory"), device as Arc<dyn BlockDevice>)];
    let options = CheckOptions {
        data_csums: true,
        ..CheckOptions::default()
    };
    let report = check_devices(devices, &options, &mut ()).unwrap();
    assert!(report.is_clean(), "{:?}", report.issues);
});

fn volume() -> MemDevice {
    let created = Timespec {
        sec: 1.into(),
        nsec: 0.into(),
    };
    let identity = Identity::random(1, created);
    let plan = Plan::new(&MkfsOptions::default(), &identity, &[DEVICE_BYTES]).unwrap();
    let device = MemDevice::new(DEVICE_BYTES);
    plan.write(&[&device], false).unwrap();
    device
}

/// Interprets the input as commands: a number, the length of a body, and the body.
fn mended(mut input: &[u8]) -> Vec<u8> {
    let mut stream = b"btrfs-stream\0\x02\0\0\0".to_vec();
    while let Some((&[number, low, high], rest)) = input.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (body, rest) = rest.split_at(len);
        let len = u32::try_from(len).expect("it was 16 bits");
        let mut command = len.to_le_bytes().to_vec();
        command.extend_from_slice(&[number % 27, 0, 0, 0, 0, 0]);
        command.extend_from_slice(body);
        let crc = crc32c(0, &command);
        command[6..10].copy_from_slice(&crc.to_le_bytes());
        stream.extend_from_slice(&command);
        input = rest;
    }
    stream
}
