//! Types of lower crates in the library's own interface.
//!
//! Not here: on-disk structures, which are not part of the interface.

/// The compression of files, for [`Builder::compress`](crate::Builder::compress).
///
/// ```
/// use ubtrfs::{Compress, CompressError, Compression, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let zstd = Compress { algorithm: Compression::Zstd, level: 3, force: false };
/// assert_eq!("zstd:3".parse(), Ok(zstd));
/// assert_eq!("zstd:16".parse::<Compress>(), Err(CompressError::LevelRange { level: 16, max: 15 }));
/// let volume = Volume::builder().compress(zstd).in_memory(256 << 20)?;
/// volume.root().write("/log", vec![b'x'; 1 << 20])?;
/// volume.sync()?;
/// assert!(volume.statistics().data_bytes < 1 << 20);
/// # Ok(())
/// # }
/// ```
pub use ubtrfs_fs::{Compress, CompressError};

/// The time of discards, for [`Builder::discard`](crate::Builder::discard).
///
/// ```
/// use ubtrfs::{DiscardMode, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::builder().discard(Some(DiscardMode::None)).in_memory(256 << 20)?;
/// volume.root().write("/file", b"content")?;
/// # Ok(())
/// # }
/// ```
pub use ubtrfs_fs::DiscardMode;

/// The options of [`Builder::set`](crate::Builder::set), each with its name, type and documentation.
///
/// ```
/// use ubtrfs::{OPEN_OPTIONS, OptionKind};
///
/// let compress = OPEN_OPTIONS.iter().find(|option| option.name() == "compress");
/// assert_eq!(compress.map(|option| option.kind()), Some(OptionKind::Compression));
/// assert_eq!(OptionKind::Compression.syntax(), "none, lzo, zlib[:1-9] or zstd[:1-15]");
/// for option in OPEN_OPTIONS {
///     println!("{} ({}): {}", option.name(), option.kind().syntax(), option.help());
/// }
/// ```
pub use ubtrfs_fs::{OPEN_OPTIONS, OpenOption, OptionKind};

/// The required existence of an extended attribute before it is set, for
/// [`Subvolume::set_xattr`](crate::Subvolume::set_xattr).
///
/// ```
/// use std::io::ErrorKind;
/// use ubtrfs::{Volume, XattrMode};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let root = volume.root();
/// root.write("/file", b"content")?;
/// root.set_xattr("/file", "user.note", b"draft", XattrMode::Create)?;
/// let refused = root.set_xattr("/file", "user.note", b"final", XattrMode::Create).unwrap_err();
/// assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
/// assert_eq!(root.xattr("/file", "user.note")?.as_deref(), Some(&b"draft"[..]));
/// # Ok(())
/// # }
/// ```
pub use ubtrfs_fs::XattrMode;

/// A compression algorithm. [`Compress`] has an example.
pub use ubtrfs_format::compress::Compression;

/// The layout of data on the devices, in [`MkfsOptions`](crate::MkfsOptions) and
/// [`BlockGroupSpace`](crate::BlockGroupSpace).
///
/// ```
/// use ubtrfs::{BlockGroupKind, Profile, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let space = volume.space()?;
/// let mut metadata = space.block_groups.iter();
/// let metadata = metadata.find(|group| group.kind == BlockGroupKind::Metadata);
/// assert_eq!(metadata.and_then(|group| group.profile), Some(Profile::Dup));
/// # Ok(())
/// # }
/// ```
pub use ubtrfs_format::block_group_flags::Profile;

/// A UUID, such as the one of [`Volume::uuid`](crate::Volume::uuid).
///
/// ```
/// use ubtrfs::Volume;
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let uuid = volume.uuid();
/// assert_eq!(uuid.0.len(), 16);
/// assert_eq!(uuid.to_string().split('-').count(), 5);
/// # Ok(())
/// # }
/// ```
pub use ubtrfs_format::uuid::Uuid;

/// A warning about a new volume, which is created nevertheless. [`Geometry`](crate::Geometry) has an example.
pub use ubtrfs_mkfs::Warning as MkfsWarning;

/// Whether images may grow, for [`Mkfs::growth`](crate::Mkfs::growth).
///
/// ```
/// use ubtrfs::{BlockDevice, DeviceAccess, FileDevice, Growth, Mkfs, MkfsOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let host = tempfile::tempdir()?;
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("small.img");
/// # std::fs::write(host.path().join("file"), vec![7; 120 << 20])?;
/// let mkfs = Mkfs::new(MkfsOptions::default())
///     .fill_from(host.path())
///     .growth(Growth::IfNeeded);
/// let least = mkfs.geometry(1)?.min_device_bytes();
/// let device = FileDevice::create_new(&path, least)?;
/// let made = mkfs.plan(&[least])?.write(&[(&path, &device)], &mut ())?;
/// assert!(made.total_bytes > 120 << 20);
/// # Ok(())
/// # }
/// ```
pub use ubtrfs_mkfs::Growth;

/// The files of an archive whose ACL was left out, in [`FilledContents`](crate::FilledContents).
pub use ubtrfs_mkfs::LeftOutAcls;

/// A version of the stream format, for [`SendOptions::version`](crate::SendOptions::version).
///
/// ```
/// use ubtrfs::{Access, SendOptions, Snapshot, StreamVersion, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let data = volume.root().snapshot("/", "/data", Access::ReadOnly)?;
/// let mut stream = Vec::new();
/// let options = SendOptions::new().version(StreamVersion::V2);
/// Snapshot::open(&data)?.send(&options, &mut stream, &mut ())?;
/// assert_eq!(stream[..17], *b"btrfs-stream\0\x02\0\0\0");
/// # Ok(())
/// # }
/// ```
pub use ubtrfs_stream::StreamVersion;

/// A device that a program implements: reads and writes at offsets, and a flush.
///
/// ```
/// use std::io;
/// use std::path::PathBuf;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use ubtrfs::{BlockDevice, MemDevice, Volume};
///
/// #[derive(Debug)]
/// struct Counted(MemDevice, AtomicU64);
///
/// impl BlockDevice for Counted {
///     fn len_bytes(&self) -> u64 {
///         self.0.len_bytes()
///     }
///     fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
///         self.0.read_at(buf, offset)
///     }
///     fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
///         self.1.fetch_add(buf.len() as u64, Ordering::Relaxed);
///         self.0.write_at(buf, offset)
///     }
///     fn flush(&self) -> io::Result<()> {
///         self.0.flush()
///     }
/// }
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let device = Arc::new(Counted(MemDevice::new(256 << 20), AtomicU64::new(0)));
/// let volume = Volume::builder().make(vec![(PathBuf::from("counted"), device.clone())])?;
/// volume.root().write("/file", vec![7; 1 << 20])?;
/// volume.sync()?;
/// assert!(device.1.load(Ordering::Relaxed) > 1 << 20);
/// # Ok(())
/// # }
/// ```
pub use ubtrfs_device::BlockDevice;

/// A read, write or discard in a batch, for a [`BlockDevice`] that executes several at once. The default implementation
/// executes them one after the other.
///
/// ```
/// use ubtrfs::{BlockDevice, DeviceDiscard, DeviceRead, DeviceWrite, MemDevice};
///
/// let device = MemDevice::new(1 << 30);
/// let mut writes = [DeviceWrite::new(0, b"one"), DeviceWrite::new(4096, b"two")];
/// device.write_batch(&mut writes);
/// assert!(writes.iter().all(|write| write.result.is_ok()));
/// let mut two = [0; 3];
/// let mut reads = [DeviceRead::new(4096, &mut two)];
/// device.read_batch(&mut reads);
/// assert!(reads[0].result.is_ok());
/// assert_eq!(&two, b"two");
/// device.discard_batch(&mut [DeviceDiscard::new(0, 4096)]);
/// ```
pub use ubtrfs_device::{DeviceDiscard, DeviceRead, DeviceWrite};

/// The alignment and maximum size of a [`BlockDevice`]'s discards.
///
/// ```
/// use ubtrfs::DiscardGeometry;
///
/// let geometry = DiscardGeometry::new(64 << 10, 100_000_000);
/// assert_eq!(geometry.granularity, 64 << 10);
/// assert_eq!(geometry.max_bytes % geometry.granularity, 0);
/// ```
pub use ubtrfs_device::DiscardGeometry;

/// The payload of the error for a request beyond the end of a [`BlockDevice`].
///
/// ```
/// use ubtrfs::PastEnd;
///
/// assert!(PastEnd::check(4096, 4096, 8192).is_ok());
/// let error = PastEnd::check(4096, 4097, 8192).unwrap_err();
/// assert!(error.get_ref().is_some_and(|payload| payload.is::<PastEnd>()));
/// ```
pub use ubtrfs_device::PastEnd;

/// A device in memory. Unwritten ranges take no memory.
///
/// ```
/// use ubtrfs::{BlockDevice, MemDevice};
///
/// # fn main() -> std::io::Result<()> {
/// let device = MemDevice::new(1 << 30);
/// device.write_at(b"content", 4096)?;
/// let mut content = [0; 7];
/// device.read_at(&mut content, 4096)?;
/// assert_eq!(&content, b"content");
/// # Ok(())
/// # }
/// ```
pub use ubtrfs_device::MemDevice;

/// The access mode of a [`FileDevice`](crate::FileDevice), which has an example.
pub use ubtrfs_device::Access as DeviceAccess;

/// The name of a device or an image: a path, or a URI with a scheme. A device with a URI cannot be opened yet.
///
/// ```
/// use ubtrfs::DeviceName;
///
/// let (device, path) = DeviceName::split("volume.img:/etc/fstab".as_ref());
/// assert_eq!(device, DeviceName::from("volume.img"));
/// assert_eq!(path, b"/etc/fstab");
/// ```
pub use ubtrfs_device::DeviceName;
pub use ubtrfs_device::{DeviceUri, UnsupportedScheme};

/// Returns the number of bytes of memory that this process may use before the kernel kills or throttles it.
///
/// It is the memory of the machine, or the lowest limit of its control groups. For
/// [`Builder::memory_bytes`](crate::Builder::memory_bytes).
///
/// ```
/// use ubtrfs::{Volume, memory_limit};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let builder = Volume::builder().memory_bytes(memory_limit());
/// builder.in_memory(256 << 20)?.root().write("/file", b"content")?;
/// # Ok(())
/// # }
/// ```
pub use ubtrfs_device::memory_limit;

/// The user of a device that cannot be opened, or is in use during a check.
///
/// ```
/// use ubtrfs::{Holder, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// # let folder = tempfile::tempdir().expect("there is room");
/// # let path = folder.path().join("volume.img");
/// let volume = Volume::create(&path, 1 << 30)?;
/// let refused = Volume::open(&path).unwrap_err();
/// assert_eq!(refused.holder(), Some((&*path, &Holder::ThisProcess)));
/// # Ok(())
/// # }
/// ```
pub use ubtrfs_device::Holder;

/// An observer of a long operation, which receives its [events](Event) and can cancel it. Long operations are copies,
/// archives, removals, sent and received streams, checks, trims, and filling a new volume.
///
/// A closure that takes an [`Event`] is an observer, `()` ignores all events, and [`Problems`](crate::Problems)
/// collects the files that failed.
///
/// A group waits for the operation, and changes by other threads wait for the group. An observer must not wait for
/// either.
///
/// ```
/// use std::io::ErrorKind;
/// use std::ops::ControlFlow;
/// use std::path::PathBuf;
/// use std::sync::{Arc, Mutex};
/// use ubtrfs::{Event, Mkfs, MkfsOptions, Progress, Volume};
///
/// #[derive(Default)]
/// struct Seen {
///     files: Vec<PathBuf>,
///     bytes: u64,
///     is_cancelled: bool,
/// }
///
/// impl Progress for Seen {
///     fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
///         match event {
///             Event::Begin { path } => self.files.push(path.to_path_buf()),
///             Event::Advance { bytes } => self.bytes += bytes,
///             _ => {}
///         }
///         if self.is_cancelled {
///             ControlFlow::Break(())
///         } else {
///             ControlFlow::Continue(())
///         }
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let host = tempfile::tempdir()?;
/// # std::fs::write(host.path().join("file"), vec![7; 1 << 20])?;
/// let seen = Arc::new(Mutex::new(Seen::default()));
/// let mkfs = Mkfs::new(MkfsOptions::default()).fill_from(host.path()).observe(seen.clone());
/// Volume::builder().mkfs(mkfs.clone()).in_memory(256 << 20)?;
/// let mut so_far = seen.lock().unwrap();
/// assert_eq!((so_far.bytes, &*so_far.files), (1 << 20, &[PathBuf::new(), "file".into()][..]));
/// so_far.is_cancelled = true;
/// drop(so_far);
///
/// let cancelled = Volume::builder().mkfs(mkfs).in_memory(256 << 20).unwrap_err();
/// assert_eq!(cancelled.kind(), ErrorKind::Interrupted);
/// # Ok(())
/// # }
/// ```
pub use ubtrfs_device::progress::Progress;

/// An event of a long operation, for [`Progress`].
///
/// ```
/// use std::ops::ControlFlow;
/// use ubtrfs::{Event, FileFlags, RemoveOptions, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// let root = volume.root();
/// root.create_dir("/dir")?;
/// root.write("/dir/file", b"content")?;
/// root.write("/dir/kept", b"content")?;
/// root.set_flags("/dir/kept", FileFlags { immutable: true, ..FileFlags::default() })?;
/// let mut lines = Vec::new();
/// root.remove_tree("/dir", &RemoveOptions::new(), &mut |event: &Event<'_>| {
///     match event {
///         Event::Removed { path, .. } => lines.push(format!("removed {}", path.display())),
///         Event::Problem(problem) => lines.push(format!("kept {}", problem.path.display())),
///         _ => {}
///     }
///     ControlFlow::Continue(())
/// })?;
/// assert_eq!(lines, ["removed /dir/file", "kept /dir/kept", "kept /dir"]);
/// # Ok(())
/// # }
/// ```
pub use ubtrfs_device::progress::Event;

/// The consequence of a [`Problem`]. [`Problems`](crate::Problems) has an example.
pub use ubtrfs_device::progress::Effect;

/// A file or command that failed during an operation. [`Problems`](crate::Problems) has an example.
pub use ubtrfs_device::progress::Problem;

/// The phase of a check, with the totals since its start. [`OpenCheck`](crate::OpenCheck) has an example.
pub use ubtrfs_device::progress::PhaseProgress;

/// A command of a stream that is being received. [`ReceiveOptions`](crate::ReceiveOptions) has an example.
pub use ubtrfs_device::progress::StreamCommand;

/// The kind of a file, like [`std::fs::FileType`].
///
/// ```
/// use ubtrfs::{FileKind, Volume};
///
/// # fn main() -> Result<(), ubtrfs::Error> {
/// let volume = Volume::in_memory(256 << 20)?;
/// volume.root().symlink("target", "/link")?;
/// let link = volume.root().symlink_metadata("/link")?;
/// assert_eq!(link.file_type(), FileKind::Symlink);
/// assert!(link.file_type().is_symlink());
/// # Ok(())
/// # }
/// ```
pub use ubtrfs_format::item::FileKind;

/// A time in seconds since 1970, negative before, and nanoseconds within the second: the form of `stat(2)`, for programs
/// that do not use [`SystemTime`](std::time::SystemTime).
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
/// use ubtrfs::FileTime;
///
/// let before = UNIX_EPOCH - Duration::from_millis(500);
/// let time = FileTime::from(before);
/// assert_eq!((time.sec, time.nsec), (-1, 500_000_000));
/// assert_eq!(time.to_system_time(), Some(before));
/// ```
pub use ubtrfs_format::item::FileTime;
