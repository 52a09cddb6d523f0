//! Partition tables.

pub(crate) mod gpt;
pub(crate) mod mbr;
#[cfg(test)]
mod tests;

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    pub(crate) number: u32,
    /// Its name in the table, if it has one.
    pub(crate) label: String,
    pub(crate) start: u64,
    pub(crate) len: u64,
}
