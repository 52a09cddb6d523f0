//! Times for the API; on disk they are a `Timespec`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Timespec;

/// A user-visible time: seconds since 1970, negative before, and nanoseconds within the second.
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
    #[expect(clippy::disallowed_methods, reason = "the only place")]
    pub fn now() -> FileTime {
        SystemTime::now().into()
    }
}

impl From<SystemTime> for FileTime {
    fn from(time: SystemTime) -> FileTime {
        let since = |duration: Duration| (duration.as_secs() as i64, duration.subsec_nanos());
        let (sec, nsec) = match time.duration_since(UNIX_EPOCH) {
            Ok(after) => since(after),
            // Before 1970: seconds count down, nanoseconds up.
            Err(before) => match since(before.duration()) {
                (sec, 0) => (sec.wrapping_neg(), 0),
                (sec, nsec) => (!sec, 1_000_000_000 - nsec),
            },
        };
        FileTime { sec, nsec }
    }
}

impl From<FileTime> for SystemTime {
    /// Converts a time. In a damaged inode the nanoseconds may exceed a second; they are clamped.
    fn from(time: FileTime) -> SystemTime {
        let nanoseconds = Duration::from_nanos(u64::from(time.nsec.min(999_999_999)));
        let seconds = Duration::from_secs(time.sec.unsigned_abs());
        let whole = if time.sec < 0 {
            UNIX_EPOCH.checked_sub(seconds)
        } else {
            UNIX_EPOCH.checked_add(seconds)
        };
        let time = whole.and_then(|time| time.checked_add(nanoseconds));
        time.unwrap_or(UNIX_EPOCH)
    }
}
