//! The times of inodes.

use ubtrfs_format::item::{FileTime, InodeItem, Times, Timespec};

/// The rule for the times of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeRule {
    /// Keep access, modification and change times, and set the creation time to the volume's.
    #[default]
    Keep,
    /// Set all four to the modification time, limited to this number of seconds after 1970. The other times differ
    /// between copies of the same files.
    Clamp(i64),
}

impl TimeRule {
    pub(super) fn apply(self, times: &Times, created: Timespec, inode: &mut InodeItem) {
        let [access, modification, change, birth] = match self {
            TimeRule::Keep => [
                times.access.into(),
                times.modification.into(),
                times.change.into(),
                created,
            ],
            TimeRule::Clamp(latest) => {
                let latest = FileTime {
                    sec: latest,
                    nsec: 0,
                };
                [times.modification.min(latest).into(); 4]
            }
        };
        inode.atime = access;
        inode.mtime = modification;
        inode.ctime = change;
        inode.otime = birth;
    }
}
