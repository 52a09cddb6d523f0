//! The times of inodes.

use ubtrfs_format::item::{FileTime, InodeItem, Timespec};

use super::source::Times;

/// The rule for the times of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeRule {
    /// Keep access, modification and change times, and set the creation time to the volume's.
    Keep,
    /// Set all four to the modification time, limited to this number of seconds after 1970. The other times differ
    /// between copies of the same files.
    Clamp(i64),
}

impl TimeRule {
    pub(super) fn apply(self, times: &Times, created: Timespec, inode: &mut InodeItem) {
        let [access, modification, change, birth] = match self {
            TimeRule::Keep => [
                timespec(times.access),
                timespec(times.modification),
                timespec(times.change),
                created,
            ],
            TimeRule::Clamp(latest) => {
                let latest = FileTime {
                    sec: latest,
                    nsec: 0,
                };
                [timespec(times.modification.min(latest)); 4]
            }
        };
        inode.atime = access;
        inode.mtime = modification;
        inode.ctime = change;
        inode.otime = birth;
    }
}

fn timespec(time: FileTime) -> Timespec {
    Timespec {
        sec: time.sec.into(),
        nsec: time.nsec.into(),
    }
}
