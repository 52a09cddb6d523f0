//! Groups of operations are atomic: after a power cut, a volume has all of a group or nothing, despite other threads.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ubtrfs::{
    Access, BlockDevice, Checker, Event, FileFlags, MemDevice, OpenOptions, Result, TrimOptions,
    Volume, XattrMode,
};
use ubtrfs_sim::record::{CrashPlan, CrashState, CrashStates, Recorder};
use ubtrfs_sim::{new_volume, seed};

const VOLUME_BYTES: u64 = 256 << 20;
const VERSIONS: u64 = 12;
/// Superblocks of this size are not torn, which would be outside the scope of these tests.
const SECTOR_BYTES: u64 = 4096;

fn named(device: impl BlockDevice + 'static) -> Vec<(PathBuf, Arc<dyn BlockDevice>)> {
    vec![(
        PathBuf::from("memory"),
        Arc::new(device) as Arc<dyn BlockDevice>,
    )]
}

/// Returns content that identifies a version, and is large enough to be stored outside of inodes.
fn content(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(3000)
}

/// Makes changes that belong together: files in two subvolumes, names, attributes.
fn change(volume: &Volume, version: u64, between: &dyn Fn()) -> Result<()> {
    let root = volume.root();
    root.write("/one", content(version))?;
    between();
    root.write("/sub/dir/other", content(version))?;
    between();
    root.rename(format!("/at-{}", version - 1), format!("/at-{version}"))?;
    root.set_xattr("/sub", "user.version", version.to_string(), XattrMode::Any)?;
    between();
    root.remove_file(format!("/sub/new-{}", version - 1))?;
    let appending = OpenOptions::new().append(true).create(true);
    let new = root.open_with(format!("/sub/new-{version}"), &appending)?;
    new.write_all_at(version.to_string().as_bytes(), 0)
        .expect("there is room");
    between();
    root.reflink("/one", "/shared")
}

/// Returns the version of each part.
fn versions(volume: &Volume) -> Vec<u64> {
    let root = volume.root();
    let of_content = |path: &str| {
        let found = root.read(path).unwrap();
        (0..=VERSIONS)
            .find(|version| content(*version) == found)
            .unwrap_or(u64::MAX)
    };
    let of_name = |path: &str| {
        let versions = 0..=VERSIONS;
        let mut there =
            versions.filter(|version| root.exists(format!("{path}-{version}")).unwrap());
        there.next().unwrap_or(u64::MAX)
    };
    let xattr = root
        .xattr("/sub", "user.version")
        .unwrap()
        .unwrap_or_default();
    let mut found = vec![
        of_content("/one"),
        of_content("/sub/dir/other"),
        of_content("/shared"),
        of_name("/at"),
        of_name("/sub/new"),
        String::from_utf8(xattr).unwrap().parse().unwrap(),
    ];
    let new = root.read_to_string(format!("/sub/new-{}", found[4]));
    found.push(
        new.ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(u64::MAX),
    );
    found
}

fn first_version(volume: &Volume) {
    let root = volume.root();
    root.create_subvolume("/sub")
        .unwrap()
        .create_dir("/dir")
        .unwrap();
    for path in ["/one", "/sub/dir/other", "/shared"] {
        root.write(path, content(0)).unwrap();
    }
    root.write("/at-0", b"").unwrap();
    root.write("/sub/new-0", b"0").unwrap();
    root.set_xattr("/sub", "user.version", "0", XattrMode::Any)
        .unwrap();
    volume.sync().unwrap();
}

/// Changes all parts to each version, in a group or without, while other threads change, fsync and commit. Without a
/// group, everything is durable between the parts; within one, an operation of another thread has begun. Returns the
/// possible states after a power cut.
fn record(in_groups: bool) -> CrashStates {
    let recorder = Recorder::new();
    let device = recorder.device(new_volume(&Default::default(), VOLUME_BYTES));
    let volume = Volume::builder()
        .commit_interval(Some(Duration::from_millis(2)))
        .memory_bytes(64 << 20)
        .open_devices(vec![(PathBuf::from("memory"), device)])
        .unwrap();
    first_version(&volume);
    recorder.mark(0u64);
    let is_done = AtomicBool::new(false);
    let (begun, rounds) = (AtomicU64::new(0), AtomicU64::new(0));
    // A log must not contain a part of a group.
    let sync_file = || volume.root().open_file("/one").unwrap().sync_all().unwrap();
    let write = || volume.root().write("/noise", vec![1; 30_000]).unwrap();
    let sync = || volume.sync().unwrap();
    let others: [&(dyn Fn() + Sync); 3] = [&sync_file, &write, &sync];
    thread::scope(|scope| {
        for other in others {
            let (is_done, begun, rounds) = (&is_done, &begun, &rounds);
            scope.spawn(move || {
                while !is_done.load(Ordering::Relaxed) {
                    begun.fetch_add(1, Ordering::Relaxed);
                    other();
                    rounds.fetch_add(1, Ordering::Relaxed);
                    thread::yield_now();
                }
            });
        }
        for version in 1..=VERSIONS {
            let before = rounds.load(Ordering::Relaxed);
            // All other threads may be waiting for the end of the group.
            let wait_for_others = || {
                let before = rounds.load(Ordering::Relaxed);
                while begun.load(Ordering::Relaxed) <= before {
                    thread::yield_now();
                }
            };
            if in_groups {
                volume
                    .group(|| change(&volume, version, &wait_for_others))
                    .unwrap()
            } else {
                change(&volume, version, &|| volume.sync().unwrap()).unwrap();
                volume.sync().unwrap();
            }
            recorder.mark(version);
            // Let the other threads run.
            while rounds.load(Ordering::Relaxed) == before {
                thread::yield_now();
            }
        }
        is_done.store(true, Ordering::Relaxed);
    });
    volume.close().unwrap();
    let plan = CrashPlan::new(seed("groups"))
        .since(0u64)
        .random_states(300);
    recorder
        .recording()
        .crash_states(&plan.sector_bytes(SECTOR_BYTES))
}

/// Returns whether all parts have the same version, and at least the durable one.
fn is_whole(state: &CrashState) -> bool {
    let device = state.devices[0].clone();
    let volume = Volume::builder()
        .read_only(true)
        .open_devices(named(device));
    let found = versions(&volume.unwrap_or_else(|error| panic!("{state}: {error}")));
    let durable = state.marks().last().copied().unwrap_or(0);
    assert!(
        found.iter().all(|version| *version >= durable),
        "{state}: {found:?}"
    );
    found
        .iter()
        .all(|version| *version == found[0] && *version <= VERSIONS)
}

/// GATE-1
#[test]
fn group_is_there_as_a_whole_or_not_at_all_after_any_power_cut() {
    let (mut judged, mut last) = (0, None);
    for state in record(true) {
        assert!(is_whole(&state), "{state}");
        judged += 1;
        last = Some(state);
    }
    assert!(judged > 300, "{judged}");
    let last = last.unwrap().devices[0].clone();
    let report = Checker::new().check_devices(named(last)).unwrap();
    assert!(report.is_clean(), "{:?}", report.issues);
}

/// Without this, the test above would prove nothing.
#[test]
fn operations_without_a_group_are_torn_by_some_power_cuts() {
    assert!(record(false).any(|state| !is_whole(&state)));
}

#[test]
fn operations_that_commit_by_themselves_are_refused_within_a_group() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    root.create_subvolume("/sub").unwrap();
    let commits = || volume.statistics().commits;
    let before = commits();
    volume
        .group(|| {
            root.write("/file", b"content")?;
            let file = root.open_file("/file")?;
            let refused = [
                volume.sync(),
                file.sync_all(),
                root.create_subvolume("/new").map(drop),
                root.snapshot("/sub", "/snapshot", Access::ReadOnly)
                    .map(drop),
            ];
            for refused in refused {
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::QuotaExceeded);
            }
            // Files with synchronous writes are durable at the end of the group.
            let sync = FileFlags {
                sync: true,
                ..FileFlags::default()
            };
            root.set_flags("/file", sync)?;
            root.write("/file", b"other")?;
            // A part of this group.
            volume.group(|| root.create_dir("/dir"))?;
            assert_eq!(commits(), before);
            Ok(())
        })
        .unwrap();
    assert_eq!(commits(), before + 1);
    assert!(!root.exists("/new").unwrap() && !root.exists("/snapshot").unwrap());
    assert!(root.exists("/dir").unwrap());
    volume.sync().unwrap();
}

#[test]
fn group_that_is_too_large_is_an_error_and_the_volume_continues() {
    let volume = Volume::builder()
        .memory_bytes(64 << 20)
        .in_memory(1 << 30)
        .unwrap();
    let root = volume.root();
    let made = AtomicU64::new(0);
    let outcome = volume.group(|| {
        loop {
            let number = made.load(Ordering::Relaxed);
            root.write(format!("/file-{number}"), b"small")?;
            made.fetch_add(1, Ordering::Relaxed);
        }
        #[expect(unreachable_code, reason = "the type of the outcome")]
        Ok(())
    });
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::QuotaExceeded);
    let made = made.load(Ordering::Relaxed);
    assert!(made > 500, "{made}");
    volume.sync().unwrap();
    let last = format!("/file-{}", made - 1);
    assert_eq!(root.read(&last).unwrap(), b"small");
    volume.group(|| root.remove_file(&last)).unwrap();
}

#[test]
fn group_in_a_full_volume_fails_without_a_hang() {
    let device = Arc::new(MemDevice::new(VOLUME_BYTES));
    let devices = || {
        vec![(
            PathBuf::from("memory"),
            device.clone() as Arc<dyn BlockDevice>,
        )]
    };
    let volume = Volume::builder().make(devices()).unwrap();
    let root = volume.root();
    root.write("/kept", content(1)).unwrap();
    volume.sync().unwrap();
    let mut full = Ok(());
    for number in 0..1000 {
        full = volume.group(|| {
            root.write("/kept", content(2))?;
            root.write(format!("/file-{number}"), vec![7; 1 << 20])
        });
        if full.is_err() {
            break;
        }
    }
    let full = full.unwrap_err();
    assert!(
        matches!(
            full.kind(),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded
        ),
        "{full}"
    );
    drop(volume);
    let volume = Volume::builder().open_devices(devices()).unwrap();
    let kept = volume.root().read("/kept").unwrap();
    assert_eq!(kept, content(2));
    assert!(!volume.root().exists(Path::new("/file-999")).unwrap());
}

#[test]
fn error_or_panic_of_a_group_lets_others_go_on() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    let failed = volume.group(|| root.read("/none").map(drop)).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::NotFound);
    assert_eq!(failed.path(), Some(Path::new("/none")));
    let panicked = thread::scope(|scope| {
        let work = || volume.group(|| -> Result<()> { panic!("of the test") });
        scope.spawn(work).join()
    });
    assert!(panicked.is_err());
    root.write("/file", b"content").unwrap();
    volume.close().unwrap();
}

#[test]
fn trim_calls_the_program_while_others_change_and_group() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    volume.root().write("/file", b"content").unwrap();
    let trimming = volume.clone();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut calls = 0;
        let trimmed = trimming.trim(&TrimOptions::new(), &mut |_: &Event<'_>| {
            let write = |name: &str| trimming.root().write(format!("/{name}-{calls}"), name);
            thread::scope(|scope| {
                scope.spawn(|| trimming.group(|| write("group")).unwrap());
                scope.spawn(|| write("change").unwrap());
            });
            calls += 1;
            if calls < 3 {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        // There is no receiver if the test has failed.
        let _ = sender.send((trimmed, calls));
    });
    let ended = receiver.recv_timeout(Duration::from_secs(60));
    let (trimmed, calls) = ended.expect("the trim waits for itself");
    assert_eq!(trimmed.unwrap_err().kind(), ErrorKind::Interrupted);
    assert_eq!(calls, 3);
    for name in ["group-2", "change-2"] {
        assert!(volume.root().exists(name).unwrap());
    }
}
