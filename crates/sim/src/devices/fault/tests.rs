//! Each fault has exactly its documented effect.

use super::*;
use ubtrfs_device::MemDevice;

fn device() -> FaultDevice {
    FaultDevice::new(Arc::new(MemDevice::from_bytes(&[7; 8192])))
}

fn read(device: &FaultDevice, offset: u64) -> io::Result<[u8; 4]> {
    let mut buf = [0; 4];
    device.read_at(&mut buf, offset).map(|()| buf)
}

#[test]
fn nth_request_of_its_kind_fails_and_no_other() {
    let device = device();
    device.add(Fault::Read { nth: 1 });
    device.add(Fault::Write { nth: 0 });
    device.add(Fault::Flush { nth: 0 });
    device.add(Fault::Discard { nth: 0 });
    assert!(device.write_at(&[1], 0).is_err());
    assert!(device.flush().is_err());
    assert!(device.discard(0, 4096).is_err());
    assert_eq!(
        read(&device, 0).unwrap(),
        [7; 4],
        "the failed write changed nothing"
    );
    assert!(read(&device, 0).is_err());
    assert!(read(&device, 0).is_ok() && device.flush().is_ok() && device.discard(0, 1).is_ok());
    let counts = Counts {
        reads: 3,
        writes: 1,
        flushes: 2,
        discards: 2,
    };
    assert_eq!(device.counts(), counts);
}

#[test]
fn discards_fail_with_the_given_error() {
    let device = device();
    device.add(Fault::Discards { errno: 95 });
    for _ in 0..2 {
        let error = device.discard(0, 4096).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(95));
    }
    assert!(device.write_at(&[1], 0).is_ok() && device.flush().is_ok());
    device.heal();
    assert!(device.discard(0, 4096).is_ok());
}

#[test]
fn bad_range_fails_what_touches_it() {
    let device = device();
    device.add(Fault::ReadRange { range: 100..104 });
    device.add(Fault::WriteRange { range: 200..201 });
    let failed = |offset| read(&device, offset).is_err();
    assert_eq!([96, 97, 103, 104].map(failed), [false, true, true, false]);
    assert!(device.write_at(&[0; 10], 191).is_err());
    assert!(
        device.write_at(&[0; 10], 100).is_ok(),
        "bad to read, good to write"
    );
}

#[test]
fn corruption_is_seen_by_reads_only_until_healed() {
    let device = device();
    device.add(Fault::Corrupt {
        offset: 2,
        mask: 0xff,
    });
    assert_eq!(read(&device, 0).unwrap(), [7, 7, 0xf8, 7]);
    assert_eq!(read(&device, 3).unwrap(), [7; 4]);
    device.heal();
    assert_eq!(read(&device, 0).unwrap(), [7; 4]);
    device.add(Fault::Gone);
    assert!(read(&device, 0).is_err() && device.flush().is_err());
}

#[test]
fn each_request_of_a_run_can_be_failed_in_turn() {
    let run = |device: &FaultDevice| -> io::Result<()> {
        read(device, 0)?;
        device.write_at(&[1; 512], 0)?;
        device.write_at(&[2; 512], 512)?;
        device.flush()?;
        device.discard(0, 4096)
    };
    // Requests before the run, such as opening the volume, do not fail.
    let opened = || {
        let device = device();
        read(&device, 0).unwrap();
        (device.counts(), device)
    };
    let (start, sound) = opened();
    run(&sound).unwrap();
    let faults: Vec<Fault> = sound.counts().each_since(start).collect();
    assert_eq!(faults.len(), 5);
    assert_eq!(faults[0], Fault::Read { nth: 1 });
    for fault in faults {
        let (_, device) = opened();
        device.add(fault.clone());
        let error = run(&device).unwrap_err().to_string();
        assert!(error.contains(&format!("{fault:?}")), "{error}");
    }
}

#[test]
fn device_that_went_away_stays_away() {
    let device = device();
    device.add(Fault::GoneAfter { requests: 2 });
    assert!(device.flush().is_ok() && device.write_at(&[1], 0).is_ok());
    assert!(read(&device, 0).is_err() && device.flush().is_err());
    assert!(device.write_at(&[1], 0).is_err() && device.discard(0, 512).is_err());
}
