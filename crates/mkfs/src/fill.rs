//! New volumes filled with files from a directory tree or an archive.
//!
//! The volume is empty, so every tree is built bottom-up from sorted items in one pass. It begins with a walk of the
//! source. Data is placed during the walk; items, extents and checksums are collected (`item_sorter`, `filled`,
//! `csum_log`). Then all trees are measured, placed and written (`tree_placement`). Superblocks are written last, so a
//! failed run leaves no volume.
//!
//! The result is a function of the options, the identity, the device sizes and the contents of the source. It does not
//! depend on the order within the source, on threads, or on the memory budget.
//!
//! Memory: the budget for intermediate data (`scratch`), the readahead (`folder`), and the names of the directories on
//! the current path. In addition, each tree block takes about 100 bytes, which is 5 bytes per file.

mod archive;
mod contents_hash;
mod csum_log;
mod data_space;
mod encode;
mod error;
mod filled;
mod filler;
mod folder;
mod hash_table;
mod inode;
mod item_sorter;
mod marks;
mod scratch;
mod source;
mod stripe_writer;
mod times;
mod watch;

use std::cell::RefCell;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use ubtrfs_device::BlockDevice;
use ubtrfs_device::progress::Progress;
use ubtrfs_format::block_group_flags::Profile;
use ubtrfs_format::compress::Compression;
use ubtrfs_format::features::Incompat;
use ubtrfs_format::item::{InodeFlags, Times};

pub use self::error::FillError;
pub use self::scratch::Scratch;
pub use self::times::TimeRule;
pub use crate::archive::ArchiveError;

use self::archive::Archive;
use self::data_space::{DataSpace, PlacedData, Sharing};
use self::encode::Coding;
use self::filled::{Filled, Walked};
use self::filler::{Filler, FillerSetup};
use self::folder::{Folder, FolderOptions};
use self::marks::Marks;
use self::source::Source;
use self::watch::FillWatch;
use super::chunk_growth::Spare;
use super::chunks::VolumeChunks;
use super::error::MkfsError;
use super::options::{Geometry, Identity, MkfsOptions};
use super::superblock;
use super::targets::Targets;
use super::tree_placement::{PlacedTrees, place_trees};
use super::trees::Contents;
use crate::archive::{Members, OwnerNames};

/// An image that grows gets an eighth of free space, in multiples of this.
const GROWTH_STEP_BYTES: u64 = 1 << 20;

/// A directory that becomes a subvolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubvolumeRequest {
    /// Relative to the root.
    pub path: PathBuf,
    pub is_read_only: bool,
    /// Whether it is mounted by default.
    pub is_default: bool,
}

/// Flags for an inode. A directory's flags are inherited by all files below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagsRequest {
    /// Relative to the root.
    pub path: PathBuf,
    pub flags: InodeFlags,
}

/// The source of a volume's files.
#[derive(Debug)]
pub enum Input {
    Folder(PathBuf),
    /// A tar archive. A file is read in two passes; data from a pipe is placed as it arrives.
    Archive(File),
    /// A tar archive from a reader.
    Reader(ArchiveReader),
}

/// A reader of a tar archive.
pub struct ArchiveReader(pub Box<dyn Read + Send>);

impl fmt::Debug for ArchiveReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArchiveReader").finish_non_exhaustive()
    }
}

/// Whether images may grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// They keep their size.
    #[default]
    Never,
    /// Only if the files do not fit.
    IfNeeded,
    /// To the size that the files need, plus an eighth.
    Freely,
}

/// Options for filling a volume.
#[derive(Clone, Debug, Default)]
pub struct FillOptions {
    /// With its level; 0 is the default.
    pub compression: Option<(Compression, i32)>,
    pub subvolumes: Vec<SubvolumeRequest>,
    pub flags: Vec<FlagsRequest>,
    /// Paths at and below which holes of files are written out. They need not exist. Boot loaders cannot read holes.
    pub dense: Vec<PathBuf>,
    /// The owner of all files, which replaces their own.
    pub owner: Option<(u32, u32)>,
    /// Share blocks between the image and the source files if both are on a file system with reflinks.
    pub reflink: bool,
    /// Shrink the volume to the minimum size at which it remains writable.
    pub shrink: bool,
    pub growth: Growth,
    pub times: TimeRule,
    pub scratch: Scratch,
    /// Device and inode number of the images being created, which must not be read as files.
    pub targets: Vec<(u64, u64)>,
    /// Discard the devices first.
    pub discard: bool,
    /// Ids of users and groups in the ACLs of an archive.
    pub owners: OwnerNames,
}

/// Counts of files and data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FillStats {
    pub directories: u64,
    /// Files other than directories. A file with several names counts once.
    pub files: u64,
    /// Bytes on disk, without copies.
    pub data_bytes: u64,
}

/// Files of an archive without one of their ACLs. The ACL exists only as text, and is malformed or names unknown users
/// or groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOutAcls {
    /// The first such file.
    pub path: PathBuf,
    /// Number of such files.
    pub files: u64,
}

/// The created volume.
#[derive(Debug)]
pub struct FilledVolume {
    pub geometry: Geometry,
    pub layout: VolumeChunks,
    pub stats: FillStats,
    /// Bytes shared between the image and the source files, if requested; an error if not supported.
    pub shared: Option<Result<u64, std::io::Error>>,
    pub left_out: Option<LeftOutAcls>,
    /// Contains all UUIDs, including those derived from the contents.
    pub identity: Identity,
}

/// Creates a volume and fills it. The volume uses the given number of bytes of each device. Each file and its data are
/// reported to `progress`, also while the trees are built: then with 0 bytes.
pub fn fill(
    options: &MkfsOptions,
    identity: &Identity,
    devices: &[(&dyn BlockDevice, u64)],
    input: Input,
    fill: &FillOptions,
    progress: &mut dyn Progress,
) -> Result<FilledVolume, FillError> {
    let mut watch = FillWatch::new(progress);
    let geometry = filled_geometry(options, devices.len(), fill)?;
    let sizes: Vec<u64> = devices.iter().map(|(_, bytes)| *bytes).collect();
    let mut start = VolumeChunks::without_chunks(&geometry, identity, &sizes)?;
    let may_grow = fill.growth != Growth::Never;
    if may_grow {
        start.lift_limits();
    }
    let spare = if fill.shrink {
        Spare::Least
    } else {
        Spare::Usual
    };
    start.add_system(&geometry, spare)?;
    let coding = Coding::new(&geometry, fill.compression);
    let scratch = &fill.scratch;
    let opened = Opened::new(input, &coding, identity, fill, &mut watch)?;

    let devices: Vec<&dyn BlockDevice> = devices.iter().map(|(device, _)| *device).collect();
    let targets = Targets::new(&start.devices, &devices)?;
    targets.wipe(fill.discard)?;
    let mut data = DataSpace::new(&geometry, spare, start, &targets, may_grow, scratch);
    let mut source = opened.source(&mut data, scratch, &mut watch)?;
    if fill.reflink {
        data.sharing = Sharing::On { shared_bytes: 0 };
    }
    let setup = FillerSetup {
        geometry: &geometry,
        coding: &coding,
        scratch,
        times: fill.times,
        owner: fill.owner,
        created: identity.created,
        top_level: identity.fs_tree_uuid,
        requests: &fill.subvolumes,
        new_uuid: &|id| identity.subvolume_uuid(id),
    };
    let filler = Filler::new(setup, &mut data, watch.lend());
    let walked = filler.fill(source.as_mut())?;
    let left_out = source.left_out();
    drop(source);
    let volume = Unfinished {
        geometry: &geometry,
        identity,
        targets: &targets,
        spare,
        sizes,
    };
    let Finished {
        layout,
        stats,
        sharing,
        identity,
    } = volume.finish(data, walked, fill, watch.lend())?;
    Ok(FilledVolume {
        layout,
        stats,
        identity,
        left_out,
        shared: match sharing {
            Sharing::NotWanted => None,
            Sharing::On { shared_bytes } => Some(Ok(shared_bytes)),
            Sharing::Refused(error) => Some(Err(error)),
        },
        geometry,
    })
}

/// Resolves the options, and adds the features needed for files.
fn filled_geometry(
    options: &MkfsOptions,
    devices: usize,
    fill: &FillOptions,
) -> Result<Geometry, FillError> {
    let mut geometry = options.resolve(devices)?;
    match fill.compression {
        Some((Compression::Lzo, _)) => geometry.features.incompat |= Incompat::COMPRESS_LZO,
        Some((Compression::Zstd, _)) => geometry.features.incompat |= Incompat::COMPRESS_ZSTD,
        _ => {}
    }
    refuse_parity(&geometry)?;
    Ok(geometry)
}

/// A source before the walk, checked as far as possible before anything is written.
enum Opened {
    Folder(Folder),
    Archive(Box<Archive>),
}

impl Opened {
    fn new(
        input: Input,
        coding: &Coding,
        identity: &Identity,
        fill: &FillOptions,
        watch: &mut FillWatch<'_>,
    ) -> Result<Opened, FillError> {
        let marks = Marks::new(&fill.subvolumes, &fill.flags, &fill.dense);
        let coding = coding.clone();
        let members = match input {
            Input::Folder(path) => {
                let options = FolderOptions {
                    coding,
                    targets: fill.targets.clone(),
                    sharing: fill.reflink,
                };
                return Folder::open(&path, marks, options).map(Opened::Folder);
            }
            Input::Archive(file) => Members::open(file)?,
            Input::Reader(reader) => Members::of(reader.0)?,
        };
        let made = Times::all(identity.created.into());
        let owners = fill.owners.clone();
        let mut archive = Archive::new(members, marks, coding, (made, owners), &fill.scratch)?;
        if archive.is_seekable() {
            archive.scan(watch)?;
        }
        Ok(Opened::Archive(Box::new(archive)))
    }

    fn source(
        self,
        data: &mut DataSpace<'_>,
        scratch: &Scratch,
        watch: &mut FillWatch<'_>,
    ) -> Result<Box<dyn Source>, FillError> {
        match self {
            Opened::Folder(folder) => Ok(Box::new(folder)),
            Opened::Archive(mut archive) => {
                if !archive.is_seekable() {
                    archive.receive(data, watch)?;
                }
                Ok(Box::new(archive.replay(data, scratch)?))
            }
        }
    }
}

/// Fails for profiles with parity, because they would need whole rows before a write.
fn refuse_parity(geometry: &Geometry) -> Result<(), FillError> {
    let profiles: [Profile; 2] = [geometry.data, geometry.metadata];
    match profiles.iter().find(|profile| profile.parities() > 0) {
        Some(profile) => Err(FillError::Parity {
            profile: profile.name(),
        }),
        None => Ok(()),
    }
}

/// A complete volume.
struct Finished {
    layout: VolumeChunks,
    stats: FillStats,
    sharing: Sharing,
    identity: Identity,
}

/// A volume whose data is placed, but not its trees.
struct Unfinished<'a> {
    geometry: &'a Geometry,
    identity: &'a Identity,
    targets: &'a Targets<'a>,
    spare: Spare,
    /// The sizes of the devices, before they grow.
    sizes: Vec<u64>,
}

impl Unfinished<'_> {
    fn finish(
        &self,
        mut data: DataSpace<'_>,
        (walked, stats): (Walked, FillStats),
        fill: &FillOptions,
        watch: FillWatch<'_>,
    ) -> Result<Finished, FillError> {
        let is_over = data.is_over();
        let sharing = std::mem::replace(&mut data.sharing, Sharing::NotWanted);
        let (mut base, placed, mut writer) = data.finish()?;
        let mut files = Filled {
            geometry: self.geometry,
            walked,
            data: placed,
            watch: RefCell::new(watch),
        };
        if is_over {
            // Data was not written, so only the needed size can be computed.
            return Err(self.no_space(&files, base));
        }
        let identity = if self.identity.is_of_contents {
            &contents_hash::identify(self.identity, &mut files, &mut base, &self.sizes)?
        } else {
            self.identity
        };
        let PlacedTrees {
            mut layout,
            placement,
        } = match self.place_trees(identity, &files, base.clone(), self.spare) {
            Err(MkfsError::NoRoomForChunk { .. }) => return Err(self.no_space(&files, base)),
            placed => placed?,
        };
        self.set_sizes(&mut layout, fill);
        if fill.growth != Growth::Never {
            let layout = &layout;
            self.targets
                .lengthen(|devid| layout.device(devid).total_bytes)?;
        }
        let contents = Contents {
            geometry: self.geometry,
            identity,
            layout: &layout,
            files: &files,
        };
        contents.build(&placement, &mut |block| {
            writer.put_at(&layout, block.logical, &block.bytes)
        })?;
        writer.flush(&layout)?;
        if fill.shrink {
            self.targets.cut(|devid| layout.device(devid).total_bytes)?;
        }
        // Superblocks are written only after everything else is durable, so an interrupted run leaves no volume.
        self.targets.flush()?;
        let superblock = superblock::superblock(&contents, &placement)?;
        for write in superblock::writes(&superblock, self.geometry, identity, &layout) {
            self.targets.put(&write)?;
        }
        self.targets.flush()?;
        Ok(Finished {
            layout,
            stats,
            sharing,
            identity: identity.clone(),
        })
    }

    /// Places all trees after the data.
    fn place_trees(
        &self,
        identity: &Identity,
        files: &Filled<'_, '_>,
        base: VolumeChunks,
        spare: Spare,
    ) -> Result<PlacedTrees, MkfsError> {
        let mut base = base;
        let mut is_trimmed = false;
        if spare == Spare::Least {
            self.trim(&mut base, &files.data)?;
            is_trimmed = true;
        }
        place_trees(self.geometry, identity, files, &mut |needed| {
            loop {
                let room = base.room_from(self.geometry, files.data.end);
                match base.with_metadata(self.geometry, needed, room, spare) {
                    Err(MkfsError::NoRoomForChunk { .. }) if !is_trimmed => {
                        // Use the unused end of the last data chunk, and try again.
                        self.trim(&mut base, &files.data)?;
                        is_trimmed = true;
                    }
                    layout => return layout,
                }
            }
        })
    }

    /// Trims the unused end of the last data chunk.
    fn trim(&self, base: &mut VolumeChunks, data: &PlacedData) -> Result<(), MkfsError> {
        let last = base.chunks.len() - 1;
        let chunk = &base.chunks[last].map;
        if chunk.flags().contains(self.geometry.data_types()) {
            let used = data.used.get(last).and_then(|used| used.last());
            let used = used.map_or(0, |range| range.end - chunk.logical().0);
            base.trim_last(self.geometry, used)?;
        }
        Ok(())
    }

    /// Returns an error with the device size that would be needed.
    fn no_space(&self, files: &Filled<'_, '_>, mut base: VolumeChunks) -> FillError {
        base.lift_limits();
        match self.place_trees(self.identity, files, base, Spare::Least) {
            Ok(placed) => FillError::NoSpace {
                needed: placed.layout.reached_bytes(),
                available: self.sizes.iter().sum(),
            },
            Err(error) => error.into(),
        }
    }

    fn set_sizes(&self, layout: &mut VolumeChunks, fill: &FillOptions) {
        for (device, &before) in layout.devices.iter_mut().zip(&self.sizes) {
            let reached = device.next;
            let grown = (reached + reached / 8).next_multiple_of(GROWTH_STEP_BYTES);
            device.total_bytes = match fill.growth {
                _ if fill.shrink => reached,
                Growth::Freely => before.max(grown),
                _ if reached > before => grown,
                _ => before,
            };
        }
        layout.total_bytes = layout.devices.iter().map(|device| device.total_bytes).sum();
    }
}
