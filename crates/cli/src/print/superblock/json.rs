//! A copy of the superblock as JSON: fields named as in the text, sizes in bytes, flags by name.

use serde::{Serialize, Serializer};
use ubtrfs_format::item::{Chunk, Stripe};

use super::Copy;
use super::fields::{Field, Json, backup_fields, device_fields, fields};
use super::sys_array::{SysArrayError, sys_entries};
use crate::presentation::profiles::profile_name;

#[derive(Debug, Serialize)]
pub(crate) struct SuperblockJson {
    device: String,
    bytenr: u64,
    #[serde(flatten)]
    fields: Members,
    dev_item: Members,
    #[serde(skip_serializing_if = "Option::is_none")]
    sys_chunk_array: Option<Vec<SysChunkJson>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backup_roots: Option<Vec<Members>>,
}

/// The members of an object, in order.
#[derive(Debug)]
struct Members(Vec<(&'static str, Json)>);

#[derive(Debug, Serialize)]
struct SysChunkJson {
    logical: u64,
    length: u64,
    r#type: &'static str,
    profile: &'static str,
    stripes: Vec<StripeJson>,
}

#[derive(Debug, Serialize)]
struct StripeJson {
    devid: u64,
    offset: u64,
    dev_uuid: String,
}

/// Returns the JSON form of the copy read at `bytenr`. The caller reports an error in the system chunk array.
pub(crate) fn superblock_json(
    device: String,
    bytenr: u64,
    copy: &Copy<'_>,
) -> (SuperblockJson, Result<(), SysArrayError>) {
    let sb = copy.superblock;
    let (entries, end) = if copy.full {
        sys_entries(sb)
    } else {
        (Vec::new(), Ok(()))
    };
    let chunks = entries.iter().filter_map(|entry| {
        let (chunk, stripes) = entry.chunk?;
        Some(sys_chunk(entry.key.offset, chunk, stripes))
    });
    let backups = sb.super_roots.iter();
    let backups = backups.map(|backup| Members::of(backup_fields(backup, sb.incompat())));
    let json = SuperblockJson {
        device,
        bytenr,
        fields: Members::of(fields(sb))
            .move_behind("root_level", "root")
            .move_behind("chunk_root_generation", "chunk_root")
            .move_behind("sys_array_size", "uuid_tree_generation"),
        dev_item: Members::of(device_fields(sb)).move_behind("devid", ""),
        sys_chunk_array: copy.full.then(|| chunks.collect()),
        backup_roots: copy.full.then(|| backups.collect()),
    };
    (json, end)
}

impl Members {
    fn of(fields: Vec<Field>) -> Members {
        Members(fields.into_iter().flat_map(|field| field.members).collect())
    }

    /// Moves a member behind another, or to the start: related values are adjacent, unlike in the text.
    fn move_behind(mut self, name: &str, other: &str) -> Members {
        let at = |members: &Self, name| members.0.iter().position(|member| member.0 == name);
        if let Some(from) = at(&self, name) {
            let member = self.0.remove(from);
            let to = at(&self, other).map_or(0, |other| other + 1);
            self.0.insert(to, member);
        }
        self
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, json)| (name, json)))
    }
}

fn sys_chunk(logical: u64, chunk: &Chunk, stripes: &[Stripe]) -> SysChunkJson {
    SysChunkJson {
        logical,
        length: chunk.length.get(),
        r#type: chunk.flags().type_name(),
        profile: profile_name(chunk.flags().profile()),
        stripes: stripes
            .iter()
            .map(|stripe| StripeJson {
                devid: stripe.devid.get(),
                offset: stripe.offset.get(),
                dev_uuid: stripe.dev_uuid.to_string(),
            })
            .collect(),
    }
}
