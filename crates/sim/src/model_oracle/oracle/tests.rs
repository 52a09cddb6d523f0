//! A file system with ordered commits is legal after every power cut; defects are detected.

use std::sync::Arc;

use parking_lot::Mutex;
use ubtrfs_device::{BlockDevice, MemDevice};

use super::*;
use crate::manifest::{Field, Manifest};
use crate::model::ModelFs;
use crate::record::{CrashPlan, RecordDevice, Recorder};
use crate::script::{
    At, Data, Op, OpError, Outcome, RenameHow, RunOptions, Shape, Target, ThreadPlan, XattrHow,
    bytes, generate, path,
};
use crate::seed;

/// Stores only the number of operations on its device; their effects are looked up in the history. A superblock
/// points to a node, which has the same number.
struct Toy {
    model: ModelFs,
    ops: u64,
    commits: u64,
    device: Arc<RecordDevice>,
    defect: Option<Defect>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Defect {
    /// The superblock may be written before its node.
    NoFirstFlush,
    /// The commit returns before its superblock is durable.
    NoLastFlush,
    /// Nodes of the last commit are overwritten.
    ReusesNode,
    /// Sync does nothing.
    IgnoresSync,
}

const NODES: u64 = 4;

impl Toy {
    fn new(recorder: &Recorder, defect: Option<Defect>) -> Toy {
        Toy {
            model: ModelFs::default(),
            ops: 0,
            commits: 0,
            device: recorder.device(MemDevice::new(1 << 20)),
            defect,
        }
    }

    fn commit(&mut self) {
        if self.defect == Some(Defect::IgnoresSync) {
            return;
        }
        self.commits += 1;
        let node = match self.defect {
            Some(Defect::ReusesNode) => 1,
            _ => 1 + self.commits % NODES,
        };
        self.put(node, self.ops);
        if self.defect != Some(Defect::NoFirstFlush) {
            self.device.flush().unwrap();
        }
        self.put(0, self.ops << 8 | node);
        if self.defect != Some(Defect::NoLastFlush) {
            self.device.flush().unwrap();
        }
    }

    fn put(&self, block: u64, number: u64) {
        let bytes = number.to_le_bytes();
        self.device.write_at(&bytes, block * 4096).unwrap();
    }

    fn shown(device: &MemDevice, history: &History) -> Manifest {
        let get = |block: u64| {
            let mut bytes = [0; 8];
            device.read_at(&mut bytes, block * 4096).unwrap();
            u64::from_le_bytes(bytes)
        };
        let superblock = get(0);
        let (ops, node) = (superblock >> 8, superblock & 0xff);
        match node {
            0 => history.shown(0),
            node if get(node) == ops => history.shown(ops as usize),
            _ => Manifest::default(),
        }
    }
}

impl Target for Toy {
    fn apply(&mut self, op: &Op) -> Result<Outcome, OpError> {
        let outcome = self.model.apply(op);
        self.ops += 1;
        // There are also implicit commits.
        if every_sync_and_fsync(op) || self.ops.is_multiple_of(7) {
            self.commit();
        }
        outcome
    }

    fn manifest(&mut self) -> Manifest {
        self.model.manifest()
    }
}

/// Returns the first fault that a power cut reveals.
fn crash(defect: Option<Defect>) -> Option<String> {
    let seed = seed("toy");
    let recorder = Recorder::new();
    let mut toy = Toy::new(&recorder, defect);
    let ops = generate(Shape::Mixed, seed, 300);
    let options = RunOptions::default();
    let history = History::record(&mut toy, &ops, &recorder, &options, every_sync);
    let history = history.unwrap_or_else(|failure| panic!("{failure}"));
    let plan = CrashPlan::new(seed).random_states(300);
    recorder.recording().crash_states(&plan).find_map(|state| {
        let promise = Promise::of(state.marks());
        let shown = Toy::shown(&state.devices[0], &history);
        let verdict = judge_crash(&history, &shown, promise, &Rules::default());
        let fault = verdict.err()?;
        Some(format!("{state}\n{fault}"))
    })
}

#[test]
fn orderly_commits_survive_every_cut() {
    if let Some(fault) = crash(None) {
        panic!("{fault}");
    }
}

#[test]
fn missing_flush_and_reused_node_are_found() {
    for defect in [
        Defect::NoFirstFlush,
        Defect::NoLastFlush,
        Defect::ReusesNode,
        Defect::IgnoresSync,
    ] {
        assert!(crash(Some(defect)).is_some(), "{defect:?}");
    }
}

fn history(ops: &[Op]) -> History {
    let mut model = ModelFs::default();
    let mut history = History::new(model.clone());
    for op in ops {
        model.apply(op).unwrap();
        history.push(op.clone(), model.clone());
    }
    history
}

fn create(name: &str) -> Op {
    Op::Create {
        path: path(name),
        mode: 0o644,
    }
}

fn write(name: &str, len_bytes: usize) -> Op {
    Op::Write {
        at: At::Path(path(name)),
        offset: 0,
        data: Data::Made {
            kind: crate::fill::Kind::Random,
            len_bytes,
            seed: 1,
        },
    }
}

fn promise(at_least: usize, at_most: usize) -> Promise {
    Promise {
        at_least,
        at_most,
        synced: Vec::new(),
    }
}

#[test]
fn fault_names_the_prefix_that_fits_and_the_nearest_legal_one() {
    let history = history(&[create("a"), create("b"), create("c"), create("d")]);
    let rules = Rules::default();
    let judge = |ops: usize, promise| judge_crash(&history, &history.shown(ops), promise, &rules);
    assert_eq!(
        judge(2, promise(1, 3)).unwrap(),
        Verdict {
            prefix: 2,
            has_log: false
        }
    );
    let lost = judge(1, promise(2, 4)).unwrap_err();
    assert_eq!((lost.shows, lost.nearest), (Some(1), 2));
    assert!(lost.to_string().contains("/b: only left"), "{lost}");
    let early = judge(4, promise(0, 2)).unwrap_err();
    assert_eq!((early.shows, early.nearest), (Some(4), 2));

    let mut neither = history.shown(3);
    neither.entries.retain(|entry| entry.path != b"a");
    let neither = judge_crash(&history, &neither, promise(0, 4), &rules).unwrap_err();
    assert_eq!((neither.shows, neither.nearest), (None, 3));
}

#[test]
fn write_in_flight_may_be_torn_only_by_rule_and_only_that_file() {
    let history = history(&[create("a"), create("b"), write("a", 9000), create("c")]);
    // Half of the write to `a`.
    let mut model = history.model(2).clone();
    model.apply(&write("a", 4096)).unwrap();
    let shown = model.manifest();
    let judge = |data, at_most| {
        let rules = Rules {
            data,
            ..Rules::default()
        };
        judge_crash(&history, &shown, promise(0, at_most), &rules)
    };
    assert!(judge(DataRule::Prefix, 4).is_err());
    assert_eq!(judge(DataRule::Torn, 4).unwrap().prefix, 2);
    assert!(judge(DataRule::Torn, 2).is_err(), "it had not begun");
}

#[test]
fn data_may_lag_behind_names_but_not_behind_the_promise() {
    let history = history(&[create("a"), write("a", 5000), create("b"), write("a", 9000)]);
    // Both names, but no data yet.
    let mut model = history.model(1).clone();
    model.apply(&create("b")).unwrap();
    let shown = model.manifest();
    let judge = |data, at_least| {
        let rules = Rules {
            data,
            ..Rules::default()
        };
        judge_crash(&history, &shown, promise(at_least, 4), &rules)
    };
    assert!(judge(DataRule::Torn, 0).is_err());
    assert_eq!(judge(DataRule::Lagging, 1).unwrap().prefix, 4);
    assert!(
        judge(DataRule::Lagging, 2).is_err(),
        "the data was promised"
    );
}

#[test]
fn clone_may_have_grown_the_file_before_its_data_follows() {
    let clone = Op::Clone {
        from: At::Path(path("a")),
        from_offset: 0,
        len_bytes: 100,
        to: At::Path(path("b")),
        to_offset: 8192,
    };
    let history = history(&[
        create("a"),
        write("a", 100),
        create("b"),
        clone,
        create("c"),
    ]);
    let mut model = history.model(3).clone();
    let grown = Op::Truncate {
        at: At::Path(path("b")),
        size: 8192,
    };
    model.apply(&grown).unwrap();
    model.apply(&create("c")).unwrap();
    let judge = |data, at_least| {
        let rules = Rules {
            data,
            ignored: vec![Field::Mtime],
        };
        judge_crash(&history, &model.manifest(), promise(at_least, 5), &rules)
    };
    assert!(judge(DataRule::Torn, 3).is_err());
    assert_eq!(judge(DataRule::Lagging, 3).unwrap().prefix, 5);
    assert!(judge(DataRule::Lagging, 4).is_err(), "it was promised");
}

#[test]
fn part_of_a_thread_is_judged_by_itself() {
    let mut model = ModelFs::default();
    for thread in ["t0", "t1"] {
        let op = Op::Mkdir {
            path: path(thread),
            mode: 0o755,
        };
        model.apply(&op).unwrap();
    }
    let mut history = History::of_part(model.clone(), path("t1"));
    for op in [create("t1/a"), create("t1/b")] {
        model.apply(&op).unwrap();
        history.push(op, model.clone());
    }
    // The other thread has continued, which does not matter.
    model.apply(&create("t0/x")).unwrap();
    let rules = Rules {
        ignored: vec![Field::Atime],
        ..Rules::default()
    };
    let verdict = judge_crash(&history, &model.manifest(), promise(1, 2), &rules);
    assert_eq!(verdict.unwrap().prefix, 2);
}

/// One model and one commit for all threads.
#[derive(Clone)]
struct Shared {
    state: Arc<Mutex<(ModelFs, Vec<Manifest>)>>,
    device: Arc<RecordDevice>,
}

impl Target for Shared {
    fn apply(&mut self, op: &Op) -> Result<Outcome, OpError> {
        let (model, durable) = &mut *self.state.lock();
        let outcome = model.apply(op);
        if every_sync_and_fsync(op) {
            durable.push(model.manifest());
            let number = durable.len() as u64;
            self.device.write_at(&number.to_le_bytes(), 0).unwrap();
            self.device.flush().unwrap();
        }
        outcome
    }

    fn manifest(&mut self) -> Manifest {
        self.state.lock().0.manifest()
    }
}

#[test]
fn each_thread_finds_its_own_prefix_after_a_cut() {
    let seed = seed("threads after a cut");
    let recorder = Recorder::new();
    let shared = Shared {
        state: Arc::default(),
        device: recorder.device(MemDevice::new(1 << 20)),
    };
    let plan = ThreadPlan::apart(Shape::Mixed, seed, 3, 200, false);
    let mut targets = vec![shared.clone(); 3];
    let options = RunOptions::default();
    let histories = record_threads(&plan, &mut targets, &recorder, &options, every_sync);
    let histories = histories.unwrap_or_else(|failure| panic!("{failure}"));
    let plan = CrashPlan::new(seed).since(Mark::Durable { thread: 0, ops: 0 });
    let mut found = 0;
    for state in recorder.recording().crash_states(&plan) {
        let mut number = [0; 8];
        state.devices[0].read_at(&mut number, 0).unwrap();
        let shown = &shared.state.lock().1[u64::from_le_bytes(number) as usize - 1];
        for (thread, history) in histories.iter().enumerate() {
            let promise = Promise::of_thread(state.marks(), thread as u8);
            judge_crash(history, shown, promise, &Rules::default())
                .unwrap_or_else(|fault| panic!("thread {thread}, {state}\n{fault}"));
            found += 1;
        }
    }
    assert!(found > 300, "{found}");
}

fn fsync(name: &str) -> Op {
    Op::Fsync {
        at: At::Path(path(name)),
    }
}

/// Removes some paths from a manifest.
fn without(mut shown: Manifest, paths: &[&str]) -> Manifest {
    shown
        .entries
        .retain(|entry| !paths.iter().any(|path| entry.path == path.as_bytes()));
    shown
}

#[test]
fn log_keeps_what_was_synced_and_may_leave_out_the_rest() {
    let history = history(&[
        create("a"),
        create("b"),
        write("a", 5000),
        fsync("a"),
        create("c"),
    ]);
    let judge = |shown: Manifest, at_least, synced: &[usize]| {
        let promise = Promise {
            synced: synced.to_vec(),
            ..promise(at_least, 5)
        };
        judge_crash(&history, &shown, promise, &Rules::default())
    };
    let logged = Verdict {
        prefix: 0,
        has_log: true,
    };
    let only_a = without(history.shown(4), &["b"]);
    assert_eq!(judge(only_a.clone(), 0, &[4]).unwrap(), logged);
    // The same applies if the sync has not returned, when none of it is required.
    assert_eq!(judge(only_a.clone(), 0, &[]).unwrap(), logged);
    assert_eq!(judge(history.shown(0), 0, &[]).unwrap().prefix, 0);

    let fault = |shown, at_least, synced: &[usize]| {
        let fault = judge(shown, at_least, synced).unwrap_err();
        fault.to_string()
    };
    assert!(fault(history.shown(0), 0, &[4]).contains("is gone"));
    let empty = without(history.shown(2), &["b"]);
    assert!(fault(empty, 0, &[4]).contains("synced by operation 4"));
    assert!(fault(only_a.clone(), 2, &[4]).contains("was always there"));
    let mut strange = only_a;
    strange.entries[1].stat.mode = 0o123;
    assert!(fault(strange, 0, &[]).contains("never was so"));
    // The last operation may be in the volume, whatever was synced.
    assert_eq!(judge(history.shown(5), 0, &[4]).unwrap().prefix, 5);
}

#[test]
fn mode_and_attributes_of_two_moments_are_no_legal_inode() {
    let history = history(&[
        create("a"),
        create("b"),
        Op::Sync,
        Op::Chmod {
            path: path("a"),
            mode: 0o640,
        },
        Op::SetXattr {
            path: path("a"),
            name: bytes("user.a"),
            value: Data::Bytes(vec![1]),
            how: XattrHow::Any,
        },
        write("b", 100),
        fsync("b"),
    ]);
    let judge = |a_as_of: usize, mode_of: usize| {
        let mut shown = history.shown(7);
        let at = |shown: &Manifest| shown.entries.iter().position(|entry| entry.path == b"a");
        let (of_a, of_mode) = (history.shown(a_as_of), history.shown(mode_of));
        let place = at(&shown).unwrap();
        shown.entries[place] = of_a.entries[at(&of_a).unwrap()].clone();
        shown.entries[place].stat.mode = of_mode.entries[at(&of_mode).unwrap()].stat.mode;
        let promise = Promise {
            synced: vec![7],
            ..promise(3, 7)
        };
        let verdict = judge_crash(&history, &shown, promise, &Rules::default());
        verdict.map_err(|fault| fault.to_string())
    };
    assert!(judge(3, 3).is_ok() && judge(4, 4).is_ok() && judge(5, 5).is_ok());
    // The new attribute with the old mode.
    assert!(judge(5, 3).unwrap_err().contains("never was so"));
}

#[test]
fn synced_names_are_followed_through_moved_directories() {
    let mkdir = |name| Op::Mkdir {
        path: path(name),
        mode: 0o755,
    };
    let rename = |from, to| Op::Rename {
        from: path(from),
        to: path(to),
        how: RenameHow::Replace,
    };
    let history = history(&[
        mkdir("d"),
        create("d/a"),
        Op::Sync,
        rename("d", "e"),
        rename("e/a", "e/b"),
        fsync("e/b"),
    ]);
    let judge = |shown: Manifest| {
        let promise = Promise {
            synced: vec![6],
            ..promise(3, 6)
        };
        let verdict = judge_crash(&history, &shown, promise, &Rules::default());
        verdict.map_err(|fault| fault.to_string())
    };
    let mut moved = history.shown(6);
    assert!(!judge(moved.clone()).unwrap().has_log);
    // The directory still has its old name.
    for entry in &mut moved.entries[1..] {
        entry.path[0] = b'd';
    }
    assert!(judge(moved.clone()).unwrap().has_log);
    assert!(judge(history.shown(3)).unwrap_err().contains("is gone"));
    let mut old_name = moved.entries[2].clone();
    old_name.path = b"d/a".to_vec();
    moved.entries.insert(2, old_name);
    assert!(judge(moved).unwrap_err().contains("is there still"));
}

#[test]
fn marks_survive_their_encoding() {
    for thread in [0, 1, 255] {
        for ops in [0, 1, 1 << 40] {
            for mark in [
                Mark::Started { thread, ops },
                Mark::Durable { thread, ops },
                Mark::Synced { thread, ops },
            ] {
                assert_eq!(Mark::from(u64::from(mark)), mark);
            }
        }
    }
    let marks = [
        Mark::Started { thread: 0, ops: 1 },
        Mark::Durable { thread: 0, ops: 1 },
        Mark::Started { thread: 0, ops: 2 },
        Mark::Started { thread: 1, ops: 9 },
    ]
    .map(u64::from);
    assert_eq!(Promise::of(&marks), promise(1, 2));
    assert_eq!(Promise::of_thread(&marks, 1), promise(0, 9));
}
