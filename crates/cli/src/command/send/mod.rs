//! `ubtrfs send`: read-only subvolumes as a stream, whole or as differences.

mod by_ioctls;
mod output;
mod parent;

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use ubtrfs::Volume;
use ubtrfs_engine::Snapshot;
use ubtrfs_format::ids::RootId;
use ubtrfs_stream::{
    Command, SendError, SendOptions, Sender, StreamVersion, StreamWriter, WriteBehind, write_behind,
};

use crate::presentation::console::{COPY_PROGRESS, Console};
use crate::presentation::quoting::Escaped;
use crate::volume_access::changes::is_same_file;
use crate::volume_access::location::{Location, VolumeOptions};
use output::Output;
use parent::Identity;

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

/// A subvolume that was named.
struct Named {
    shown: String,
    snapshot: Snapshot,
}

impl Send {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        self.check()?;
        let options = self.options()?;
        let opened = self.volume.open(&self.subvolumes[0])?;
        let volume = &opened.volume;
        let find = |of: &[Location], role: &str| -> anyhow::Result<Vec<Named>> {
            of.iter().map(|of| self.find(volume, of, role)).collect()
        };
        let parent = find(&self.parent, "parent subvolume")?.pop();
        let mut clones = find(&self.clones, "cloned subvolume")?;
        let subvolumes = find(&self.subvolumes, "subvolume")?;
        match self.output_file() {
            Some(path) => refuse_image(path, volume)?,
            None if self.file.is_some() => output::cut(console.out.get_ref().file(), volume)?,
            None => {}
        }
        let mut output = Output::open(self.output_file(), console)?;
        console.start_progress(COPY_PROGRESS);
        let mut is_begun = false;
        for subvolume in subvolumes {
            console.say(format_args!("At subvol {}", subvolume.shown));
            let chosen = match &parent {
                Some(parent) => Some(&parent.snapshot),
                None if clones.is_empty() || self.clones.is_empty() => None,
                None => Some(self.choose_parent(&subvolume, &clones)?),
            };
            let mut sender = Sender::new(&subvolume.snapshot, options);
            if let Some(chosen) = chosen {
                sender = sender.parent(chosen);
            }
            for clone in &clones {
                sender = sender.clone_source(&clone.snapshot);
            }
            let begins = !is_begun || !self.one_stream;
            is_begun = true;
            let mut sink = output.sink(console);
            let (sent, written) = write_behind(&mut sink, |behind| {
                self.send(&sender, behind, options.version, begins)
            });
            sent.map_err(output::told_of_send)?;
            written.map_err(|error| output::told(error.into()))?;
            // With clone sources alone, each is one for those after it.
            if !self.clones.is_empty() && parent.is_none() {
                clones.push(subvolume);
            }
        }
        if self.one_stream {
            let mut writer = StreamWriter::resume(output.sink(console), options.version);
            writer.write(&Command::End).map_err(output::told)?;
        }
        let finished = output.finish(console);
        console.end_progress();
        finished
    }

    fn send(
        &self,
        sender: &Sender<'_>,
        out: &mut WriteBehind,
        version: StreamVersion,
        begins: bool,
    ) -> Result<(), SendError> {
        let mut writer = match begins {
            true => StreamWriter::new(out, version)?,
            false => StreamWriter::resume(out, version),
        };
        sender.send(&mut writer)?;
        if !self.one_stream {
            writer.write(&Command::End)?;
        }
        Ok(())
    }

    fn check(&self) -> anyhow::Result<()> {
        match self.parent.len() {
            0 | 1 => Ok(()),
            _ => bail!("you cannot have more than one parent (-p)"),
        }
    }

    /// In a mount the command that was called has opened the file, and it is standard output here.
    fn output_file(&self) -> Option<&Path> {
        let session = self.subvolumes[0].session();
        let is_in_mount = session.is_some_and(|session| session.mount().is_some());
        self.file.as_deref().filter(|_| !is_in_mount)
    }

    /// The version that is asked for, 0 for the newest.
    fn version(&self) -> anyhow::Result<u32> {
        match (self.proto, self.compressed_data) {
            (Some(1), true) => {
                bail!("--compressed-data requires protocol version >= 2 (requested 1)")
            }
            (None, true) => Ok(2),
            (proto, _) => Ok(proto.unwrap_or(1)),
        }
    }

    fn options(&self) -> anyhow::Result<SendOptions> {
        let version = match self.version()? {
            1 => StreamVersion::V1,
            0 | 2 => StreamVersion::V2,
            other => bail!("requested protocol version {other} is not supported, the newest is 2"),
        };
        Ok(SendOptions {
            version,
            no_data: self.no_data,
            compressed: self.compressed_data,
        })
    }

    fn find(&self, volume: &Volume, of: &Location, role: &str) -> anyhow::Result<Named> {
        let first = &self.subvolumes[0];
        if of.session().is_none() && !is_same_file(&of.image, &first.image) {
            bail!("all subvolumes must be from the same filesystem");
        }
        let target = self.volume.find(volume.clone(), of)?.target;
        let volume = volume.engine();
        if target.is_empty_subvolume_dir() || volume.root_dir(target.root)? != target {
            bail!("not a subvolume: {of}");
        }
        let snapshot = Snapshot::open(volume, target.root).map_err(|error| match error {
            ubtrfs_engine::Error::WritableSubvolume(_) => anyhow!("{role} {of} is not read-only"),
            error => anyhow!(error).context(format!("cannot send '{of}'")),
        })?;
        Ok(Named {
            shown: of.to_string(),
            snapshot,
        })
    }

    fn choose_parent<'c>(
        &self,
        subvolume: &Named,
        clones: &'c [Named],
    ) -> anyhow::Result<&'c Snapshot> {
        let id = subvolume.snapshot.id();
        let identities: Vec<Identity> =
            clones.iter().map(|of| Identity::of(&of.snapshot)).collect();
        let found = parent::choose(&Identity::of(&subvolume.snapshot), &identities);
        let found = found.with_context(|| failed_to_choose(id))?;
        Ok(&clones[found].snapshot)
    }
}

fn failed_to_choose(id: RootId) -> String {
    format!("parent determination failed for {id}")
}

/// The stream would overwrite what it is made of.
fn refuse_image(path: &Path, volume: &Volume) -> anyhow::Result<()> {
    let devices = volume.devices();
    let mut images = devices.iter().filter_map(|device| device.path.as_deref());
    match images.any(|image| is_same_file(image, path)) {
        true => bail!(
            "cannot write '{}': it is the image that is read",
            Escaped(path.as_os_str().as_bytes())
        ),
        false => Ok(()),
    }
}
