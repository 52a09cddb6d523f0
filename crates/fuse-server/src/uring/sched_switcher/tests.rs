//! The actual policies of threads.

use std::sync::mpsc::channel;
use std::thread;

use super::super::switcher_sleep::REQUESTS_A_LOOK;
use super::*;

/// Returns the policy of a thread, as reported by the kernel.
fn policy(thread: Pid) -> String {
    let path = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    let stat = std::fs::read_to_string(path).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    // It is the 41st field; the state, which is first here, is the third.
    rest.split_whitespace().nth(38).unwrap().to_owned()
}

// SWITCHER-2
#[test]
fn threads_in_use_get_the_policy_and_lose_it_again() {
    if let Err(error) = sched::try_there_and_back() {
        ubtrfs_sim::skip_optional(error);
        return;
    }
    let loads = QueueLoads::new(2);
    let (sender, heard) = channel();
    let (release, released) = channel::<()>();
    let own = Arc::clone(&loads);
    let queue = thread::spawn(move || {
        let load = own.sign_on(1);
        load.count(3);
        sender.send(gettid()).unwrap();
        let _ = released.recv();
        drop(load);
        sender.send(gettid()).unwrap();
    });
    let id = heard.recv().unwrap();
    let mut watching = Watching::new(Arc::clone(&loads)).unwrap();
    watching.apply(true).unwrap();
    assert_eq!(policy(id), libc::SCHED_OTHER.to_string());
    let (mut seen, _) = watching.look().unwrap();
    assert_eq!((seen[0].1.served, seen[1].1.served), (0, 3));
    let machine = Machine {
        since_last: PERIOD,
        cpus: 2,
        runnable: 0,
    };
    SchedPolicy::default().decide(machine, &mut seen);
    for (queue, (record, _)) in watching.queues.iter_mut().zip(seen) {
        queue.record = record;
    }
    watching.apply(true).unwrap();
    assert_eq!(policy(id), libc::SCHED_IDLE.to_string());
    watching.apply(false).unwrap();
    assert_eq!(policy(id), libc::SCHED_OTHER.to_string());
    // A thread that has signed off is not changed, as another one may have its id now.
    release.send(()).unwrap();
    heard.recv().unwrap();
    watching.apply(true).unwrap();
    watching.look().unwrap();
    queue.join().unwrap();
}

#[test]
fn a_switcher_sleeps_until_requests_come_and_ends_when_asked() {
    let loads = QueueLoads::new(1);
    let Some(switcher) = SchedSwitcher::start(&loads) else {
        ubtrfs_sim::skip_optional("policies cannot be switched here");
        return;
    };
    let wait_until_asleep = || {
        while !loads.switcher.is_asleep() {
            thread::yield_now();
        }
    };
    wait_until_asleep();
    let load = loads.sign_on(0);
    load.count(REQUESTS_A_LOOK - 1);
    assert!(loads.switcher.is_asleep());
    load.count(1);
    // Without further requests, it falls asleep again.
    wait_until_asleep();
    drop(load);
    drop(switcher);
}
