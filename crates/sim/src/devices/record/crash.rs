//! States of the devices after a power cut at some moment of a recording.
//!
//! All requests before the last completed flush of their device are applied. Of the later ones any subset is applied,
//! each completely or torn between sectors. They are applied in order. A sector that a lost later write would have
//! changed keeps the earlier data. So ordered subsets cover all states that reordering devices can leave.
//!
//! A flush does not cover discards. A device may execute one at any later time, in part, or never, but before later
//! writes to the same range. So the effect of each discard is chosen by the seed when a flush passes it.
//!
//! - CRASH-1: states depend only on recording and plan; each can be reproduced from its number.
//! - CRASH-2: states are in chronological order. The cost of each depends on the requests since the previous one, not
//!   on the size of the device.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use ubtrfs_device::{BlockDevice, MemDevice};

use super::{Event, Recording, scramble::scramble};
use crate::Rng;

/// The power cuts to try: one at each flush, and a number of others.
#[derive(Clone, Debug)]
pub struct CrashPlan {
    pub seed: u64,
    /// Number of cuts between flushes. Half of them are distributed over time and half over the intervals between
    /// flushes. So the short intervals within a commit are covered, too.
    pub random_states: usize,
    /// The bytes that a device writes atomically. With 512 a superblock can be torn.
    pub sector_bytes: u64,
    /// There are no cuts before this mark.
    pub since: Option<u64>,
}

impl CrashPlan {
    /// Creates a plan with 100 random states, and sectors of 512 bytes.
    pub fn new(seed: u64) -> CrashPlan {
        CrashPlan {
            seed,
            random_states: 100,
            sector_bytes: 512,
            since: None,
        }
    }

    pub fn since(self, mark: impl Into<u64>) -> CrashPlan {
        CrashPlan {
            since: Some(mark.into()),
            ..self
        }
    }

    pub fn random_states(self, random_states: usize) -> CrashPlan {
        CrashPlan {
            random_states,
            ..self
        }
    }

    pub fn sector_bytes(self, sector_bytes: u64) -> CrashPlan {
        assert!(sector_bytes > 0, "a device has sectors");
        CrashPlan {
            sector_bytes,
            ..self
        }
    }
}

/// The moment of a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// `flushes` flushes were complete, the next one was about to complete, and nothing that it covers was applied.
    Flush { flushes: usize },
    /// Somewhere between flushes.
    Between,
}

/// The outcome of a request that was not covered by a flush.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Landed {
    Whole,
    Lost,
    /// The parts that were applied; for a write, its sectors.
    Torn(Vec<bool>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Landing {
    /// Index in `Recording::events`.
    pub event: usize,
    pub landed: Landed,
}

/// The devices after one power cut.
#[derive(Debug)]
pub struct CrashState {
    /// Index in the sequence defined by the plan.
    pub number: usize,
    pub cut: Cut,
    /// Number of events that were issued.
    pub events: usize,
    /// Indexed like the recorder's devices.
    pub devices: Vec<MemDevice>,
    pub landings: Vec<Landing>,
    marks: Arc<[u64]>,
    marks_passed: usize,
    recording: Arc<Recording>,
}

impl CrashState {
    /// Returns the marks before the cut.
    pub fn marks(&self) -> &[u64] {
        &self.marks[..self.marks_passed]
    }
}

const SHOWN: usize = 24;
/// Approximate number of parts of a torn discard.
const DISCARD_PARTS: u64 = 16;

impl fmt::Display for CrashState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.recording.events.len();
        write!(
            f,
            "crash state {}: {:?} after event {} of {of}",
            self.number, self.cut, self.events
        )?;
        for landing in self.landings.iter().take(SHOWN) {
            write!(f, "\n  event {}: ", landing.event)?;
            match &self.recording.events[landing.event] {
                Event::Write {
                    device,
                    offset,
                    data,
                } => write!(
                    f,
                    "write of {} bytes at {offset} of device {device}",
                    data.len()
                )?,
                Event::Discard {
                    device,
                    offset,
                    len_bytes,
                } => write!(
                    f,
                    "discard of {len_bytes} bytes at {offset} of device {device}"
                )?,
                Event::Flush { .. } | Event::Mark(_) => {}
            }
            match &landing.landed {
                Landed::Whole => f.write_str(" landed")?,
                Landed::Lost => f.write_str(" lost")?,
                Landed::Torn(sectors) => {
                    let map: String = sectors
                        .iter()
                        .map(|there| if *there { '#' } else { '.' })
                        .collect();
                    write!(f, " torn, sectors {map}")?;
                }
            }
        }
        if self.landings.len() > SHOWN {
            write!(f, "\n  ... and {} more", self.landings.len() - SHOWN)?;
        }
        Ok(())
    }
}

/// An iterator over the states of a plan.
#[derive(Debug)]
pub struct CrashStates {
    recording: Arc<Recording>,
    plan: CrashPlan,
    marks: Arc<[u64]>,
    /// (events before the cut, kind), in chronological order.
    cuts: Vec<(usize, Cut)>,
    next: usize,
    /// Number of events that are included in `durable` and `pending`.
    position: usize,
    marks_passed: usize,
    durable: Vec<MemDevice>,
    /// Events that are not covered by a flush of their device.
    pending: Vec<Vec<usize>>,
}

impl CrashStates {
    pub(super) fn new(recording: Recording, plan: &CrashPlan) -> CrashStates {
        let marks = recording.events.iter().filter_map(|event| match event {
            Event::Mark(mark) => Some(*mark),
            _ => None,
        });
        CrashStates {
            marks: marks.collect(),
            cuts: cuts(&recording, plan),
            next: 0,
            position: 0,
            marks_passed: 0,
            durable: recording.starts.clone(),
            pending: vec![Vec::new(); recording.starts.len()],
            plan: plan.clone(),
            recording: Arc::new(recording),
        }
    }

    fn roll_to(&mut self, position: usize) {
        // CRASH-2
        for at in self.position..position {
            match &self.recording.events[at] {
                Event::Write { device, .. } | Event::Discard { device, .. } => {
                    self.pending[*device].push(at);
                }
                Event::Flush { device } => {
                    for event in std::mem::take(&mut self.pending[*device]) {
                        let landed = self.landed_at_flush(event);
                        self.land(event, &landed, &self.durable[*device]);
                    }
                }
                Event::Mark(_) => self.marks_passed += 1,
            }
        }
        self.position = position;
    }

    fn state(&self, number: usize, cut: Cut) -> CrashState {
        let devices = self.durable.clone();
        let mut pending: Vec<usize> = self.pending.iter().flatten().copied().collect();
        pending.sort_unstable();
        let landings = match cut {
            Cut::Flush { .. } => Vec::new(),
            Cut::Between => {
                let seed = Rng::new(self.plan.seed ^ number as u64).next_u64();
                self.choose(&pending, &mut Rng::new(seed))
            }
        };
        for Landing { event, landed } in &landings {
            let (Event::Write { device, .. } | Event::Discard { device, .. }) =
                &self.recording.events[*event]
            else {
                continue;
            };
            self.land(*event, landed, &devices[*device]);
        }
        CrashState {
            number,
            cut,
            events: self.position,
            devices,
            landings,
            marks: Arc::clone(&self.marks),
            marks_passed: self.marks_passed,
            recording: Arc::clone(&self.recording),
        }
    }

    /// Chooses the pending requests that are applied. A missing barrier is often visible only if a single write is
    /// lost, or is the only one applied. So these extremes are as likely as an even mix.
    fn choose(&self, pending: &[usize], rng: &mut Rng) -> Vec<Landing> {
        let chosen = rng.below(pending.len().max(1) as u64) as usize;
        let mix = rng.below(6);
        let lands = |at: usize, rng: &mut Rng| match mix {
            0 => at == chosen,
            1 => at != chosen,
            2 => at <= chosen,
            3 => at >= chosen,
            4 => rng.one_in(2),
            _ => !rng.one_in(8),
        };
        let tears = rng.one_in(2);
        let landing = |(at, &event): (usize, &usize)| {
            let landed = if !lands(at, rng) {
                Landed::Lost
            } else if tears && rng.one_in(3) {
                self.tear(event, rng)
            } else {
                Landed::Whole
            };
            Landing { event, landed }
        };
        pending.iter().enumerate().map(landing).collect()
    }

    fn landed_at_flush(&self, event: usize) -> Landed {
        if !matches!(self.recording.events[event], Event::Discard { .. }) {
            return Landed::Whole;
        }
        let mut rng = Rng::new(self.plan.seed.rotate_left(32) ^ event as u64);
        match rng.below(3) {
            0 => Landed::Lost,
            1 => self.tear(event, &mut rng),
            _ => Landed::Whole,
        }
    }

    fn tear(&self, event: usize, rng: &mut Rng) -> Landed {
        let sectors = self.parts(event).len();
        if sectors < 2 {
            return Landed::Whole;
        }
        let border = 1 + rng.below(sectors as u64 - 1) as usize;
        Landed::Torn(match rng.below(3) {
            0 => (0..sectors).map(|sector| sector < border).collect(),
            1 => (0..sectors).map(|sector| sector >= border).collect(),
            _ => (0..sectors).map(|_| rng.one_in(2)).collect(),
        })
    }
}

impl CrashStates {
    fn range(&self, event: usize) -> Range<u64> {
        match &self.recording.events[event] {
            Event::Write { offset, data, .. } => *offset..offset + data.len() as u64,
            Event::Discard {
                offset, len_bytes, ..
            } => *offset..offset + len_bytes,
            Event::Flush { .. } | Event::Mark(_) => 0..0,
        }
    }

    /// Returns the ranges of a request that may be applied separately: the sectors of a write, or some parts of a
    /// discard.
    fn parts(&self, event: usize) -> Vec<Range<u64>> {
        let range = self.range(event);
        let part_bytes = match &self.recording.events[event] {
            Event::Discard { len_bytes, .. } => {
                (len_bytes / DISCARD_PARTS + 1).next_multiple_of(4096)
            }
            _ => self.plan.sector_bytes,
        };
        let numbers = range.start / part_bytes..range.end.div_ceil(part_bytes);
        let part = |number: u64| {
            let start = number * part_bytes;
            start.max(range.start)..(start + part_bytes).min(range.end)
        };
        numbers.map(part).collect()
    }

    /// Applies the request, or the surviving parts of it, to the device.
    fn land(&self, event: usize, landed: &Landed, device: &MemDevice) {
        let parts = match landed {
            Landed::Lost => Vec::new(),
            Landed::Whole => vec![self.range(event)],
            Landed::Torn(there) => {
                let parts = self.parts(event).into_iter().zip(there);
                parts
                    .filter(|(_, there)| **there)
                    .map(|(part, _)| part)
                    .collect()
            }
        };
        for part in parts {
            let done = match &self.recording.events[event] {
                Event::Write { offset, data, .. } => {
                    let within = (part.start - offset) as usize..(part.end - offset) as usize;
                    device.write_at(&data[within], part.start)
                }
                Event::Discard { .. } => scramble(device, event, part),
                Event::Flush { .. } | Event::Mark(_) => Ok(()),
            };
            done.expect("the request was inside the device when it was recorded");
        }
    }
}

impl Iterator for CrashStates {
    type Item = CrashState;

    fn next(&mut self) -> Option<CrashState> {
        let number = self.next;
        let (position, cut) = *self.cuts.get(number)?;
        self.next += 1;
        self.roll_to(position);
        Some(self.state(number, cut))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.cuts.len() - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for CrashStates {}

fn cuts(recording: &Recording, plan: &CrashPlan) -> Vec<(usize, Cut)> {
    let first = plan.since.map_or(0, |mark| {
        let is_mark = |event: &Event| *event == Event::Mark(mark);
        let found = recording.events.iter().position(is_mark);
        found.expect("the mark that cuts come after is in the recording")
    });
    // A cut at a flush is as late as possible, because more was promised by then.
    let mut cuts = Vec::new();
    let mut stretches = vec![Vec::new()];
    let mut flushes = 0;
    for (at, event) in recording.events.iter().enumerate() {
        match event {
            Event::Flush { .. } => {
                cuts.push((at, Cut::Flush { flushes }));
                flushes += 1;
                stretches.push(Vec::new());
            }
            Event::Write { .. } | Event::Discard { .. } => {
                if let Some(stretch) = stretches.last_mut().filter(|_| at >= first) {
                    stretch.push(at);
                }
            }
            Event::Mark(_) => {}
        }
    }
    cuts.push((recording.events.len(), Cut::Flush { flushes }));
    cuts.retain(|(position, _)| *position > first);

    stretches.retain(|stretch| !stretch.is_empty());
    let requests = stretches.concat();
    let mut rng = Rng::new(plan.seed);
    if !requests.is_empty() {
        for number in 0..plan.random_states {
            let among = match number % 2 {
                0 => &requests,
                _ => &stretches[rng.below(stretches.len() as u64) as usize],
            };
            let request = among[rng.below(among.len() as u64) as usize];
            cuts.push((request + 1, Cut::Between));
        }
    }
    cuts.sort_by_key(|(position, _)| *position);
    cuts
}
