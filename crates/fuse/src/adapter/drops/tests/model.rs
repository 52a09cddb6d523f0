//! All interleavings of a buffered write, reads, drops, reclaim and a store through a mapping on one page.
//!
//! The page has two bytes: the write covers the first, the store through a mapping the second. The kernel's part
//! follows `mm/filemap.c`, `mm/truncate.c` and `fs/fuse/file.c`. The mount's part updates `Drops` as `coherence` and
//! `known::in_service` do.

use std::collections::HashSet;

use super::super::*;

const OLD: u8 = 0;
const WRITTEN: u8 = 1;
const STORED: u8 = 2;
const PAGE: Span = Span {
    start: 0,
    end: 4096,
};
const FIRST: Span = Span { start: 0, end: 1 };
const READS: usize = 3;
/// The number of drops of other requests. The write's own drop is the last.
const OTHERS: usize = 2;
const OWN: usize = OTHERS;

/// A bug in the mount that the model has to detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The write is answered before its own drop is finished, even if the drop waits for a readable stale page.
    Hasty,
    /// Reads during a drop are not recorded.
    Unnoted,
    /// Old dirty pages replace the bytes of the write.
    Unshielded,
    /// A drop begins during a write that cannot wait for it.
    Unordered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Holder {
    Write,
    Read(usize),
    Drop(usize),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Page {
    bytes: [u8; 2],
    is_up_to_date: bool,
    is_dirty: bool,
    lock: Option<Holder>,
    /// The write holds a reference.
    is_referenced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Write {
    Idle,
    Sent,
    /// In service on a thread that may not wait.
    Quick,
    QuickDone,
    /// In service on a thread that may.
    Slow,
    SlowDone,
    /// A page may be stale.
    Old,
    Shielded,
    Waits,
    Answered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Read {
    Idle,
    Sent,
    InService,
    Answered([u8; 2]),
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Dropping {
    Idle,
    Wanted,
    /// The kernel looks up the page, and waits for its lock.
    Asked(DropNr),
    /// A dirty page is on its way to the mount.
    Writes(DropNr, [u8; 2]),
    /// In service, with or without the first byte.
    Stores(DropNr, [u8; 2], bool),
    Locked(DropNr),
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    file: [u8; 2],
    page: Option<Page>,
    write: Write,
    reads: [Read; READS],
    drops: [Dropping; OTHERS + 1],
    noted: Drops,
    /// A dirty page was in service after the write arrived.
    has_stored: bool,
    can_store: bool,
    reclaims: u8,
}

impl World {
    fn new(page: Option<Page>) -> Self {
        Self {
            file: [OLD; 2],
            page,
            write: Write::Idle,
            reads: [Read::Idle; READS],
            drops: [Dropping::Idle; OTHERS + 1],
            noted: Drops::default(),
            has_stored: false,
            can_store: true,
            reclaims: 2,
        }
    }

    fn unlocked(&mut self) -> Option<&mut Page> {
        self.page.as_mut().filter(|page| page.lock.is_none())
    }

    fn is_quick(&self) -> bool {
        matches!(self.write, Write::Quick | Write::QuickDone)
    }

    fn is_storing(&self) -> bool {
        let stores = |drop: &Dropping| matches!(drop, Dropping::Stores(..));
        self.drops.iter().any(stores)
    }

    /// Returns whether a request waits no longer for a drop that is not over. The drop's thread sleeps, and no request
    /// in service could hold the lock.
    fn may_give_up(&self) -> bool {
        let in_service = |read: &Read| matches!(read, Read::InService | Read::Answered(_));
        let is_locked = self.page.as_ref().is_some_and(|page| match page.lock {
            Some(Holder::Write) => true,
            Some(Holder::Read(read)) => self.reads[read] == Read::Sent,
            _ => false,
        });
        is_locked && !self.is_storing() && !self.reads.iter().any(in_service)
    }

    fn next(&self, fault: Fault) -> Vec<World> {
        let mut worlds = self.next_of_write(fault);
        for number in 0..READS {
            worlds.extend(self.next_of_read(number, fault));
        }
        for number in 0..=OTHERS {
            worlds.extend(self.next_of_drop(number, fault));
        }
        let mut world = self.clone();
        if self.can_store
            && let Some(page) = world.unlocked()
            && page.is_up_to_date
        {
            page.bytes[1] = STORED;
            page.is_dirty = true;
            world.can_store = false;
            worlds.push(world);
        }
        let mut world = self.clone();
        if self.reclaims > 0
            && let Some(page) = world.unlocked()
            && !page.is_dirty
            && !page.is_referenced
        {
            world.page = None;
            world.reclaims -= 1;
            worlds.push(world);
        }
        worlds
    }

    fn next_of_write(&self, fault: Fault) -> Vec<World> {
        let mut world = self.clone();
        match self.write {
            Write::Idle => {
                let page = world.page.get_or_insert(Page {
                    bytes: [OLD; 2],
                    is_up_to_date: false,
                    is_dirty: false,
                    lock: None,
                    is_referenced: false,
                });
                if page.lock.is_some() {
                    return Vec::new();
                }
                page.bytes[0] = WRITTEN;
                page.is_referenced = true;
                if !page.is_up_to_date {
                    page.lock = Some(Holder::Write);
                }
                world.write = Write::Sent;
            }
            Write::Sent => {
                let waits = self.drops.contains(&Dropping::Wanted);
                let mut slow = self.clone();
                slow.write = Write::Slow;
                slow.has_stored = self.is_storing();
                if waits || self.noted.may_meet(PAGE) {
                    return vec![slow];
                }
                world.write = Write::Quick;
                return vec![slow, world];
            }
            Write::Quick => {
                world.file[0] = WRITTEN;
                world.write = Write::QuickDone;
            }
            Write::QuickDone => {
                let old = world.noted.take(PAGE);
                assert!(old.is_empty() || fault == Fault::Unordered, "DROPS-3");
                world.answer();
            }
            Write::Slow => {
                world.file[0] = WRITTEN;
                world.write = Write::SlowDone;
            }
            Write::SlowDone => {
                if world.noted.take(PAGE).is_empty() {
                    world.answer();
                } else {
                    if fault != Fault::Unshielded {
                        world.noted.raise_shield(&[FIRST]);
                    }
                    world.write = Write::Old;
                }
            }
            // Waits for stores of dirty pages from before the shield, which may have overwritten the byte.
            Write::Old if self.is_storing() && fault != Fault::Unshielded => return Vec::new(),
            Write::Old => {
                if self.has_stored && fault != Fault::Unshielded {
                    world.file[0] = WRITTEN;
                }
                world.write = Write::Shielded;
            }
            Write::Shielded => {
                world.drops[OWN] = Dropping::Wanted;
                world.write = Write::Waits;
            }
            Write::Waits => {
                let is_over = self.drops[OWN] == Dropping::Over;
                let has_begun = self.drops[OWN] != Dropping::Wanted;
                if !(is_over || fault == Fault::Hasty || has_begun && self.may_give_up()) {
                    return Vec::new();
                }
                world.noted.lower_shield(&[FIRST]);
                world.answer();
            }
            Write::Answered => return Vec::new(),
        }
        vec![world]
    }

    fn answer(&mut self) {
        self.write = Write::Answered;
        if let Some(page) = &mut self.page {
            page.is_referenced = false;
            if page.lock == Some(Holder::Write) {
                page.lock = None;
            }
        }
    }

    fn next_of_read(&self, number: usize, fault: Fault) -> Option<World> {
        let mut world = self.clone();
        world.reads[number] = match self.reads[number] {
            Read::Idle => match &mut world.page {
                Some(page) if page.is_up_to_date => Read::Over,
                Some(page) if page.lock.is_some() => return None,
                page => {
                    let bytes = page.as_ref().map_or([OLD; 2], |page| page.bytes);
                    let is_referenced = page.as_ref().is_some_and(|page| page.is_referenced);
                    *page = Some(Page {
                        bytes,
                        is_up_to_date: false,
                        is_dirty: false,
                        lock: Some(Holder::Read(number)),
                        is_referenced,
                    });
                    Read::Sent
                }
            },
            Read::Sent => {
                let is_under_way = |drop: &Dropping| matches!(drop, Dropping::Asked(_));
                if fault != Fault::Unnoted || !self.drops.iter().any(is_under_way) {
                    world.noted.note_read(PAGE);
                }
                Read::InService
            }
            Read::InService => Read::Answered(self.file),
            Read::Answered(bytes) => {
                let page = world.page.as_mut().expect("a locked page stays");
                page.bytes = bytes;
                page.is_up_to_date = true;
                page.lock = None;
                Read::Over
            }
            Read::Over => return None,
        };
        Some(world)
    }

    fn next_of_drop(&self, number: usize, fault: Fault) -> Option<World> {
        let mut world = self.clone();
        world.drops[number] = match self.drops[number] {
            Dropping::Idle if number == OWN => return None,
            Dropping::Idle => Dropping::Wanted,
            Dropping::Wanted if self.is_quick() && fault != Fault::Unordered => return None,
            Dropping::Wanted => Dropping::Asked(world.noted.begin(PAGE)),
            Dropping::Asked(noted) => match &mut world.page {
                None => world.end_drop(noted),
                Some(page) if page.lock.is_some() => return None,
                Some(page) => {
                    page.lock = Some(Holder::Drop(number));
                    if page.is_dirty {
                        page.is_dirty = false;
                        Dropping::Writes(noted, page.bytes)
                    } else {
                        Dropping::Locked(noted)
                    }
                }
            },
            Dropping::Writes(noted, bytes) => {
                let is_bare = self.noted.unshielded(FIRST) == [FIRST];
                if !matches!(self.write, Write::Idle | Write::Sent) {
                    world.has_stored = true;
                }
                Dropping::Stores(noted, bytes, is_bare)
            }
            Dropping::Stores(noted, bytes, is_bare) => {
                world.file[1] = bytes[1];
                if is_bare {
                    world.file[0] = bytes[0];
                }
                Dropping::Locked(noted)
            }
            Dropping::Locked(noted) => {
                world.page = None;
                world.end_drop(noted)
            }
            Dropping::Over => return None,
        };
        Some(world)
    }

    fn end_drop(&mut self, noted: DropNr) -> Dropping {
        self.noted.end(noted);
        Dropping::Over
    }

    /// Checks the conditions that hold after the answer.
    fn fault(&self) -> Option<&'static str> {
        if self.write != Write::Answered {
            return None;
        }
        let is_old = |page: &Page| page.is_up_to_date && page.bytes[0] != WRITTEN;
        if self.page.as_ref().is_some_and(is_old) {
            return Some("a page that programs read is older than the answered write");
        }
        if self.file[0] != WRITTEN {
            return Some("the file has lost the write");
        }
        None
    }

    /// Checks a world without further steps.
    fn fault_at_end(&self) -> Option<&'static str> {
        if self.write != Write::Answered || self.reads.iter().any(|read| *read != Read::Over) {
            return Some("a request waits without end");
        }
        let has_store = |page: &Page| page.is_up_to_date && page.bytes[1] == STORED;
        let is_kept = self.file[1] == STORED || self.page.as_ref().is_some_and(has_store);
        (!self.can_store && !is_kept).then_some("a store through a mapping is lost")
    }
}

/// Explores all interleavings. Returns the number of worlds, or the first fault.
fn explore(fault: Fault) -> Result<usize, &'static str> {
    let cached = Page {
        bytes: [OLD; 2],
        is_up_to_date: true,
        is_dirty: false,
        lock: None,
        is_referenced: false,
    };
    let half_written = Page {
        is_up_to_date: false,
        ..cached.clone()
    };
    let pages = [None, Some(cached), Some(half_written)];
    let mut open = pages.map(World::new).to_vec();
    let mut seen: HashSet<World> = open.iter().cloned().collect();
    while let Some(world) = open.pop() {
        world.fault().map_or(Ok(()), Err)?;
        let next = world.next(fault);
        if next.is_empty() {
            world.fault_at_end().map_or(Ok(()), Err)?;
        }
        for world in next {
            if seen.insert(world.clone()) {
                open.push(world);
            }
        }
    }
    Ok(seen.len())
}

// COHERENCE-1, COHERENCE-2, SERVICE-1, SERVICE-2, DROPS-3
#[test]
fn no_order_leaves_a_page_that_is_older_than_an_answered_write() {
    let worlds = explore(Fault::None).unwrap();
    assert!(worlds > 100_000, "{worlds} worlds");
    for fault in [
        Fault::Hasty,
        Fault::Unnoted,
        Fault::Unshielded,
        Fault::Unordered,
    ] {
        assert!(explore(fault).is_err(), "{fault:?} is not found");
    }
}
