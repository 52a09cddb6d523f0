//! Threads that come when they are needed.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::thread::sched_getaffinity;

use super::*;

#[test]
fn as_many_jobs_run_at_once_as_there_may_be_threads() {
    let pool = Pool::new(4, sched_getaffinity(None).unwrap());
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
    let pool = Pool::new(4, sched_getaffinity(None).unwrap());
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

#[test]
fn threads_are_not_pinned_as_who_starts_them() {
    let all = sched_getaffinity(None).unwrap();
    let pool = Pool::new(1, all);
    let (tell, heard) = std::sync::mpsc::channel();
    let first = (0..CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu)).unwrap();
    let starter = std::thread::spawn({
        let pool = Arc::clone(&pool);
        move || {
            let mut one = CpuSet::new();
            one.set(first);
            sched_setaffinity(None, &one).unwrap();
            pool.run(move || tell.send(sched_getaffinity(None).unwrap()).unwrap());
        }
    });
    starter.join().unwrap();
    assert!(heard.recv().unwrap() == all);
    pool.end();
}
