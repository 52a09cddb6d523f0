//! `ubtrfs subvolume show`: the properties of one subvolume.

use std::io::Write;
use std::time::SystemTime;

use anyhow::Context;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use ubtrfs::{SubvolumeQuota, Uuid};
use ubtrfs_format::ids::RootId;

use super::{Listed, Subvolumes, mountpoint};
use crate::presentation::console::Console;
use crate::presentation::units::ShortUnits;
use crate::presentation::{clock, json};
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::{Location, VolumeOptions};
use crate::volume_access::reason::Reasoned;

/// Show a subvolume's ids, times, flags, snapshots and quota
#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    #[arg(value_name = "IMAGE[:/PATH]")]
    location: Location,
    /// The subvolume of this id, instead of the one at the path
    #[arg(short, long, value_name = "ID", conflicts_with = "uuid")]
    rootid: Option<u64>,
    /// The subvolume of this UUID, instead of the one at the path
    #[arg(short, long, value_name = "UUID")]
    uuid: Option<uuid::Uuid>,
    #[command(flatten)]
    units: ShortUnits,
    #[command(flatten)]
    volume: VolumeOptions,
}

/// In the words of btrfs-progs.
const WRITABLE_BUT_RECEIVED: &str = "the subvolume is read-write and has received_uuid set,\n\
     \t don't use it for incremental send. Please see section\n\
     \t 'SUBVOLUME FLAGS' in manual page btrfs-subvolume for\n\
     \t further information.";

/// The properties displayed as text.
struct Details<'a> {
    listed: &'a Listed,
    path: Vec<u8>,
    name: Vec<u8>,
    parent: u64,
    snapshots: Vec<Vec<u8>>,
    quota: Option<SubvolumeQuota>,
}

impl Show {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let opened = self.volume.open(&self.location)?;
        let here = opened.subvolume()?.map(|here| RootId(here.id()));
        let id = self.id(here, |uuid| {
            let found = opened.volume.engine().subvolumes_of_uuid(&uuid)?;
            let found = found.into_iter().find(|info| info.item.uuid == uuid);
            if let Some(info) = found {
                return Ok(Some(info.id));
            }
            Ok(Subvolumes::read(&opened.volume)?.of_uuid(uuid))
        })?;
        let subvolumes = Subvolumes::read_with_snapshots(&opened.volume, id)?;
        let quota = opened.volume.subvolume_quota(id.0).reason()?;
        let details = Details::of(&subvolumes, id, quota)?;
        self.show(console, &details)
    }

    /// Returns the id of the subvolume to show. `here` is the subvolume at the path.
    fn id(
        &self,
        here: Option<RootId>,
        of_uuid: impl FnOnce(Uuid) -> anyhow::Result<Option<RootId>>,
    ) -> anyhow::Result<RootId> {
        match (self.rootid, self.uuid) {
            (Some(id), _) => Ok(RootId(id)),
            (_, Some(uuid)) => {
                let uuid = Uuid(*uuid.as_bytes());
                of_uuid(uuid)?.with_context(|| format!("no subvolume has the UUID {uuid}"))
            }
            _ => here.with_context(|| format!("'{}' is not a subvolume", self.location)),
        }
    }

    fn show(&self, console: &mut Console, details: &Details<'_>) -> anyhow::Result<()> {
        if !details.listed.info.is_read_only && details.listed.info.received_uuid.is_some() {
            console.warning(WRITABLE_BUT_RECEIVED);
        }
        if console.is_json() {
            Ok(json::write_map(
                &mut console.out,
                "subvolume-show",
                details,
            )?)
        } else {
            self.print(console, details)
        }
    }

    fn print(&self, console: &mut Console, details: &Details<'_>) -> anyhow::Result<()> {
        let listed = details.listed;
        let info = &listed.info;
        match listed.id() {
            RootId::FS_TREE => console.out.write_all(b"/")?,
            _ => console.write_path(&details.path)?,
        }
        write!(console.out, "\n\tName: \t\t\t")?;
        console.write_path(&details.name)?;
        let out = &mut console.out;
        writeln!(out, "\n\tUUID: \t\t\t{}", or_dash(listed.uuid()))?;
        writeln!(out, "\tParent UUID: \t\t{}", or_dash(info.parent_uuid))?;
        writeln!(out, "\tReceived UUID: \t\t{}", or_dash(info.received_uuid))?;
        writeln!(
            out,
            "\tCreation time: \t\t{}",
            time_or_dash(listed.created())
        )?;
        writeln!(out, "\tSubvolume ID: \t\t{}", info.id)?;
        writeln!(out, "\tGeneration: \t\t{}", info.generation)?;
        writeln!(out, "\tGen at creation: \t{}", info.created_generation)?;
        writeln!(out, "\tParent ID: \t\t{}", details.parent)?;
        writeln!(out, "\tTop level ID: \t\t{}", details.parent)?;
        let flags = match details.flags() {
            none if none.is_empty() => "-".to_owned(),
            flags => flags.join(","),
        };
        writeln!(out, "\tFlags: \t\t\t{flags}")?;
        writeln!(out, "\tSend transid: \t\t{}", info.sent_generation)?;
        writeln!(out, "\tSend time: \t\t{}", time_or_dash(info.sent))?;
        writeln!(out, "\tReceive transid: \t{}", info.received_generation)?;
        writeln!(out, "\tReceive time: \t\t{}", time_or_dash(info.received))?;
        writeln!(out, "\tSnapshot(s):")?;
        for snapshot in &details.snapshots {
            write!(console.out, "\t\t\t\t")?;
            console.write_path(snapshot)?;
            writeln!(console.out)?;
        }
        let out = &mut console.out;
        let Some(quota) = &details.quota else {
            return Ok(writeln!(out, "\tQuota group:\t\tn/a")?);
        };
        let units = self.units.units();
        let limit = |limit: Option<u64>| limit.map_or_else(|| "-".to_owned(), |l| units.size(l));
        writeln!(out, "\tQuota group:\t\t0/{}", info.id)?;
        writeln!(
            out,
            "\t  Limit referenced:\t{}",
            limit(quota.max_referenced_bytes)
        )?;
        writeln!(
            out,
            "\t  Limit exclusive:\t{}",
            limit(quota.max_exclusive_bytes)
        )?;
        writeln!(
            out,
            "\t  Usage referenced:\t{}",
            units.size(quota.referenced_bytes)
        )?;
        writeln!(
            out,
            "\t  Usage exclusive:\t{}",
            units.size(quota.exclusive_bytes)
        )?;
        Ok(())
    }
}

impl ByIoctls for Show {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.volume.refuse_for_mount()?;
        let asked = Asked::open(&self.location)?;
        let here = if asked.is_subvolume()? {
            Some(asked.root_id()?)
        } else {
            None
        };
        let mountpoint = mountpoint(&self.location)?;
        let id = self.id(here, |uuid| {
            let of_uuid = |asked: &Asked| asked.subvolumes_of_uuid(&uuid);
            let found = Subvolumes::ask_some(&asked, &mountpoint, of_uuid)?.of_uuid(uuid);
            match found {
                Some(id) => Ok(Some(id)),
                None => Ok(Subvolumes::ask(&asked, &mountpoint)?.of_uuid(uuid)),
            }
        })?;
        let with_snapshots = |asked: &Asked| asked.with_snapshots(id);
        let mut subvolumes = Subvolumes::ask_some(&asked, &mountpoint, with_snapshots)?;
        if here.is_some() {
            subvolumes.add(&asked)?;
        }
        let quota = asked.subvolume_quota(id)?;
        let details = Details::of(&subvolumes, id, quota)?;
        self.show(console, &details)
    }
}

fn or_dash(uuid: Option<Uuid>) -> String {
    uuid.map_or_else(|| "-".to_owned(), |uuid| uuid.to_string())
}

fn time_or_dash(time: Option<SystemTime>) -> String {
    shown_time(time).unwrap_or_else(|| "-".to_owned())
}

fn shown_time(time: Option<SystemTime>) -> Option<String> {
    time.map(clock::with_zone)
}

impl<'a> Details<'a> {
    fn of(
        subvolumes: &'a Subvolumes,
        id: RootId,
        quota: Option<SubvolumeQuota>,
    ) -> anyhow::Result<Details<'a>> {
        let listed = subvolumes.get(id);
        let listed = listed.with_context(|| format!("subvolume {id} does not exist"))?;
        let is_snapshot =
            |other: &&Listed| listed.uuid().is_some() && other.info.parent_uuid == listed.uuid();
        let name = match listed.id() {
            RootId::FS_TREE => b"<FS_TREE>".to_vec(),
            _ => listed.name.clone().unwrap_or_default(),
        };
        // The place of the highest visible subvolume is unknown.
        let path = subvolumes.path(listed.id(), None);
        Ok(Details {
            listed,
            path: path.unwrap_or_else(|| name.clone()),
            name,
            parent: subvolumes.parent(listed.id()).map_or(0, |parent| parent.0),
            snapshots: subvolumes
                .all()
                .filter(is_snapshot)
                .filter_map(|snapshot| subvolumes.path(snapshot.id(), None))
                .collect(),
            quota,
        })
    }

    fn flags(&self) -> Vec<&'static str> {
        let flags = [
            (self.listed.info.is_read_only, "readonly"),
            (self.listed.info.is_hidden, "hidden"),
        ];
        let set = flags.into_iter().filter(|(is_set, _)| *is_set);
        set.map(|(_, name)| name).collect()
    }
}

impl Serialize for Details<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let listed = self.listed;
        let info = &listed.info;
        let uuid = |uuid: Option<Uuid>| uuid.map(|uuid| uuid.to_string());
        let path = match listed.id() {
            RootId::FS_TREE => "/".to_owned(),
            _ => json::text(&self.path),
        };
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("path", &path)?;
        map.serialize_entry("name", &json::text(&self.name))?;
        map.serialize_entry("uuid", &uuid(listed.uuid()))?;
        map.serialize_entry("parent_uuid", &uuid(info.parent_uuid))?;
        map.serialize_entry("received_uuid", &uuid(info.received_uuid))?;
        map.serialize_entry("otime", &shown_time(listed.created()))?;
        map.serialize_entry("subvolume_id", &info.id)?;
        map.serialize_entry("generation", &info.generation)?;
        map.serialize_entry("ogeneration", &info.created_generation)?;
        map.serialize_entry("parent_id", &self.parent)?;
        map.serialize_entry("toplevel_id", &self.parent)?;
        map.serialize_entry("flags", &self.flags())?;
        map.serialize_entry("stransid", &info.sent_generation)?;
        map.serialize_entry("stime", &shown_time(info.sent))?;
        map.serialize_entry("rtransid", &info.received_generation)?;
        map.serialize_entry("rtime", &shown_time(info.received))?;
        let snapshots = self.snapshots.iter().map(|path| json::text(path));
        map.serialize_entry("snapshots", &snapshots.collect::<Vec<_>>())?;
        let quota = self.quota.map(|quota| QuotaJson {
            qgroupid: format!("0/{}", info.id),
            limit_referenced: quota.max_referenced_bytes,
            limit_exclusive: quota.max_exclusive_bytes,
            usage_referenced: quota.referenced_bytes,
            usage_exclusive: quota.exclusive_bytes,
        });
        map.serialize_entry("quota-group", &quota)?;
        map.end()
    }
}

#[derive(Debug, Serialize)]
struct QuotaJson {
    qgroupid: String,
    #[serde(rename = "qgroup-limit-referenced")]
    limit_referenced: Option<u64>,
    #[serde(rename = "qgroup-limit-exclusive")]
    limit_exclusive: Option<u64>,
    #[serde(rename = "qgroup-usage-referenced")]
    usage_referenced: u64,
    #[serde(rename = "qgroup-usage-exclusive")]
    usage_exclusive: u64,
}
