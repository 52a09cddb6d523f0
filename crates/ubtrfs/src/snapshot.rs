//! Read-only subvolumes as a whole: sent as a stream, and compared.

use std::io::{self, Write};
use std::ops::Deref;

use ubtrfs_engine::Snapshot as HeldSnapshot;
use ubtrfs_stream::{Command, Sender, StreamVersion, StreamWriter};

use crate::changes::Changes;
use crate::error::{Caused, Naming, Result};
use crate::subvolume::Subvolume;

/// Bytes of a stream that are written at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// A read-only subvolume that stays as it is while this is held. It can be sent and compared, and is read as any
/// [`Subvolume`].
///
/// ```
/// use ubtrfs::{Access, SendOptions, Snapshot, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let data = volume.root().create_subvolume("/data")?;
/// data.write("/file", b"first")?;
/// let first = Snapshot::open(&volume.root().snapshot("/data", "/first", Access::ReadOnly)?)?;
/// data.write("/file", b"second")?;
/// let second = Snapshot::open(&volume.root().snapshot("/data", "/second", Access::ReadOnly)?)?;
///
/// let (mut whole, mut difference) = (Vec::new(), Vec::new());
/// first.send(&mut whole)?;
/// second.send_with(&SendOptions::new().parent(&first), &mut difference)?;
///
/// let backup = Volume::in_memory(256 << 20)?;
/// backup.root().receive("/", &whole[..])?;
/// backup.root().receive("/", &difference[..])?;
/// assert_eq!(backup.root().read("/first/file")?, b"first");
/// assert_eq!(backup.root().read("/second/file")?, b"second");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Snapshot {
    /// None when it is being let go.
    held: Option<HeldSnapshot>,
    subvolume: Subvolume,
}

impl Drop for Snapshot {
    /// Lets go before the subvolume, which may be the last handle of the engine.
    fn drop(&mut self) {
        let _entered = self.subvolume.engine.enter();
        self.held = None;
    }
}

impl Deref for Snapshot {
    type Target = Subvolume;

    fn deref(&self) -> &Subvolume {
        &self.subvolume
    }
}

impl Snapshot {
    fn held(&self) -> &HeldSnapshot {
        let held = self.held.as_ref();
        held.expect("only the end of the snapshot takes it away")
    }

    /// Holds a read-only subvolume. Commits first, so that all that was done to it is on the devices.
    ///
    /// # Errors
    ///
    /// The subvolume can be written to (`PermissionDenied`), or was deleted; those of
    /// [`Volume::sync`](crate::Volume::sync).
    pub fn open(subvolume: &Subvolume) -> Result<Snapshot> {
        let _entered = subvolume.engine.enter();
        let held = HeldSnapshot::open(&subvolume.engine, subvolume.root.root);
        let snapshot = held.map(|held| Snapshot {
            held: Some(held),
            subvolume: subvolume.clone(),
        });
        snapshot.naming_alone("hold a snapshot")
    }

    /// Writes the subvolume as a stream that `btrfs receive` and [`Subvolume::receive`] take.
    ///
    /// # Errors
    ///
    /// `out` fails, the subvolume is damaged, or it was made writable meanwhile.
    pub fn send(&self, out: impl Write) -> Result<()> {
        self.send_with(&SendOptions::new(), out)
    }

    /// Writes the subvolume as a stream, in the way that the options say.
    ///
    /// # Errors
    ///
    /// As [`Snapshot::send`]; the parent or a clone source is of another volume (`CrossesDevices`).
    pub fn send_with(&self, options: &SendOptions<'_>, out: impl Write) -> Result<()> {
        let sent = self.write_stream(options, out);
        sent.naming_alone("send a snapshot")
    }

    fn write_stream(&self, options: &SendOptions<'_>, out: impl Write) -> Caused<()> {
        let mut sender = Sender::new(self.held(), options.options);
        if let Some(parent) = options.parent {
            sender = sender.parent(parent.held());
        }
        for source in &options.clone_sources {
            sender = sender.clone_source(source.held());
        }
        let out = io::BufWriter::with_capacity(BUFFER_BYTES, out);
        let mut writer = StreamWriter::new(out, options.options.version)?;
        sender.send(&mut writer)?;
        writer.write(&Command::End)?;
        Ok(writer.into_inner().flush()?)
    }

    /// Tells what changed from `old` to this snapshot, in the order of paths. It costs what differs, not what there is.
    ///
    /// # Errors
    ///
    /// Both are of different volumes (`CrossesDevices`), one is damaged, or was made writable meanwhile. Changes that are
    /// too many for memory go to a temporary file, which may fail.
    pub fn changes_since(&self, old: &Snapshot) -> Result<Changes> {
        let changes = Changes::new(old.held(), self.held());
        changes.naming_alone("compare snapshots")
    }
}

/// How a snapshot is sent. [`Snapshot`] has an example.
#[derive(Clone, Debug, Default)]
pub struct SendOptions<'a> {
    options: ubtrfs_stream::SendOptions,
    parent: Option<&'a Snapshot>,
    clone_sources: Vec<&'a Snapshot>,
}

impl<'a> SendOptions<'a> {
    /// The whole of the snapshot, as a stream of version 1.
    pub fn new() -> SendOptions<'a> {
        SendOptions::default()
    }

    /// Sends the difference from this snapshot, which the receiver has.
    #[must_use]
    pub fn parent(mut self, parent: &'a Snapshot) -> SendOptions<'a> {
        self.parent = Some(parent);
        self
    }

    /// Sends what is shared with this snapshot as clones. The receiver has it. May be repeated.
    #[must_use]
    pub fn clone_source(mut self, source: &'a Snapshot) -> SendOptions<'a> {
        self.clone_sources.push(source);
        self
    }

    /// Sends compressed data as it is, in a stream of version 2.
    #[must_use]
    pub fn compressed(mut self, compressed: bool) -> SendOptions<'a> {
        self.options.compressed = compressed;
        self.options.version = match compressed {
            true => StreamVersion::V2,
            false => StreamVersion::V1,
        };
        self
    }

    /// Says which ranges of files changed, and sends no data.
    #[must_use]
    pub fn no_data(mut self, no_data: bool) -> SendOptions<'a> {
        self.options.no_data = no_data;
        self
    }
}
