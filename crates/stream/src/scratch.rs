//! The folder for temporary files about a volume.

use ubtrfs_fs::Volume;
use ubtrfs_spill::ScratchDir;

pub(crate) fn scratch_dir(volume: &Volume) -> ScratchDir {
    let devices = volume.pool().devices().into_iter();
    ScratchDir::beside(devices.filter_map(|device| device.path))
}
