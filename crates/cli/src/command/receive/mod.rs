//! `ubtrfs receive`: the subvolumes of a send stream, made in a directory of a volume. Or the commands of a stream as text.

mod input;
mod observer;
mod watcher;

use std::io::Read;
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};
use jiff::tz::TimeZone;
use ubtrfs_stream::{
    DumpError, Fault, ReceiveOptions, Receiver, StreamError, StreamReader, Target, VolumeTarget,
};

use crate::presentation::console::{COPY_PROGRESS, Console};
use crate::print::IsoTime;
use crate::volume_access::changes::Changes;
use crate::volume_access::control::mountpoint_of;
use crate::volume_access::ioctls::{Asked, ByIoctls, KernelTarget};
use crate::volume_access::location::{Location, VolumeOptions};
use observer::ConsoleObserver;
use watcher::MountWatcher;

/// Make the subvolumes of a stream that 'btrfs send' made
///
/// Streams of version 1 and 2 are read. Each subvolume is made in the directory, which is any in the volume, and is
/// read-only at the end. A snapshot is made of the subvolume that its parent was received into, which must not have
/// changed since. Compressed data is stored as it comes where that can be. Nothing outside the new subvolumes is changed,
/// whatever the stream says.
///
/// When a command fails, nothing more is done. The subvolume stays as it is then, writable, and the message names it. With
/// -v the subvolumes and the data that is written is shown, with -vv each command.
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
        let Some(dir) = target.directory(&destination.path)? else {
            bail!("'{destination}' is not a directory");
        };
        if let Some(rights) = target.rights() {
            rights
                .add_to(dir)
                .with_context(|| format!("cannot make subvolumes in '{destination}'"))?;
        }
        let mut receiving = VolumeTarget::new(target.engine(), dir);
        if let Some(changes) = target.mount_changes() {
            receiving = receiving.watched_by(Box::new(MountWatcher::new(changes.clone())));
        }
        let received = self.receive(source, &mut receiving, console);
        if let Err(error) = received {
            console.failed(&error);
        }
        // What was received before an error stays.
        changes.commit()
    }

    fn input(&self, console: &mut Console) -> anyhow::Result<Box<dyn Read>> {
        input::open(self.file.as_deref(), self.stop_at_end, console)
    }

    /// Receives all streams that there are behind each other.
    fn receive(
        &self,
        mut source: impl Read,
        target: &mut dyn Target,
        console: &mut Console,
    ) -> anyhow::Result<()> {
        console.start_progress(COPY_PROGRESS);
        let options = ReceiveOptions {
            max_errors: self.max_errors,
            force_decompress: self.force_decompress,
        };
        let mut observer = ConsoleObserver::new(console);
        let mut is_first = true;
        let received = loop {
            let mut stream = match StreamReader::open(&mut source) {
                Ok(stream) => stream,
                Err(StreamError {
                    fault: Fault::Empty,
                    ..
                }) if !is_first => break Ok(()),
                Err(error) => break Err(anyhow!(error)),
            };
            is_first = false;
            let mut receiver = Receiver::new(target, &mut observer, options);
            if let Err(error) = receiver.receive(&mut stream) {
                break Err(anyhow!(error));
            }
            if self.stop_at_end {
                break Ok(());
            }
        };
        console.end_progress();
        received
    }

    fn dump(&self, console: &mut Console) -> anyhow::Result<()> {
        let zone = TimeZone::system();
        let local_time = |seconds| IsoTime(seconds, &zone);
        let source = self.input(console)?;
        match ubtrfs_stream::dump(source, &mut console.out, local_time) {
            Ok(()) => Ok(()),
            Err(DumpError::Write(error)) => Err(error.into()),
            Err(DumpError::Stream(error)) => Err(error).context("failed to dump the send stream"),
        }
    }
}

/// Into a mount of the kernel's btrfs.
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
                .with_context(|| format!("cannot tell where '{destination}' is mounted"))?,
        };
        let mut receiving = KernelTarget::new(dir, mountpoint);
        self.receive(source, &mut receiving, console)
    }
}
