//! Written data that has no extent yet.

/// The buffered part of one file.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {}

impl WriteBuffer {
    /// The size of the file whose item says `item_size`.
    pub(crate) fn size_over(&self, item_size: u64) -> u64 {
        item_size
    }

    pub(crate) fn is_dirty(&self) -> bool {
        false
    }
}
