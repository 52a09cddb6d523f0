//! Byte strings in memory. They are in large segments, so that none is moved or has an allocation of its own.

use std::fmt::Debug;

/// Longer strings get segments of their own.
const SEGMENT_BYTES: usize = 1 << 20;
const LEN_BYTES: usize = 4;

#[derive(Debug, Default)]
pub struct Arena {
    /// Each string follows its length.
    segments: Vec<Vec<u8>>,
    len_bytes: usize,
}

/// The position of a string. Later strings have greater positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    segment: u32,
    offset: u32,
}

impl Arena {
    pub(crate) fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    fn push(&mut self, bytes: &[u8]) -> Position {
        let len = LEN_BYTES + bytes.len();
        let last = self.segments.last();
        let room = last.map(|segment| segment.capacity() - segment.len());
        if room.is_none_or(|room| room < len) {
            let segment = Vec::with_capacity(len.max(SEGMENT_BYTES));
            self.segments.push(segment);
        }
        let number = self.segments.len() - 1;
        let segment = &mut self.segments[number];
        let position = Position {
            segment: number as u32,
            offset: segment.len() as u32,
        };
        segment.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        segment.extend_from_slice(bytes);
        self.len_bytes += len;
        position
    }

    fn get(&self, at: Position) -> &[u8] {
        let bytes = &self.segments[at.segment as usize][at.offset as usize..];
        let (len, bytes) = bytes.split_at(LEN_BYTES);
        let len = u32::from_le_bytes(len.try_into().expect("4 bytes"));
        &bytes[..len as usize]
    }
}

/// The place of the tails of records: `()` for records without tails, or [`Position`].
pub trait Tail: Copy + Debug + Ord {
    const EXISTS: bool;

    fn push(arena: &mut Arena, tail: &[u8]) -> Self;
    fn get(self, arena: &Arena) -> &[u8];
}

impl Tail for () {
    const EXISTS: bool = false;

    fn push(_: &mut Arena, _: &[u8]) {}

    fn get(self, _: &Arena) -> &[u8] {
        &[]
    }
}

impl Tail for Position {
    const EXISTS: bool = true;

    fn push(arena: &mut Arena, tail: &[u8]) -> Position {
        arena.push(tail)
    }

    fn get(self, arena: &Arena) -> &[u8] {
        arena.get(self)
    }
}
