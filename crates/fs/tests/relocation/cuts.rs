//! Power cuts during relocations: each state of the devices is sound and shows the same contents.

use std::path::PathBuf;
use std::sync::Arc;

use ubtrfs_check::{CheckOptions, check_devices};
use ubtrfs_device::{BlockDevice, MemDevice};
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_mkfs::MkfsOptions;
use ubtrfs_sim::record::{CrashPlan, Recorder};
use ubtrfs_sim::script::{Op, RunOptions, Shape, Target, generate, run};
use ubtrfs_sim::{new_volume_on, seed};

use crate::fixture::{groups, is_soak, options, tiny_batches};
use crate::target::{EngineTarget, NamedDevices};

fn named(devices: impl IntoIterator<Item = Arc<dyn BlockDevice>>) -> NamedDevices {
    let named = devices.into_iter().enumerate();
    named
        .map(|(number, device)| (PathBuf::from(format!("device {number}")), device))
        .collect()
}

fn shared(devices: &[MemDevice]) -> Vec<Arc<dyn BlockDevice>> {
    let share = |device: &MemDevice| Arc::new(device.clone()) as Arc<dyn BlockDevice>;
    devices.iter().map(share).collect()
}

fn cut_everywhere(made: &MkfsOptions, device_bytes: &[u64], seed: u64) {
    println!("UBTRFS_SEED={seed}");
    let recorder = Recorder::new();
    let filled: Vec<MemDevice> = {
        let devices = new_volume_on(made, device_bytes);
        let devices: Vec<Arc<MemDevice>> = devices.into_iter().map(Arc::new).collect();
        let used = devices
            .iter()
            .map(|device| Arc::clone(device) as Arc<dyn BlockDevice>);
        let mut target = EngineTarget::open(named(used), &options()).unwrap();
        let mut ops = generate(Shape::Snapshots, seed, 400);
        ops.push(Op::Remount);
        run(&mut target, &ops, &RunOptions::default()).unwrap();
        drop(target);
        devices
            .iter()
            .map(|device| MemDevice::clone(device))
            .collect()
    };
    let recorded: Vec<Arc<dyn BlockDevice>> = filled
        .into_iter()
        .map(|device| recorder.device(device) as Arc<dyn BlockDevice>)
        .collect();
    let mut target = EngineTarget::open(named(recorded), &options()).unwrap();
    let wanted = target.manifest();
    for group in groups(target.volume()) {
        target
            .volume()
            .relocate(group.start, &tiny_batches(), &mut ())
            .unwrap();
    }
    drop(target);
    let plan = CrashPlan {
        random_states: if is_soak() { 400 } else { 40 },
        // A torn superblock needs a recovery first.
        sector_bytes: 4096,
        ..CrashPlan::new(seed)
    };
    let mut count = 0;
    for state in recorder.recording().crash_states(&plan) {
        let devices = shared(&state.devices);
        let report =
            check_devices(named(devices.clone()), &CheckOptions::default(), &mut ()).unwrap();
        assert!(report.is_clean(), "{state}: {report}");
        if let Ok(mut target) = EngineTarget::open(named(devices), &options()) {
            let differences = ubtrfs_sim::manifest::diff(&wanted, &target.manifest());
            assert!(differences.is_empty(), "{state}: {differences:#?}");
            count += 1;
        }
    }
    assert!(count > 10);
    println!("{count} states");
}

#[test]
fn cut_relocations_leave_whole_volumes() {
    let seed = seed("cut relocations");
    cut_everywhere(&MkfsOptions::default(), &[300 << 20], seed);
    let mirrored = MkfsOptions {
        data: Some(Profile::Raid1),
        metadata: Some(Profile::Raid1),
        nodesize: Some(4096),
        ..MkfsOptions::default()
    };
    cut_everywhere(&mirrored, &[300 << 20; 2], seed.wrapping_add(1));
}
