//! Names of block group types and profiles, and which types have several profiles.

use std::collections::BTreeMap;

use ubtrfs_engine::inspect::ProfileUsage;
use ubtrfs_format::block_group_flags::{BlockGroupFlags, Profile};

use crate::presentation::console::Console;

pub(crate) fn profile_name(flags: BlockGroupFlags) -> &'static str {
    flags.profile().map_or("unknown", Profile::name)
}

/// "Data,RAID1"
pub(crate) fn group_name(flags: BlockGroupFlags) -> String {
    format!("{},{}", flags.type_name(), profile_name(flags))
}

/// A conversion between profiles that was not finished deserves to be seen.
pub(crate) fn warn_multiple_profiles(console: &mut Console, infos: &[ProfileUsage]) {
    let multiple = multiple_profiles(infos);
    if multiple.is_empty() {
        return;
    }
    console.warning("Multiple block group profiles detected, see 'man btrfs(5)'");
    for (kind, profiles) in multiple {
        console.warning(format_args!("   {kind}: {profiles}"));
    }
}

/// The types that have block groups of more than one profile, with the profiles in lower case.
pub(crate) fn multiple_profiles(infos: &[ProfileUsage]) -> Vec<(&'static str, String)> {
    let mut by_type: BTreeMap<u64, Vec<&ProfileUsage>> = BTreeMap::new();
    for info in infos {
        let kind = info.flags & BlockGroupFlags::TYPE_MASK;
        by_type.entry(kind.bits()).or_default().push(info);
    }
    let order = [
        BlockGroupFlags::DATA,
        BlockGroupFlags::METADATA,
        BlockGroupFlags::DATA | BlockGroupFlags::METADATA,
        BlockGroupFlags::SYSTEM,
    ];
    let several = order.into_iter().filter_map(|kind| {
        let infos = by_type.get(&kind.bits()).filter(|infos| infos.len() > 1)?;
        let names: Vec<String> = infos
            .iter()
            .map(|info| profile_name(info.flags).to_lowercase())
            .collect();
        Some((kind.type_name(), names.join(", ")))
    });
    several.collect()
}
