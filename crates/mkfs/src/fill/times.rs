//! Which times inodes get.

use ubtrfs_format::item::{FileTime, InodeItem, Timespec};

use super::source::Times;

/// The rule for the times of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeRule {
    /// Access, modification and change are kept; the birth is the volume's.
    Keep,
    /// All four are the modification's, but none is later than so many seconds after 1970. The other times of a
    /// file differ from one copy of the same files to the next.
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
