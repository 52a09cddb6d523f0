//! Order, errors and completion of write-behind output.

use super::*;
use crate::scoped_thread::without_threads;

/// A writer that accepts a number of bytes, then fails.
#[derive(Debug)]
struct Short {
    taken: Vec<u8>,
    room_bytes: usize,
}

impl Write for Short {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes
            .len()
            .min(self.room_bytes - self.taken.len())
            .min(700_001);
        if len == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.taken.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn short(room_bytes: usize) -> Short {
    Short {
        taken: Vec::new(),
        room_bytes,
    }
}

fn write_parts(out: &mut WriteBehind<'_>, parts: usize) -> io::Result<()> {
    for number in 0..parts {
        out.write_all(&vec![number as u8; 100_003])?;
    }
    Ok(())
}

#[test]
fn bytes_arrive_in_order() {
    let mut out = short(usize::MAX);
    let (done, written) = write_behind(&mut out, |behind| write_parts(behind, 150));
    done.unwrap();
    written.unwrap();
    let parts = (0..150u8).flat_map(|number| vec![number; 100_003]);
    assert!(out.taken.iter().copied().eq(parts));
}

#[test]
fn failure_reaches_a_later_write() {
    let mut out = short(3_000_000);
    let (done, written) = write_behind(&mut out, |behind| write_parts(behind, 1_000));
    assert_eq!(done.unwrap_err().kind(), io::ErrorKind::StorageFull);
    written.unwrap();
    assert_eq!(out.taken.len(), 3_000_000);
}

#[test]
fn failure_of_the_last_bytes_is_returned() {
    let mut out = short(1_000);
    let (done, written) = write_behind(&mut out, |behind| write_parts(behind, 1));
    done.unwrap();
    assert_eq!(written.unwrap_err().kind(), io::ErrorKind::StorageFull);
}

#[test]
fn bytes_arrive_in_order_without_a_thread() {
    let mut out = short(usize::MAX);
    let written = without_threads(|| write_behind(&mut out, |behind| write_parts(behind, 150)));
    written.0.unwrap();
    written.1.unwrap();
    let parts = (0..150u8).flat_map(|number| vec![number; 100_003]);
    assert!(out.taken.iter().copied().eq(parts));
}

#[test]
fn failure_ends_the_writing_without_a_thread() {
    let mut out = short(3_000_000);
    let (done, written) = without_threads(|| {
        write_behind(&mut out, |behind| {
            let failed = write_parts(behind, 1_000).unwrap_err();
            assert_eq!(failed.kind(), io::ErrorKind::StorageFull);
            write_parts(behind, 1_000)
        })
    });
    assert_eq!(done.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    written.unwrap();
    assert_eq!(out.taken.len(), 3_000_000);

    let mut out = short(1_000);
    let last = || write_behind(&mut out, |behind| write_parts(behind, 1));
    let (done, written) = without_threads(last);
    done.unwrap();
    assert_eq!(written.unwrap_err().kind(), io::ErrorKind::StorageFull);
}
