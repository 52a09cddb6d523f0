//! Threads that are started on demand.

use std::sync::Barrier;
use std::sync::mpsc::channel;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::*;

#[test]
fn as_many_jobs_run_at_once_as_there_may_be_threads() {
    let pool = Pool::new("ubtrfs-pool", 4).unwrap();
    let together = Arc::new(Barrier::new(4));
    let (sender, done) = channel();
    for _ in 0..40 {
        let (together, sender) = (Arc::clone(&together), sender.clone());
        pool.run(move || {
            together.wait();
            sender.send(()).unwrap();
        });
    }
    assert_eq!(done.iter().take(40).count(), 40);
    pool.end();
}

// JOBS-1
#[test]
fn one_thread_is_spare_and_a_job_after_another_needs_no_further_one() {
    let pool = Pool::new("ubtrfs-pool", 4).unwrap();
    for _ in 0..10 {
        let (sender, heard) = channel();
        pool.run(move || sender.send(()).unwrap());
        heard.recv().unwrap();
        while pool.state.lock().idle < 2 {
            std::thread::yield_now();
        }
    }
    assert_eq!(pool.state.lock().threads.len(), 2);
    pool.end();
}

// JOBS-2
#[test]
fn threads_are_not_pinned_as_the_giver_of_jobs() {
    let all = sched_getaffinity(None).unwrap();
    let pool = Pool::new("ubtrfs-pool", 4).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu)).unwrap();
    let (sender, heard) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut one = CpuSet::new();
            one.set(first);
            sched_setaffinity(None, &one).unwrap();
            let together = Arc::new(Barrier::new(4));
            for _ in 0..4 {
                let (sender, together) = (sender.clone(), Arc::clone(&together));
                pool.run(move || {
                    together.wait();
                    sender.send(sched_getaffinity(None).unwrap()).unwrap();
                });
            }
        });
    });
    drop(sender);
    let cpus: Vec<_> = heard.iter().take(4).collect();
    assert!(cpus.len() == 4 && cpus.iter().all(|cpus| *cpus == all));
    pool.end();
}
