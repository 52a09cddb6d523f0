//! Power cuts on recorded devices.

use ubtrfs_sim::oracle::{History, Promise, Rules, every_sync, judge_crash};
use ubtrfs_sim::record::{CrashPlan, Recorder};
use ubtrfs_sim::script::{RunOptions, Shape, generate};
use ubtrfs_sim::seed;

use crate::devices::{Devices, Layout, MIB, check, open, quiet};
use crate::target::{Engine, manifest};

#[test]
fn first() {
    let seed = seed("first");
    for shape in [Shape::Mixed, Shape::Snapshots, Shape::BigFile, Shape::Xattrs, Shape::ManySmallFiles] {
    let recorder = Recorder::new();
    let devices: Devices = Layout::new(1, 256 * MIB).make().into_iter().map(|device| recorder.device(device) as _).collect();
    let ops = generate(shape, seed, 300);
    let mut engine = Engine::open(&devices, &quiet()).exact();
    let options = RunOptions { compare_every: 50, ..RunOptions::default() };
    let history = History::record(&mut engine, &ops, &recorder, &options, every_sync);
    let history = history.unwrap_or_else(|failure| panic!("{failure}"));
    drop(engine);
    check(&devices).unwrap();
    let recording = recorder.recording();
    println!("{} events {} flushes", recording.events().len(), recording.flushes());
    let plan = CrashPlan::new(seed).random_states(100);
    let mut n = 0;
    let start = std::time::Instant::now();
    for state in recording.crash_states(&plan) {
        let promise = Promise::of(state.marks());
        let devices: Devices = state.devices.iter().map(|d| std::sync::Arc::new(d.clone()) as _).collect();
        check(&devices).unwrap_or_else(|e| panic!("{state}\n{e}"));
        let volume = open(&devices, &quiet()).unwrap_or_else(|e| panic!("{state}\n{e}"));
        let shown = manifest(&volume);
        judge_crash(&history, &shown, promise, &Rules::default()).unwrap_or_else(|e| panic!("{state}\n{e}"));
        n += 1;
    }
    println!("{shape:?}: {n} states in {:?}", start.elapsed());
    }
}
