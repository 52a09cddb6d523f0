//! A file that fills a volume from the start, and queries of the free space.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{statvfs, syncfs};
use ubtrfs_sim::Rng;

use crate::Outcome;

/// Writes a file that leaves this many bytes.
pub(super) fn leave(dir: &Path, bytes: u64) -> Outcome {
    let file = File::create(dir.join("ballast"))?;
    let mut part = vec![0; 1 << 20];
    Rng::new(1).fill(&mut part);
    let parts = available_bytes(dir)?.saturating_sub(bytes) / part.len() as u64;
    for number in 0..parts {
        file.write_all_at(&part, number * part.len() as u64)?;
    }
    file.sync_all()?;
    Ok(())
}

pub(super) fn available_bytes(dir: &Path) -> io::Result<u64> {
    let about = statvfs(dir)?;
    Ok(about.f_bavail * about.f_frsize)
}

/// Waits until this many bytes are available, because subvolumes are deleted in the background.
pub(super) fn wait_for(dir: &Path, bytes: u64) -> Outcome {
    let began = Instant::now();
    loop {
        syncfs(File::open(dir)?)?;
        let now = available_bytes(dir)?;
        if now >= bytes {
            return Ok(());
        }
        if began.elapsed() > Duration::from_secs(60) {
            return Err(
                format!("{now} bytes are available in an empty volume, not {bytes}").into(),
            );
        }
        thread::sleep(Duration::from_millis(100));
    }
}
