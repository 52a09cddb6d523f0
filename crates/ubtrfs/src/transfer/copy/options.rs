//! Choices of how files are copied.

/// When data is shared instead of copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reflink {
    /// Where it can be.
    #[default]
    Auto,
    /// Always: the copy fails if data cannot be shared.
    Always,
    Never,
}

/// Treatment of holes, and of zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sparse {
    /// Holes stay holes.
    #[default]
    Auto,
    /// Blocks of zeros become holes as well.
    Always,
    /// Holes become zeros.
    Never,
}

/// How files are copied.
#[derive(Clone, Copy, Debug, Default)]
pub struct CopyOptions {
    /// Keep mode, owner, times, attributes and links.
    pub preserve: bool,
    pub reflink: Reflink,
    pub sparse: Sparse,
}
