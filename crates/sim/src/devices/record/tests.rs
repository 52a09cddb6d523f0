//! Flushed writes are in every state, others only in some, and there is nothing else.

use std::collections::BTreeSet;
use std::ops::Range;

use ubtrfs_device::{BlockDevice, MemDevice};

use super::*;
use crate::seed;

const SECTOR: usize = 512;

fn byte(device: &MemDevice, offset: u64) -> u8 {
    let mut byte = [0];
    device.read_at(&mut byte, offset).unwrap();
    byte[0]
}

fn bytes(device: &MemDevice, range: Range<u64>) -> Vec<u8> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    device.read_at(&mut bytes, range.start).unwrap();
    bytes
}

fn recorded() -> (Recorder, Arc<RecordDevice>) {
    let recorder = Recorder::new();
    let device = recorder.device(MemDevice::new(1 << 20));
    (recorder, device)
}

#[test]
fn flushed_writes_are_in_every_later_state() {
    let (recorder, device) = recorded();
    device.write_at(&[1; 4096], 0).unwrap();
    device.flush().unwrap();
    recorder.mark(1_u64);
    device.write_at(&[2; 4096], 8192).unwrap();
    let plan = CrashPlan::new(seed("flushed writes")).random_states(200);
    let mut seen = BTreeSet::new();
    for state in recorder.recording().crash_states(&plan) {
        let (flushed, not) = (byte(&state.devices[0], 4095), byte(&state.devices[0], 8192));
        if !state.marks().is_empty() {
            assert_eq!(flushed, 1, "{state}");
        }
        seen.insert((state.marks().len(), flushed, not));
    }
    let wanted = [(0, 0, 0), (0, 1, 0), (1, 1, 0), (1, 1, 2)];
    assert_eq!(seen, BTreeSet::from(wanted));
}

#[test]
fn each_flush_has_a_state_that_lost_all_that_followed() {
    let (recorder, device) = recorded();
    for number in 1..=5 {
        device.write_at(&[number; SECTOR], 0).unwrap();
        device.flush().unwrap();
        recorder.mark(number);
    }
    device.write_at(&[6; SECTOR], 0).unwrap();
    let plan = CrashPlan::new(0).random_states(0);
    let states = recorder.recording().crash_states(&plan);
    assert_eq!(states.len(), 6);
    for (number, state) in states.enumerate() {
        assert_eq!(state.cut, Cut::Flush { flushes: number });
        assert_eq!(byte(&state.devices[0], 0), number as u8, "{state}");
        assert_eq!(state.marks().len(), number, "what the next flush followed");
    }
}

#[test]
fn no_cut_comes_before_the_mark_that_was_asked_for() {
    let (recorder, device) = recorded();
    for number in 1..=9_u8 {
        device.write_at(&[number; SECTOR], 0).unwrap();
        device.flush().unwrap();
        recorder.mark(number);
    }
    let plan = CrashPlan::new(seed("since")).since(6_u8);
    let states: Vec<CrashState> = recorder.recording().crash_states(&plan).collect();
    assert_eq!(states.len(), 4 + 100);
    for state in states {
        assert!(state.marks().contains(&6), "{state}");
        assert!(byte(&state.devices[0], 0) >= 6, "{state}");
    }
}

#[test]
fn unflushed_writes_land_in_every_combination() {
    let (recorder, device) = recorded();
    for at in 0..3_u64 {
        device.write_at(&[9; SECTOR], at * 4096).unwrap();
    }
    let plan = CrashPlan::new(seed("combinations")).random_states(400);
    let seen: BTreeSet<Vec<u8>> = recorder
        .recording()
        .crash_states(&plan)
        .map(|state| {
            (0..3)
                .map(|at| byte(&state.devices[0], at * 4096))
                .collect()
        })
        .collect();
    assert_eq!(seen.len(), 8);
}

#[test]
fn overwritten_sector_keeps_any_of_its_versions() {
    let (recorder, device) = recorded();
    for version in 1..=3 {
        device.write_at(&[version; SECTOR], 0).unwrap();
    }
    let plan = CrashPlan::new(seed("versions")).random_states(200);
    let seen: BTreeSet<u8> = recorder
        .recording()
        .crash_states(&plan)
        .map(|state| byte(&state.devices[0], 0))
        .collect();
    assert_eq!(seen, BTreeSet::from([0, 1, 2, 3]));
}

#[test]
fn writes_tear_at_sector_borders_and_nowhere_else() {
    for sector_bytes in [512, 4096] {
        let (recorder, device) = recorded();
        // From the middle of one sector to the middle of another.
        device.write_at(&[7; 4096], 4096 + 256).unwrap();
        let plan = CrashPlan::new(seed("tears")).random_states(300);
        let plan = plan.sector_bytes(sector_bytes);
        let mut torn = 0;
        for state in recorder.recording().crash_states(&plan) {
            let there: Vec<bool> = (0..12_288)
                .map(|at| byte(&state.devices[0], at) == 7)
                .collect();
            for at in 4096 + 257..8192 + 256 {
                let at_border = (at as u64).is_multiple_of(sector_bytes);
                assert!(there[at] == there[at - 1] || at_border, "{at}: {state}");
            }
            let count = there.iter().filter(|there| **there).count();
            torn += usize::from(count > 0 && count < 4096);
        }
        assert!(torn > 10, "{torn} torn with sectors of {sector_bytes}");
    }
}

#[test]
fn sector_that_takes_a_whole_superblock_is_not_torn() {
    let (recorder, device) = recorded();
    device.write_at(&[7; 4096], 65_536).unwrap();
    let plan = CrashPlan::new(1).random_states(200).sector_bytes(4096);
    for state in recorder.recording().crash_states(&plan) {
        let ends = [65_536, 65_536 + 4095].map(|at| byte(&state.devices[0], at));
        assert!(ends[0] == ends[1], "{state}");
    }
}

// RECORD-2
#[test]
fn flush_covers_its_own_device_only() {
    let recorder = Recorder::new();
    let devices = [(); 2].map(|()| recorder.device(MemDevice::new(65_536)));
    for device in &devices {
        device.write_at(&[1; SECTOR], 0).unwrap();
    }
    devices[0].flush().unwrap();
    recorder.mark(0_u64);
    let plan = CrashPlan::new(seed("two devices")).random_states(100);
    let mut other = BTreeSet::new();
    for state in recorder.recording().crash_states(&plan) {
        if !state.marks().is_empty() {
            assert_eq!(byte(&state.devices[0], 0), 1);
            other.insert(byte(&state.devices[1], 0));
        }
    }
    assert_eq!(other, BTreeSet::from([0]), "no request after the mark");
    devices[1].write_at(&[2; SECTOR], 4096).unwrap();
    for state in recorder.recording().crash_states(&plan) {
        other.insert(byte(&state.devices[1], 0));
    }
    assert_eq!(other, BTreeSet::from([0, 1]));
}

/// RECORD-3
#[test]
fn discarded_range_is_garbage_or_what_it_was() {
    let (recorder, device) = recorded();
    device.write_at(&[5; 200_000], 1000).unwrap();
    device.flush().unwrap();
    recorder.mark(1_u64);
    device.discard(2000, 150_001).unwrap();
    let range = 2000..152_001;
    let live = bytes(&device.snapshot(), 1000..201_000);
    let (before, within, after) = (&live[..1000], &live[1000..151_001], &live[151_001..]);
    assert!(before.iter().chain(after).all(|&byte| byte == 5));
    for block in within.chunks_exact(4096) {
        let kinds: BTreeSet<u8> = block.iter().copied().collect();
        assert!(kinds.len() > 100, "neither zeros nor what it was");
    }
    let plan = CrashPlan::new(seed("discards"))
        .random_states(60)
        .since(1_u64);
    let fates = |recorder: &Recorder| {
        let (mut whole, mut lost, mut torn) = (0, 0, 0);
        for state in recorder.recording().crash_states(&plan) {
            let there = bytes(&state.devices[0], range.clone());
            // A few bytes equal the old ones by chance.
            let kept = there.iter().filter(|&&byte| byte == 5).count();
            match kept {
                150_001 => lost += 1,
                0..2000 => whole += 1,
                _ => torn += 1,
            }
            let around = [
                byte(&state.devices[0], 1999),
                byte(&state.devices[0], 152_001),
            ];
            assert_eq!(around, [5; 2], "{state}");
        }
        (whole, lost, torn)
    };
    let (whole, lost, torn) = fates(&recorder);
    assert!(whole > 0 && lost > 0 && torn > 0);
    // A flush has no effect: some discards are never executed.
    let mut ends = BTreeSet::new();
    device.flush().unwrap();
    for number in 0..40 {
        let plan = CrashPlan::new(number).random_states(0);
        let last = recorder.recording().crash_states(&plan).last().unwrap();
        let there = bytes(&last.devices[0], range.clone());
        ends.insert(there.iter().filter(|&&byte| byte == 5).count());
    }
    assert!(ends.len() > 3 && ends.contains(&150_001), "{ends:?}");
    assert!(ends.first().is_some_and(|&kept| kept < 2000));
}

#[test]
fn data_written_after_a_discard_stays() {
    for number in 0..20 {
        let (recorder, device) = recorded();
        device.write_at(&[5; 100_000], 0).unwrap();
        device.discard(0, 100_000).unwrap();
        device.write_at(&[6; 50_000], 10_000).unwrap();
        device.flush().unwrap();
        let plan = CrashPlan::new(number).random_states(0);
        let last = recorder.recording().crash_states(&plan).last().unwrap();
        let there = bytes(&last.devices[0], 10_000..60_000);
        assert!(there.iter().all(|&byte| byte == 6));
    }
}

#[test]
fn discard_of_terabytes_takes_no_memory() {
    let device = Recorder::new().device(MemDevice::new(4 << 40));
    device.write_at(&[5; 5000], 2 << 40).unwrap();
    device.discard(4096, (4 << 40) - 4096).unwrap();
    let live = device.snapshot();
    assert_ne!(bytes(&live, 2 << 40..(2 << 40) + 5000), [5; 5000]);
    assert!(live.allocated_bytes() < 1 << 20);
}

// CRASH-1
#[test]
fn one_seed_gives_one_sequence_of_states() {
    let (recorder, device) = recorded();
    for number in 0..40_u64 {
        device
            .write_at(&[number as u8; 4096], number * 4096)
            .unwrap();
        if number % 7 == 0 {
            device.flush().unwrap();
        }
    }
    let recording = recorder.recording();
    let shown = |seed| -> Vec<String> {
        let states = recording.crash_states(&CrashPlan::new(seed));
        states.map(|state| state.to_string()).collect()
    };
    assert_eq!(shown(1), shown(1));
    assert_ne!(shown(1), shown(2));
    assert_eq!(shown(1).len(), 100 + recording.flushes() + 1);
}

#[test]
fn orderly_shutdown_is_the_live_device() {
    let (recorder, device) = recorded();
    let mut rng = crate::Rng::new(seed("orderly shutdown"));
    // Discarded data is undefined.
    let mut is_known = vec![true; 1 << 20];
    for _ in 0..200 {
        let mut data = vec![0; 1 + rng.below(20_000) as usize];
        rng.fill(&mut data);
        let offset = rng.below((1 << 20) - data.len() as u64);
        let known = if rng.one_in(6) {
            device.discard(offset, data.len() as u64).unwrap();
            false
        } else {
            device.write_at(&data, offset).unwrap();
            true
        };
        is_known[offset as usize..][..data.len()].fill(known);
        if rng.one_in(9) {
            device.flush().unwrap();
        }
    }
    device.flush().unwrap();
    let plan = CrashPlan::new(0).random_states(0);
    let last = recorder.recording().crash_states(&plan).last().unwrap();
    let all = |device: &MemDevice| -> Vec<u8> {
        let all = bytes(device, 0..1 << 20).into_iter().zip(&is_known);
        all.filter(|(_, known)| **known)
            .map(|(byte, _)| byte)
            .collect()
    };
    assert!(all(&last.devices[0]) == all(&device.snapshot()));
}

#[test]
fn saved_image_is_the_device() {
    let device = MemDevice::new(100_000);
    device.write_at(b"in the middle", 50_000).unwrap();
    device.write_at(b"end", 99_997).unwrap();
    let scratch = crate::Scratch::new().unwrap();
    let path = scratch.path().join("image");
    save_image(&device, &path).unwrap();
    let mut bytes = vec![0; 100_000];
    device.read_at(&mut bytes, 0).unwrap();
    assert!(std::fs::read(&path).unwrap() == bytes);
}
