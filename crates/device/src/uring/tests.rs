//! Batches through a ring have the same results as plain reads.

use super::*;
use crate::access::Access;
use crate::block_device::{BlockDevice, DeviceRead, DeviceWrite};
use crate::file::{FileDevice, queue_reads};

fn pattern(offset: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| ((offset + i) / 97) as u8).collect()
}

fn image(dir: &std::path::Path, len: usize) -> FileDevice {
    let path = dir.join("image");
    let device = FileDevice::create_new(&path, len as u64).unwrap();
    device.write_at(&pattern(0, len), 0).unwrap();
    drop(device);
    FileDevice::open(&path, Access::Read).unwrap()
}

#[test]
fn more_reads_than_the_ring_holds_all_arrive() {
    let dir = tempfile::tempdir().unwrap();
    let device = image(dir.path(), 4 << 20);
    let mut bufs: Vec<Vec<u8>> = (0..1000).map(|n| vec![0; n * 13 % 9000]).collect();
    let offsets: Vec<u64> = (0..1000)
        .map(|n| n * 7919 % (4 << 20) - n * 7919 % (4 << 20) % 3)
        .collect();
    let fits = |offset: u64, len: usize| offset + len as u64 <= 4 << 20;
    let mut reads: Vec<DeviceRead<'_>> = bufs
        .iter_mut()
        .zip(&offsets)
        .map(|(buf, &offset)| DeviceRead::new(offset, buf))
        .collect();
    device.read_batch(&mut reads);
    for read in &reads {
        let ok = fits(read.offset, read.buf.len());
        assert_eq!(
            read.result.is_ok(),
            ok,
            "{} {}",
            read.offset,
            read.buf.len()
        );
        if ok {
            assert!(read.buf == pattern(read.offset, read.buf.len()));
        }
    }
}

#[test]
fn file_cut_short_fails_only_the_reads_it_cuts() {
    let dir = tempfile::tempdir().unwrap();
    let device = image(dir.path(), 1 << 20);
    File::options()
        .write(true)
        .open(device.path())
        .unwrap()
        .set_len(100_000)
        .unwrap();
    let mut bufs = vec![vec![0; 16384]; 10];
    let mut reads: Vec<DeviceRead<'_>> = (0..)
        .zip(&mut bufs)
        .map(|(n, buf)| DeviceRead::new(n * 16384, buf))
        .collect();
    device.read_batch(&mut reads);
    let ok: Vec<bool> = reads.iter().map(|read| read.result.is_ok()).collect();
    assert_eq!(ok, [[true; 6].as_slice(), &[false; 4]].concat());
}

#[test]
fn batched_writes_land_where_they_should() {
    let dir = tempfile::tempdir().unwrap();
    let device = FileDevice::create_new(&dir.path().join("image"), 1 << 20).unwrap();
    let parts: Vec<(u64, Vec<u8>)> = (0..64)
        .map(|n| (n << 14, pattern(n << 14, 1 << 14)))
        .collect();
    let mut writes: Vec<DeviceWrite<'_>> = parts
        .iter()
        .rev()
        .map(|(offset, bytes)| DeviceWrite::new(*offset, bytes))
        .collect();
    writes.push(DeviceWrite::new(1 << 20, &[1]));
    device.write_batch(&mut writes);
    assert!(writes.pop().unwrap().result.is_err());
    assert!(writes.iter().all(|write| write.result.is_ok()));
    let mut all = vec![0; 1 << 20];
    device.read_at(&mut all, 0).unwrap();
    assert!(all == pattern(0, 1 << 20));
}

/// URING-2: one batch at a time.
#[test]
fn threads_share_the_rings() {
    let dir = tempfile::tempdir().unwrap();
    let device = image(dir.path(), 1 << 20);
    std::thread::scope(|scope| {
        for thread in 0..12u64 {
            let device = &device;
            scope.spawn(move || {
                for round in 0..20 {
                    let mut bufs = vec![vec![0; 4096]; 32];
                    let start = (thread * 20 + round) * 1000;
                    let mut reads: Vec<DeviceRead<'_>> = (0..)
                        .zip(&mut bufs)
                        .map(|(n, buf)| DeviceRead::new(start + n * 5000, buf))
                        .collect();
                    device.read_batch(&mut reads);
                    for read in reads {
                        assert!(read.result.is_ok() && read.buf == pattern(read.offset, 4096));
                    }
                }
            });
        }
    });
    assert!(RINGS.lock().len() <= KEPT);
}

/// URING-2: only in the process that created it.
#[test]
fn ring_of_another_process_is_not_used() {
    let Ok(ring) = IoUring::new(4) else {
        return;
    };
    RINGS.lock().push(Ring { ring, pid: 0 });
    let taken = take_ring();
    assert!(taken.is_none_or(|ring| ring.pid == std::process::id()));
}

#[test]
fn without_a_ring_plain_calls_do_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let device = image(dir.path(), 1 << 20);
    let mut bufs = vec![vec![0; 5000]; 20];
    let mut reads: Vec<DeviceRead<'_>> = (0..)
        .zip(&mut bufs)
        .map(|(n, buf)| DeviceRead::new(n * 60_000, buf))
        .collect();
    let mut requests = Vec::new();
    let (file, len_bytes) = (device.file().unwrap(), device.len_bytes());
    queue_reads(file, len_bytes, &mut reads, &mut requests);
    assert!(run_with(None, &mut requests).is_none());
    for read in reads {
        let fits = read.offset + 5000 <= 1 << 20;
        assert_eq!(read.result.is_ok(), fits);
        assert!(!fits || read.buf == pattern(read.offset, 5000));
    }
}

/// Images do not support BLKDISCARD, with or without a ring.
#[test]
fn discard_that_the_ring_refuses_has_the_error_of_the_plain_call() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 20).unwrap();
    let mut results: Vec<io::Result<()>> = (0..100).map(|_| Ok(())).collect();
    let mut requests: Vec<Request<'_>> = (0..)
        .zip(&mut results)
        .map(|(nth, result)| Request::discard(&file, nth * 4096, 4096, result))
        .collect();
    run(&mut requests);
    assert!(requests.iter().all(|request| request.completed));
    for result in results {
        let errno = rustix::io::Errno::from_io_error(&result.unwrap_err());
        assert_eq!(errno, Some(rustix::io::Errno::NOTTY));
    }
}

/// URING-1
#[test]
fn abandoned_batch_waits_for_all_that_the_kernel_has_taken() {
    let Ok(mut ring) = IoUring::new(DEPTH) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let device = image(dir.path(), 1 << 20);
    let mut bufs = vec![vec![0; 64 << 10]; 12];
    let mut reads: Vec<DeviceRead<'_>> = (0..)
        .zip(&mut bufs)
        .map(|(n, buf)| DeviceRead::new(n << 16, buf))
        .collect();
    let mut requests = Vec::new();
    let file = device.file().unwrap();
    queue_reads(file, device.len_bytes(), &mut reads, &mut requests);
    for (index, request) in requests.iter_mut().enumerate() {
        let entry = request.entry(index);
        // SAFETY: the buffers outlive the ring's last use, and `abandon` waits for all submitted entries.
        unsafe { ring.submission().push(&entry) }.unwrap();
        if index == 7 {
            ring.submit().unwrap();
        }
    }
    abandon(&mut ring, &mut requests, 12);
    let is_done = |request: &Request<'_>| request.completed || request.done > 0;
    assert!(requests[..8].iter().all(is_done));
    assert!(!requests[8..].iter().any(is_done));
}
