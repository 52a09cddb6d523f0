//! Numbers and arguments of the btrfs ioctls, for both the server and its callers.
//!
//! Source: the kernel's uapi `linux/btrfs.h`. Numbers are in the machine's byte order; no struct has padding.

// The lint attributes types that zerocopy's derives generate inside `carried` to this file.
#![allow(missing_debug_implementations)]

use std::mem::size_of;

use zerocopy::native_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, Unaligned};

const TO_KERNEL: u32 = 1;
const FROM_KERNEL: u32 = 2;
const BTRFS: u8 = 0x94;

/// Computes the number of an ioctl (`_IOC`).
const fn number(direction: u32, group: u8, nr: u8, size: usize) -> u32 {
    direction << 30 | (size as u32) << 16 | (group as u32) << 8 | nr as u32
}

const fn give<T>(nr: u8) -> u32 {
    number(TO_KERNEL, BTRFS, nr, size_of::<T>())
}

const fn take<T>(nr: u8) -> u32 {
    number(FROM_KERNEL, BTRFS, nr, size_of::<T>())
}

const fn exchange<T>(nr: u8) -> u32 {
    number(TO_KERNEL | FROM_KERNEL, BTRFS, nr, size_of::<T>())
}

pub const SNAP_CREATE: u32 = give::<VolArgs>(1);
pub const RESIZE: u32 = give::<VolArgs>(3);
pub const SYNC: u32 = number(0, BTRFS, 8, 0);
pub const ADD_DEV: u32 = give::<VolArgs>(10);
pub const RM_DEV: u32 = give::<VolArgs>(11);
/// `FICLONERANGE`, which all file systems share.
pub const CLONE_RANGE: u32 = give::<CloneRange>(13);
pub const SUBVOL_CREATE: u32 = give::<VolArgs>(14);
pub const SNAP_DESTROY: u32 = give::<VolArgs>(15);
pub const TREE_SEARCH: u32 = exchange::<SearchArgs>(17);
/// Its number covers the head only, which has the maximum length of the list after it.
pub const TREE_SEARCH_V2: u32 = number(TO_KERNEL | FROM_KERNEL, BTRFS, 17, SEARCH_HEAD_BYTES);
pub const INO_LOOKUP: u32 = exchange::<InoLookup>(18);
pub const DEFAULT_SUBVOL: u32 = give::<U64>(19);
pub const SPACE_INFO: u32 = exchange::<SpaceInfo>(20);
/// An ioctl of ours: the list together with its head, and so covered by the number, since FUSE carries no other.
pub const SPACE_LIST: u32 = exchange::<SpaceList>(20);
pub const WAIT_SYNC: u32 = give::<U64>(22);
pub const SNAP_CREATE_V2: u32 = give::<VolArgsV2>(23);
pub const START_SYNC: u32 = take::<U64>(24);
pub const SUBVOL_CREATE_V2: u32 = give::<VolArgsV2>(24);
pub const SUBVOL_GETFLAGS: u32 = take::<U64>(25);
pub const SUBVOL_SETFLAGS: u32 = give::<U64>(26);
pub const SCRUB: u32 = exchange::<ScrubArgs>(27);
pub const SCRUB_CANCEL: u32 = number(0, BTRFS, 28, 0);
pub const SCRUB_PROGRESS: u32 = exchange::<ScrubArgs>(29);
pub const DEV_INFO: u32 = exchange::<DevInfo>(30);
pub const FS_INFO: u32 = take::<FsInfo>(31);
pub const LOGICAL_INO: u32 = exchange::<LogicalIno>(36);
pub const SET_RECEIVED_SUBVOL: u32 = exchange::<Received>(37);
pub const SEND: u32 = give::<SendArgs>(38);
pub const GET_FSLABEL: u32 = take::<Label>(49);
pub const SET_FSLABEL: u32 = give::<Label>(50);
pub const GET_DEV_STATS: u32 = exchange::<DevStats>(52);
pub const DEV_REPLACE: u32 = exchange::<DevReplace>(53);
pub const GET_FEATURES: u32 = take::<Features>(57);
pub const GET_SUPPORTED_FEATURES: u32 = take::<[Features; 3]>(57);
pub const RM_DEV_V2: u32 = give::<VolArgsV2>(58);
pub const LOGICAL_INO_V2: u32 = exchange::<LogicalIno>(59);
pub const GET_SUBVOL_INFO: u32 = take::<SubvolInfo>(60);
pub const GET_SUBVOL_ROOTREF: u32 = exchange::<SubvolRootref>(61);
pub const INO_LOOKUP_USER: u32 = exchange::<InoLookupUser>(62);
pub const SNAP_DESTROY_V2: u32 = give::<VolArgsV2>(63);
pub const ENCODED_WRITE: u32 = give::<EncodedIo>(64);
/// Its number covers the head only, which has the number of extents that fit after it.
pub const FIEMAP: u32 = number(TO_KERNEL | FROM_KERNEL, b'f', 11, FIEMAP_HEAD_BYTES);
pub const FITRIM: u32 = number(TO_KERNEL | FROM_KERNEL, b'X', 121, size_of::<TrimRange>());

const FIEMAP_HEAD_BYTES: usize = 32;
const SEARCH_HEAD_BYTES: usize = size_of::<SearchKey>() + size_of::<U64>();

/// Flags of `FiemapExtent`: the last extent of the file, at an unknown address, not allocated yet, inline in metadata,
/// shared.
pub const FIEMAP_LAST: u32 = 1 << 0;
pub const FIEMAP_UNKNOWN: u32 = 1 << 1;
pub const FIEMAP_DELALLOC: u32 = 1 << 2;
pub const FIEMAP_INLINE: u32 = 1 << 9;
pub const FIEMAP_SHARED: u32 = 1 << 13;

/// In `LogicalIno`, of its second version: references to other parts of the extent count as well.
pub const IGNORE_OFFSET: u64 = 1 << 0;
/// In `DevStats`: resets the counters after reading.
pub const RESET: u64 = 1 << 0;

/// In `ScrubArgs`: nothing is written.
pub const SCRUB_READONLY: u64 = 1 << 0;

/// In `VolArgsV2` and as a subvolume's flag.
pub const RDONLY: u64 = 1 << 1;

/// In `VolArgsV2`: `inherit` has the size and the address of a [`QgroupInherit`] and its ids.
pub const QGROUP_INHERIT: u64 = 1 << 2;

/// Flags of [`SendArgs`].
pub const SEND_NO_FILE_DATA: u64 = 1 << 0;
pub const SEND_OMIT_STREAM_HEADER: u64 = 1 << 1;
pub const SEND_OMIT_END_CMD: u64 = 1 << 2;
/// The version counts; without it the stream is of version 1.
pub const SEND_VERSION: u64 = 1 << 3;
pub const SEND_COMPRESSED: u64 = 1 << 4;
/// In `VolArgsV2`: the name is the id of a device.
pub const DEVICE_BY_ID: u64 = 1 << 3;
/// In `VolArgsV2`: the name is an id.
pub const SPEC_BY_ID: u64 = 1 << 4;

/// The flag of the `Space` that is the global reserve.
pub const GLOBAL_RESERVE: u64 = 1 << 49;

pub const FS_INFO_CSUM: u64 = 1 << 0;
pub const FS_INFO_GENERATION: u64 = 1 << 1;
pub const FS_INFO_METADATA_UUID: u64 = 1 << 2;

/// Declares argument types of ioctls, with their sizes.
macro_rules! carried {
    ($($(#[$doc:meta])* $name:ident ($size:literal) { $($(#[$about:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, Unaligned)]
            #[repr(C)]
            pub struct $name {
                $($(#[$about])* pub $field: $type,)*
            }
            const _: () = assert!(size_of::<$name>() == $size);
        )*
    };
}

pub type Label = [u8; 256];

carried! {
    /// `btrfs_ioctl_vol_args`
    VolArgs(4096) {
        fd: I64,
        name: [u8; 4088],
    }
    /// `btrfs_ioctl_vol_args_v2`
    VolArgsV2(4096) {
        fd: I64,
        transid: U64,
        flags: U64,
        /// The argument for quota groups to inherit, with a pointer.
        inherit: [U64; 4],
        /// A name, or the id of a subvolume in the first bytes.
        name: [u8; 4040],
    }
    /// `btrfs_qgroup_inherit`, before the ids of the quota groups
    QgroupInherit(72) {
        flags: U64,
        num_qgroups: U64,
        num_ref_copies: U64,
        num_excl_copies: U64,
        limit: [U64; 5],
    }
    /// `file_clone_range`
    CloneRange(32) {
        src_fd: I64,
        src_offset: U64,
        src_length: U64,
        dest_offset: U64,
    }
    /// `btrfs_ioctl_encoded_io_args`
    EncodedIo(128) {
        /// The address and length of the list of buffers in the caller's memory.
        iov: U64,
        iovcnt: U64,
        offset: I64,
        flags: U64,
        len: U64,
        unencoded_len: U64,
        unencoded_offset: U64,
        compression: U32,
        encryption: U32,
        reserved: [u8; 64],
    }
    /// `btrfs_ioctl_scrub_args`
    ScrubArgs(1024) {
        devid: U64,
        start: U64,
        end: U64,
        flags: U64,
        /// The counts of `btrfs_scrub_progress`, in its order.
        progress: [U64; 15],
        /// A limit in bytes per second, which mounts of ubtrfs follow. The kernel ignores it.
        limit: U64,
        unused: [U64; 108],
    }
    /// `btrfs_ioctl_send_args`
    SendArgs(72) {
        send_fd: I64,
        clone_sources_count: U64,
        /// The address of their ids.
        clone_sources: U64,
        parent_root: U64,
        flags: U64,
        version: U32,
        reserved: [u8; 28],
    }
    /// `btrfs_ioctl_search_key`
    SearchKey(104) {
        tree_id: U64,
        min_objectid: U64,
        max_objectid: U64,
        min_offset: U64,
        max_offset: U64,
        min_transid: U64,
        max_transid: U64,
        min_type: U32,
        max_type: U32,
        nr_items: U32,
        unused: U32,
        unused_more: [U64; 4],
    }
    /// `btrfs_ioctl_search_args`
    SearchArgs(4096) {
        key: SearchKey,
        buf: [u8; 3992],
    }
    /// `btrfs_ioctl_search_args_v2` with room for the largest item.
    SearchArgsV2(65536) {
        key: SearchKey,
        buf_size: U64,
        buf: [u8; 65424],
    }
    /// `btrfs_ioctl_logical_ino_args`
    LogicalIno(56) {
        logical: U64,
        /// The size of the list.
        size: U64,
        reserved: [U64; 3],
        flags: U64,
        /// The address of the list in the caller's memory.
        inodes: U64,
    }
    /// `btrfs_data_container`, without the list after it.
    Container(16) {
        bytes_left: U32,
        bytes_missing: U32,
        elem_cnt: U32,
        elem_missed: U32,
    }
    /// `btrfs_ioctl_get_dev_stats`
    DevStats(1032) {
        devid: U64,
        nr_items: U64,
        flags: U64,
        values: [U64; 5],
        unused: [U64; 121],
    }
    /// `btrfs_ioctl_search_header`
    SearchHeader(32) {
        transid: U64,
        objectid: U64,
        offset: U64,
        item_type: U32,
        len: U32,
    }
    /// `btrfs_ioctl_ino_lookup_args`
    InoLookup(4096) {
        treeid: U64,
        objectid: U64,
        name: [u8; 4080],
    }
    /// `btrfs_ioctl_ino_lookup_user_args`
    InoLookupUser(4096) {
        dirid: U64,
        treeid: U64,
        name: [u8; 256],
        path: [u8; 3824],
    }
    /// `btrfs_ioctl_space_args`, without the list after it.
    SpaceInfo(16) {
        space_slots: U64,
        total_spaces: U64,
    }
    /// `btrfs_ioctl_space_info`
    Space(24) {
        flags: U64,
        total_bytes: U64,
        used_bytes: U64,
    }
    /// `btrfs_ioctl_space_args` with room for all possible spaces.
    SpaceList(4096) {
        space_slots: U64,
        total_spaces: U64,
        spaces: [Space; 170],
    }
    /// `btrfs_ioctl_dev_info_args`
    DevInfo(4096) {
        devid: U64,
        uuid: [u8; 16],
        bytes_used: U64,
        total_bytes: U64,
        fsid: [u8; 16],
        unused: [U64; 377],
        path: [u8; 1024],
    }
    /// `btrfs_ioctl_fs_info_args`
    FsInfo(1024) {
        max_id: U64,
        num_devices: U64,
        fsid: [u8; 16],
        nodesize: U32,
        sectorsize: U32,
        clone_alignment: U32,
        csum_type: U16,
        csum_size: U16,
        flags: U64,
        generation: U64,
        metadata_uuid: [u8; 16],
        reserved: [u8; 944],
    }
    /// `btrfs_ioctl_timespec`, with its padding.
    Timespec(16) {
        sec: U64,
        nsec: U32,
        padding: U32,
    }
    /// `btrfs_ioctl_received_subvol_args`
    Received(200) {
        uuid: [u8; 16],
        stransid: U64,
        rtransid: U64,
        stime: Timespec,
        rtime: Timespec,
        flags: U64,
        reserved: [U64; 16],
    }
    /// `btrfs_ioctl_dev_replace_args`
    DevReplace(2600) {
        cmd: U64,
        result: U64,
        /// `DevReplaceStart` or `DevReplaceStatus`
        parameters: [u8; 2072],
        spare: [U64; 64],
    }
    /// `btrfs_ioctl_dev_replace_start_params`, without its padding
    DevReplaceStart(2066) {
        srcdevid: U64,
        mode: U64,
        srcdev_name: [u8; 1025],
        tgtdev_name: [u8; 1025],
    }
    /// `btrfs_ioctl_dev_replace_status_params`
    DevReplaceStatus(48) {
        replace_state: U64,
        progress_1000: U64,
        time_started: U64,
        time_stopped: U64,
        num_write_errors: U64,
        num_uncorrectable_read_errors: U64,
    }
    /// `fiemap_extent`
    FiemapExtent(56) {
        logical: U64,
        physical: U64,
        length: U64,
        reserved: [U64; 2],
        flags: U32,
        reserved_more: [U32; 3],
    }
    /// `fiemap` with room for extents.
    Fiemap(65440) {
        start: U64,
        length: U64,
        flags: U32,
        mapped_extents: U32,
        extent_count: U32,
        reserved: U32,
        extents: [FiemapExtent; 1168],
    }
    /// `fstrim_range`; the length is replaced by the number of trimmed bytes.
    TrimRange(24) {
        start: U64,
        len: U64,
        minlen: U64,
    }
    /// `btrfs_ioctl_feature_flags`
    Features(24) {
        compat: U64,
        compat_ro: U64,
        incompat: U64,
    }
    /// `btrfs_ioctl_get_subvol_info_args`
    SubvolInfo(504) {
        treeid: U64,
        name: [u8; 256],
        parent_id: U64,
        dirid: U64,
        generation: U64,
        flags: U64,
        uuid: [u8; 16],
        parent_uuid: [u8; 16],
        received_uuid: [u8; 16],
        ctransid: U64,
        otransid: U64,
        stransid: U64,
        rtransid: U64,
        ctime: Timespec,
        otime: Timespec,
        stime: Timespec,
        rtime: Timespec,
        reserved: [U64; 8],
    }
    Rootref(16) {
        treeid: U64,
        dirid: U64,
    }
    /// `btrfs_ioctl_get_subvol_rootref_args`
    SubvolRootref(4096) {
        min_treeid: U64,
        rootref: [Rootref; 255],
        num_items: u8,
        align: [u8; 7],
    }
}
