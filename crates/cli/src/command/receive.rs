//! `ubtrfs receive`: creates the subvolumes of a send stream in a directory of a volume, or prints the
//! commands of a stream.

mod input;
mod observer;
mod watcher;

use std::io::{Read, Write};
use std::path::PathBuf;

use anyhow::{Context, bail};
use jiff::tz::TimeZone;
use rustix::io::Errno;
use ubtrfs::{ReceiveOptions, StreamDump};
use ubtrfs_fuse::caller::is_our_user;

use crate::presentation::console::{COPY_PROGRESS, Console};
use crate::print::IsoTime;
use crate::volume_access::changes::Changes;
use crate::volume_access::control::mountpoint_of;
use crate::volume_access::ioctls::{Asked, ByIoctls, KernelTarget};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::reason::{Reason, Reasoned, is_refusal};
use observer::ConsoleObserver;
use watcher::MountWatcher;

/// Make the subvolumes of a stream that 'btrfs send' made
///
/// Streams of version 1 and 2 are read. Each subvolume is made in the directory, which is any in the volume, and is
/// read-only at the end. A snapshot is made of the subvolume that its parent was received into, which must not have
/// changed since. Compressed data is stored as it comes where that can be. Nothing outside the new subvolumes is
/// changed, whatever the stream says.
///
/// When a command fails, nothing more is done. The subvolume stays as it is then, writable, and the message names it.
/// With -v the subvolumes and the data that is written is shown, with -vv each command.
#[derive(Debug, clap::Args)]
pub(crate) struct Receive {
    /// Where the subvolumes are made
    #[arg(
        value_name = "IMAGE:/DIR",
        required_unless_present = "dump",
        conflicts_with = "dump"
    )]
    destination: Option<Location>,
    /// Read the stream from FILE and not from standard input
    #[arg(short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Stop at the end of the first stream, and do not read another behind it
    #[arg(short = 'e')]
    stop_at_end: bool,
    /// Stop after N commands have failed, 0: never
    #[arg(short = 'E', long, value_name = "N", default_value_t = 1)]
    max_errors: u64,
    /// Decompress data that is compressed in the stream, and store it as other data
    #[arg(long)]
    force_decompress: bool,
    /// Fail at attributes of NAS makers instead of leaving them out
    #[arg(long)]
    strict_attributes: bool,
    /// Needs no effect: a stream cannot lead out of the directory
    #[arg(short = 'C', long, hide = true)]
    chroot: bool,
    /// The mount's top directory; only of use in mounts of the kernel's btrfs
    #[arg(short = 'm', value_name = "DIR")]
    root_mount: Option<PathBuf>,
    /// Print a line for each command of the stream, and receive nothing
    #[arg(long)]
    dump: bool,
    #[command(flatten)]
    volume: VolumeOptions,
}

impl Receive {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let Some(destination) = &self.destination else {
            return self.dump(console);
        };
        let source = self.input(console)?;
        let mut changes = Changes::new(&self.volume);
        let target = changes.open(destination)?;
        let Some(dir) = target.find_dir(destination)? else {
            bail!("'{destination}' is not a directory");
        };
        // The user who mounted the image can read it anyway.
        let owns_image = target
            .rights()
            .is_some_and(|rights| is_our_user(rights.caller));
        let watcher = target.mount_changes().cloned().map(MountWatcher::boxed);
        let received = self.receive(console, |options, observer| {
            let options = options.any_source(owns_image);
            dir.receive_watched(source, &options, observer, watcher)
        });
        let received = match received {
            Err(error) if is_refusal(&error) || error.errno() == Errno::ROFS => {
                let refused = || format!("cannot make subvolumes in '{destination}'");
                return Err(error).with_context(refused);
            }
            received => received,
        };
        if let Err(error) = received {
            console.failed(&error.into());
        }
        // Subvolumes received before an error are kept.
        changes.commit()
    }

    fn input(&self, console: &mut Console) -> anyhow::Result<Box<dyn Read>> {
        input::open(self.file.as_deref(), self.stop_at_end, console)
    }

    fn receive(
        &self,
        console: &mut Console,
        receive: impl FnOnce(&ReceiveOptions, &mut ConsoleObserver<'_>) -> ubtrfs::Result<()>,
    ) -> Result<(), Reason> {
        console.start_progress(COPY_PROGRESS);
        let options = ReceiveOptions::new()
            .max_errors(self.max_errors)
            .force_decompress(self.force_decompress)
            .strict_attributes(self.strict_attributes)
            .all_streams(!self.stop_at_end);
        let received = receive(&options, &mut ConsoleObserver::new(console)).reason();
        console.end_progress();
        received
    }

    fn dump(&self, console: &mut Console) -> anyhow::Result<()> {
        const FAILED: &str = "failed to dump the send stream";
        let zone = TimeZone::system();
        let local_time = |seconds| IsoTime(seconds, &zone);
        let source = self.input(console)?;
        let dump = StreamDump::open(source, local_time);
        for line in dump.reason().context(FAILED)? {
            let line = line.reason().context(FAILED)?;
            writeln!(console.out, "{line}")?;
        }
        Ok(())
    }
}

/// Receiving into a mount of the kernel's btrfs.
impl ByIoctls for Receive {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        let Some(destination) = &self.destination else {
            return self.dump(console);
        };
        self.volume.refuse_for_mount()?;
        let source = self.input(console)?;
        let dir = Asked::open(destination)?;
        let mountpoint = match &self.root_mount {
            Some(path) => path.clone(),
            None => destination
                .written_path()
                .canonicalize()
                .and_then(|path| mountpoint_of(&path))
                .with_context(|| format!("cannot find where '{destination}' is mounted"))?,
        };
        let mut receiving = KernelTarget::new(dir, mountpoint);
        let received = self.receive(console, |options, observer| {
            options.receive_to(&mut receiving, source, observer)
        });
        Ok(received?)
    }
}
