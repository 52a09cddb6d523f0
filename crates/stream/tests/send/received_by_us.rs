//! A volume that receives streams with our own `Receiver`, checked by the kernel.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{OpenOptions, Volume};
use ubtrfs_sim::kernel::{KernelVolume, MkfsSpec};
use ubtrfs_sim::manifest::{Field, Manifest};
use ubtrfs_stream::{ReceiveOptions, Receiver, StreamReader, VolumeTarget};

use crate::fixture::{Sending, differences_without};

pub(crate) struct OwnTarget {
    volume: Arc<Volume>,
    files: KernelVolume,
}

impl OwnTarget {
    pub(crate) fn new() -> OwnTarget {
        OwnTarget::of(&MkfsSpec::new())
    }

    pub(crate) fn of(spec: &MkfsSpec) -> OwnTarget {
        let files = KernelVolume::make(spec).unwrap();
        let options = OpenOptions::new().writable(true);
        OwnTarget {
            volume: Volume::open(files.devices(), &options).unwrap(),
            files,
        }
    }

    pub(crate) fn receive(&self, stream: &Path) {
        let top = self.volume.root_dir(RootId::FS_TREE).unwrap();
        let mut target = VolumeTarget::new(&self.volume, top);
        let bytes = fs::read(stream).unwrap();
        let mut stream = StreamReader::open(&*bytes).unwrap();
        let observer = &mut ();
        let mut receiver = Receiver::new(&mut target, observer, ReceiveOptions::default());
        receiver.receive(&mut stream).unwrap();
    }

    /// Compares everything that was received, on a kernel mount.
    pub(crate) fn judge(self, sending: &Sending, names: &[&str]) {
        let wanted: Vec<_> = names
            .iter()
            .map(|name| (*name, sending.manifest(name).clone()))
            .collect();
        self.judge_as(&wanted, &[]);
    }

    /// Compares everything that was received with the given manifests, except for some fields.
    pub(crate) fn judge_as(self, wanted: &[(&str, Manifest)], without: &[Field]) {
        self.volume.sync().unwrap();
        drop(self.volume);
        self.files.check().unwrap();
        let mount = self.files.mount_ro().unwrap();
        for (name, wanted) in wanted {
            let received = Manifest::of_dir(&mount.path().join(name)).unwrap();
            let differences = differences_without(wanted, &received, without);
            assert!(differences.is_empty(), "{name}: {differences:#?}");
        }
    }
}
