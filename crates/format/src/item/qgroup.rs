//! Quota groups and the saved state of a balance.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct QgroupStatusItem {
    pub version: U64,
    pub generation: U64,
    pub flags: U64,
    pub rescan: U64,
    /// Only with simple quotas; older items end before this field.
    pub enable_gen: U64,
}
const _: () = assert!(size_of::<QgroupStatusItem>() == 40);

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct QgroupInfoItem {
    pub generation: U64,
    pub rfer: U64,
    pub rfer_cmpr: U64,
    pub excl: U64,
    pub excl_cmpr: U64,
}
const _: () = assert!(size_of::<QgroupInfoItem>() == 40);

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct QgroupLimitItem {
    pub flags: U64,
    pub max_rfer: U64,
    pub max_excl: U64,
    pub rsv_rfer: U64,
    pub rsv_excl: U64,
}
const _: () = assert!(size_of::<QgroupLimitItem>() == 40);

/// The filters of a balance for one type of block groups.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DiskBalanceArgs {
    pub profiles: U64,
    /// One number, or a minimum and a maximum of 4 bytes each.
    pub usage: U64,
    pub devid: U64,
    pub pstart: U64,
    pub pend: U64,
    pub vstart: U64,
    pub vend: U64,
    pub target: U64,
    pub flags: U64,
    /// One number, or a minimum and a maximum of 4 bytes each.
    pub limit: U64,
    pub stripes_min: U32,
    pub stripes_max: U32,
    pub unused: [U64; 6],
}
const _: () = assert!(size_of::<DiskBalanceArgs>() == 136);

/// A paused balance that resumes at the next mount; key (BALANCE, TEMPORARY_ITEM, 0).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct BalanceItem {
    pub flags: U64,
    pub data: DiskBalanceArgs,
    pub meta: DiskBalanceArgs,
    pub sys: DiskBalanceArgs,
    pub unused: [U64; 4],
}
const _: () = assert!(size_of::<BalanceItem>() == 448);
