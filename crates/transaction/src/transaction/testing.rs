//! What tests of the layers above ask of transactions.

use super::manager::TransactionManager;

impl TransactionManager {
    /// Edits that have entered the running transaction.
    pub fn running_edits(&self) -> u64 {
        self.running.read().counts().edits
    }

    /// Whether any operation has reserved something that it has neither entered nor released.
    pub fn has_reserved(&self) -> bool {
        self.reservations.has_reserved()
    }
}
