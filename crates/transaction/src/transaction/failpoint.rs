//! Named steps of a commit and of a log. A test can make each of them fail, or look at the devices as they are then.
//!
//! A step is named for what has been done when it is reached. Where tests are not built, reaching it does nothing.

/// A step between the writes and flushes of a commit or a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(
    not(any(test, feature = "testing")),
    expect(unreachable_pub, reason = "only `testing` hands it out")
)]
pub enum Failpoint {
    /// The transaction is frozen, and the next one runs.
    Frozen,
    /// The second copies of the superblock name the last log (LOG-5).
    LogSuperblockCopied,
    /// All blocks of the commit are built and checked.
    Converged,
    BlocksWritten,
    /// Everything that the superblock will lead to is durable.
    BlocksDurable,
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
    /// The first copy of each device's superblock names the log.
    LogSuperblockDurable,
}

#[cfg(not(any(test, feature = "testing")))]
#[inline(always)]
pub(super) fn reach(_step: Failpoint) -> crate::error::Result<()> {
    Ok(())
}

#[cfg(any(test, feature = "testing"))]
pub(super) use super::testing::reach;
