//! The queue of block groups with space to discard.
//!
//! Three lists as in the kernel, each in FIFO order. Empty groups have the highest priority. A group in use gets one
//! pass over its long regions, waits again, and gets a second pass over shorter ones. Unallocated space is treated as
//! an empty group.
//!
//! Invariants
//! - DISCARD-QUEUE-1: a group is in at most one list.
//! - DISCARD-QUEUE-2: work on a group begins only when the delay of its list has passed since it joined the list. Later
//!   frees do not extend the delay.
//!
//! Not here: the clock (times are parameters), regions.

use std::collections::VecDeque;
use std::time::Duration;

use ubtrfs_format::ids::Logical;

use super::options::{DiscardDelays, DiscardLimits};

/// A block group, or the unallocated space, as an entry of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiscardPlace {
    /// A block group, by its start.
    Group(Logical),
    /// Space of removed block groups.
    Unallocated,
}

/// The lists, by descending priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    Empty,
    Long,
    Short,
}

impl List {
    const ALL: [List; 3] = [List::Empty, List::Long, List::Short];

    /// Returns the length of the shortest region that a pass discards.
    pub(super) fn min_bytes(self) -> u64 {
        match self {
            List::Empty => 0,
            List::Long => 1 << 20,
            List::Short => 32 << 10,
        }
    }

    /// Returns the list that a group joins after a pass.
    fn next(self) -> Option<List> {
        match self {
            List::Long => Some(List::Short),
            List::Empty | List::Short => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) place: DiscardPlace,
    pub(super) list: List,
    /// The earliest time to work on it.
    due: Duration,
    /// Whether work on it has begun in this pass.
    pub(super) has_begun: bool,
}

/// The next action of the background at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The queue is empty.
    Idle,
    /// No entry is due before this time.
    At(Duration),
    Now(Entry),
}

#[derive(Debug)]
pub(super) struct Queue {
    lists: [VecDeque<Entry>; 3],
    delays: DiscardDelays,
    /// The earliest time of the next discard.
    not_before: Duration,
}

impl Queue {
    pub(super) fn new(delays: DiscardDelays) -> Queue {
        Queue {
            lists: Default::default(),
            delays,
            not_before: Duration::ZERO,
        }
    }

    pub(super) fn clear(&mut self) {
        self.lists = Default::default();
    }

    pub(super) fn list_of(&self, place: DiscardPlace) -> Option<List> {
        let holds = |list: &List| {
            self.lists[*list as usize]
                .iter()
                .any(|entry| entry.place == place)
        };
        List::ALL.into_iter().find(holds)
    }

    /// Appends an entry to a list, and removes it from its current list (DISCARD-QUEUE-1).
    pub(super) fn join(&mut self, place: DiscardPlace, list: List, now: Duration) {
        self.leave(place);
        let delay = match list {
            List::Empty => self.delays.empty,
            List::Long | List::Short => self.delays.used,
        };
        self.lists[list as usize].push_back(Entry {
            place,
            list,
            // DISCARD-QUEUE-2
            due: now + delay,
            has_begun: false,
        });
    }

    pub(super) fn leave(&mut self, place: DiscardPlace) {
        for list in &mut self.lists {
            list.retain(|entry| entry.place != place);
        }
    }

    pub(super) fn note_begun(&mut self, place: DiscardPlace) {
        let entries = self.lists.iter_mut().flatten();
        for entry in entries.filter(|entry| entry.place == place) {
            entry.has_begun = true;
        }
    }

    /// Ends the pass over a group: moves it to the next list or removes it from the queue.
    pub(super) fn end_pass(&mut self, entry: &Entry, now: Duration) {
        match entry.list.next() {
            Some(next) => self.join(entry.place, next, now),
            None => self.leave(entry.place),
        }
    }

    /// Delays the next discard until `at`.
    pub(super) fn pause_until(&mut self, at: Duration) {
        self.not_before = at;
    }

    /// Returns the first entry of the first list that has one due. If none is due, returns the earliest due time.
    pub(super) fn turn(&self, now: Duration) -> Turn {
        let heads = || self.lists.iter().filter_map(|list| list.front());
        let Some(first) = heads().map(|entry| entry.due).min() else {
            return Turn::Idle;
        };
        if now < first.max(self.not_before) {
            return Turn::At(first.max(self.not_before));
        }
        let due = heads().find(|entry| entry.due <= now);
        due.map_or(Turn::Idle, |entry| Turn::Now(*entry))
    }
}

const MIN_DELAY: Duration = Duration::from_millis(1);
const MAX_DELAY: Duration = Duration::from_secs(1);
/// The time over which regions are spread if no limit applies.
const SPREAD: Duration = Duration::from_secs(6 * 60 * 60);

/// Returns the delay after a discard of `bytes`, while `waiting` regions are in the queue.
pub(super) fn delay(limits: &DiscardLimits, waiting: u64, bytes: u64) -> Duration {
    let second = Duration::from_secs(1);
    let between = match limits.iops_limit {
        0 => SPREAD / u32::try_from(waiting.max(1)).unwrap_or(u32::MAX),
        iops => second / iops,
    };
    let between = between.clamp(MIN_DELAY, MAX_DELAY);
    match limits.kbps_limit {
        0 => between,
        kbps => {
            let rate = u64::from(kbps) << 10;
            let millis = u128::from(bytes) * 1000 / u128::from(rate);
            between.max(Duration::from_millis(
                u64::try_from(millis).unwrap_or(u64::MAX),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn queue() -> Queue {
        Queue::new(DiscardDelays::default())
    }

    fn group(number: u64) -> DiscardPlace {
        DiscardPlace::Group(Logical(number << 30))
    }

    fn place_now(queue: &Queue, now: Duration) -> Option<DiscardPlace> {
        match queue.turn(now) {
            Turn::Now(entry) => Some(entry.place),
            Turn::At(_) | Turn::Idle => None,
        }
    }

    // DISCARD-QUEUE-2
    #[test]
    fn empty_groups_wait_ten_seconds_and_others_two_minutes() {
        let mut queue = queue();
        assert_eq!(queue.turn(SECOND), Turn::Idle);
        queue.join(group(1), List::Long, SECOND);
        assert_eq!(queue.turn(SECOND), Turn::At(121 * SECOND));
        queue.join(group(2), List::Empty, 2 * SECOND);
        assert_eq!(queue.turn(2 * SECOND), Turn::At(12 * SECOND));
        assert_eq!(place_now(&queue, 12 * SECOND), Some(group(2)));
        assert_eq!(place_now(&queue, 121 * SECOND), Some(group(2)));
        queue.leave(group(2));
        assert_eq!(queue.turn(120 * SECOND), Turn::At(121 * SECOND));
        assert_eq!(place_now(&queue, 121 * SECOND), Some(group(1)));
    }

    #[test]
    fn short_regions_wait_for_another_delay() {
        let mut queue = queue();
        queue.join(group(1), List::Long, Duration::ZERO);
        let Turn::Now(entry) = queue.turn(130 * SECOND) else {
            panic!("it is due");
        };
        queue.end_pass(&entry, 130 * SECOND);
        assert_eq!(queue.list_of(group(1)), Some(List::Short));
        assert_eq!(queue.turn(131 * SECOND), Turn::At(250 * SECOND));
        let Turn::Now(entry) = queue.turn(250 * SECOND) else {
            panic!("it is due");
        };
        queue.end_pass(&entry, 251 * SECOND);
        assert_eq!(queue.turn(1000 * SECOND), Turn::Idle);
    }

    // DISCARD-QUEUE-1
    #[test]
    fn group_that_joins_another_list_leaves_the_first() {
        let mut queue = queue();
        queue.join(group(1), List::Short, Duration::ZERO);
        queue.join(group(2), List::Short, Duration::ZERO);
        queue.join(group(1), List::Long, SECOND);
        assert_eq!(place_now(&queue, 120 * SECOND), Some(group(2)));
        assert_eq!(place_now(&queue, 121 * SECOND), Some(group(1)));
        queue.leave(group(1));
        queue.leave(group(2));
        assert_eq!(queue.turn(1000 * SECOND), Turn::Idle);
    }

    #[test]
    fn groups_of_a_list_come_in_the_order_of_arrival() {
        let mut queue = queue();
        for number in [3, 1, 2] {
            queue.join(group(number), List::Empty, number as u32 * SECOND);
        }
        for number in [3, 1, 2] {
            assert_eq!(place_now(&queue, 30 * SECOND), Some(group(number)));
            queue.leave(group(number));
        }
    }

    #[test]
    fn turn_is_kept_back_by_the_limits() {
        let mut queue = queue();
        queue.join(group(1), List::Empty, Duration::ZERO);
        queue.pause_until(15 * SECOND);
        assert_eq!(queue.turn(11 * SECOND), Turn::At(15 * SECOND));
        assert_eq!(place_now(&queue, 15 * SECOND), Some(group(1)));
    }

    #[test]
    fn delay_follows_from_limits_and_from_what_waits() {
        let limits = |iops_limit, kbps_limit| DiscardLimits {
            iops_limit,
            kbps_limit,
            ..DiscardLimits::default()
        };
        let millis = Duration::from_millis;
        assert_eq!(delay(&limits(1000, 0), 5, 1 << 20), millis(1));
        assert_eq!(delay(&limits(10, 0), 5, 1 << 20), millis(100));
        assert_eq!(delay(&limits(u32::MAX, 0), 5, 1 << 20), millis(1));
        // Six hours for a million regions are 21.6 ms each. For a few regions, the maximum delay applies.
        assert_eq!(delay(&limits(0, 0), 1_000_000, 0).as_micros(), 21_600);
        assert_eq!(delay(&limits(0, 0), 3, 0), SECOND);
        assert_eq!(delay(&limits(0, 0), u64::MAX, 0), millis(1));
        assert_eq!(delay(&limits(1000, 1024), 5, 64 << 20), 64 * SECOND);
    }
}
