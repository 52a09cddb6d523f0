//! Reservations of metadata, and the counts of the edits that replace them.

mod reservation;
mod tests;

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
