//! Written data that has no extent yet.

/// The buffered part of one file.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {}

impl WriteBuffer {
    pub(crate) fn is_dirty(&self) -> bool {
        false
    }
}
