//! What a device is opened for, which decides what its lock allows to others.

/// What a device is opened for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Together with other readers.
    #[default]
    Read,
    /// Alone.
    Write,
}
