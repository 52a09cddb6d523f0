//! Threads yield only while it pays.

use super::*;

const FREE: Machine = Machine {
    since_last: PERIOD,
    cpus: 2,
    runnable: 1,
};

fn busy() -> Seen {
    Seen {
        served: 100,
        ..Seen::default()
    }
}

/// The policy for one queue.
struct One {
    policy: SchedPolicy,
    record: Record,
}

impl One {
    fn new() -> Self {
        Self {
            policy: SchedPolicy::default(),
            record: Record::unused(),
        }
    }

    fn look(&mut self, machine: Machine, seen: Seen) -> Decision {
        let mut queues = [(self.record, seen)];
        let decision = self.policy.decide(machine, &mut queues);
        self.record = queues[0].0;
        decision
    }
}

/// SWITCHER-1: no thread yields once the switcher is to sleep.
#[test]
fn many_requests_and_an_idle_cpu_let_threads_yield_until_there_is_quiet() {
    let mut one = One::new();
    let few = Seen {
        served: 2,
        ..Seen::default()
    };
    let decision = one.look(FREE, few);
    assert!(!decision.yielding && decision.next.is_none());
    assert!(one.look(FREE, busy()).yielding);
    for _ in 1..QUIET_LOOKS {
        let decision = one.look(FREE, Seen::default());
        assert!(decision.yielding && decision.next == Some(PERIOD));
    }
    let decision = one.look(FREE, Seen::default());
    assert!(!decision.yielding && decision.next.is_none());
}

#[test]
fn nobody_yields_while_no_cpu_is_idle() {
    let crowded = Machine {
        runnable: 2,
        ..FREE
    };
    let mut one = One::new();
    assert!(!one.look(crowded, busy()).yielding);
    assert!(one.look(FREE, busy()).yielding);
    let decision = one.look(crowded, busy());
    assert!(!decision.yielding && decision.next == Some(PERIOD));
    assert!(one.look(FREE, busy()).yielding);
}

#[test]
fn long_waits_end_it_for_twice_as_long_each_time() {
    let mut one = One::new();
    let delayed = Seen {
        served: 2,
        waited: Duration::from_millis(4),
        is_runnable: true,
    };
    let mut pause = PAUSE_MIN;
    for _ in 0..10 {
        assert!(one.look(FREE, busy()).yielding);
        let decision = one.look(FREE, delayed);
        assert!(!decision.yielding);
        assert_eq!(decision.next, Some(pause));
        pause = (pause * 2).min(PAUSE_MAX);
    }
    let long = Machine {
        since_last: PROBATION,
        ..FREE
    };
    let many = Seen {
        served: 100_000,
        ..Seen::default()
    };
    assert!(one.look(long, many).yielding);
    assert_eq!(one.look(FREE, delayed).next, Some(PAUSE_MIN));
}

#[test]
fn a_thread_that_does_not_get_to_run_is_looked_at_again_soon_and_helped() {
    let mut one = One::new();
    assert!(one.look(FREE, busy()).yielding);
    let stuck = Seen {
        is_runnable: true,
        ..Seen::default()
    };
    let decision = one.look(FREE, stuck);
    assert!(decision.yielding && decision.next == Some(SUSPICION));
    let decision = one.look(FREE, stuck);
    assert!(!decision.yielding && decision.next == Some(PAUSE_MIN));
    // A thread that runs in between was not stuck.
    let mut one = One::new();
    for seen in [busy(), stuck, busy(), stuck, busy()] {
        assert!(one.look(FREE, seen).yielding);
    }
}
