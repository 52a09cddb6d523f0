//! A panic in a commit: all waiting threads get an error, no further commit happens, and existing data can be
//! read.

use std::sync::Arc;
use std::time::Duration;

use ubtrfs_device::BlockDevice;
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{Error, FileId, NewInode, OpenOptions, Result, Volume};
use ubtrfs_sim::{HookedDevice, Request};

use crate::devices::{Devices, Layout, MIB, check_after_cut, open, quiet, shared};
use crate::watchdog::in_time;

const WHY: &str = "the test has it panic";

/// Runs `work` on a volume whose next commit panics.
fn after_a_panic(options: &OpenOptions, work: fn(&Volume, FileId) -> Result<()>) {
    let devices = shared(Layout::new(1, 256 * MIB).make());
    let hooked = Arc::new(HookedDevice::new(Arc::clone(&devices[0])));
    let faulty: Devices = vec![Arc::clone(&hooked) as Arc<dyn BlockDevice>];
    let volume = open(&faulty, options).unwrap();
    let top = volume.root_dir(RootId::FS_TREE).unwrap();
    let file = NewInode::file(0o644);
    volume.create(top, b"first", &file).unwrap();
    volume.sync().unwrap();
    hooked.hook(|request| {
        if request == Request::Flush {
            panic!("{WHY}");
        }
    });
    let same = Arc::clone(&volume);
    let error = in_time(WHY, move || work(&same, top)).unwrap_err();
    assert!(error.to_string().contains(WHY), "{error}");
    hooked.unhook();
    let refused = volume.create(top, b"later", &file);
    assert!(matches!(refused, Err(Error::Aborted(why)) if why.contains(WHY)));
    assert!(matches!(volume.sync(), Err(Error::Aborted(_))));
    assert!(volume.lookup(top, b"first").unwrap().is_some());
    drop(volume);
    check_after_cut(&devices).unwrap();
    let volume = open(&devices, &quiet()).unwrap();
    assert!(volume.lookup(top, b"first").unwrap().is_some());
}

#[test]
fn a_sync_reports_the_panic() {
    after_a_panic(&quiet(), |volume, top| {
        volume.create(top, b"second", &NewInode::file(0o644))?;
        volume.sync()
    });
}

#[test]
fn a_wait_for_room_in_the_delta_reports_the_panic() {
    let options = OpenOptions::new()
        .writable(true)
        .commit_interval(Some(Duration::from_secs(3600)))
        .delta_bytes(128 << 10);
    after_a_panic(&options, |volume, top| {
        for number in 0_u64.. {
            let name = number.to_string();
            volume.create(top, name.as_bytes(), &NewInode::file(0o644))?;
        }
        Ok(())
    });
}
