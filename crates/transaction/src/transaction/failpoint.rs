//! Named steps of a commit, of a log and of its replay. A test can make each of them fail, or look at the devices as they
//! are then.
//!
//! A step is named for what has been done when it is reached. Where tests are not built, reaching it does nothing.

macro_rules! failpoints {
    ($($(#[$attribute:meta])* $step:ident,)*) => {
        /// A step between the writes and flushes of a commit or a log, or of a replay.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Failpoint {
            $($(#[$attribute])* $step,)*
        }

        #[cfg(any(test, feature = "testing"))]
        impl Failpoint {
            /// All steps, as they are declared.
            pub const ALL: &[Failpoint] = &[$(Failpoint::$step,)*];
        }
    };
}

failpoints! {
    /// The transaction is frozen, and the next one runs.
    Frozen,
    /// The second copies of the superblock name the last log (LOG-5).
    LogSuperblockCopied,
    /// All blocks of the commit are built and checked.
    Converged,
    BlocksWritten,
    /// Everything that the superblock will lead to is durable.
    BlocksDurable,
    /// The first copy of the superblock is written on a device, and not on the next one. One device has no such step.
    SuperblockOnSomeDevices,
    /// The first copy of each device's superblock is durable, and with it the commit.
    SuperblockDurable,
    /// The other copies are written.
    SuperblockCopied,
    /// Operations see the commit as the last one.
    Published,
    /// All blocks of a log are built.
    LogBuilt,
    LogBlocksWritten,
    /// Everything that the log's superblock will lead to is durable.
    LogBlocksDurable,
    /// The first copy of the superblock names the log on a device, and not yet on the next one.
    LogSuperblockOnSomeDevices,
    /// The first copy of each device's superblock names the log.
    LogSuperblockDurable,
    /// A volume that is opened for writing has a log, and nothing of it is replayed.
    LogFound,
    /// The log of a subvolume is replayed, in the running transaction or in memory.
    SubvolumeReplayed,
    /// All of the log is replayed, and not committed.
    LogReplayed,
}

/// Reaches a step.
///
/// # Errors
/// The one that a test plants there.
#[cfg(not(any(test, feature = "testing")))]
#[inline(always)]
pub fn reach(_step: Failpoint) -> crate::error::Result<()> {
    Ok(())
}

#[cfg(any(test, feature = "testing"))]
pub use super::testing::reach;
