//! Reservations of metadata, and the counts of the edits that replace them.

#[path = "../../src/transaction/edit_tallies.rs"]
mod edit_tallies;
#[path = "../../src/transaction/reservation.rs"]
mod reservation;
#[path = "../../src/transaction/reservation_cache.rs"]
mod reservation_cache;
#[path = "../../src/transaction/worst_case.rs"]
mod worst_case;

mod tests;

mod estimate {
    pub(super) use ubtrfs_storage::EditEstimate;
}

mod running {
    use super::edit_tallies::EditTallies;
    use super::worst_case::EditCounts;

    /// The counts of the running transaction.
    #[derive(Debug, Default)]
    pub(crate) struct RunningTransaction(pub(super) EditTallies);

    impl RunningTransaction {
        pub(super) fn counts(&self) -> EditCounts {
            self.0.counts()
        }
    }
}

mod stripes {
    //! Two stripes: one for the thread that loom starts a model with, one for spawned threads.

    loom::thread_local! {
        static IS_SPAWNED: std::cell::Cell<bool> = std::cell::Cell::new(false);
    }

    /// Selects the other stripe for the calling thread, which was spawned.
    pub(super) fn use_another() {
        IS_SPAWNED.with(|is_spawned| is_spawned.set(true));
    }

    #[derive(Debug, Default)]
    pub(super) struct Striped<T>([T; 2]);

    impl<T> Striped<T> {
        pub(super) fn mine(&self) -> &T {
            &self.0[usize::from(IS_SPAWNED.with(std::cell::Cell::get))]
        }

        pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
            self.0.iter()
        }
    }
}
