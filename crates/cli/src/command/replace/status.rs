//! `ubtrfs replace status`: the state of the last replacement.

use std::io::Write;

use serde::Serialize;
use ubtrfs_format::ids::RootId;
use ubtrfs_format::item::{DevReplaceItem, FileTime};
use ubtrfs_format::key::{Key, KeyType};
use zerocopy::FromBytes;

use crate::presentation::clock;
use crate::presentation::console::Console;
use crate::presentation::json;
use crate::volume_access::ioctls::{Asked, ByIoctls, ReplaceState};
use crate::volume_access::location::{DeviceOptions, Location};

/// Show the state of a replacement
///
/// On an image, it is the state in the volume: a replacement that the kernel has begun is suspended.
#[derive(Debug, clap::Args)]
pub(crate) struct Status {
    #[arg(value_name = "IMAGE")]
    location: Location,
    /// Print once; the command always does
    #[arg(short = '1')]
    _once: bool,
    #[command(flatten)]
    devices: DeviceOptions,
}

#[derive(Debug, Serialize)]
struct StatusJson {
    state: &'static str,
    write_errors: u64,
    uncorrectable_read_errors: u64,
}

impl Status {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let volume = self.devices.as_committed().open(&self.location)?;
        let tree = volume.engine().tree(RootId::DEV_TREE)?;
        let key = Key::new(0, KeyType::DEV_REPLACE, 0);
        let bytes = tree.view.get(&key)?;
        let item = bytes
            .as_deref()
            .and_then(|bytes| DevReplaceItem::read_from_prefix(bytes).ok());
        let state = item.map_or(ReplaceState::default(), |(item, _)| ReplaceState::of(&item));
        print(console, &state)
    }
}

impl ByIoctls for Status {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.devices.refuse_for_mount()?;
        let state = Asked::open(&self.location)?.replace_state()?;
        print(console, &state)
    }
}

fn print(console: &mut Console, state: &ReplaceState) -> anyhow::Result<()> {
    if console.is_json() {
        let status = StatusJson {
            state: state.name(),
            write_errors: state.write_errors,
            uncorrectable_read_errors: state.uncorrectable,
        };
        json::write_map(&mut console.out, "replace-status", &status)?;
        return Ok(());
    }
    let time = |sec| {
        let time = FileTime { sec, nsec: 0 };
        clock::day_and_time(time.into())
    };
    let started = time(state.started);
    let stopped = time(state.stopped);
    let percent = state.progress as f64 / 10.0;
    let head = match state.name() {
        "finished" => format!("Started on {started}, finished on {stopped}"),
        "canceled" => {
            format!("Started on {started}, canceled on {stopped} at {percent:.1}%")
        }
        "suspended" => {
            format!("Started on {started}, suspended on {stopped} at {percent:.1}%")
        }
        "started" => format!("{percent:.1}% done"),
        _ => {
            writeln!(console.out, "Never started")?;
            return Ok(());
        }
    };
    let (write, read) = (state.write_errors, state.uncorrectable);
    Ok(writeln!(
        console.out,
        "{head}, {write} write errs, {read} uncorr. read errs"
    )?)
}
