//! The folder and the memory of intermediate data.

use ubtrfs_spill::{Log, ScratchDir};

const USUAL_MEMORY_BYTES: usize = 384 << 20;
const LEAST_MEMORY_BYTES: usize = 16 << 20;

/// The folder for temporary files, and the memory budget before they are used.
#[derive(Clone, Debug)]
pub struct Scratch {
    pub dir: ScratchDir,
    /// The budget for all intermediate data together.
    pub memory_bytes: usize,
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch::new(ScratchDir::default())
    }
}

impl Scratch {
    /// Creates a scratch with the usual budget.
    pub fn new(dir: ScratchDir) -> Scratch {
        Scratch {
            dir,
            memory_bytes: USUAL_MEMORY_BYTES,
        }
    }

    /// Limits the budget to a share of `memory_bytes`, because readahead needs memory in addition.
    #[must_use]
    pub fn limit_memory(self, memory_bytes: u64) -> Scratch {
        let share = usize::try_from(memory_bytes / 4).unwrap_or(usize::MAX);
        Scratch {
            memory_bytes: self.memory_bytes.min(share.max(LEAST_MEMORY_BYTES)),
            ..self
        }
    }

    /// Returns the budget for sorting items.
    pub(super) fn sorting_bytes(&self) -> usize {
        self.memory_bytes / 2
    }

    /// Creates a log. There are at most four.
    pub(super) fn log(&self) -> Log {
        Log::new(&self.dir, self.memory_bytes / 8)
    }
}
