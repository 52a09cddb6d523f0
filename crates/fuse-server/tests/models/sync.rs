//! The atomics and threads of loom, limited to the subset that the sources use.

pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// A cell with the orders of the standard library's.
#[derive(Debug)]
pub(crate) struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    is_set: AtomicBool,
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        OnceLock {
            value: std::sync::OnceLock::new(),
            is_set: AtomicBool::default(),
        }
    }
}

impl<T> OnceLock<T> {
    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        self.value.set(value)?;
        self.is_set.store(true, Ordering::Release);
        Ok(())
    }

    pub(crate) fn get(&self) -> Option<&T> {
        if self.is_set.load(Ordering::Acquire) {
            self.value.get()
        } else {
            None
        }
    }
}

pub(crate) mod thread {
    //! Threads with a token of their own: in loom, only `park` consumes the token. Nor does loom run another thread
    //! just before `unpark`.

    use std::cell::RefCell;
    use std::sync::Arc;
    use std::time::Duration;

    use loom::thread::JoinHandle;

    use super::{AtomicBool, Ordering};

    loom::thread_local! {
        static TOKEN: RefCell<Option<Arc<AtomicBool>>> = RefCell::new(None);
    }

    #[derive(Clone, Debug)]
    pub(crate) struct Thread {
        parked: loom::thread::Thread,
        token: Arc<AtomicBool>,
    }

    impl Thread {
        pub(crate) fn unpark(&self) {
            self.token.swap(true, Ordering::Release);
            self.parked.unpark();
        }
    }

    pub(crate) fn spawn(work: impl FnOnce() + 'static) -> (JoinHandle<()>, Thread) {
        let token = Arc::new(AtomicBool::new(false));
        let own = Arc::clone(&token);
        let handle = loom::thread::spawn(move || {
            TOKEN.with(|token| *token.borrow_mut() = Some(own));
            work();
        });
        let parked = handle.thread().clone();
        (handle, Thread { parked, token })
    }

    pub(crate) fn park() {
        while !take_token() {
            loom::thread::park();
        }
    }

    /// Returns at once, as after a timeout.
    pub(crate) fn park_timeout(_: Duration) {
        let _ = take_token();
    }

    fn take_token() -> bool {
        TOKEN.with(|token| {
            token
                .borrow()
                .as_ref()
                .unwrap()
                .swap(false, Ordering::Acquire)
        })
    }
}
