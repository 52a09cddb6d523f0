//! The context of workloads: their directory, their size, and the measured program.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;

use crate::run::run;

/// The settings of a run.
#[derive(Debug)]
pub(crate) struct Kit {
    /// The root of all files of the run.
    pub(crate) dir: PathBuf,
    /// The measured program.
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

    /// Returns `full`, or about a tenth of it in a quick run.
    pub(crate) fn scaled(&self, full: u64) -> u64 {
        if self.is_quick {
            (full / 10).max(1)
        } else {
            full
        }
    }

    /// Returns an unused path.
    pub(crate) fn fresh(&self, what: &str) -> PathBuf {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.dir.join(format!("{what}.{number}"))
    }

    /// Creates a volume on a new sparse file, with mkfs.btrfs for all sides.
    pub(crate) fn image(&self, bytes: u64) -> Result<PathBuf> {
        let path = self.fresh("image");
        std::fs::File::create(&path)?.set_len(bytes)?;
        run("mkfs.btrfs", &[Path::new("-q"), &path])?;
        Ok(path)
    }
}
