//! btrfs in user space, embedded in a program.
//!
//! A [`Volume`] is a real btrfs file system in a file, on a device or in memory. The kernel can mount a volume that
//! this library wrote, and this library can open a volume that the kernel wrote. It needs no mount, no root rights and
//! no kernel module.
//!
//! # Ten things that most programs do
//!
//! ## Keep files in an image
//!
//! ```
//! # use ubtrfs::Volume;
//! # fn main() -> Result<(), ubtrfs::Error> {
//! # let folder = tempfile::tempdir().expect("there is room");
//! # let image = folder.path().join("volume.img");
//! let volume = Volume::create(&image, 1 << 30)?; // grows up to 1 GiB
//! volume.root().create_dir("/notes")?;
//! volume.root().write("/notes/first", b"content")?;
//! volume.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! ## Read an image
//!
//! ```
//! # use ubtrfs::Volume;
//! # fn main() -> Result<(), ubtrfs::Error> {
//! # let folder = tempfile::tempdir().expect("there is room");
//! # let image = folder.path().join("volume.img");
//! # let made = Volume::create(&image, 1 << 30)?;
//! # made.root().write("/file", b"content")?;
//! # made.close()?;
//! let volume = Volume::open_read_only(&image)?;
//! for entry in volume.root().read_dir("/")? {
//!     println!("{}", entry?.path().display());
//! }
//! let content = volume.root().read("/file")?;
//! # assert_eq!(content, b"content");
//! # Ok(())
//! # }
//! ```
//!
//! ## Read and write a part of a file
//!
//! ```
//! # use std::os::unix::fs::FileExt;
//! # use ubtrfs::{OpenOptions, Volume};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let volume = Volume::in_memory(256 << 20)?;
//! # let root = volume.root();
//! let options = OpenOptions::new().read(true).write(true).create(true);
//! let file = root.open_with("/log", &options)?; // also Read, Write and Seek
//! file.write_all_at(b"line", 1 << 20)?;
//! let mut line = [0; 4];
//! file.read_exact_at(&mut line, 1 << 20)?;
//! # assert_eq!(&line, b"line");
//! # Ok(())
//! # }
//! ```
//!
//! ## Find files below a directory
//!
//! ```
//! # use ubtrfs::{Volume, WalkOptions};
//! # fn main() -> Result<(), ubtrfs::Error> {
//! # let volume = Volume::in_memory(256 << 20)?;
//! # let root = volume.root();
//! # root.create_dir_all("/dir/below")?;
//! for entry in root.walk("/", &WalkOptions::new().sort_by_name(true))? {
//!     let entry = entry?;
//!     println!("{} {}", entry.metadata()?.len(), entry.path().display());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! ## Set attributes
//!
//! ```
//! # use std::fs::Permissions;
//! # use std::os::unix::fs::PermissionsExt;
//! # use std::time::UNIX_EPOCH;
//! # use ubtrfs::{FileTimes, Volume, XattrMode};
//! # fn main() -> Result<(), ubtrfs::Error> {
//! # let volume = Volume::in_memory(256 << 20)?;
//! # let root = volume.root();
//! # root.write("/file", b"content")?;
//! root.set_permissions("/file", Permissions::from_mode(0o600))?;
//! root.chown("/file", Some(1000), Some(1000))?;
//! root.set_times("/file", FileTimes::new().set_modified(UNIX_EPOCH))?;
//! root.set_xattr("/file", "user.note", b"draft", XattrMode::Any)?;
//! let modified = root.metadata("/file")?.modified();
//! # assert_eq!(modified, UNIX_EPOCH);
//! # Ok(())
//! # }
//! ```
//!
//! ## Keep earlier states
//!
//! ```
//! # use ubtrfs::{Access, Volume};
//! # fn main() -> Result<(), ubtrfs::Error> {
//! # let volume = Volume::in_memory(256 << 20)?;
//! # let root = volume.root();
//! let data = root.create_subvolume("/data")?;
//! data.write("/notes", b"first")?;
//! root.snapshot("/data", "/before", Access::ReadOnly)?;
//! data.write("/notes", b"second")?;
//! assert_eq!(root.read("/before/notes")?, b"first");
//! # Ok(())
//! # }
//! ```
//!
//! ## Copy a folder into an image, and back
//!
//! ```
//! # use ubtrfs::{CopyOptions, Problems, Volume};
//! # fn main() -> Result<(), ubtrfs::Error> {
//! # let scratch = tempfile::tempdir().expect("there is room");
//! # let (folder, copy) = (scratch.path().join("folder"), scratch.path().join("copy"));
//! # std::fs::create_dir(&folder).expect("there is room");
//! # let volume = Volume::in_memory(256 << 20)?;
//! # let root = volume.root();
//! let (options, mut problems) = (CopyOptions::new(), Problems::default());
//! root.copy_from_host(&folder, "/folder", &options, &mut problems)?;
//! root.copy_to_host("/folder", &copy, &options, &mut problems)?;
//! assert!(problems.is_empty(), "{:?}", problems.listed());
//! # Ok(())
//! # }
//! ```
//!
//! ## Build an image from a folder or an archive, and check it
//!
//! ```
//! # use ubtrfs::{Checker, Mkfs, MkfsOptions, Volume};
//! # fn main() -> Result<(), ubtrfs::Error> {
//! # let scratch = tempfile::tempdir().expect("there is room");
//! # let (folder, image) = (scratch.path().join("folder"), scratch.path().join("image"));
//! # std::fs::create_dir(&folder).expect("there is room");
//! # std::fs::write(folder.join("file"), "content").expect("there is room");
//! let options = MkfsOptions { label: b"rootfs".to_vec(), ..MkfsOptions::default() };
//! let mkfs = Mkfs::new(options).fill_from(&folder).shrink(true);
//! Volume::builder().mkfs(mkfs).create(&[&image], 1 << 30)?.close()?;
//! assert!(Checker::new().read_data(true).check(&image)?.is_clean());
//! # assert_eq!(Volume::open(&image)?.root().read("/file")?, b"content");
//! # Ok(())
//! # }
//! ```
//!
//! ## Send a snapshot as the difference from an earlier one
//!
//! ```
//! # use ubtrfs::{Access, ReceiveOptions, SendOptions, Snapshot, Volume};
//! # fn main() -> Result<(), ubtrfs::Error> {
//! # let volume = Volume::in_memory(256 << 20)?;
//! # let backup = Volume::in_memory(256 << 20)?;
//! # let root = volume.root();
//! # let data = root.create_subvolume("/data")?;
//! # let first = Snapshot::open(&root.snapshot("/data", "/first", Access::ReadOnly)?)?;
//! # let mut whole = Vec::new();
//! # first.send(&SendOptions::new(), &mut whole, &mut ())?;
//! # backup.root().receive("/", &whole[..], &ReceiveOptions::new(), &mut ())?;
//! # data.write("/file", b"content")?;
//! # root.snapshot("/data", "/second", Access::ReadOnly)?;
//! let first = Snapshot::open(&root.subvolume("/first")?)?;
//! let second = Snapshot::open(&root.subvolume("/second")?)?;
//! let mut stream = Vec::new(); // or a file, a pipe or a socket
//! second.send(&SendOptions::new().parent(&first), &mut stream, &mut ())?;
//! backup.root().receive("/", &stream[..], &ReceiveOptions::new(), &mut ())?;
//! # assert_eq!(backup.root().read("/second/file")?, b"content");
//! # Ok(())
//! # }
//! ```
//!
//! ## Change several files at once
//!
//! ```
//! # use ubtrfs::Volume;
//! # fn main() -> Result<(), ubtrfs::Error> {
//! # let volume = Volume::in_memory(256 << 20)?;
//! # let root = volume.root();
//! # root.create_dir("/new")?;
//! volume.group(|| {
//!     root.rename("/new", "/current")?; // after a power cut, both or neither
//!     root.write("/version", b"2")
//! })?;
//! # Ok(())
//! # }
//! ```
//!
//! # Where to find what
//!
//! - [`Volume`]: opening, creating and committing volumes; the label; lists of subvolumes. [`Builder`] has the options
//! - [`Subvolume`]: the operations of [`std::fs`] by path, whole trees, subvolumes, snapshots and received streams
//! - [`File`], [`OpenOptions`], [`DirBuilder`], [`ReadDir`], [`Metadata`]: like the types of `std::fs`
//! - [`Dir`]: an open directory, for subvolumes on behalf of a [`Caller`] with fewer rights
//! - [`Walk`], [`WalkDirs`]: all files below a directory
//! - [`Snapshot`]: sending and comparing snapshots. [`StreamDump`] displays streams
//! - [`scan`]: the volumes on devices, in images and in folders
//! - [`Checker`]: consistency checks
//! - [`ScrubOptions`]: verifying and repairing everything that is stored
//! - [`Mkfs`]: new volumes with a chosen identity and initial contents
//! - [`Progress`]: the progress of long operations, and their cancellation. `()` ignores it, [`Problems`] collects the
//!   files that failed
//! - [`Error`]: the operation, its paths, and the [`std::io::ErrorKind`] that `std::fs` has for the same failure
//!
//! # Durability
//!
//! Changes stay in memory until [`Volume::sync`], the commit interval (30 s by default) or memory pressure commits
//! them. A commit includes all earlier changes: after a power cut the volume has the state of a commit.
//! [`File::sync_all`] makes one file durable.
//!
//! # Untrusted volumes
//!
//! Images and devices are untrusted: arbitrary bytes cause an error, never a panic, a hang or unbounded memory use.
//! Data is verified by its checksums when it is read.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![warn(missing_docs)]

mod attributes;
mod caller;
mod changes;
mod checking;
mod copies;
mod damage;
mod devices;
mod dir;
mod dir_builder;
mod discarding;
mod disk_usage;
mod error;
mod escaped;
mod file;
mod file_device;
mod handle;
mod host_owners;
mod layers;
mod lineage;
mod metadata;
mod mkfs;
mod mkfs_options;
mod named_option;
mod new_extents;
mod opening;
mod paths;
mod read_dir;
mod receiving;
mod reexports;
mod removal;
mod report;
mod scanning;
mod scrubbing;
mod sibling_devices;
mod snapshot;
mod subvolume;
mod transfer;
mod trees;
mod volume;
mod walk;
mod walk_dirs;

pub use caller::Caller;
pub use changes::{Change, ChangeKind, Changes, FileAttributes, XattrChange, XattrChangeKind};
pub use checking::{
    CHECK_OPTIONS, CheckFault, CheckFigures, CheckIssue, CheckPlace, CheckReport, Checker,
    MakerMark, OpenCheck, Severity,
};
pub use copies::{COPY_OPTIONS, CopyOptions};
pub use devices::{NewDevice, Replaced};
pub use dir::{Dir, SubvolumePlace};
pub use dir_builder::DirBuilder;
pub use discarding::{DiscardLimits, TrimOptions};
pub use disk_usage::{DiskUsage, FileSpace, UsageMeter};
pub use error::{Error, Result};
pub use escaped::Escaped;
pub use file::{File, OpenOptions};
pub use file_device::FileDevice;
/// For the command `ubtrfs` alone.
#[doc(hidden)]
pub use host_owners::HostOwners;
pub use lineage::Lineage;
pub use metadata::{FileFlags, FileTimes, Metadata};
pub use mkfs::{FilledContents, MKFS_OPTIONS, MadeVolume, Mkfs, PlannedVolume};
pub use mkfs_options::{CsumType, Feature, FeatureListError, FeatureSet, Geometry, MkfsOptions};
pub use named_option::NamedOption;
pub use new_extents::{NewExtent, NewExtents};
pub use read_dir::{DirEntry, ReadDir};
pub use receiving::{RECEIVE_OPTIONS, ReceiveOptions, StreamDump};
pub use reexports::*;
pub use removal::RemoveOptions;
pub use report::{
    BlockGroupKind, BlockGroupSpace, DeviceAllocation, DeviceErrors, DeviceInfo, Space, Statistics,
    SubvolumeQuota,
};
pub use scanning::{FoundDevice, FoundVolume, scan, scan_devices, scan_layers, scan_with_siblings};
pub use scrubbing::{
    DamageKind, DamagedFile, DamagedRange, DeviceScrub, OpenScrub, ScrubCounts, ScrubDamage,
    ScrubOptions, ScrubReport,
};
pub use sibling_devices::sibling_devices;
pub use snapshot::{SendOptions, Snapshot};
pub use subvolume::{Access, Subvolume, SubvolumeInfo};
pub use transfer::copy::{Reflink, Sparse};
pub use trees::{ImportOptions, Problems};
pub use volume::{Builder, ClearedLog, Volume};
pub use walk::{Walk, WalkOptions};
pub use walk_dirs::{ListedDir, WalkDirs};

/// The examples of the user manual, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
mod embedding_page {}
