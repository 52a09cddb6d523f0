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
