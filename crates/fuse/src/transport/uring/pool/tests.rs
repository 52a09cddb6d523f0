//! Threads that come when they are needed.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

#[test]
fn as_many_jobs_run_at_once_as_there_may_be_threads() {
    let pool = Pool::new(4);
    let together = Arc::new(Barrier::new(4));
    let done = Arc::new(AtomicUsize::new(0));
    for _ in 0..40 {
        let (together, done) = (Arc::clone(&together), Arc::clone(&done));
        pool.run(move || {
            together.wait();
            done.fetch_add(1, Ordering::Relaxed);
        });
    }
    pool.end();
    assert_eq!(done.load(Ordering::Relaxed), 40);
}

#[test]
fn a_job_after_another_needs_no_further_thread() {
    let pool = Pool::new(4);
    for _ in 0..10 {
        let (tell, heard) = std::sync::mpsc::channel();
        pool.run(move || tell.send(()).unwrap());
        heard.recv().unwrap();
        while pool.state.lock().idle == 0 {
            std::thread::yield_now();
        }
    }
    assert_eq!(pool.state.lock().threads.len(), 1);
    pool.end();
}
