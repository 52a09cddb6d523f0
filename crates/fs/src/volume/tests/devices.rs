//! A replacement of a device that the kernel has begun.

use ubtrfs_format::item::DevReplaceItem;
use zerocopy::FromZeros;

use super::*;
use crate::Error;

/// Puts the item of a replacement in this state into the device tree.
fn put_state(volume: &Volume, state: u64) {
    let mut item = DevReplaceItem::new_zeroed();
    item.src_devid = 1.into();
    item.replace_state = state.into();
    let tree = volume.roots.tree(RootId::DEV_TREE).unwrap();
    let reservation = volume
        .inodes
        .reserve_metadata(RootId::DEV_TREE, EditEstimate::items(1))
        .unwrap();
    let key = Key::new(0, KeyType::DEV_REPLACE, 0);
    let txn = volume.inodes.join_transaction(reservation).unwrap();
    txn.put(&tree, key, item.as_bytes());
    drop(txn);
    volume.close().unwrap();
}

#[test]
fn volume_with_a_replacement_of_the_kernel_in_progress_is_only_read() {
    // Never started, started, finished, cancelled, suspended.
    for (state, is_writable) in [(0, true), (1, false), (2, true), (3, true), (4, false)] {
        let device = new_device("");
        put_state(&open(&device, &options()), state);
        let named: Arc<dyn BlockDevice> = device.clone();
        let named = vec![(PathBuf::from("memory"), named)];
        let opened = Volume::from_devices(named.clone(), &options());
        match opened {
            Ok(_) => assert!(is_writable, "state {state}"),
            Err(Error::Unwritable(reason)) => {
                assert!(
                    !is_writable && reason.contains("replace its device 1"),
                    "{reason}"
                );
            }
            Err(error) => panic!("state {state}: {error}"),
        }
        assert!(Volume::from_devices(named, &OpenOptions::new()).is_ok());
    }
}
