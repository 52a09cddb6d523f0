//! Sending and comparing whole read-only subvolumes.

use std::io::{self, Write};
use std::ops::Deref;

use ubtrfs_device::progress::{Cancelled, Progress, Watch};
use ubtrfs_fs::Snapshot as HeldSnapshot;
use ubtrfs_stream::{
    Command, SendError, SendOptions as StreamOptions, Sender, StreamVersion, StreamWriter,
    WriteError,
};

use crate::changes::Changes;
use crate::error::{Cause, Naming, Result};
use crate::lineage::Lineage;
use crate::subvolume::Subvolume;

/// The size of writes to a stream.
const BUFFER_BYTES: usize = 256 << 10;

/// A read-only subvolume that cannot change while this is held. It can be sent and compared, and read like any
/// [`Subvolume`].
///
/// ```
/// use ubtrfs::{Access, ReceiveOptions, SendOptions, Snapshot, Volume};
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
/// first.send(&SendOptions::new(), &mut whole, &mut ())?;
/// second.send(&SendOptions::new().parent(&first), &mut difference, &mut ())?;
///
/// let backup = Volume::in_memory(256 << 20)?;
/// backup.root().receive("/", &whole[..], &ReceiveOptions::new(), &mut ())?;
/// backup.root().receive("/", &difference[..], &ReceiveOptions::new(), &mut ())?;
/// assert_eq!(backup.root().read("/first/file")?, b"first");
/// assert_eq!(backup.root().read("/second/file")?, b"second");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Snapshot {
    /// `None` while it is being dropped.
    held: Option<HeldSnapshot>,
    subvolume: Subvolume,
}

impl Drop for Snapshot {
    /// Releases the snapshot before the subvolume, which may be the last handle of the engine.
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

    /// Holds a read-only subvolume. Commits first, so that all its changes are on the devices.
    ///
    /// # Errors
    ///
    /// The subvolume is writable (`PermissionDenied`), or was deleted; the errors of
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

    /// Writes the subvolume as a stream for `btrfs receive` or [`Subvolume::receive`], and reports each written part to
    /// `progress`. An error of `out` ends it early. Any kind of error does, except `Interrupted`, after which the write
    /// is repeated.
    ///
    /// # Errors
    ///
    /// - `out` fails ([`Error::is_of_stream`](crate::Error::is_of_stream)), or the subvolume is damaged
    /// - the parent or a clone source belongs to another volume (`CrossesDevices`)
    /// - compressed data in a stream of version 1 (`InvalidInput`)
    /// - `progress` cancelled it (`Interrupted`)
    pub fn send(
        &self,
        options: &SendOptions<'_>,
        out: impl Write,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let mut out = Reported {
            out,
            watch: Watch::new(progress),
        };
        let buffered = io::BufWriter::with_capacity(BUFFER_BYTES, &mut out);
        let sent = self.write_stream(options, buffered);
        let sent = if out.watch.is_cancelled() {
            Err(Cancelled.into())
        } else {
            sent.map_err(Cause::from)
        };
        sent.naming_alone("send a snapshot")
    }

    fn write_stream(
        &self,
        options: &SendOptions<'_>,
        out: impl Write,
    ) -> std::result::Result<(), SendError> {
        let options_of_stream = options.of_stream();
        let version = options_of_stream.version;
        let mut sender = Sender::new(self.held(), options_of_stream);
        if let Some(parent) = options.parent {
            sender = sender.parent(parent.held());
        }
        for source in &options.clone_sources {
            sender = sender.clone_source(source.held());
        }
        let mut writer = if options.omit_header {
            StreamWriter::resume(out, version)
        } else {
            StreamWriter::new(out, version)?
        };
        sender.send(&mut writer)?;
        if !options.omit_end {
            writer.write(&Command::End)?;
        }
        Ok(writer.into_inner().flush().map_err(WriteError::from)?)
    }

    /// Returns the attributes that relate the subvolume to others, as of when it was opened.
    pub fn lineage(&self) -> Lineage {
        Lineage::of(self.held().item())
    }

    /// Lists the changes from `old` to this snapshot, in the order of paths. The cost depends on the differences, not
    /// on the size.
    ///
    /// # Errors
    ///
    /// The snapshots belong to different volumes (`CrossesDevices`), or one is damaged. Changes that do not fit into
    /// memory go to a temporary file, which may fail.
    pub fn changes_since(&self, old: &Snapshot) -> Result<Changes> {
        let changes = Changes::new(old.held(), self.held());
        changes.naming_alone("compare snapshots")
    }
}

/// The output of a stream, which reports each write.
struct Reported<'p, W> {
    out: W,
    watch: Watch<'p>,
}

impl<W: Write> Write for Reported<'_, W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if self.watch.is_cancelled() {
            return Err(io::Error::other(Cancelled));
        }
        let len = self.out.write(buf)?;
        self.watch.advance(len as u64).map_err(io::Error::other)?;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Options for sending a snapshot. [`Snapshot`] has an example.
#[derive(Clone, Debug, Default)]
pub struct SendOptions<'a> {
    stream: StreamOptions,
    /// Whether the version was set. Otherwise it is the oldest that the other options allow.
    has_version: bool,
    omit_header: bool,
    omit_end: bool,
    parent: Option<&'a Snapshot>,
    clone_sources: Vec<&'a Snapshot>,
}

impl<'a> SendOptions<'a> {
    /// Creates options that send the whole snapshot, as a stream of version 1.
    pub fn new() -> SendOptions<'a> {
        SendOptions::default()
    }

    /// Sends the difference from this snapshot, which the receiver must have.
    #[must_use]
    pub fn parent(mut self, parent: &'a Snapshot) -> SendOptions<'a> {
        self.parent = Some(parent);
        self
    }

    /// Sends data that is shared with this snapshot as clones. The receiver must have it. May be called repeatedly.
    #[must_use]
    pub fn clone_source(mut self, source: &'a Snapshot) -> SendOptions<'a> {
        self.clone_sources.push(source);
        self
    }

    /// Sets the version of the stream: 1 by default, and 2 if compressed data is sent.
    #[must_use]
    pub fn version(mut self, version: StreamVersion) -> SendOptions<'a> {
        self.stream.version = version;
        self.has_version = true;
        self
    }

    /// Sends compressed data without decompressing it, which needs version 2 of the stream.
    #[must_use]
    pub fn compressed(mut self, compressed: bool) -> SendOptions<'a> {
        self.stream.compressed = compressed;
        self
    }

    /// Sends only the changed ranges of files, without their data.
    #[must_use]
    pub fn no_data(mut self, no_data: bool) -> SendOptions<'a> {
        self.stream.no_data = no_data;
        self
    }

    /// Writes no header. For all but the first of several subvolumes in one stream.
    ///
    /// ```
    /// use ubtrfs::{Access, ReceiveOptions, SendOptions, Snapshot, Volume};
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// let volume = Volume::in_memory(256 << 20)?;
    /// let data = volume.root().create_subvolume("/data")?;
    /// let one = Snapshot::open(&volume.root().snapshot("/data", "/one", Access::ReadOnly)?)?;
    /// let two = Snapshot::open(&volume.root().snapshot("/data", "/two", Access::ReadOnly)?)?;
    /// let mut stream = Vec::new();
    /// one.send(&SendOptions::new().omit_end(true), &mut stream, &mut ())?;
    /// two.send(&SendOptions::new().omit_header(true), &mut stream, &mut ())?;
    ///
    /// let backup = Volume::in_memory(256 << 20)?;
    /// let names = backup.root().receive("/", &stream[..], &ReceiveOptions::new(), &mut ())?;
    /// assert_eq!(names, ["one", "two"].map(std::path::PathBuf::from));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn omit_header(mut self, omit_header: bool) -> SendOptions<'a> {
        self.omit_header = omit_header;
        self
    }

    /// Writes no end. For all but the last of several subvolumes in one stream.
    #[must_use]
    pub fn omit_end(mut self, omit_end: bool) -> SendOptions<'a> {
        self.omit_end = omit_end;
        self
    }

    fn of_stream(&self) -> StreamOptions {
        let mut stream = self.stream;
        if !self.has_version && stream.compressed {
            stream.version = StreamVersion::V2;
        }
        stream
    }
}
