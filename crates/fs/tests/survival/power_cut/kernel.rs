//! A sample of cuts that this checker, `btrfs check` and the kernel all find sound.

use ubtrfs_check::{CheckOptions, check};
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_fs::OpenOptions;
use ubtrfs_sim::Scratch;
use ubtrfs_sim::kernel::{self, KernelVolume};
use ubtrfs_sim::manifest::Manifest;
use ubtrfs_sim::oracle::{History, Rules};
use ubtrfs_sim::record::{CrashPlan, CrashState, Recorder, save_image};
use ubtrfs_sim::script::{Shape, generate};
use ubtrfs_sim::seed;

use super::{each_cut, history, legal, recorded};
use crate::devices::{Layout, MIB, check_after_clean_cut, discarding, quiet, shared};
use crate::engine::Engine;
use crate::scripts::copied_on_write;
use crate::soak::count;

/// The kernel does not fall back to another superblock copy, so no copy may be torn.
pub(super) const SECTOR_BYTES: u64 = 4096;

fn kernel_agrees(name: &str, layout: &Layout, options: &OpenOptions, shape: Shape) {
    if !kernel::or_skip(name) {
        return;
    }
    let seed = seed(name);
    let recorder = Recorder::new();
    let devices = recorded(layout, &recorder);
    let ops = copied_on_write(generate(shape, seed, count(120, 700)));
    let mut engine = Engine::open(&devices, options).unwrap().exact();
    let history = history(&mut engine, &ops, &recorder);
    drop(engine);
    let wanted = count(2, 30);
    let plan = CrashPlan::new(seed)
        .random_states(wanted)
        .sector_bytes(SECTOR_BYTES);
    let recording = recorder.recording();
    let step = (recording.flushes() + 1 + wanted) / wanted;
    let judge = |state: &CrashState| judged(state, &history).map_err(|error| error.to_string());
    let cuts = each_cut(&recording, &plan, step, judge);
    println!("{name}: {cuts} states");
}

fn judged(state: &CrashState, history: &History) -> Result<(), Box<dyn std::error::Error>> {
    check_after_clean_cut(&shared(state.devices.clone()))?;
    let scratch = Scratch::new()?;
    let mut files = Vec::new();
    for (number, device) in state.devices.iter().enumerate() {
        let file = scratch.path().join(format!("{number}.img"));
        save_image(device, &file)?;
        files.push(file);
    }
    let volume = KernelVolume::of_files(files, scratch);
    volume.check()?;
    // The default subvolume may be another one. The kernel replays no log on a read-only device.
    let mount = volume.mount("subvolid=5")?;
    let shown = Manifest::of_dir(mount.path())?;
    mount.unmount()?;
    legal(history, &shown, state, &Rules::default())?;

    let mount = volume.mount("subvolid=5")?;
    std::fs::write(mount.path().join("after the cut"), [7; 10_000])?;
    mount.sync()?;
    mount.scrub()?;
    mount.unmount()?;
    volume.check()?;
    let options = CheckOptions {
        data_csums: true,
        ..CheckOptions::default()
    };
    let report = check(volume.devices(), &options, &mut ())?;
    if report.is_spotless() {
        Ok(())
    } else {
        Err(report.to_string().into())
    }
}

#[test]
fn kernel_shows_legal_states_of_one_device() {
    let layout = Layout::new(1, 256 * MIB);
    kernel_agrees("cuts, kernel", &layout, &quiet(), Shape::Mixed);
}

#[test]
fn kernel_shows_legal_states_of_snapshots_on_raid1() {
    let layout = Layout::new(2, 256 * MIB).profiles(Profile::Raid1, Profile::Raid1);
    kernel_agrees("cuts, kernel, raid1", &layout, &quiet(), Shape::Snapshots);
}

/// ASYNC-DISCARD-1
#[test]
fn kernel_shows_legal_states_of_a_volume_that_discards_in_commits() {
    let layout = Layout::new(1, 256 * MIB);
    kernel_agrees(
        "cuts, kernel, discards",
        &layout,
        &discarding(),
        Shape::Snapshots,
    );
}
