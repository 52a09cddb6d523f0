//! Sending from a mount of the kernel's btrfs: the kernel writes the stream into a pipe.

use std::fs::File;
use std::io::{self, PipeReader, Write};
use std::thread;

use anyhow::{Context, anyhow, bail};
use ubtrfs::{Lineage, Uuid};
use ubtrfs_format::ids::RootId;
use ubtrfs_fuse::ioctl_args as args;

use super::{Send, failed_to_choose, output};
use crate::presentation::console::Console;
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::Location;
use crate::volume_access::stream_output;

/// A subvolume in a mount.
struct Mounted {
    asked: Asked,
    id: RootId,
    lineage: Lineage,
}

impl Mounted {
    fn open(of: &Location, role: &str) -> anyhow::Result<Mounted> {
        let asked = Asked::open(of)?;
        let cannot = || format!("cannot send '{of}'");
        if !asked.is_subvolume().with_context(cannot)? {
            bail!("'{of}' is not a subvolume");
        }
        if !asked.is_read_only().with_context(cannot)? {
            bail!("{role} {of} is not read-only");
        }
        let info = asked.subvolume_info().with_context(cannot)?;
        Ok(Mounted {
            id: RootId(info.treeid.get()),
            lineage: Lineage {
                uuid: Uuid(info.uuid),
                parent_uuid: Some(Uuid(info.parent_uuid)).filter(|uuid| !uuid.is_nil()),
                changed_generation: info.ctransid.get(),
            },
            asked,
        })
    }
}

impl ByIoctls for Send {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.check()?;
        self.volume.refuse_for_mount()?;
        let version = self.version()?;
        let open = |of: &[Location], role: &str| -> anyhow::Result<Vec<Mounted>> {
            of.iter().map(|of| Mounted::open(of, role)).collect()
        };
        let parent = open(&self.parent, "parent subvolume")?.pop();
        let mut clones = open(&self.clones, "cloned subvolume")?;
        let subvolumes = open(&self.subvolumes, "subvolume")?;
        let mut out = match &self.file {
            Some(path) => stream_output::create(path)?,
            None => {
                output::refuse_terminal()?;
                File::from(rustix::io::dup(io::stdout())?)
            }
        };
        let last = subvolumes.len() - 1;
        for (number, subvolume) in subvolumes.into_iter().enumerate() {
            let shown = &self.subvolumes[number];
            console.say(format_args!("At subvol {shown}"));
            let chosen = match &parent {
                Some(parent) => Some(parent.id),
                None if self.clones.is_empty() => None,
                None => {
                    let lineages: Vec<Lineage> = clones.iter().map(|of| of.lineage).collect();
                    let found = subvolume.lineage.nearest(&lineages);
                    let found = found.with_context(|| failed_to_choose(subvolume.id.0))?;
                    Some(clones[found].id)
                }
            };
            let mut sources: Vec<u64> = clones.iter().map(|of| of.id.0).collect();
            sources.extend(chosen.map(|id| id.0));
            sources.sort_unstable();
            sources.dedup();
            let mut flags = args::SEND_VERSION;
            for (is_set, flag) in [
                (self.no_data, args::SEND_NO_FILE_DATA),
                (self.compressed_data, args::SEND_COMPRESSED),
                (self.one_stream && number > 0, args::SEND_OMIT_STREAM_HEADER),
                (self.one_stream && number < last, args::SEND_OMIT_END_CMD),
            ] {
                if is_set {
                    flags |= flag;
                }
            }
            let sent = piped(&mut out, |pipe| {
                subvolume.asked.send(pipe, &sources, chosen, flags, version)
            })?;
            sent.with_context(|| format!("send ioctl failed for '{shown}'"))?;
            if !self.clones.is_empty() && parent.is_none() {
                clones.push(subvolume);
            }
        }
        Ok(())
    }
}

/// Calls `send` with a pipe, and copies its output to `out`. A write error takes precedence, because it ends
/// the sender.
fn piped<T: std::marker::Send>(
    out: &mut File,
    send: impl FnOnce(&File) -> T + std::marker::Send,
) -> anyhow::Result<T> {
    let (reader, writer) = io::pipe()?;
    let writer = File::from(std::os::fd::OwnedFd::from(writer));
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("ubtrfs-send".to_owned());
        let sending = thread
            .spawn_scoped(scope, move || send(&writer))
            .map_err(|error| anyhow!("no thread can be started that sends: {error}"))?;
        let copied = copy(reader, out);
        let sent = sending.join();
        let failure = |error| anyhow!("failed to write the stream: {error}");
        copied.map_err(failure)?;
        sent.map_err(|_| anyhow!("the thread that sends has panicked"))
    })
}

/// Copies until the end of the pipe. Closes the pipe even if `out` fails.
fn copy(mut from: PipeReader, out: &mut File) -> io::Result<()> {
    io::copy(&mut from, out)?;
    out.flush()
}
