//! The superblock: identity, geometry, and the addresses of the trees' roots.
//!
//! Here: the layout, the offsets of the copies, and the validation of a single copy.
//! Not here: choosing among copies and devices (`device::superblock`).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::block_group_flags::BlockGroupFlags;
use crate::chunk_check::{CorruptChunk, check_chunk};
use crate::csum::{CsumMismatch, CsumType};
use crate::features::{CompatRo, FeatureName, Incompat};
use crate::ids::{Logical, Transid};
use crate::item::{Chunk, DevItem, Stripe};
use crate::key::{DiskKey, Key, KeyType};
use crate::uuid::Uuid;

/// Offsets of the copies on each device, if it is large enough to contain them completely.
pub const SUPERBLOCK_OFFSETS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
pub const SUPERBLOCK_SIZE: usize = 4096;
pub const MAGIC: [u8; 8] = *b"_BHRfS_M";
/// The magic number that mkfs writes until the volume is complete.
pub const MAGIC_TEMPORARY: [u8; 8] = *b"!BHRfS_M";
pub const SYS_CHUNK_ARRAY_SIZE: usize = 2048;
pub const LABEL_SIZE: usize = 256;
pub const MAX_LEVEL: u8 = 7;
pub const MIN_SECTORSIZE: u32 = 4096;
pub const MAX_SECTORSIZE: u32 = 65536;
pub const MAX_NODESIZE: u32 = 65536;

/// Flags of the superblock's `flags` field.
pub mod flags {
    pub const WRITTEN: u64 = 1 << 0;
    pub const RELOC: u64 = 1 << 1;
    pub const ERROR: u64 = 1 << 2;
    pub const SEEDING: u64 = 1 << 32;
    pub const METADUMP: u64 = 1 << 33;
    pub const METADUMP_V2: u64 = 1 << 34;
    pub const CHANGING_FSID: u64 = 1 << 35;
    pub const CHANGING_FSID_V2: u64 = 1 << 36;
    pub const CHANGING_BG_TREE: u64 = 1 << 38;
    pub const CHANGING_DATA_CSUM: u64 = 1 << 39;
    pub const CHANGING_META_CSUM: u64 = 1 << 40;
    pub const KNOWN: u64 = WRITTEN
        | RELOC
        | ERROR
        | SEEDING
        | METADUMP
        | METADUMP_V2
        | CHANGING_FSID
        | CHANGING_FSID_V2
        | CHANGING_BG_TREE
        | CHANGING_DATA_CSUM
        | CHANGING_META_CSUM;
}

/// The roots of a recent transaction, for recovery.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RootBackup {
    pub tree_root: U64,
    pub tree_root_gen: U64,
    pub chunk_root: U64,
    pub chunk_root_gen: U64,
    /// With the block group tree, which has no field in the backups, this is still the extent tree's root.
    pub extent_root: U64,
    pub extent_root_gen: U64,
    pub fs_root: U64,
    pub fs_root_gen: U64,
    pub dev_root: U64,
    pub dev_root_gen: U64,
    pub csum_root: U64,
    pub csum_root_gen: U64,
    pub total_bytes: U64,
    pub bytes_used: U64,
    pub num_devices: U64,
    pub unused_64: [U64; 4],
    pub tree_root_level: u8,
    pub chunk_root_level: u8,
    pub extent_root_level: u8,
    pub fs_root_level: u8,
    pub dev_root_level: u8,
    pub csum_root_level: u8,
    pub unused_8: [u8; 10],
}
const _: () = assert!(size_of::<RootBackup>() == 168);

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Superblock {
    pub csum: [u8; 32],
    pub fsid: Uuid,
    /// The offset of this copy on its device.
    pub bytenr: U64,
    pub flags: U64,
    pub magic: [u8; 8],
    pub generation: U64,
    pub root: U64,
    pub chunk_root: U64,
    pub log_root: U64,
    pub log_root_transid: U64,
    pub total_bytes: U64,
    pub bytes_used: U64,
    pub root_dir_objectid: U64,
    pub num_devices: U64,
    pub sectorsize: U32,
    pub nodesize: U32,
    pub unused_leafsize: U32,
    pub stripesize: U32,
    pub sys_chunk_array_size: U32,
    pub chunk_root_generation: U64,
    pub compat_flags: U64,
    pub compat_ro_flags: U64,
    pub incompat_flags: U64,
    pub csum_type: U16,
    pub root_level: u8,
    pub chunk_root_level: u8,
    pub log_root_level: u8,
    pub dev_item: DevItem,
    pub label: [u8; LABEL_SIZE],
    pub cache_generation: U64,
    pub uuid_tree_generation: U64,
    /// The fsid in nodes if METADATA_UUID is set, instead of `fsid`.
    pub metadata_uuid: Uuid,
    pub nr_global_roots: U64,
    pub remap_root: U64,
    pub remap_root_generation: U64,
    pub remap_root_level: u8,
    pub reserved: [u8; 199],
    pub sys_chunk_array: [u8; SYS_CHUNK_ARRAY_SIZE],
    pub super_roots: [RootBackup; 4],
    pub padding: [u8; 565],
}
const _: () = assert!(size_of::<Superblock>() == SUPERBLOCK_SIZE);
const _: () = assert!(std::mem::offset_of!(Superblock, sys_chunk_array) == 0x32b);

/// The reason why a superblock copy is unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockError {
    #[error("no btrfs magic")]
    Magic,
    #[error("volume was not completed by mkfs")]
    Incomplete,
    #[error("unknown checksum type {0}")]
    CsumType(u16),
    #[error(transparent)]
    Csum(#[from] CsumMismatch),
    #[error("copy has offset {found}, read from {wanted}")]
    Bytenr { found: u64, wanted: u64 },
    #[error("sectorsize {0} is not a power of two from 4096 to 65536")]
    Sectorsize(u32),
    #[error("nodesize {0} is not a power of two from sectorsize to 65536")]
    Nodesize(u32),
    #[error("leafsize {leafsize} differs from the nodesize, {nodesize}")]
    Leafsize { leafsize: u32, nodesize: u32 },
    #[error("{tree} root level {level} is above {MAX_LEVEL}")]
    Level { tree: &'static str, level: u8 },
    #[error("{tree} root at {bytenr} is not aligned to the sector")]
    Root { tree: &'static str, bytenr: u64 },
    #[error("system chunk array size {0} is out of range")]
    SysChunkArraySize(u32),
    #[error("system chunk array is damaged at byte {0}")]
    SysChunkArray(usize),
    #[error("system chunk at {logical}: {defect}")]
    SystemChunk {
        logical: Logical,
        #[source]
        defect: CorruptChunk,
    },
    #[error("bytes_used {0} is too small for a volume")]
    BytesUsed(u64),
    #[error("stripesize {0} is not a power of two")]
    Stripesize(u32),
    #[error("num_devices is 0")]
    NumDevices,
    #[error("fsid differs from the device's: {fsid} and {dev_fsid}")]
    DevFsid { fsid: Uuid, dev_fsid: Uuid },
    #[error("unknown superblock flags {0:#x}")]
    Flags(u64),
    #[error("unsupported incompatible feature: {0}")]
    Incompat(FeatureName),
    #[error("generation {generation} is below the chunk root's {chunk_root_generation}")]
    Generation {
        generation: u64,
        chunk_root_generation: u64,
    },
    #[error("free-space-tree-valid is set without free-space-tree")]
    FreeSpaceTreeFlags,
    #[error("block-group-tree requires free-space-tree and no-holes")]
    BlockGroupTreeFlags,
}

impl Superblock {
    /// Views `block` as a superblock without validation. Returns None if it is not 4096 bytes.
    pub fn from_block(block: &[u8]) -> Option<&Superblock> {
        Superblock::ref_from_bytes(block).ok()
    }

    /// Validates a single copy that was read from `offset`. Does not check whether its features are supported.
    pub fn validate(&self, offset: u64) -> Result<(), SuperblockError> {
        self.validate_identity(offset)?;
        self.validate_contents(flags::KNOWN)
    }

    /// Validates a copy for a reader, which may ignore unknown flags.
    pub fn validate_but_flags(&self, offset: u64) -> Result<(), SuperblockError> {
        self.validate_identity(offset)?;
        self.validate_contents(u64::MAX)
    }

    /// Validates magic number, checksum and offset, which shows that these bytes are a completely written copy.
    pub fn validate_identity(&self, offset: u64) -> Result<(), SuperblockError> {
        if self.magic == MAGIC_TEMPORARY {
            return Err(SuperblockError::Incomplete);
        }
        if self.magic != MAGIC {
            return Err(SuperblockError::Magic);
        }
        let csum_type = CsumType::from_raw(self.csum_type.get())
            .ok_or(SuperblockError::CsumType(self.csum_type.get()))?;
        csum_type.verify_block(self.as_bytes())?;
        if self.bytenr.get() != offset {
            return Err(SuperblockError::Bytenr {
                found: self.bytenr.get(),
                wanted: offset,
            });
        }
        Ok(())
    }

    /// Checks the ranges of the fields, like the kernel's `btrfs_validate_super`.
    fn validate_contents(&self, known_flags: u64) -> Result<(), SuperblockError> {
        let sectorsize = self.sectorsize.get();
        if !sectorsize.is_power_of_two() || !(MIN_SECTORSIZE..=MAX_SECTORSIZE).contains(&sectorsize)
        {
            return Err(SuperblockError::Sectorsize(sectorsize));
        }
        let nodesize = self.nodesize.get();
        if !nodesize.is_power_of_two() || !(sectorsize..=MAX_NODESIZE).contains(&nodesize) {
            return Err(SuperblockError::Nodesize(nodesize));
        }
        let leafsize = self.unused_leafsize.get();
        if leafsize != nodesize {
            return Err(SuperblockError::Leafsize { leafsize, nodesize });
        }
        let unknown = self.flags.get() & !known_flags;
        if unknown != 0 {
            return Err(SuperblockError::Flags(unknown));
        }
        for (tree, level, bytenr) in [
            ("tree", self.root_level, self.root.get()),
            ("chunk", self.chunk_root_level, self.chunk_root.get()),
            ("log", self.log_root_level, self.log_root.get()),
        ] {
            if level > MAX_LEVEL {
                return Err(SuperblockError::Level { tree, level });
            }
            if bytenr % u64::from(sectorsize) != 0 {
                return Err(SuperblockError::Root { tree, bytenr });
            }
        }
        if self.bytes_used.get() < 6 * u64::from(nodesize) {
            return Err(SuperblockError::BytesUsed(self.bytes_used.get()));
        }
        if !self.stripesize.get().is_power_of_two() {
            return Err(SuperblockError::Stripesize(self.stripesize.get()));
        }
        if self.num_devices.get() == 0 {
            return Err(SuperblockError::NumDevices);
        }
        if self.dev_item.fsid != *self.metadata_fsid() {
            return Err(SuperblockError::DevFsid {
                fsid: *self.metadata_fsid(),
                dev_fsid: self.dev_item.fsid,
            });
        }
        if self.generation.get() < self.chunk_root_generation.get() {
            return Err(SuperblockError::Generation {
                generation: self.generation.get(),
                chunk_root_generation: self.chunk_root_generation.get(),
            });
        }
        let size = self.sys_chunk_array_size.get();
        let smallest = size_of::<DiskKey>() + size_of::<Chunk>() + size_of::<Stripe>();
        if !(smallest..=SYS_CHUNK_ARRAY_SIZE).contains(&(size as usize)) {
            return Err(SuperblockError::SysChunkArraySize(size));
        }
        self.validate_feature_combinations()?;
        for chunk in self.system_chunks() {
            let SystemChunk { logical, chunk, .. } = chunk?;
            check_chunk(logical, chunk, sectorsize, self.incompat())
                .map_err(|defect| SuperblockError::SystemChunk { logical, defect })?;
        }
        Ok(())
    }

    fn validate_feature_combinations(&self) -> Result<(), SuperblockError> {
        let ro = self.compat_ro();
        if ro.contains(CompatRo::FREE_SPACE_TREE_VALID) && !ro.contains(CompatRo::FREE_SPACE_TREE) {
            return Err(SuperblockError::FreeSpaceTreeFlags);
        }
        if ro.contains(CompatRo::BLOCK_GROUP_TREE)
            && !(ro.contains(CompatRo::FREE_SPACE_TREE | CompatRo::FREE_SPACE_TREE_VALID)
                && self.incompat().contains(Incompat::NO_HOLES))
        {
            return Err(SuperblockError::BlockGroupTreeFlags);
        }
        Ok(())
    }

    /// Rejects unsupported features, with their names.
    pub fn check_supported(&self) -> Result<(), SuperblockError> {
        let unknown = self.incompat() - Incompat::SUPPORTED;
        match unknown.names().first() {
            Some(&feature) => Err(SuperblockError::Incompat(feature)),
            None => Ok(()),
        }
    }

    /// Returns the names of features that only allow reading.
    pub fn read_only_features(&self) -> Vec<FeatureName> {
        (self.compat_ro() - CompatRo::SUPPORTED).names()
    }

    pub fn incompat(&self) -> Incompat {
        Incompat::from_bits_retain(self.incompat_flags.get())
    }

    pub fn compat_ro(&self) -> CompatRo {
        CompatRo::from_bits_retain(self.compat_ro_flags.get())
    }

    /// Panics on an unknown type: call it only on validated superblocks.
    pub fn csum_type(&self) -> CsumType {
        CsumType::from_raw(self.csum_type.get()).expect("validated superblock")
    }

    /// Returns whether there is an fsync log after the last commit.
    pub fn has_log(&self) -> bool {
        self.log_root.get() != 0
    }

    /// Drops the fsync log. The last commit is not affected.
    pub fn clear_log(&mut self) {
        self.log_root = 0.into();
        self.log_root_level = 0;
    }

    /// Returns the fsid in the headers of nodes and in the device items.
    pub fn metadata_fsid(&self) -> &Uuid {
        if self.incompat().contains(Incompat::METADATA_UUID) {
            &self.metadata_uuid
        } else {
            &self.fsid
        }
    }

    pub fn transid(&self) -> Transid {
        Transid(self.generation.get())
    }

    /// Returns the label up to its first NUL.
    pub fn label(&self) -> &[u8] {
        let end = self
            .label
            .iter()
            .position(|&b| b == 0)
            .unwrap_or(LABEL_SIZE);
        &self.label[..end]
    }

    /// Returns the superblock's copies of the chunks that are needed to read the chunk tree.
    pub fn system_chunks(&self) -> SystemChunks<'_> {
        let size = (self.sys_chunk_array_size.get() as usize).min(SYS_CHUNK_ARRAY_SIZE);
        SystemChunks {
            array: &self.sys_chunk_array[..size],
            pos: 0,
        }
    }

    /// Computes and stores the checksum of the complete block.
    pub fn seal(&mut self) {
        let csum_type = self.csum_type();
        csum_type.seal_block(self.as_mut_bytes());
    }
}

/// One entry of the system chunk array.
#[derive(Debug, Clone, Copy)]
pub struct SystemChunk<'a> {
    pub logical: Logical,
    pub chunk: &'a Chunk,
    pub stripes: &'a [Stripe],
}

/// Iterator over the system chunk array; ends after the first damaged entry.
#[derive(Debug, Clone)]
pub struct SystemChunks<'a> {
    array: &'a [u8],
    pos: usize,
}

impl<'a> Iterator for SystemChunks<'a> {
    type Item = Result<SystemChunk<'a>, SuperblockError>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.pos;
        let rest = self.array.get(at..).filter(|rest| !rest.is_empty())?;
        let entry = Self::entry(rest);
        self.pos = match &entry {
            Some((_, used)) => at + used,
            None => self.array.len(),
        };
        Some(
            entry
                .map(|(chunk, _)| chunk)
                .ok_or(SuperblockError::SysChunkArray(at)),
        )
    }
}

impl<'a> SystemChunks<'a> {
    fn entry(rest: &'a [u8]) -> Option<(SystemChunk<'a>, usize)> {
        let (key, body) = DiskKey::ref_from_prefix(rest).ok()?;
        let key: Key = key.get();
        if key.objectid != crate::ids::objectid::FIRST_CHUNK_TREE
            || key.item_type != KeyType::CHUNK_ITEM
        {
            return None;
        }
        let (chunk, stripes, tail) = Chunk::split(body)?;
        if !chunk.flags().contains(BlockGroupFlags::SYSTEM) {
            return None;
        }
        let used = rest.len() - tail.len();
        Some((
            SystemChunk {
                logical: Logical(key.offset),
                chunk,
                stripes,
            },
            used,
        ))
    }
}
