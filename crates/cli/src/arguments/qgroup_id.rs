//! The id of a quota group in the notation LEVEL/ID.

use std::str::FromStr;

/// Bits of the id that number a group within its level.
const NUMBER_BITS: u32 = 48;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QgroupId(pub(crate) u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum QgroupIdError {
    #[error("a quota group is written LEVEL/ID")]
    Malformed,
    #[error("no quota group has the id 0/0")]
    Zero,
}

impl FromStr for QgroupId {
    type Err = QgroupIdError;

    fn from_str(text: &str) -> Result<QgroupId, QgroupIdError> {
        let (level, number) = text.split_once('/').ok_or(QgroupIdError::Malformed)?;
        let is_plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if !is_plain(level) || !is_plain(number) {
            return Err(QgroupIdError::Malformed);
        }
        let level: u16 = level.parse().map_err(|_| QgroupIdError::Malformed)?;
        let number: u64 = number.parse().map_err(|_| QgroupIdError::Malformed)?;
        if number >> NUMBER_BITS != 0 {
            return Err(QgroupIdError::Malformed);
        }
        match u64::from(level) << NUMBER_BITS | number {
            0 => Err(QgroupIdError::Zero),
            id => Ok(QgroupId(id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_btrfs_progs() {
        assert_eq!("0/5".parse(), Ok(QgroupId(5)));
        assert_eq!("1/0".parse(), Ok(QgroupId(1 << 48)));
        let last = "65535/281474976710655".parse();
        assert_eq!(last, Ok(QgroupId(u64::MAX)));
        assert_eq!("0/0".parse::<QgroupId>(), Err(QgroupIdError::Zero));
        for text in [
            "",
            "5",
            "abc",
            "/",
            "1/",
            "/1",
            "1/x",
            "-1/1",
            "+1/1",
            "1/ 1",
            "65536/1",
            "1/281474976710656",
        ] {
            let parsed = text.parse::<QgroupId>();
            assert_eq!(parsed, Err(QgroupIdError::Malformed), "{text}");
        }
    }
}
