//! A fixed number of bits, with a search for runs of set bits.

const WORD_BITS: u64 = u64::BITS as u64;

#[derive(Clone, Debug)]
pub(crate) struct Bitmap {
    words: Box<[u64]>,
    bits: u64,
}

/// Returns the bits of word `index` within `from..to`.
fn mask(index: u64, from: u64, to: u64) -> u64 {
    let first = index * WORD_BITS;
    let low = from.saturating_sub(first).min(WORD_BITS);
    let high = to.saturating_sub(first).min(WORD_BITS);
    let below = |bits: u64| match bits {
        WORD_BITS => u64::MAX,
        bits => (1 << bits) - 1,
    };
    below(high) & !below(low)
}

impl Bitmap {
    /// Creates a bitmap with all bits clear.
    pub(crate) fn new(bits: u64) -> Bitmap {
        let words = bits.div_ceil(WORD_BITS) as usize;
        Bitmap {
            words: vec![0; words].into_boxed_slice(),
            bits,
        }
    }

    /// Reads bits in the format on disk: the lowest bit of each byte first.
    pub(crate) fn from_le_bytes(bytes: &[u8], bits: u64) -> Bitmap {
        let mut bitmap = Bitmap::new(bits);
        for (word, bytes) in bitmap.words.iter_mut().zip(bytes.chunks(8)) {
            let mut all = [0; 8];
            all[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(all);
        }
        bitmap
    }

    pub(crate) fn to_le_bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self
            .words
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        bytes.truncate(self.bits.div_ceil(8) as usize);
        bytes
    }

    /// Returns the words within `from..to`, each with a mask of the bits in the range.
    fn masks(from: u64, to: u64) -> impl Iterator<Item = (usize, u64)> {
        let words = from / WORD_BITS..to.div_ceil(WORD_BITS);
        words.map(move |index| (index as usize, mask(index, from, to)))
    }

    pub(crate) fn set(&mut self, from: u64, to: u64) {
        for (index, mask) in Self::masks(from, to) {
            self.words[index] |= mask;
        }
    }

    pub(super) fn clear(&mut self, from: u64, to: u64) {
        for (index, mask) in Self::masks(from, to) {
            self.words[index] &= !mask;
        }
    }

    pub(super) fn any(&self, from: u64, to: u64) -> bool {
        Self::masks(from, to).any(|(index, mask)| self.words[index] & mask != 0)
    }

    pub(super) fn all(&self, from: u64, to: u64) -> bool {
        Self::masks(from, to).all(|(index, mask)| self.words[index] & mask == mask)
    }

    /// Returns the first run of set bits at or above `from`, cut off there.
    pub(crate) fn run(&self, from: u64) -> Option<(u64, u64)> {
        let start = self.next(from, 0)?;
        let end = self.next(start, u64::MAX).unwrap_or(self.bits);
        Some((start, end))
    }

    /// Returns the first bit at or above `from` that differs from the same bit of `flip`.
    fn next(&self, from: u64, flip: u64) -> Option<u64> {
        let first = (from / WORD_BITS) as usize;
        for (index, word) in self.words.iter().enumerate().skip(first) {
            let found = (word ^ flip) & mask(index as u64, from, self.bits);
            if found != 0 {
                return Some(index as u64 * WORD_BITS + u64::from(found.trailing_zeros()));
            }
        }
        None
    }
}
