//! Options for copying files.

/// Whether data is shared instead of copied. [`CopyOptions`](crate::CopyOptions) has an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reflink {
    /// If possible.
    #[default]
    Auto,
    /// Always: the copy fails if data cannot be shared.
    Always,
    /// Never: the copy has its own data.
    Never,
}

/// The treatment of holes and zeros in a copy.
///
/// ```
/// use ubtrfs::{CopyOptions, Problems, Sparse, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let root = volume.root();
/// root.write("/zeros", vec![0; 1 << 20])?;
/// let mut problems = Problems::default();
/// let options = CopyOptions::new().sparse(Sparse::Always);
/// root.copy_tree("/zeros", root, "/hole", &options, &mut problems)?;
/// assert_eq!(root.metadata("/hole")?.len(), 1 << 20);
/// assert_eq!(root.metadata("/hole")?.bytes_used(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sparse {
    /// Holes are preserved.
    #[default]
    Auto,
    /// Blocks of zeros also become holes.
    Always,
    /// Holes are filled with zeros.
    Never,
}

/// Options for copying files.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CopyOptions {
    /// Whether to preserve mode, owner, times, attributes and links.
    pub(crate) preserve: bool,
    pub(crate) reflink: Reflink,
    pub(crate) sparse: Sparse,
    /// Whether an attribute that the destination cannot have is a problem.
    pub(crate) strict_attributes: bool,
    /// The permissions to clear in new files of a volume if modes are not preserved.
    pub(crate) umask: u32,
}
