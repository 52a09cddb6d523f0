//! The allowed differences between a volume after a power cut and its history.

use crate::manifest::Field;

/// The allowed differences of file data from the prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataRule {
    /// No differences.
    #[default]
    Prefix,
    /// The write after the prefix may be partially applied.
    Torn,
    /// Like `Torn`, and any file may be in an earlier state since the promise, as with a commit that does not wait
    /// for data. Truncating, reserving or sharing parts of a file may overtake earlier written data: only the size of
    /// such a file is checked.
    Lagging,
}

#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub data: DataRule,
    /// The fields that the reader cannot show.
    pub ignored: Vec<Field>,
}
