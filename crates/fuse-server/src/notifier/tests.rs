//! The queue of notifications: coarsening, and waiting for it.

use std::time::Duration;

use super::*;

fn name(number: usize) -> Notice {
    Notice::Entry {
        dir: NodeId(1),
        name: number.to_string().into_bytes(),
    }
}

fn node(number: u64) -> Notice {
    Notice::Node {
        node: NodeId(number),
        contents: None,
    }
}

fn whole(number: u64) -> Notice {
    Notice::Node {
        node: NodeId(number),
        contents: Some((0, None)),
    }
}

fn taken(waiting: &mut Waiting) -> Vec<Notice> {
    std::iter::from_fn(|| waiting.take())
        .map(Arc::unwrap_or_clone)
        .collect()
}

#[test]
fn notices_are_told_in_order() {
    let mut waiting = Waiting::default();
    waiting.put(node(2));
    waiting.put(whole(1));
    assert_eq!(taken(&mut waiting), [node(2), whole(1)]);
}

// NOTIFY-1
#[test]
fn beyond_the_limit_each_node_is_told_once_and_none_is_lost() {
    let mut waiting = Waiting::default();
    for number in 0..EXACT_MAX as u64 {
        waiting.put(node(number));
    }
    for _ in 0..10 {
        waiting.put(node(5));
        waiting.put(node(4));
    }
    let taken = taken(&mut waiting);
    assert_eq!(taken[EXACT_MAX..], [whole(4), whole(5)]);
}

#[test]
fn names_are_told_one_by_one_however_many_wait() {
    let mut waiting = Waiting::default();
    let names: Vec<_> = (0..3 * EXACT_MAX).map(name).collect();
    for name in &names {
        waiting.put(name.clone());
    }
    assert_eq!(taken(&mut waiting), names);
}

// NOTIFY-3
#[test]
fn there_is_room_for_names_until_so_many_wait() {
    let queue = Queue::default();
    for _ in 0..EXACT_MAX {
        assert!(queue.has_room_for_names());
        queue.entry_changed(NodeId(1), b"name");
    }
    assert!(!queue.has_room_for_names());
    // Node notifications take no room of names, and neither does a name that is being sent.
    queue.node_changed(NodeId(1), None);
    assert!(queue.names.next().is_some());
    assert!(queue.has_room_for_names());
}

const NAMES: [(NodeId, &[u8]); 2] = [(NodeId(1), b"old"), (NodeId(2), b"new")];

// NOTIFY-5
#[test]
fn a_rename_of_a_name_that_is_being_told_tells_both_names() {
    for told in NAMES {
        let queue = Queue::default();
        queue.entry_changed(told.0, told.1);
        assert!(queue.names.next().is_some());
        for _ in 0..2 {
            queue.renamed(NAMES[0], NAMES[1]);
            let waiting = queue.names.waiting.lock();
            let queued: Vec<_> = waiting.exact.iter().map(|(_, notice)| notice).collect();
            let both = NAMES.map(|(dir, name)| Notice::Entry {
                dir,
                name: name.into(),
            });
            assert_eq!(queued, [&both[0], &both[1]]);
        }
    }
}

#[test]
fn a_rename_of_names_that_the_kernel_knows_tells_nothing() {
    let queue = Queue::default();
    queue.entry_changed(NodeId(1), b"new");
    queue.node_changed(NodeId(1), None);
    queue.renamed(NAMES[0], NAMES[1]);
    assert_eq!(queue.names.waiting.lock().exact.len(), 1);
    // Once it is delivered.
    queue.entry_deleted(NodeId(1), b"old", NodeId(3));
    assert_eq!(taken(&mut queue.names.waiting.lock()).len(), 2);
    queue.renamed(NAMES[0], NAMES[1]);
    assert!(queue.names.waiting.lock().exact.is_empty());
}

// NOTIFY-3
#[test]
fn a_full_queue_has_no_room_for_a_rename_that_would_be_told() {
    let queue = Queue::default();
    for _ in 0..EXACT_MAX {
        queue.entry_changed(NodeId(1), b"name");
    }
    assert!(queue.has_room_for_rename(NAMES[0], NAMES[1]));
    assert!(!queue.has_room_for_rename(NAMES[0], (NodeId(1), b"name")));
}

#[test]
fn notices_before_a_moment_do_not_depend_on_later_ones() {
    let mut waiting = Waiting::default();
    for number in 0..EXACT_MAX as u64 + 3 {
        waiting.put(node(number));
    }
    let given = waiting.given;
    let mut count = 0;
    while !waiting.has_sent(given) {
        assert!(waiting.take().is_some());
        count += 1;
        // The queue never becomes empty.
        waiting.put(node(7));
    }
    // The last of them is sent when the next is taken.
    assert_eq!(count, EXACT_MAX + 4);
}

#[test]
fn nothing_waits_after_the_end() {
    let mut waiting = Waiting {
        ended: true,
        ..Waiting::default()
    };
    waiting.put(name(1));
    assert!(waiting.has_sent(u64::MAX));
    assert_eq!(waiting.take(), None);
}

// NOTIFY-2
#[test]
fn news_of_nodes_wait_for_no_news_of_names() {
    let queue = Arc::new(Queue::default());
    // The kernel is processing a name notification, and waits for a lock.
    queue.entry_changed(NodeId(1), b"name");
    assert_eq!(queue.names.next().map(|_| ()), Some(()));
    queue.node_changed(NodeId(2), None);
    let source = Arc::clone(&queue);
    let nodes = std::thread::spawn(move || while source.nodes.next().is_some() {});
    assert!(queue.drain_nodes(None));
    assert!(!queue.drain(Some(Duration::from_millis(1))));
    queue.names.end();
    assert!(queue.drain(None));
    queue.nodes.end();
    nodes.join().unwrap();
}

// NOTIFY-4
#[test]
fn a_drop_is_left_to_another_thread_where_so_many_requests_lend_theirs() {
    let queue = Queue::default();
    assert!(queue.drop_pages_here(NodeId(2), (0, None)));
    queue.dropping_here.store(DROPPING_HERE, Ordering::Relaxed);
    assert!(!queue.drop_pages_here(NodeId(2), (0, None)));
    assert_eq!(queue.dropping_here.load(Ordering::Relaxed), DROPPING_HERE);
}
