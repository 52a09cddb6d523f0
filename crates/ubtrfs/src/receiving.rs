//! Streams of send: receiving them into a directory, and displaying them as text.
//!
//! Not here: sending (`snapshot`).

use std::fmt::Display;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ubtrfs_device::progress::{Event, Progress};
use ubtrfs_stream::{
    CommandLines, Fault, Receiver, StreamError, StreamReader, Target, VolumeTarget, Watcher,
};

use crate::dir::Dir;
#[cfg(doc)]
use crate::error::Error;
use crate::error::{Caused, Naming, Result};
use crate::named_option::named_options;
use crate::subvolume::Subvolume;

/// Options for receiving a stream.
///
/// ```
/// use std::ops::ControlFlow;
/// use ubtrfs::{Access, Event, ReceiveOptions, SendOptions, Snapshot, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let mut streams = Vec::new();
/// for name in ["/one", "/two"] {
///     let snapshot = volume.root().snapshot("/", name, Access::ReadOnly)?;
///     Snapshot::open(&snapshot)?.send(&SendOptions::new(), &mut streams, &mut ())?;
/// }
/// let backup = Volume::in_memory(256 << 20)?;
/// // Names each subvolume when it is begun, and counts the bytes.
/// let (mut begun, mut received) = (Vec::new(), 0);
/// let mut progress = |event: &Event<'_>| {
///     match event {
///         Event::Command(command) if matches!(command.name(), "subvol" | "snapshot") => {
///             begun.push(command.subvolume().display().to_string());
///         }
///         Event::Advance { bytes } => received += bytes,
///         _ => {}
///     }
///     ControlFlow::Continue(())
/// };
/// let options = ReceiveOptions::new().all_streams(true);
/// backup.root().receive("/", &streams[..], &options, &mut progress)?;
/// assert_eq!(begun, ["one", "two"]);
/// assert!(received > 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceiveOptions {
    options: ubtrfs_stream::ReceiveOptions,
    all_streams: bool,
    any_source: bool,
}

named_options! {
    /// The options for receiving, which [`ReceiveOptions::set`] sets by their names. [`COPY_OPTIONS`](crate::COPY_OPTIONS)
    /// has an example.
    RECEIVE_OPTIONS of ReceiveOptions:

    /// Sets the number of failed commands that end the call. With 0 all commands are tried; the default is 1.
    max_errors: u64 => options.max_errors = max_errors;

    /// Decompresses data that is compressed in the stream, and stores it like other data.
    force_decompress: bool => options.force_decompress = force_decompress;

    /// Fails at attributes of NAS makers, which no other system has. By default they are left out, and a warning is
    /// logged with their names and numbers.
    strict_attributes: bool => options.strict_attributes = strict_attributes;

    /// Receives all concatenated streams. By default nothing after the first stream is read.
    all_streams: bool => all_streams = all_streams;
}

impl ReceiveOptions {
    /// Creates options for one stream, which ends at the first failed command.
    pub fn new() -> ReceiveOptions {
        ReceiveOptions::default()
    }

    /// Lets the stream of a [`Caller`](crate::Caller) use any read-only subvolume of the volume as its parent, like
    /// an administrator's stream. For callers that can read the whole volume by other means, such as the owner of its
    /// image.
    #[must_use]
    pub fn any_source(mut self, any_source: bool) -> ReceiveOptions {
        self.any_source = any_source;
        self
    }

    /// Receives to a target other than a volume of this library. The command has one for mounts of the kernel's btrfs,
    /// where subvolumes are created by ioctls. The trait belongs to the crate `ubtrfs-stream`, and may change in any
    /// release.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::receive`].
    #[doc(hidden)]
    pub fn receive_to(
        &self,
        target: &mut dyn Target,
        stream: impl Read,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let received = self.receive(target, stream, progress);
        received.naming_alone("receive")
    }

    fn receive(
        &self,
        target: &mut dyn Target,
        mut stream: impl Read,
        progress: &mut dyn Progress,
    ) -> Caused<()> {
        let mut is_first = true;
        loop {
            let mut reader = match StreamReader::open(&mut stream) {
                Ok(reader) => reader,
                Err(StreamError {
                    fault: Fault::Empty,
                    ..
                }) if !is_first => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            is_first = false;
            Receiver::new(target, progress, self.options).receive(&mut reader)?;
            if !self.all_streams {
                return Ok(());
            }
        }
    }
}

/// Collects the names of the subvolumes that streams create, and passes on all events.
struct Names<'p> {
    progress: &'p mut dyn Progress,
    names: Vec<PathBuf>,
}

impl Progress for Names<'_> {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        if let Event::Finished {
            path,
            is_complete: true,
        } = event
        {
            self.names.push(path.to_path_buf());
        }
        self.progress.event(event)
    }
}

/// An iterator over the commands of a stream as lines of text, in the layout of `btrfs receive --dump` of btrfs-progs
/// 6.14.
///
/// ```
/// use ubtrfs::{Access, SendOptions, Snapshot, StreamDump, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let data = volume.root().create_subvolume("/data")?;
/// data.create_dir("/dir")?;
/// let snapshot = data.snapshot("/", "/kept", Access::ReadOnly)?;
/// let mut stream = Vec::new();
/// Snapshot::open(&snapshot)?.send(&SendOptions::new(), &mut stream, &mut ())?;
///
/// let dump = StreamDump::open(&stream[..], |seconds| format!("@{seconds}"))?;
/// let lines = dump.collect::<Result<Vec<_>, _>>()?;
/// assert!(lines[0].starts_with("subvol          ./kept "));
/// assert!(lines.iter().any(|line| line.starts_with("mkdir           ./kept/")));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct StreamDump<R, F> {
    /// `None` at the end, and after an error.
    reader: Option<StreamReader<R>>,
    lines: CommandLines<F>,
}

impl<R: Read, T: Display, F: Fn(i64) -> T> StreamDump<R, F> {
    /// Reads the header of a stream. `local_time` formats seconds since 1970, as in "2026-11-25T17:32:26+0000".
    ///
    /// # Errors
    ///
    /// The stream cannot be read, is invalid (`InvalidData`), is empty (`UnexpectedEof`), or has a newer version
    /// (`Unsupported`).
    pub fn open(stream: R, local_time: F) -> Result<StreamDump<R, F>> {
        let reader = StreamReader::open(stream);
        Ok(StreamDump {
            reader: Some(reader.naming_alone("read a stream")?),
            lines: CommandLines::new(local_time),
        })
    }
}

/// Yields lines without line ends. It ends with the stream, or after the first error, which is one of
/// [`StreamDump::open`] or a damaged command.
impl<R: Read, T: Display, F: Fn(i64) -> T> Iterator for StreamDump<R, F> {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Result<String>> {
        loop {
            let read = self.reader.as_mut()?.next_command();
            match read {
                Ok(Some(command)) => {
                    if let Some(line) = self.lines.line_of(&command) {
                        return Some(Ok(line));
                    }
                }
                Ok(None) => self.reader = None,
                Err(error) => {
                    self.reader = None;
                    return Some(Err(error).naming_alone("read a stream"));
                }
            }
        }
    }
}

impl Subvolume {
    /// Creates the subvolumes of a stream of [`Snapshot::send`](crate::Snapshot::send) or `btrfs send` in a directory,
    /// and reports to `progress`. Returns their names. A difference requires its parent snapshot, received or original,
    /// unchanged.
    ///
    /// Nothing outside the new subvolumes is changed, even by a malicious stream. They are durable after the next
    /// [`Volume::sync`](crate::Volume::sync).
    ///
    /// # Errors
    ///
    /// - the stream is damaged (`InvalidData`), ends early (`UnexpectedEof`), or has a newer version (`Unsupported`);
    ///   [`Error::is_of_stream`] is true then
    /// - the parent does not exist (`NotFound`) or was changed (`PermissionDenied`)
    /// - the volume is full, or a name already exists
    /// - `progress` cancelled it (`Interrupted`)
    ///
    /// A failed command after which the call continues is a [`Problem`](crate::Problem).
    /// [`Error::stream_offset`] is the offset in the stream. Subvolumes before the failed one are complete. The failed
    /// one is kept as it is, and is writable: [`Error::unfinished`] has its name.
    pub fn receive(
        &self,
        dir: impl AsRef<Path>,
        stream: impl Read,
        options: &ReceiveOptions,
        progress: &mut dyn Progress,
    ) -> Result<Vec<PathBuf>> {
        let path = dir.as_ref();
        let dir = self.resolve(path).and_then(|id| Dir::of(self, id, path));
        let dir = dir.naming("receive to", path)?;
        dir.receive(stream, options, progress)
    }
}

impl Dir {
    /// Creates the subvolumes of streams in the directory, as [`Subvolume::receive`]. A caller must have the right
    /// to create entries in it.
    ///
    /// For a caller that is not an administrator, parents must be subvolumes that the caller owns. Data is cloned only
    /// from files that the caller could open. The caller's paths begin at the subvolume where the directory was opened.
    /// Other subvolumes are treated as missing ([`ReceiveOptions::any_source`]).
    ///
    /// A stream creates files of any owner, and changes all files of its parent snapshot. So only accept streams from
    /// callers that may do so.
    ///
    /// ```
    /// use ubtrfs::{Access, Caller, ReceiveOptions, SendOptions, Snapshot, Volume};
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// let volume = Volume::in_memory(256 << 20)?;
    /// let root = volume.root();
    /// let mut stream = Vec::new();
    /// let one = Snapshot::open(&root.snapshot("/", "/one", Access::ReadOnly)?)?;
    /// one.send(&SendOptions::new(), &mut stream, &mut ())?;
    /// root.create_dir("/home")?;
    /// root.chown("/home", Some(1000), None)?;
    /// let options = ReceiveOptions::new();
    /// let receive_for = |user| {
    ///     let home = root.open_dir("/home")?.with_caller(&Caller::new(user, user));
    ///     home.receive(&stream[..], &options, &mut ())
    /// };
    /// assert!(receive_for(2000).unwrap_err().is_refusal());
    /// receive_for(1000)?;
    /// assert!(root.subvolume("/home/one")?.is_read_only()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Subvolume::receive`]; the caller may not create entries, or may not read a file that the stream clones
    /// from.
    pub fn receive(
        &self,
        stream: impl Read,
        options: &ReceiveOptions,
        progress: &mut dyn Progress,
    ) -> Result<Vec<PathBuf>> {
        let mut names = Names {
            progress,
            names: Vec::new(),
        };
        self.receive_watched(stream, options, &mut names, None)?;
        Ok(names.names)
    }

    /// Receives as [`Dir::receive`], and reports changes to the watcher. The server of a mount uses a watcher for
    /// the kernel's caches, which know inodes by the handles of the engine below.
    ///
    /// # Errors
    ///
    /// As [`Dir::receive`].
    #[doc(hidden)]
    pub fn receive_watched(
        &self,
        stream: impl Read,
        options: &ReceiveOptions,
        progress: &mut dyn Progress,
        watcher: Option<Box<dyn Watcher>>,
    ) -> Result<()> {
        let _entered = self.engine.enter();
        let received = self.check_rights().and_then(|()| {
            let mut target = VolumeTarget::new(&self.engine, self.id);
            if let Some(watcher) = watcher {
                target = target.watched_by(watcher);
            }
            if let Some(rights) = self.rights()
                && !options.any_source
            {
                target = target.for_caller(rights.caller, self.top);
            }
            options.receive(&mut target, stream, progress)
        });
        received.naming("receive to", &self.path)
    }

    fn check_rights(&self) -> Caused<()> {
        match self.rights() {
            Some(rights) => Ok(rights.add_to(self.id)?),
            None => Ok(()),
        }
    }
}
