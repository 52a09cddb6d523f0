//! Files that are read on a second thread while earlier parts are sent.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_device::BlockDevice;
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{NewInode, OpenOptions, Snapshot, Volume};
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::new_volume;
use ubtrfs_stream::{Command, CommandSink, SendError, SendOptions, Sender, WriteError};

const FILE_BYTES: usize = (9 << 20) + 12_345;

fn snapshot() -> Snapshot {
    let device = new_volume(&MkfsOptions::default(), 512 << 20);
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let options = OpenOptions::new().writable(true).commit_interval(None);
    let devices = vec![(PathBuf::from("memory"), device)];
    let volume = Volume::from_devices(devices, &options).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let file = volume.create(top, b"file", &NewInode::file(0o644)).unwrap();
    volume.write(file, 0, &content()).unwrap();
    let id = volume.snapshot(RootId::FS_TREE, top, b"s", true).unwrap();
    Snapshot::open(&volume, id).unwrap()
}

fn content() -> Vec<u8> {
    let words = 0..FILE_BYTES as u32 / 4 + 1;
    let mut bytes: Vec<u8> = words
        .flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_le_bytes())
        .collect();
    bytes.truncate(FILE_BYTES);
    bytes
}

/// A sink that keeps the data of all writes, and fails at a limit.
#[derive(Default)]
struct Written {
    data: Vec<u8>,
    most_bytes: Option<usize>,
}

impl CommandSink for Written {
    fn write(&mut self, command: &Command<'_>) -> Result<(), WriteError> {
        if let Command::Write { offset, data, .. } = command {
            assert_eq!(*offset, self.data.len() as u64);
            self.data.extend_from_slice(data);
        }
        match self.most_bytes {
            Some(most) if self.data.len() > most => {
                Err(io::Error::from(io::ErrorKind::StorageFull).into())
            }
            _ => Ok(()),
        }
    }
}

#[test]
fn large_files_are_sent_whole_and_in_order() {
    let snapshot = snapshot();
    let mut written = Written::default();
    Sender::new(&snapshot, SendOptions::default())
        .send(&mut written)
        .unwrap();
    assert!(written.data == content());
}

/// The read-ahead thread stops, too.
#[test]
fn sending_of_a_large_file_ends_with_the_sink() {
    let snapshot = snapshot();
    for most_bytes in [0, 1 << 20, 5 << 20] {
        let mut written = Written {
            most_bytes: Some(most_bytes),
            ..Written::default()
        };
        let sent = Sender::new(&snapshot, SendOptions::default()).send(&mut written);
        assert!(matches!(sent, Err(SendError::Write(_))), "{sent:?}");
    }
}
