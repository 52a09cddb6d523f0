//! Extended attributes that a destination cannot have.

use std::collections::BTreeMap;
use std::fmt;

use crate::escaped::Escaped;

/// Maximum number of distinct names. A hostile source may have any number.
const MOST_NAMES: usize = 16;

/// Counts of the attributes that were left out, by name.
///
/// Other systems store attributes of namespaces that the destination does not have. They are named once, and not for
/// each file.
#[derive(Clone, Debug, Default)]
pub struct LeftOut {
    names: BTreeMap<Vec<u8>, u64>,
    /// Attributes with further names.
    others: u64,
}

impl LeftOut {
    pub fn add(&mut self, name: &[u8]) {
        if let Some(count) = self.names.get_mut(name) {
            *count += 1;
        } else if self.names.len() < MOST_NAMES {
            self.names.insert(name.to_vec(), 1);
        } else {
            self.others += 1;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Logs a warning with the counts, if there are any.
    pub fn warn(&self) {
        if !self.is_empty() {
            tracing::warn!("attributes that the destination cannot have are left out: {self}");
        }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, count)) in self.names.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{} ({count})", Escaped(name))?;
        }
        match self.others {
            0 => Ok(()),
            others => write!(f, ", and {others} with other names"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted_up_to_a_limit() {
        let mut left_out = LeftOut::default();
        assert!(left_out.is_empty());
        left_out.add(b"syno.b");
        left_out.add(b"syno.a");
        left_out.add(b"syno.a");
        assert_eq!(left_out.to_string(), "syno.a (2), syno.b (1)");
        for number in 0..20 {
            left_out.add(format!("z{number}").as_bytes());
        }
        assert!(left_out.to_string().ends_with(", and 6 with other names"));
    }
}
