//! A volume in memory for receiving streams.

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_check::{CheckOptions, check_devices};
use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::ids::{RootId, Transid};
use ubtrfs_format::item::RootItemFlags;
use ubtrfs_format::uuid::Uuid;
use ubtrfs_fs::{OpenOptions, Volume};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::new_volume;
use ubtrfs_stream::{Command, ReceiveError, ReceiveOptions, Receiver, StreamReader, VolumeTarget};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const SECTOR: u64 = 4096;

pub(crate) const SUBVOL: Command<'_> = Command::Subvol {
    path: b"s",
    uuid: Uuid([7; 16]),
    ctransid: Transid(3),
};

pub(crate) fn is_soak() -> bool {
    std::env::var_os("UBTRFS_SOAK").is_some()
}

pub(crate) fn new_device(device_bytes: u64) -> Arc<MemDevice> {
    device_with(&MkfsOptions::default(), device_bytes)
}

pub(crate) fn device_with(options: &MkfsOptions, device_bytes: u64) -> Arc<MemDevice> {
    Arc::new(new_volume(options, device_bytes))
}

pub(crate) fn open(device: Arc<dyn BlockDevice>) -> Arc<Volume> {
    let options = OpenOptions::new().writable(true).commit_interval(None);
    Volume::from_devices(vec![(PathBuf::from("memory"), device)], &options).unwrap()
}

pub(crate) fn assert_sound(device: &MemDevice) {
    let device: Arc<dyn BlockDevice> = Arc::new(device.clone());
    let options = CheckOptions {
        data_csums: true,
        ..CheckOptions::default()
    };
    let devices = vec![(PathBuf::from("memory"), device)];
    let report = check_devices(devices, &options, &mut ()).unwrap();
    let issues: Vec<String> = report.issues.iter().map(ToString::to_string).collect();
    // A superblock copy that was not written is irrelevant.
    assert!(report.is_clean(), "{issues:#?}");
}

pub(crate) fn receive(
    volume: &Arc<Volume>,
    stream: &[u8],
    options: ReceiveOptions,
) -> Result<(), ReceiveError> {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let mut target = VolumeTarget::new(volume, top);
    let mut observer = ();
    let mut receiver = Receiver::new(&mut target, &mut observer, options);
    receiver.receive(&mut StreamReader::open(stream).unwrap())
}

/// Reads the contents of the file `f` in the received subvolume, which must be read-only.
pub(crate) fn content(volume: &Volume) -> Vec<u8> {
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let file = volume.resolve(top, b"s/f").unwrap();
    assert!(is_finished(volume));
    let mut bytes = vec![0; volume.attr(file).unwrap().size as usize];
    assert_eq!(volume.read(file, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

pub(crate) fn is_finished(volume: &Volume) -> bool {
    let all = volume.subvolumes().unwrap();
    let finished = all.iter().filter(|info| {
        info.item.flags().contains(RootItemFlags::RDONLY)
            && info.item.received_uuid == Uuid([7; 16])
    });
    finished.count() == 1
}

/// Returns data that is compressible and has no equal sectors.
pub(crate) fn plain(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64)
        .map(|at| ((at / 64 + salt) % 251) as u8)
        .collect()
}
