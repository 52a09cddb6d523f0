//! The parts that workloads share: where they work, how much they do, and the program that is measured.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;

use crate::run::run;

/// How a run was asked for.
#[derive(Debug)]
pub(crate) struct Kit {
    /// Below it lies everything that the run makes.
    pub(crate) dir: PathBuf,
    /// The program that is measured.
    pub(crate) ubtrfs: PathBuf,
    pub(crate) is_quick: bool,
    pub(crate) rounds: u32,
    numbers: AtomicU32,
}

impl Kit {
    pub(crate) fn new(dir: PathBuf, ubtrfs: PathBuf, is_quick: bool, rounds: u32) -> Kit {
        Kit {
            dir,
            ubtrfs,
            is_quick,
            rounds,
            numbers: AtomicU32::new(0),
        }
    }

    /// Returns `full`, or an amount that takes a quick run about a tenth of the time.
    pub(crate) fn scaled(&self, full: u64) -> u64 {
        match self.is_quick {
            true => (full / 10).max(1),
            false => full,
        }
    }

    /// Returns a path that nothing had before.
    pub(crate) fn fresh(&self, what: &str) -> PathBuf {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.dir.join(format!("{what}.{number}"))
    }

    /// Creates a volume on a new sparse file, by the makers of the kernel's btrfs for all sides.
    pub(crate) fn image(&self, bytes: u64) -> Result<PathBuf> {
        let path = self.fresh("image");
        std::fs::File::create(&path)?.set_len(bytes)?;
        run("mkfs.btrfs", &[Path::new("-q"), &path])?;
        Ok(path)
    }
}
