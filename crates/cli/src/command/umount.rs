//! `ubtrfs umount`: unmounts a volume.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ubtrfs_fuse::mount::{
    self, Afterwards, Holder, IfBusy, Server, TableEntry, holders_of, mount_meant_by,
};

use crate::presentation::console::Console;
use crate::volume_access::control::{UnmountAnswer, UnmountRequest, Unmounted};
use crate::volume_access::held;

/// How long to wait for a server that shows no activity. The wait for a running commit has no limit.
const PATIENCE: Duration = Duration::from_secs(60);
/// A file system usually disappears within this time after its last unmount.
const LINGERS: Duration = Duration::from_secs(1);
/// Further namespaces are only counted.
const NAMES_HOLDERS: usize = 4;

/// Unmount volumes that `ubtrfs mount` mounted
///
/// Returns when all that was written is durable and the image or device is free. Another mount namespace (a
/// container, a service) may have a copy of the mount. Then what was written is made durable, and a warning names the
/// processes that keep the volume in use. With --wait it returns when the volume is free of these as well. After
/// --wait=SECONDS a volume that is still in use is an error.
#[derive(Debug, clap::Args)]
pub(crate) struct Umount {
    /// Detach the mount now, and end when it is no longer in use
    #[arg(short, long)]
    lazy: bool,
    /// Mount points, or the images or devices that are mounted
    #[arg(required = true, value_name = "DIR|IMAGE")]
    targets: Vec<PathBuf>,
}

impl Umount {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        for target in &self.targets {
            if self.lazy {
                if let Err(error) = mount::unmount(target, IfBusy::Detach) {
                    console.error(error);
                }
            } else {
                unmount(target, console)
            }
        }
        Ok(())
    }
}

/// Unmounts, and waits until the mount has ended.
fn unmount(target: &Path, console: &mut Console) {
    let meant = mount_meant_by(target).filter(|(entry, _)| entry.is_ours());
    let server = meant.as_ref().and_then(|_| Server::of(target));
    let is_stopped = server.as_ref().is_some_and(Server::is_stopped);
    let asked = match (&meant, is_stopped) {
        (Some((entry, others)), false) if others.is_empty() => UnmountRequest::begin(entry),
        _ => UnmountAnswer::None,
    };
    if let Err(error) = mount::unmount(target, IfBusy::Refuse) {
        return match asked {
            UnmountAnswer::Hangs => console.error(format_args!(
                "{error}; the process that serves it does not answer: --lazy detaches the mount all the same"
            )),
            _ => console.error(error),
        };
    }
    let Some((entry, others)) = meant else {
        return;
    };
    // For example, another bind mount still uses it. The kernel does not mention the others either.
    if are_there(&others) {
        return;
    }
    let left = match (asked, &server) {
        (UnmountAnswer::Agrees(request), server) => request.unmounted(server.as_ref(), PATIENCE),
        (_, Some(server)) if server.runs_this_program() => match server.wait(LINGERS, PATIENCE) {
            Afterwards::Ended => return,
            Afterwards::LivesOn => {
                if let Some(limit) = held::asked() {
                    return wait_for_end(&entry, Some(server), limit, console);
                }
                return console.warning(format_args!(
                    "{}: unmounted here; the last writes become durable with the next commit; {}",
                    entry.mountpoint.display(),
                    elsewhere(&entry)
                ));
            }
            Afterwards::Stalled => Unmounted::Stalled,
        },
        _ => return,
    };
    say(&entry, left, server.as_ref(), console);
}

fn are_there(others: &[TableEntry]) -> bool {
    let table = mount::mount_table().unwrap_or_default();
    let mut others = others.iter();
    others.any(|other| {
        let is_it = |entry: &TableEntry| (entry.id, entry.device) == (other.id, other.device);
        table.iter().any(is_it)
    })
}

fn say(entry: &TableEntry, left: Unmounted, server: Option<&Server>, console: &mut Console) {
    let place = entry.mountpoint.display();
    match left {
        Unmounted::Ended => {}
        Unmounted::LivesOn => match held::asked() {
            Some(limit) => wait_for_end(entry, server, limit, console),
            None => console.warning(format_args!(
                "{place}: unmounted here, and all written data is durable; {}",
                elsewhere(entry)
            )),
        },
        Unmounted::NotDurable => console.error(format_args!(
            "{place}: unmounted, but some written data may be lost; the reason is in the log of the mount (see the option log=)"
        )),
        Unmounted::Stalled => {
            let named = server.map_or("the process".into(), |server| {
                let how = if server.is_stopped() { " is stopped, and" } else { "" };
                format!("process {}{how}", server.pid())
            });
            console.error(format_args!(
                "{place}: unmounted, but {named} that served the mount has not ended: the last writes may not be durable"
            ));
        }
    }
}

/// Waits until no other namespace has the file system, and its server has ended.
fn wait_for_end(
    entry: &TableEntry,
    server: Option<&Server>,
    limit: Duration,
    console: &mut Console,
) {
    if !server.is_some_and(|server| server.ends_within(limit)) {
        console.error(format_args!(
            "{}: unmounted here; {}",
            entry.mountpoint.display(),
            elsewhere(entry)
        ));
    }
}

/// Lists the visible processes that keep the file system in use.
fn elsewhere(entry: &TableEntry) -> String {
    let holders = holders_of(entry.device);
    let named = holders.iter().take(NAMES_HOLDERS).map(|holder| {
        let Holder {
            pid,
            command,
            mountpoint,
            others,
        } = holder;
        let others = match others {
            0 => String::new(),
            1 => " and another in its namespace".into(),
            others => format!(" and {others} others in its namespace"),
        };
        format!(
            "process {pid} ({command}){others} has it on {}",
            mountpoint.display()
        )
    });
    let mut named: Vec<_> = named.collect();
    if let Some(more @ 1..) = holders.len().checked_sub(NAMES_HOLDERS) {
        named.push(format!("{more} more namespaces have it"));
    }
    if named.is_empty() {
        "still mounted or in use elsewhere, which cannot be seen from here".into()
    } else {
        format!("still mounted elsewhere: {}", named.join(", "))
    }
}
