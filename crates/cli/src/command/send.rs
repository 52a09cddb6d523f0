//! `ubtrfs send`: read-only subvolumes as a stream, in full or as differences.

mod by_ioctls;
mod output;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use ubtrfs::{Lineage, SendOptions, Snapshot, StreamVersion, Volume};
use ubtrfs_stream::write_behind;

use crate::presentation::console::{COPY_PROGRESS, Console};
use crate::presentation::quoting::Escaped;
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::reason::Reasoned;
use output::Output;

/// Send subvolumes as a stream, whole or as the difference from another
///
/// The subvolumes, the parent and the clone sources are read-only and of one volume. With clone sources and no parent,
/// the parent is chosen among these. 'receive' makes the subvolumes of the stream, by ubtrfs or by btrfs-progs.
#[derive(Debug, clap::Args)]
pub(crate) struct Send {
    #[arg(value_name = "IMAGE:/SUBVOL", required = true)]
    subvolumes: Vec<Location>,
    /// Send the difference from this subvolume, which the receiver has
    #[arg(short, value_name = "PARENT")]
    parent: Vec<Location>,
    /// Send data that this subvolume shares as clones; the receiver has it. Repeat for more
    #[arg(short, value_name = "CLONE")]
    clones: Vec<Location>,
    /// Write the stream to FILE and not to standard output
    #[arg(short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Write one stream for several subvolumes, with one end
    #[arg(short = 'e')]
    one_stream: bool,
    /// Say which ranges of files changed, and send no data of them
    #[arg(long)]
    no_data: bool,
    /// The version of the stream, 0: the newest
    #[arg(long, value_name = "N")]
    proto: Option<u32>,
    /// Send compressed data as it is on disk
    #[arg(long)]
    compressed_data: bool,
    #[command(flatten)]
    volume: VolumeOptions,
}

/// A subvolume given as an argument.
struct Named {
    shown: String,
    snapshot: Snapshot,
}

impl Send {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        self.check()?;
        let version = self.stream_version()?;
        let opened = self.volume.open(&self.subvolumes[0])?;
        let volume = &opened.volume;
        let find = |of: &[Location], role: &str| -> anyhow::Result<Vec<Named>> {
            of.iter().map(|of| self.find(volume, of, role)).collect()
        };
        let parent = find(&self.parent, "parent subvolume")?.pop();
        let mut clones = find(&self.clones, "cloned subvolume")?;
        let subvolumes = find(&self.subvolumes, "subvolume")?;
        match (self.output_file(), &self.file) {
            (Some(path), _) => refuse_image(path, volume)?,
            (None, Some(path)) => output::cut(console.out.get_ref().file(), path, volume)?,
            (None, None) => {}
        }
        let mut output = Output::open(self.output_file(), console)?;
        console.start_progress(COPY_PROGRESS);
        let last = subvolumes.len() - 1;
        for (number, subvolume) in subvolumes.into_iter().enumerate() {
            console.say(format_args!("At subvol {}", subvolume.shown));
            let chosen = match &parent {
                Some(parent) => Some(&parent.snapshot),
                None if clones.is_empty() || self.clones.is_empty() => None,
                None => Some(choose_parent(&subvolume.snapshot, &clones)?),
            };
            let mut options = SendOptions::new()
                .version(version)
                .compressed(self.compressed_data)
                .no_data(self.no_data)
                .omit_header(self.one_stream && number > 0)
                .omit_end(self.one_stream && number < last);
            if let Some(chosen) = chosen {
                options = options.parent(chosen);
            }
            for clone in &clones {
                options = options.clone_source(&clone.snapshot);
            }
            let mut sink = output.sink(console);
            // Reading the volume and writing the stream both take time.
            let (sent, written) = write_behind(&mut sink, |behind| {
                subvolume.snapshot.send(&options, behind, &mut ())
            });
            sent.map_err(output::send_failure)?;
            written.map_err(output::stream_failure)?;
            // With clone sources only, each sent subvolume becomes a clone source for the next.
            if !self.clones.is_empty() && parent.is_none() {
                clones.push(subvolume);
            }
        }
        let finished = output.finish(console);
        console.end_progress();
        finished
    }

    fn check(&self) -> anyhow::Result<()> {
        match self.parent.len() {
            0 | 1 => Ok(()),
            _ => bail!("you cannot have more than one parent (-p)"),
        }
    }

    /// Returns the file to open for the stream. In a mount the client has opened it, and it is standard
    /// output here.
    fn output_file(&self) -> Option<&Path> {
        let session = self.subvolumes[0].session();
        let is_in_mount = session.is_some_and(|session| session.mount().is_some());
        self.file.as_deref().filter(|_| !is_in_mount)
    }

    /// Returns the requested version. 0 means the newest.
    fn version(&self) -> anyhow::Result<u32> {
        match (self.proto, self.compressed_data) {
            (Some(1), true) => {
                bail!("--compressed-data requires protocol version >= 2 (requested 1)")
            }
            (None, true) => Ok(2),
            (proto, _) => Ok(proto.unwrap_or(1)),
        }
    }

    fn stream_version(&self) -> anyhow::Result<StreamVersion> {
        match self.version()? {
            1 => Ok(StreamVersion::V1),
            0 | 2 => Ok(StreamVersion::V2),
            other => bail!("requested protocol version {other} is not supported, the newest is 2"),
        }
    }

    fn find(&self, volume: &Volume, of: &Location, role: &str) -> anyhow::Result<Named> {
        let first = &self.subvolumes[0];
        if of.session().is_none() && !of.shares_image(first) {
            bail!("all subvolumes must be from the same filesystem");
        }
        let Some(subvolume) = self.volume.find(volume.clone(), of)?.subvolume()? else {
            bail!("'{of}' is not a subvolume");
        };
        let cannot = || format!("cannot send '{of}'");
        if !subvolume.is_read_only().reason().with_context(cannot)? {
            bail!("{role} {of} is not read-only");
        }
        Ok(Named {
            shown: of.to_string(),
            snapshot: Snapshot::open(&subvolume).reason().with_context(cannot)?,
        })
    }
}

fn choose_parent<'c>(sent: &Snapshot, clones: &'c [Named]) -> anyhow::Result<&'c Snapshot> {
    let lineages = clones.iter().map(|of| of.snapshot.lineage());
    let lineages: Vec<Lineage> = lineages.collect();
    let found = sent.lineage().nearest(&lineages);
    let found = found.with_context(|| failed_to_choose(sent.id()))?;
    Ok(&clones[found].snapshot)
}

fn failed_to_choose(id: u64) -> String {
    format!("parent determination failed for {id}")
}

/// Checks that the stream is not written to an image of the volume, its own source.
fn refuse_image(path: &Path, volume: &Volume) -> anyhow::Result<()> {
    if path.metadata().is_ok_and(|file| volume.lies_on(&file)) {
        bail!(
            "cannot write '{}': it is the image that is read",
            Escaped::of(path)
        )
    } else {
        Ok(())
    }
}
