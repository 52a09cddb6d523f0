//! Streams of send: received into a directory, and shown as text.
//!
//! Not here: sending (`snapshot`).

use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ubtrfs_stream::{
    Command, CommandError, CommandLines, Fault, ReceiveObserver as Observer, Receiver, StreamError,
    StreamReader, Target, VolumeTarget, Watcher,
};

use crate::dir::Dir;
use crate::error::{Caused, Error, Naming, Result};
use crate::subvolume::Subvolume;

/// How a stream is received.
///
/// ```
/// use std::path::Path;
/// use ubtrfs::{Access, ReceiveObserver, ReceiveOptions, Snapshot, StreamCommand, Volume};
///
/// /// Names each subvolume when it is begun, and counts the bytes.
/// #[derive(Default)]
/// struct Progress {
///     begun: Vec<String>,
///     bytes: u64,
/// }
///
/// impl ReceiveObserver for Progress {
///     fn begin(&mut self, command: &StreamCommand<'_>) {
///         if matches!(command.name(), "subvol" | "snapshot") {
///             self.begun.push(command.subvolume().display().to_string());
///         }
///     }
///     fn advanced(&mut self, bytes: u64) {
///         self.bytes += bytes;
///     }
/// }
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let mut streams = Vec::new();
/// for name in ["/one", "/two"] {
///     let snapshot = volume.root().snapshot("/", name, Access::ReadOnly)?;
///     Snapshot::open(&snapshot)?.send(&mut streams)?;
/// }
/// let backup = Volume::in_memory(256 << 20)?;
/// let mut progress = Progress::default();
/// let options = ReceiveOptions::new().all_streams(true);
/// backup.root().receive_with("/", &streams[..], &options, &mut progress)?;
/// assert_eq!(progress.begun, ["one", "two"]);
/// assert!(progress.bytes > 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceiveOptions {
    options: ubtrfs_stream::ReceiveOptions,
    all_streams: bool,
    any_source: bool,
}

impl ReceiveOptions {
    /// Creates options for one stream, up to the first command that fails.
    pub fn new() -> ReceiveOptions {
        ReceiveOptions::default()
    }

    /// Goes on until so many commands have failed; 0: to the end, whatever fails. 1 by default.
    #[must_use]
    pub fn max_errors(mut self, max_errors: u64) -> ReceiveOptions {
        self.options.max_errors = max_errors;
        self
    }

    /// Decompresses data that is compressed in the stream, and stores it as other data.
    #[must_use]
    pub fn force_decompress(mut self, force_decompress: bool) -> ReceiveOptions {
        self.options.force_decompress = force_decompress;
        self
    }

    /// Receives all streams that there are behind each other. Without it, nothing behind the end of the first is read.
    #[must_use]
    pub fn all_streams(mut self, all_streams: bool) -> ReceiveOptions {
        self.all_streams = all_streams;
        self
    }

    /// Lets the stream of a [`Caller`](crate::Caller) go on from any read-only subvolume of the volume, as that of an
    /// administrator. It is for callers that may read the whole volume by other means, such as the owner of its image.
    #[must_use]
    pub fn any_source(mut self, any_source: bool) -> ReceiveOptions {
        self.any_source = any_source;
        self
    }

    /// Receives to a target that is no volume of this library. The command has one for mounts of the kernel's btrfs, where
    /// subvolumes are made by ioctls. The trait is of the crate `ubtrfs-stream`, and may change in any release.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::receive_with`].
    #[doc(hidden)]
    pub fn receive_to(
        &self,
        target: &mut dyn Target,
        stream: impl Read,
        observer: &mut dyn ReceiveObserver,
    ) -> Result<()> {
        let received = self.receive(target, stream, observer);
        received.naming_alone("receive")
    }

    fn receive(
        &self,
        target: &mut dyn Target,
        mut stream: impl Read,
        observer: &mut dyn ReceiveObserver,
    ) -> Caused<()> {
        let mut observer = Forwarded(observer);
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
            Receiver::new(target, &mut observer, self.options).receive(&mut reader)?;
            if !self.all_streams {
                return Ok(());
            }
        }
    }
}

/// Hears how receiving goes on. [`ReceiveOptions`] has an example.
///
/// A group waits until all is received, and changes by other threads wait for the group. An observer must not wait for
/// either.
pub trait ReceiveObserver {
    /// Hears that a command is about to be done.
    fn begin(&mut self, _command: &StreamCommand<'_>) {}

    /// Hears that a command was done that takes so many bytes of the stream.
    fn advanced(&mut self, _bytes: u64) {}

    /// Tells whether the receiving is to end now. It is asked before each command, so the answer should be quick. The
    /// receiving then returns an error of kind `Interrupted`, and [`Error::unfinished`] names the subvolume that it was in.
    fn is_cancelled(&mut self) -> bool {
        false
    }

    /// Hears that a command failed, and that the next one is done. [`Error::stream_offset`] is its place.
    fn failed(&mut self, _error: Error) {}

    /// Hears that all of this subvolume was done, and that it is read-only.
    fn finished(&mut self, _subvolume: &Path) {}

    /// Hears that commands of this subvolume failed. It is left as it is, and writable.
    fn unfinished(&mut self, _subvolume: &Path) {}
}

/// The observer that does nothing.
impl ReceiveObserver for () {}

/// Hands on the news of a receiver.
struct Forwarded<'o>(&'o mut dyn ReceiveObserver);

impl Observer for Forwarded<'_> {
    fn begin(&mut self, subvolume: &[u8], command: &Command<'_>) {
        self.0.begin(&StreamCommand { subvolume, command });
    }

    fn advanced(&mut self, bytes: u64) {
        self.0.advanced(bytes);
    }

    fn is_cancelled(&mut self) -> bool {
        self.0.is_cancelled()
    }

    fn failed(&mut self, error: CommandError) {
        let failed = Err::<(), _>(Box::new(error));
        if let Err(error) = failed.naming_alone("receive") {
            self.0.failed(error);
        }
    }

    fn finished(&mut self, subvolume: &[u8]) {
        self.0.finished(path_of(subvolume));
    }

    fn unfinished(&mut self, subvolume: &[u8]) {
        self.0.unfinished(path_of(subvolume));
    }
}

/// Notes the names of the subvolumes that a stream makes.
struct Names(Vec<PathBuf>);

impl ReceiveObserver for Names {
    fn finished(&mut self, subvolume: &Path) {
        self.0.push(subvolume.to_owned());
    }
}

/// A command of a stream that is received. [`ReceiveOptions`] has an example.
#[derive(Clone, Copy)]
pub struct StreamCommand<'a> {
    subvolume: &'a [u8],
    command: &'a Command<'a>,
}

impl StreamCommand<'_> {
    /// Returns the name of the command, as `btrfs receive --dump` has it. "subvol" and "snapshot" begin a subvolume,
    /// "write", "`encoded_write`" and "clone" fill a file.
    pub fn name(&self) -> &'static str {
        self.command.kind().map_or("unknown", |kind| kind.name())
    }

    /// Returns the name of the subvolume that the command is about.
    pub fn subvolume(&self) -> &Path {
        path_of(self.subvolume)
    }

    /// Returns the path of the file that the command is about, from the root of the subvolume. For a command that
    /// begins a subvolume, it is the subvolume's name.
    pub fn path(&self) -> Option<&Path> {
        self.command.path().map(path_of)
    }

    /// Formats the command as [`StreamDump`] shows it. `local_time` shows seconds since 1970.
    pub fn text<T: Display>(&self, local_time: impl Fn(i64) -> T) -> String {
        let mut lines = CommandLines::within(self.subvolume, local_time);
        let line = lines.line_of(self.command);
        line.trim_end_matches('\n').to_owned()
    }
}

impl fmt::Debug for StreamCommand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamCommand")
            .field("name", &self.name())
            .field("subvolume", &self.subvolume())
            .field("path", &self.path())
            .finish()
    }
}

/// An iterator over the commands of a stream as lines of text, in the layout of `btrfs receive --dump` of btrfs-progs 6.14.
///
/// ```
/// use ubtrfs::{Access, Snapshot, StreamDump, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let data = volume.root().create_subvolume("/data")?;
/// data.create_dir("/dir")?;
/// let snapshot = data.snapshot("/", "/kept", Access::ReadOnly)?;
/// let mut stream = Vec::new();
/// Snapshot::open(&snapshot)?.send(&mut stream)?;
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
    /// None at the end, and after an error.
    reader: Option<StreamReader<R>>,
    lines: CommandLines<F>,
}

impl<R: Read, T: Display, F: Fn(i64) -> T> StreamDump<R, F> {
    /// Reads the header of a stream. `local_time` shows seconds since 1970, as in "2026-11-25T17:32:26+0000".
    ///
    /// # Errors
    ///
    /// The stream cannot be read, is none (`InvalidData`), is empty (`UnexpectedEof`), or is of a newer version
    /// (`Unsupported`).
    pub fn open(stream: R, local_time: F) -> Result<StreamDump<R, F>> {
        let reader = StreamReader::open(stream);
        Ok(StreamDump {
            reader: Some(reader.naming_alone("read a stream")?),
            lines: CommandLines::new(local_time),
        })
    }
}

/// Lines without their ends. It ends with the stream, or after the first error, which is that of [`StreamDump::open`] or of a
/// damaged command.
impl<R: Read, T: Display, F: Fn(i64) -> T> Iterator for StreamDump<R, F> {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Result<String>> {
        loop {
            let read = self.reader.as_mut()?.next_command();
            match read {
                Ok(Some(command)) => {
                    let line = self.lines.line_of(&command);
                    // Commands that are not known have none.
                    if let Some(line) = line.strip_suffix('\n') {
                        return Some(Ok(line.to_owned()));
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

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

impl Subvolume {
    /// Makes the subvolumes of a stream of [`Snapshot::send`](crate::Snapshot::send) or `btrfs send` in a directory. Returns
    /// their names. A difference needs the snapshot that it goes on from, received or the original, unchanged.
    ///
    /// Nothing outside the new subvolumes is changed, whatever the stream says. They are durable after the next
    /// [`Volume::sync`](crate::Volume::sync).
    ///
    /// # Errors
    ///
    /// - the stream is damaged (`InvalidData`), ends early (`UnexpectedEof`), or is of a newer version (`Unsupported`);
    ///   [`Error::is_of_stream`] is true then
    /// - the parent is not there (`NotFound`) or was changed (`PermissionDenied`)
    /// - the volume is full, or a name is taken
    ///
    /// [`Error::stream_offset`] is the place in the stream. The subvolumes before the one that failed are whole. That one
    /// stays as it is then, and is writable: [`Error::unfinished`] names it.
    pub fn receive(&self, dir: impl AsRef<Path>, stream: impl Read) -> Result<Vec<PathBuf>> {
        let mut names = Names(Vec::new());
        self.receive_with(dir, stream, &ReceiveOptions::new(), &mut names)?;
        Ok(names.0)
    }

    /// Makes the subvolumes of streams in a directory, in the way that the options say. The observer hears how it goes on.
    ///
    /// # Errors
    ///
    /// As [`Subvolume::receive`]. Of several commands that failed, the observer has heard. The observer cancelled it
    /// (`Interrupted`).
    pub fn receive_with(
        &self,
        dir: impl AsRef<Path>,
        stream: impl Read,
        options: &ReceiveOptions,
        observer: &mut dyn ReceiveObserver,
    ) -> Result<()> {
        let path = dir.as_ref();
        let dir = self.resolve(path).and_then(|id| Dir::of(self, id, path));
        let dir = dir.naming("receive to", path)?;
        dir.receive_with(stream, options, observer)
    }
}

impl Dir {
    /// Makes the subvolumes of streams in the directory, as [`Subvolume::receive_with`]. A caller must have the right to make
    /// entries in it.
    ///
    /// The stream of a caller that is no administrator goes on only from subvolumes that the caller owns. It copies only from
    /// files that the caller could open. Paths of the caller begin at the subvolume that the directory was opened in. Other
    /// subvolumes are as if they were not there ([`ReceiveOptions::any_source`]).
    ///
    /// A stream makes files of any owner, and changes all files of the snapshot that it goes on from. So take streams from
    /// those alone that may do so.
    ///
    /// ```
    /// use ubtrfs::{Access, Caller, ReceiveOptions, Snapshot, Volume};
    ///
    /// # fn main() -> Result<(), ubtrfs::Error> {
    /// let volume = Volume::in_memory(256 << 20)?;
    /// let root = volume.root();
    /// let mut stream = Vec::new();
    /// Snapshot::open(&root.snapshot("/", "/one", Access::ReadOnly)?)?.send(&mut stream)?;
    /// root.create_dir("/home")?;
    /// root.chown("/home", Some(1000), None)?;
    /// let options = ReceiveOptions::new();
    /// let receive_for = |user| {
    ///     let home = root.open_dir("/home")?.with_caller(&Caller::new(user, user));
    ///     home.receive_with(&stream[..], &options, &mut ())
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
    /// As [`Subvolume::receive`]; the caller may not make entries, or may not read a file that the stream copies from.
    pub fn receive_with(
        &self,
        stream: impl Read,
        options: &ReceiveOptions,
        observer: &mut dyn ReceiveObserver,
    ) -> Result<()> {
        self.receive_watched(stream, options, observer, None)
    }

    /// Receives as [`Dir::receive_with`]. The watcher hears what is changed. The server of a mount has one for the kernel's
    /// caches, which know inodes by the handles of the engine below.
    ///
    /// # Errors
    ///
    /// As [`Dir::receive_with`].
    #[doc(hidden)]
    pub fn receive_watched(
        &self,
        stream: impl Read,
        options: &ReceiveOptions,
        observer: &mut dyn ReceiveObserver,
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
            options.receive(&mut target, stream, observer)
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
