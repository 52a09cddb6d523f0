//! Pools of synthetic volumes: membership of devices, and reads after losses and damage.

mod assembly;
mod damage;
mod discard;
mod losses;
mod mirror_repair;
mod robustness;
mod writes;

use super::*;
use crate::test_volume::*;
use ubtrfs_format::block_group_flags::Profile;

/// Each profile with its usual and a larger number of stripes.
const LAYOUTS: [(Profile, u16); 14] = [
    (Profile::Single, 1),
    (Profile::Dup, 2),
    (Profile::Raid0, 3),
    (Profile::Raid1, 2),
    (Profile::Raid1c3, 3),
    (Profile::Raid1c4, 4),
    (Profile::Raid10, 2),
    (Profile::Raid10, 6),
    (Profile::Raid5, 2),
    (Profile::Raid5, 3),
    (Profile::Raid5, 5),
    (Profile::Raid6, 3),
    (Profile::Raid6, 4),
    (Profile::Raid6, 6),
];

fn degraded() -> PoolOptions {
    PoolOptions::new().degraded(true)
}
