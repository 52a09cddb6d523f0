//! Times as programs handle them; on disk they are a `Timespec`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Timespec;

/// A time as users see it: seconds since 1970, negative before, and nanoseconds within the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileTime {
    pub sec: i64,
    pub nsec: u32,
}

impl From<Timespec> for FileTime {
    fn from(time: Timespec) -> Self {
        FileTime {
            sec: time.sec.get(),
            nsec: time.nsec.get(),
        }
    }
}

impl From<FileTime> for Timespec {
    fn from(time: FileTime) -> Self {
        Timespec {
            sec: time.sec.into(),
            nsec: time.nsec.into(),
        }
    }
}

impl FileTime {
    pub fn now() -> FileTime {
        let since = |duration: Duration| (duration.as_secs() as i64, duration.subsec_nanos());
        let (sec, nsec) = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => since(after),
            // A clock that stands before 1970: seconds count down, nanoseconds up.
            Err(before) => match since(before.duration()) {
                (sec, 0) => (-sec, 0),
                (sec, nsec) => (-sec - 1, 1_000_000_000 - nsec),
            },
        };
        FileTime { sec, nsec }
    }
}
