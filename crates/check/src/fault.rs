//! All findings of a check, each a variant with a stable number.
//!
//! The first two digits give the subject: 01 superblocks and devices, 02 chunks, 03 tree blocks, 04 extents and
//! references, 05 space. Subject 06 is roots, 07 files and directories, 08 checksums, 09 the fsync log. A number
//! never gets a second meaning. The fields contain details that are not in the place (`issue::Place`).
//!
//! Severities follow the exit code of `btrfs check` and the behaviour of the kernel; `docs/check.md` lists them.
//!
//! Not here: the place of a finding (`issue`).

use std::sync::Arc;

use ubtrfs_device::{ChunkProblem, ReadFailure};
use ubtrfs_format::check::CorruptBlock;
use ubtrfs_format::key::Key;
use ubtrfs_format::superblock::SuperblockError;
use ubtrfs_format::uuid::Uuid;

/// The severity of a fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Severity {
    /// A result of normal operation, such as a power cut between two writes.
    Note,
    /// The kernel tolerates or repairs it, but a correct writer does not produce it.
    Warning,
    /// The volume is inconsistent.
    Error,
}

macro_rules! faults {
    ($($(#[$doc:meta])* $number:literal $severity:tt $name:literal
        $variant:ident { $($(#[$field_attr:meta])* $field:ident: $type:ty),* $(,)? } => $message:tt;)*) => {
        /// A fault of a volume, with its number.
        #[derive(Clone, Debug, thiserror::Error)]
        #[non_exhaustive]
        pub enum Fault {
            $($(#[$doc])* #[error($message)] $variant { $($(#[$field_attr])* $field: $type),* },)*
        }

        impl Fault {
            /// Returns the stable number, which is displayed as `E` and four digits.
            pub fn number(&self) -> u16 {
                match self { $(Fault::$variant { .. } => $number,)* }
            }

            /// Returns the stable name.
            pub fn name(&self) -> &'static str {
                match self { $(Fault::$variant { .. } => $name,)* }
            }

            /// Returns the severity, which for some kinds depends on the numbers.
            pub fn severity(&self) -> Severity {
                use Severity::{Error, Note, Warning};
                #[allow(unused_variables)]
                match self { $(Fault::$variant { $($field),* } => $severity,)* }
            }

            /// Number and name of every fault, ascending.
            pub const ALL: &[(u16, &'static str)] = &[$(($number, $name),)*];
        }
    };
}

/// Returns the severity of a fault in a superblock copy. The kernel and other tools start with copy 0 and read no
/// other.
fn of_copy(mirror: usize, other: Severity) -> Severity {
    match mirror {
        0 => Severity::Error,
        _ => other,
    }
}

/// Returns the severity of a superblock that missed commits. A power cut while a commit writes the superblocks can
/// leave one commit missing.
fn of_generations(one: u64, other: u64) -> Severity {
    match one.abs_diff(other) {
        1 => Severity::Note,
        _ => Severity::Warning,
    }
}

/// Returns the severity of an invalid copy. Images restored from a dump have only copy 0.
fn of_damage(mirror: usize, reason: &SuperblockError) -> Severity {
    match reason {
        SuperblockError::Magic => of_copy(mirror, Severity::Note),
        _ => of_copy(mirror, Severity::Warning),
    }
}

/// Returns the severity of a wrong total of device sizes. The kernel rejects a total below the sum of the devices.
fn of_total(superblock: u64, found: u64) -> Severity {
    if superblock < found {
        Severity::Error
    } else {
        Severity::Warning
    }
}

/// Returns the severity of a missing device.
fn of_missing(is_allowed: bool) -> Severity {
    if is_allowed {
        Severity::Warning
    } else {
        Severity::Error
    }
}

/// Returns the severity of a wrong field in a superblock's device item. The kernel reads most fields from the chunk
/// tree.
fn of_device_field(field: &str) -> Severity {
    match field {
        "devid" => Severity::Error,
        _ => Severity::Warning,
    }
}

faults! {
    /// A superblock copy that is invalid by itself.
    101 { of_damage(*mirror, reason) } "superblock-damaged" SuperblockDamaged { mirror: usize, reason: SuperblockError }
        => "superblock copy {mirror}: {reason}";
    102 { of_copy(*mirror, Warning) } "superblock-unreadable" SuperblockUnreadable { mirror: usize }
        => "superblock copy {mirror} cannot be read";
    /// Copies of one generation with different contents.
    103 { of_copy(*mirror, Warning) } "superblock-differs" SuperblockDiffers { mirror: usize, offset: usize }
        => "superblock copy {mirror} differs from the one in use at byte {offset:#x}";
    /// A copy from another commit than the one that the kernel uses.
    104 { of_generations(*generation, *used) } "superblock-stale" SuperblockStale { mirror: usize, generation: u64, used: u64 }
        => "superblock copy {mirror} has generation {generation}, the one in use has {used}";
    105 { of_generations(*generation, *newest) } "device-stale" DeviceStale { generation: u64, newest: u64 }
        => "the device has generation {generation}, the volume has {newest}";
    106 { of_missing(*is_allowed) } "device-missing" DeviceMissing { uuid: Uuid, is_allowed: bool }
        => "the device (uuid {uuid}) is missing";
    107 Error "device-truncated" DeviceTruncated { len_bytes: u64, total_bytes: u64 }
        => "the device has {len_bytes} bytes, its item {total_bytes}";
    /// The chunk tree is unreadable without it.
    108 Error "sys-chunk-missing" SysChunkMissing {}
        => "system chunk is not in the superblock's array";
    109 Error "sys-chunk-differs" SysChunkDiffers {}
        => "system chunk in the superblock's array is not as in the chunk tree";
    110 Error "num-devices" NumDevices { superblock: u64, found: u64 }
        => "superblock counts {superblock} devices, {found} device items exist";
    111 { of_total(*superblock, *found) } "total-bytes" TotalBytes { superblock: u64, found: u64 }
        => "superblock has {superblock} bytes in total, the devices {found}";
    112 Error "bytes-used" BytesUsed { superblock: u64, found: u64 }
        => "superblock has {superblock} bytes used, the extents {found}";
    /// The device item in a device's own superblock differs from the chunk tree.
    113 { of_device_field(field) } "device-item-differs" DeviceItemDiffers { field: &'static str, superblock: u64, item: u64 }
        => "{field}: {superblock} in the device's superblock, {item} in the chunk tree";
    /// Kernels since 5.4 warn, or reject the volume if the superblock's total was rounded down.
    114 Warning "device-size-unaligned" DeviceSizeUnaligned { total_bytes: u64 }
        => "the device has {total_bytes} bytes, not a whole number of sectors";
    /// btrfstune has not finished a conversion; the kernel does not mount such a volume.
    115 Error "conversion-unfinished" ConversionUnfinished { flags: u64 }
        => "superblock flags {flags:#x}: btrfstune has to finish a conversion";
    /// The kernel takes the item for a seed's, finds no such device, and does not mount the volume.
    116 Error "device-fsid" DeviceFsid { item: Uuid, device: Uuid }
        => "device item names file system {item}, the device is of {device}";

    201 Error "chunk-invalid" ChunkInvalid { problem: ChunkProblem }
        => "chunk: {problem}";
    202 Error "chunk-overlap" ChunkOverlap { other: u64 }
        => "chunk overlaps the one at {other}";
    203 Error "chunk-without-block-group" ChunkWithoutBlockGroup { length: u64 }
        => "chunk of {length} bytes has no block group";
    204 Error "block-group-without-chunk" BlockGroupWithoutChunk { length: u64 }
        => "block group of {length} bytes has no chunk";
    205 Error "block-group-differs" BlockGroupDiffers { length: u64, flags: u64, chunk_length: u64, chunk_flags: u64 }
        => "block group of {length} bytes with flags {flags:#x}, its chunk has {chunk_length} and {chunk_flags:#x}";
    206 Error "stripe-without-dev-extent" StripeWithoutDevExtent { chunk: u64, physical: u64 }
        => "stripe of chunk {chunk} at {physical} has no device extent";
    207 Error "dev-extent-without-chunk" DevExtentWithoutChunk { chunk: u64, physical: u64 }
        => "device extent at {physical} is not a stripe of chunk {chunk}";
    208 Error "dev-extent-length" DevExtentLength { chunk: u64, physical: u64, length: u64, wanted: u64 }
        => "device extent at {physical} has {length} bytes, the stripe of chunk {chunk} has {wanted}";
    209 Error "dev-extent-overlap" DevExtentOverlap { physical: u64, before_end: u64 }
        => "device extent at {physical} begins before the end of the one before it, {before_end}";
    210 Error "dev-extent-beyond-device" DevExtentBeyondDevice { physical: u64, length: u64, total_bytes: u64 }
        => "device extent at {physical} of {length} bytes passes the end of the device at {total_bytes}";
    211 Error "device-bytes-used" DeviceBytesUsed { item: u64, found: u64 }
        => "device item has {item} bytes used, its extents {found}";
    212 Error "device-unknown" DeviceUnknown { chunk: u64 }
        => "no device item for a stripe or an extent of chunk {chunk}";
    213 Error "stripe-uuid" StripeUuid { chunk: u64, stripe: Uuid, device: Uuid }
        => "stripe of chunk {chunk} names device uuid {stripe}, the device item has {device}";
    214 Error "block-group-overlap" BlockGroupOverlap { other: u64 }
        => "block group overlaps the one at {other}";

    /// No mirror has a valid block that matches its parent's pointer.
    301 Error "block-corrupt" BlockCorrupt { level: u8, reason: CorruptBlock }
        => "block on level {level} is damaged on every mirror: {reason}";
    302 Error "block-unreadable" BlockUnreadable { level: u8, reason: Arc<ReadFailure> }
        => "block on level {level} cannot be read: {reason}";
    303 Error "block-key-bound" BlockKeyBound { level: u8, last: Key, bound: Key }
        => "block on level {level} ends with {last}, its parent has {bound} next";
    304 Error "tree-missing" TreeMissing {}
        => "the root tree has no item of a tree that must be there";
    /// Another mirror was valid.
    305 Warning "mirror-damaged" MirrorDamaged { mirror: usize, physical: u64 }
        => "mirror {mirror} at {physical} is damaged, another one is good";
    /// A block is always written together with all blocks above it.
    306 Error "child-newer" ChildNewer { child: u64, generation: u64, parent_generation: u64 }
        => "child {child} has generation {generation}, its parent {parent_generation}";
    /// A block whose references belong to its owner must be reachable from the owner, even if other trees share it.
    307 Error "block-owner" BlockOwner {}
        => "block belongs to a tree that does not hold it";
    308 Error "log-block-allocated" LogBlockAllocated {}
        => "block of a log tree is in an extent of another tree";
    /// The kernel ignores it.
    309 Warning "item-type-unknown" ItemTypeUnknown { item_type: u8 }
        => "item of the unknown type {item_type}";
    /// The check has suppressed findings but reported no lost block that explains them.
    310 Error "suppressed-unexplained" SuppressedUnexplained { suppressed: u64 }
        => "{suppressed} findings are not listed, and no error explains them";
    /// The kernel looks for items of this type in another tree.
    311 Warning "item-misplaced" ItemMisplaced {}
        => "item of a type that this tree does not have";
    312 Error "block-backref-form" BlockBackrefForm { flags: u64 }
        => "block with flags {flags:#x} of a relocation or an old revision, whose extent has no FULL_BACKREF";

    401 Error "block-without-extent" BlockWithoutExtent { level: u8 }
        => "tree block on level {level} is in use and has no extent item";
    402 Error "extent-without-block" ExtentWithoutBlock { level: u8 }
        => "extent item of a tree block on level {level} that no tree holds";
    403 Error "block-extent-differs" BlockExtentDiffers { level: u8, generation: u64, item_level: u8, item_generation: u64 }
        => "tree block has level {level} and generation {generation}, its extent item {item_level} and {item_generation}";
    404 Error "block-ref-missing" BlockRefMissing { root: u64 }
        => "tree {root} holds the block, its extent has no such reference";
    405 Error "block-ref-unused" BlockRefUnused { root: u64 }
        => "extent has a reference of tree {root}, which does not hold the block there";
    406 Error "shared-block-ref-missing" SharedBlockRefMissing { parent: u64 }
        => "block {parent} holds the block, its extent has no such reference";
    407 Error "shared-block-ref-unused" SharedBlockRefUnused { parent: u64 }
        => "extent has a reference of block {parent}, which does not hold the block";
    408 Error "data-without-extent" DataWithoutExtent { length: u64 }
        => "data of {length} bytes is in use and has no extent item";
    409 Error "data-extent-unused" DataExtentUnused { length: u64 }
        => "extent item of {length} bytes of data that no file uses";
    /// `offset` is the file offset minus the offset within the extent.
    410 Error "data-ref-count" DataRefCount { root: u64, inode: u64, offset: u64, recorded: u64, found: u64 }
        => "extent records {recorded} references of inode {inode} of tree {root} at {offset}, {found} exist";
    411 Error "shared-data-ref-count" SharedDataRefCount { parent: u64, recorded: u64, found: u64 }
        => "extent records {recorded} references of leaf {parent}, {found} exist";
    412 Error "data-extent-length" DataExtentLength { item: u64, file: u64 }
        => "extent item has {item} bytes, a file's extent {file}";
    413 Error "extent-refs" ExtentRefs { recorded: u64, found: u64 }
        => "extent item counts {recorded} references, it lists {found}";
    414 Error "ref-without-extent" RefWithoutExtent {}
        => "reference to an extent that has no item";
    415 Error "extent-overlap" ExtentOverlap { before_end: u64 }
        => "extent begins before the end of the one before it, {before_end}";
    416 Error "extent-outside-chunk" ExtentOutsideChunk { length: u64 }
        => "extent of {length} bytes is not within a chunk";
    417 Error "extent-chunk-type" ExtentChunkType { flags: u64 }
        => "extent is in a block group for something else, with flags {flags:#x}";
    418 Error "extent-ref-kind" ExtentRefKind {}
        => "data extent with a reference of a tree block, or the reverse";
    /// Only blocks of subvolumes are shared.
    419 Error "full-backref-unshared" FullBackrefUnshared { root: u64 }
        => "FULL_BACKREF on a block of tree {root}, which shares none";
    /// Such a block's references belong to its owner. Only a relocated block has its own.
    420 Error "full-backref-of-holder" FullBackrefOfHolder { owner: u64 }
        => "FULL_BACKREF on a block that its owner, tree {owner}, holds";
    /// The kernel's scrub reads by stripes, and skips such a block.
    421 Error "block-crosses-stripe" BlockCrossesStripe {}
        => "tree block crosses a boundary of 64 KiB";

    501 Error "block-group-used" BlockGroupUsed { used: u64, found: u64 }
        => "block group has {used} bytes used, its extents {found}";
    /// Unallocated space that is not in the free-space tree.
    502 Error "free-space-missing" FreeSpaceMissing { start: u64, length: u64 }
        => "{length} free bytes at {start} are not in the free-space tree";
    503 Error "free-space-in-use" FreeSpaceInUse { start: u64, length: u64 }
        => "{length} bytes at {start} are free in the free-space tree and belong to an extent";
    504 Error "free-space-count" FreeSpaceCount { recorded: u64, found: u64 }
        => "free-space info counts {recorded} extents, {found} exist";
    505 Error "free-space-info-missing" FreeSpaceInfoMissing {}
        => "block group has no free-space info";
    506 Error "free-space-unowned" FreeSpaceUnowned { length: u64 }
        => "free-space info of {length} bytes that are no block group";
    507 Error "free-space-form" FreeSpaceForm {}
        => "item that is no free-space item, or one that is not within its block group, not of the form used there, or overlaps";

    601 Error "root-backref-missing" RootBackrefMissing { parent: u64 }
        => "tree {parent} has a ROOT_REF to it, there is no ROOT_BACKREF like it";
    602 Error "root-ref-missing" RootRefMissing { parent: u64 }
        => "has a ROOT_BACKREF to tree {parent}, there is no ROOT_REF like it";
    603 Error "root-dir-item-missing" RootDirItemMissing { parent: u64, dir: u64, index: u64 }
        => "its ROOT_REF names directory {dir} of tree {parent}, which has no DIR_ITEM for it";
    604 Error "root-dir-index-missing" RootDirIndexMissing { parent: u64, dir: u64, index: u64 }
        => "its ROOT_REF names directory {dir} of tree {parent}, which has no DIR_INDEX {index} for it";
    605 Error "root-ref-to-nothing" RootRefToNothing { parent: u64 }
        => "tree {parent} refers to it, and there is no such subvolume";
    606 Error "subvolume-unreferenced" SubvolumeUnreferenced { refs: u32 }
        => "subvolume with {refs} references and no ROOT_BACKREF";
    607 Error "deleted-without-orphan" DeletedWithoutOrphan {}
        => "deleted subvolume without an orphan item";
    608 Warning "orphan-without-root" OrphanWithoutRoot {}
        => "orphan item of a tree that is gone";
    609 Error "uuid-missing" UuidMissing { uuid: Uuid }
        => "uuid {uuid} of the subvolume is not in the UUID tree";
    610 Error "uuid-wrong" UuidWrong { uuid: Uuid }
        => "UUID tree has {uuid} for the subvolume, which has another one or is gone";
    611 Error "default-subvolume" DefaultSubvolume { target: u64 }
        => "the default subvolume {target} is not there";
    /// The directory entries for a subvolume contradict each other.
    612 Error "root-dir-entries-differ" RootDirEntriesDiffer { dir: u64, child: u64 }
        => "directory {dir} has a DIR_ITEM or a DIR_INDEX for subvolume {child} without the other";
    /// The kernel looks for these trees only at offset 0.
    613 Error "root-item-offset" RootItemOffset { offset: u64 }
        => "root item at offset {offset}, which must be 0 for this tree";
    /// Snapshots lack this entry once the UUID item is full.
    614 Warning "received-uuid-missing" ReceivedUuidMissing { uuid: Uuid }
        => "uuid {uuid} that the subvolume was received from is not in the UUID tree";

    701 Error "inode-missing" InodeMissing {}
        => "items of an inode without INODE_ITEM";
    702 Error "inode-nlink" InodeNlink { nlink: u32, found: u64 }
        => "inode has nlink {nlink} and {found} names";
    703 Error "dir-size" DirSize { size: u64, found: u64 }
        => "directory has size {size}, its names make {found}";
    704 Error "inode-nbytes" InodeNbytes { nbytes: u64, found: u64 }
        => "inode has nbytes {nbytes}, its extents make {found}";
    705 Error "orphan-missing" OrphanMissing {}
        => "inode without links and without an orphan item";
    706 Warning "orphan-without-inode" OrphanWithoutInode {}
        => "orphan item of an inode that is gone";
    707 Error "file-extent-overlap" FileExtentOverlap { before_end: u64 }
        => "file extent begins before the end of the one before it, {before_end}";
    708 Error "file-extent-gap" FileExtentGap { start: u64, end: u64 }
        => "no file extent from {start} to {end}, which needs NO_HOLES";
    709 Warning "file-extent-beyond-size" FileExtentBeyondSize { size: u64 }
        => "data behind the end of the file at {size}";
    710 Error "file-extent-bounds" FileExtentBounds { offset: u64, num_bytes: u64, extent_bytes: u64 }
        => "{num_bytes} bytes at {offset} of an extent of {extent_bytes}";
    711 Error "file-extent-of-other" FileExtentOfOther { mode: u32 }
        => "file extent of an inode with mode {mode:#o}";
    712 Error "entries-of-other" EntriesOfOther { mode: u32 }
        => "directory entries of an inode with mode {mode:#o}";
    713 Error "inline-size" InlineSize { ram_bytes: u64, limit: u64 }
        => "inline extent of {ram_bytes} bytes, at most {limit} can be";
    714 Error "dir-item-missing" DirItemMissing { inode: u64, index: u64 }
        => "inode {inode} with index {index} has no DIR_ITEM in the directory";
    715 Error "dir-index-missing" DirIndexMissing { inode: u64, index: u64 }
        => "inode {inode} with index {index} has no DIR_INDEX in the directory";
    716 Error "inode-ref-missing" InodeRefMissing { inode: u64, index: u64 }
        => "directory entry to inode {inode}, which has no reference back";
    717 Error "entry-to-nothing" EntryToNothing { inode: u64 }
        => "directory entry to inode {inode}, which is not there";
    718 Error "entry-type" EntryType { inode: u64, entry: u8, wanted: u8 }
        => "directory entry to inode {inode} has file type {entry}, the inode has {wanted}";
    719 Error "entry-index" EntryIndex { inode: u64, index: u64, wanted: u64 }
        => "directory entry to inode {inode} has index {index}, the inode has {wanted}";
    720 Error "dir-links" DirLinks { found: u64 }
        => "directory with {found} names";
    721 Error "root-dir-missing" RootDirMissing {}
        => "subvolume without its root directory";
    722 Error "symlink-target" SymlinkTarget { size: u64 }
        => "link of {size} bytes without an inline target of that size";
    723 Error "entry-twice" EntryTwice { inode: u64, index: u64 }
        => "one name twice in the directory; the other one leads to inode {inode} with index {index}";
    724 Error "file-extent-generation" FileExtentGeneration { generation: u64, limit: u64 }
        => "file extent of generation {generation}, which must be from 1 to {limit}";
    /// Compressed data always has checksums.
    725 Error "compressed-nodatasum" CompressedNodatasum {}
        => "compressed extent of an inode without checksums";
    /// A symlink can be neither immutable nor append-only.
    726 Error "symlink-flags" SymlinkFlags { flags: u64 }
        => "link with the flags {flags:#x}";
    /// Possible only in a metadata dump: otherwise the block is corrupt.
    727 Error "name-hash" NameHash { index: u64 }
        => "name in a metadata dump that does not hash to {index:#x}";
    /// The kernel drops delayed removals of entries when it begins to delete the directory.
    728 Note "entry-in-deleted-dir" EntryInDeletedDir { inode: u64, index: u64 }
        => "entry to inode {inode} with index {index}, left in a directory that is being deleted";
    /// Preallocated space is never compressed or encoded.
    729 Error "prealloc-encoded" PreallocEncoded { compression: u8, encryption: u8 }
        => "preallocated extent with compression {compression} and encryption {encryption}";
    /// Kernels since 5.11 do not support the inode cache.
    730 Error "inode-cache" InodeCache {}
        => "inode cache of an old kernel, which 'btrfs rescue clear-ino-cache' removes";

    801 Error "csum-missing" CsumMissing { length: u64 }
        => "{length} bytes of data have no checksums";
    /// Checksums of preallocated space that no other file has written, or for data of a file without checksums.
    802 Error "csum-unexpected" CsumUnexpected { length: u64 }
        => "{length} bytes have checksums but should have none";
    803 Error "csum-without-extent" CsumWithoutExtent { length: u64 }
        => "checksums of {length} bytes that are no data";
    804 Error "csum-overlap" CsumOverlap { before_end: u64 }
        => "checksums begin before the end of those before, {before_end}";
    805 Error "data-csum" DataCsum { mirror: usize, physical: u64 }
        => "mirror {mirror} at {physical} does not have the checksum of the data";
    806 Error "data-unreadable" DataUnreadable { mirror: usize, length: u64 }
        => "mirror {mirror} of {length} bytes of data cannot be read";
    /// The kernel replays the log, but cannot read the data afterwards.
    807 Error "log-csum-missing" LogCsumMissing { length: u64 }
        => "{length} bytes of data in the log have no checksums";

    /// The kernel does not check this.
    901 Warning "log-block-owner" LogBlockOwner { owner: u64 }
        => "block of a log has tree {owner} as its owner";
    902 Warning "log-block-generation" LogBlockGeneration { generation: u64, wanted: u64 }
        => "block of a log has generation {generation}, the log has {wanted}";
    /// The replay skips the log.
    903 Warning "log-of-nothing" LogOfNothing { subvolume: u64 }
        => "log of subvolume {subvolume}, which is not there";
    904 Error "log-overlap" LogOverlap { before_end: u64 }
        => "block or data of a log begins before the end of the one before it, {before_end}";
    905 Error "log-extent-in-use" LogExtentInUse { length: u64 }
        => "{length} bytes of data in the log are in another extent";
    906 Error "log-inode-missing" LogInodeMissing {}
        => "items in the log of an inode without INODE_ITEM";
    907 Error "log-inode-kind" LogInodeKind { mode: u32, committed: u32 }
        => "inode has mode {mode:#o} in the log and had mode {committed:#o} at the last commit";
    /// The kernel refuses to replay it.
    908 Error "log-subvolume-entry" LogSubvolumeEntry { subvolume: u64 }
        => "the log makes or removes the directory entry of subvolume {subvolume}";
    909 Error "log-index-taken" LogIndexTaken { inode: u64, index: u64 }
        => "the log gives index {index} to a new name, and the name of inode {inode} keeps it";
    /// The replay skips the entry.
    910 Warning "log-entry-to-nothing" LogEntryToNothing { inode: u64 }
        => "directory entry in the log to inode {inode}, which is not there";
    /// The replay skips the name.
    911 Warning "log-parent-missing" LogParentMissing { parent: u64 }
        => "name in the log in directory {parent}, which is not there";
    912 Error "log-range" LogRange { first: u64 }
        => "range of directory indexes in the log that ends before it begins at {first}";
    /// The kernel replays it, and the directories become unreachable.
    913 Error "log-dir-cycle" LogDirCycle {}
        => "directory that the log puts below itself";
    /// ubtrfs can replay it, and never writes such a log.
    914 Warning "log-item-outgrows-leaf" LogItemOutgrowsLeaf { committed: u64, logged: u64 }
        => "item of {committed} bytes that has {logged} in the log, with which Linux may crash as it mounts the volume; ubtrfs can mount it, or `ubtrfs rescue zero-log` drops the log";
}

impl Fault {
    /// Returns the number in display format: `E0101`.
    pub fn code(&self) -> String {
        format!("E{:04}", self.number())
    }
}
