//! Times for the API; on disk they are a `Timespec`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Timespec;

const SECOND_NSEC: u32 = 1_000_000_000;

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

    /// Converts a time. Returns None if the nanoseconds are a second or more, or the time is beyond the clock.
    pub fn to_system_time(self) -> Option<SystemTime> {
        let seconds = Duration::from_secs(self.sec.unsigned_abs());
        let whole = if self.sec < 0 {
            UNIX_EPOCH.checked_sub(seconds)
        } else {
            UNIX_EPOCH.checked_add(seconds)
        };
        let nanoseconds = Some(self.nsec).filter(|&nsec| nsec < SECOND_NSEC)?;
        whole?.checked_add(Duration::from_nanos(nanoseconds.into()))
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
                (sec, nsec) => (!sec, SECOND_NSEC - nsec),
            },
        };
        FileTime { sec, nsec }
    }
}

impl From<FileTime> for SystemTime {
    /// Converts a time. In a damaged inode the nanoseconds may exceed a second; they are clamped.
    fn from(time: FileTime) -> SystemTime {
        let nsec = time.nsec.min(SECOND_NSEC - 1);
        let time = FileTime { nsec, ..time }.to_system_time();
        time.unwrap_or(UNIX_EPOCH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_count_nanoseconds_up() {
        for (before, sec, nsec) in [
            (Duration::new(1, 500), -2, 999_999_500),
            (Duration::new(1, 0), -1, 0),
            (Duration::new(0, 1), -1, 999_999_999),
        ] {
            let time = UNIX_EPOCH - before;
            let stored = FileTime::from(time);
            assert_eq!((stored.sec, stored.nsec), (sec, nsec));
            assert_eq!(stored.to_system_time(), Some(time));
            assert_eq!(SystemTime::from(stored), time);
        }
    }

    #[test]
    fn impossible_times_are_none_or_clamped() {
        let at = |sec, nsec| FileTime { sec, nsec };
        assert_eq!(at(0, SECOND_NSEC).to_system_time(), None);
        assert_eq!(at(i64::MAX, u32::MAX).to_system_time(), None);
        let last = UNIX_EPOCH + Duration::from_nanos(999_999_999);
        assert_eq!(SystemTime::from(at(0, u32::MAX)), last);
        for sec in [i64::MIN, i64::MAX] {
            let time = SystemTime::from(at(sec, 0));
            assert!(time == UNIX_EPOCH || FileTime::from(time) == at(sec, 0));
        }
    }
}
