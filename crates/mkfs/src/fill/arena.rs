//! An append-only store of bytes. It grows by segments, so existing bytes are never moved.
//!
//! Not here: the lengths of values, which the callers know.

#[cfg(test)]
mod tests;

/// The size of a segment. Larger values get segments of their own.
const SEGMENT_BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Arena {
    segments: Vec<Vec<u8>>,
    len_bytes: usize,
}

/// The position of a value. Later values have greater positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    segment: u32,
    offset: u32,
}

impl Arena {
    pub(super) fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Appends the parts as one value.
    pub(super) fn push(&mut self, parts: &[&[u8]]) -> Position {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let last = self.segments.last();
        let room = last.map(|segment| segment.capacity() - segment.len());
        if room.is_none_or(|room| room < len) {
            self.segments
                .push(Vec::with_capacity(len.max(SEGMENT_BYTES)));
        }
        let segment = self.segments.len() - 1;
        let bytes = &mut self.segments[segment];
        let position = Position {
            segment: segment as u32,
            offset: bytes.len() as u32,
        };
        for part in parts {
            bytes.extend_from_slice(part);
        }
        self.len_bytes += len;
        position
    }

    /// Returns all bytes from a position to the end of its segment.
    pub(super) fn from(&self, position: Position) -> &[u8] {
        &self.segments[position.segment as usize][position.offset as usize..]
    }
}
