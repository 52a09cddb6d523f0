//! 16-byte identifiers in their on-disk form.

use std::fmt;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A UUID of a volume, device, chunk tree or subvolume. All zeros means none.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(transparent)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Parses 32 hexadecimal digits, with hyphens between groups of 8, 4, 4, 4 and 12 digits or without.
    pub fn parse(text: &str) -> Option<Uuid> {
        let groups: Vec<_> = text.split('-').map(str::len).collect();
        let digits = text.replace('-', "");
        let is_plain = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_plain || !matches!(groups[..], [32] | [8, 4, 4, 4, 12]) {
            return None;
        }
        let number = u128::from_str_radix(&digits, 16).ok()?;
        Some(Uuid(number.to_be_bytes()))
    }

    pub const NIL: Uuid = Uuid([0; 16]);

    pub fn is_nil(&self) -> bool {
        *self == Self::NIL
    }

    /// Returns the two halves, which are the key of an item in the UUID tree: (objectid, offset).
    pub fn key_halves(&self) -> (u64, u64) {
        let (low, high) = self.0.split_at(8);
        let half = |b: &[u8]| u64::from_le_bytes(b.try_into().expect("8 bytes"));
        (half(low), half(high))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsed_text_is_displayed_again() {
        let text = "00112233-4455-6677-8899-aabbccddeeff";
        let uuid = Uuid::parse(text).unwrap();
        assert_eq!(uuid.to_string(), text);
        assert_eq!(Uuid::parse(&text.replace('-', "")), Some(uuid));
        for bad in [
            "",
            "0",
            &text[1..],
            &text.replace('0', "+"),
            &text.replace("-4", "4-"),
        ] {
            assert_eq!(Uuid::parse(bad), None, "{bad}");
        }
    }
}
