//! Memory devices: sparse, bounded, cheap to clone.

use super::*;

#[test]
fn terabytes_take_only_what_was_written() {
    let device = MemDevice::new(4 << 40);
    device.write_at(&[7; 100_000], (3 << 40) - 5).unwrap();
    let mut buf = vec![1; 100_010];
    device.read_at(&mut buf, (3 << 40) - 10).unwrap();
    assert_eq!(buf[..5], [0; 5]);
    assert!(buf[5..100_005].iter().all(|&b| b == 7));
    assert_eq!(buf[100_005..], [0; 5]);
    assert!(device.allocated_bytes() <= 100_000 + 2 * PAGE_BYTES as u64);
}

#[test]
fn request_past_the_end_moves_nothing() {
    let device = MemDevice::new(1000);
    assert!(device.write_at(&[1; 10], 995).is_err());
    let mut buf = [9; 10];
    let error = device.read_at(&mut buf, 995).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(buf, [9; 10]);
    assert!(device.read_at(&mut buf, u64::MAX - 3).is_err());
    device.read_at(&mut buf, 990).unwrap();
    assert_eq!(buf, [0; 10]);
}

#[test]
fn clone_does_not_see_later_writes() {
    let device = MemDevice::from_bytes(&[5; 40_000]);
    let before = device.clone();
    device.write_at(&[6; 40_000], 0).unwrap();
    let mut buf = [0; 1];
    before.read_at(&mut buf, 20_000).unwrap();
    assert_eq!(buf, [5]);
}

#[test]
fn discard_drops_whole_pages_only() {
    let device = MemDevice::from_bytes(&vec![5; 4 * PAGE_BYTES]);
    device.discard(1, 4 * PAGE_BYTES as u64 - 2).unwrap();
    let mut buf = vec![0; 4 * PAGE_BYTES];
    device.read_at(&mut buf, 0).unwrap();
    assert!(buf[..PAGE_BYTES].iter().all(|&b| b == 5));
    assert!(buf[PAGE_BYTES..3 * PAGE_BYTES].iter().all(|&b| b == 0));
    assert!(buf[3 * PAGE_BYTES..].iter().all(|&b| b == 5));
}

#[test]
fn bytes_that_were_cut_off_are_zero_when_the_device_grows_again() {
    let device = MemDevice::from_bytes(&vec![5; 3 * PAGE_BYTES]);
    let cut = PAGE_BYTES as u64 + 100;
    device.resize(cut).unwrap();
    assert!(device.read_at(&mut [0], cut).is_err());
    device.resize(3 * PAGE_BYTES as u64).unwrap();
    let mut buf = vec![1; 3 * PAGE_BYTES];
    device.read_at(&mut buf, 0).unwrap();
    assert!(buf[..cut as usize].iter().all(|&b| b == 5));
    assert!(buf[cut as usize..].iter().all(|&b| b == 0));
}
