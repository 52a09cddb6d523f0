//! Bytes that are kept where they were put: room is added in segments, so that nothing is ever copied to grow.
//!
//! Not here: the lengths of values, which their callers know.

#[cfg(test)]
mod tests;

/// A segment's room, but for what is longer and has one of its own.
const SEGMENT_BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Arena {
    segments: Vec<Vec<u8>>,
    len_bytes: usize,
}

/// Where something begins. Positions ascend with time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    segment: u32,
    offset: u32,
}

impl Arena {
    pub(super) fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Puts parts one behind another.
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

    /// Returns the bytes that were put at a position, and more.
    pub(super) fn from(&self, position: Position) -> &[u8] {
        &self.segments[position.segment as usize][position.offset as usize..]
    }
}
