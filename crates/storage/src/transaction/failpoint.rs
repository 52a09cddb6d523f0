//! Named steps of a commit, of a log and of its replay. A test can make each of them fail, or inspect the devices at
//! that moment.
//!
//! A step is named after the work completed when it is reached. In builds without tests, it does nothing.

macro_rules! failpoints {
    ($($(#[$attribute:meta])* $step:ident,)*) => {
        /// A step between the writes and flushes of a commit or a log, or of a replay.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Failpoint {
            $($(#[$attribute])* $step,)*
        }

        #[cfg(any(test, feature = "testing"))]
        impl Failpoint {
            /// All steps, in order of declaration.
            pub const ALL: &[Failpoint] = &[$(Failpoint::$step,)*];
        }
    };
}

failpoints! {
    /// The transaction is frozen, and the next one runs.
    Frozen,
    /// The other copies of the superblock contain the last log (LOG-5).
    LogSuperblockCopied,
    /// All blocks of the commit are built and checked.
    Converged,
    BlocksWritten,
    /// Everything that the superblock will lead to is durable.
    BlocksDurable,
    /// The first copy of the superblock is written on one device, but not on the next. Not reached with a single
    /// device.
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
    /// The first copy of the superblock contains the log on one device, but not on the next.
    LogSuperblockOnSomeDevices,
    /// The first copy of each device's superblock contains the log.
    LogSuperblockDurable,
    /// A volume opened for writing has a log, and nothing of it is replayed yet.
    LogFound,
    /// The log of a subvolume is replayed, in the running transaction or in memory.
    SubvolumeReplayed,
    /// The whole log is replayed, but not committed.
    LogReplayed,
}

/// Reaches a step.
///
/// # Errors
/// The error injected by a test.
#[cfg(not(any(test, feature = "testing")))]
#[inline(always)]
pub fn reach(_step: Failpoint) -> crate::error::Result<()> {
    Ok(())
}

#[cfg(any(test, feature = "testing"))]
pub use super::testing::reach;
