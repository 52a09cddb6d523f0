//! `ubtrfs inspect-internal list-chunks`: the positions of chunks on devices and in the logical space.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use clap::ValueEnum;
use serde::ser::{Serialize, SerializeMap, Serializer};
use ubtrfs_format::block_group_flags::BlockGroupFlags;

use crate::presentation::console::Console;
use crate::presentation::json;
use crate::presentation::profiles::profile_name;
use crate::presentation::table::{Table, right};
use crate::presentation::units::{LongUnits, Units};
use crate::volume_access::ioctls::{Asked, ByIoctls, FoundChunk};
use crate::volume_access::location::{DeviceOptions, Location};

/// List the chunks of all devices
#[derive(Debug, clap::Args)]
pub(crate) struct ListChunks {
    #[arg(value_name = "IMAGE")]
    location: Location,
    /// Sort by these, ascending
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MODES")]
    sort: Vec<SortMode>,
    #[command(flatten)]
    units: LongUnits,
    #[command(flatten)]
    devices: DeviceOptions,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum SortMode {
    /// By device, then by physical start (default)
    Devid,
    /// By device, then by physical start (alias of devid)
    Pstart,
    /// By logical start
    Lstart,
    /// By how much of the chunk is used
    Usage,
    /// By the chunk's length
    Length,
}

/// A chunk on one of its devices.
#[derive(Debug)]
struct Row {
    devid: u64,
    /// The number of the chunk on the device in physical order, from 1.
    pnumber: u64,
    flags: BlockGroupFlags,
    pstart: u64,
    length: u64,
    /// The number of the chunk on the device in logical order, from 1.
    lnumber: u64,
    lstart: u64,
    used: u64,
}

impl Row {
    fn usage_percent(&self) -> f32 {
        self.used as f32 / self.length.max(1) as f32 * 100.0
    }

    fn pend(&self) -> u64 {
        self.pstart.saturating_add(self.length)
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("devid", &self.devid)?;
        map.serialize_entry("pnumber", &self.pnumber)?;
        map.serialize_entry("type", self.flags.type_name())?;
        map.serialize_entry("profile", profile_name(self.flags.profile()))?;
        map.serialize_entry("pstart", &self.pstart)?;
        map.serialize_entry("length", &self.length)?;
        map.serialize_entry("pend", &self.pend())?;
        map.serialize_entry("lnumber", &self.lnumber)?;
        map.serialize_entry("lstart", &self.lstart)?;
        map.serialize_entry("used", &self.used)?;
        map.end()
    }
}

impl ListChunks {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let volume = self.devices.as_committed().open(&self.location)?;
        let chunks = volume.engine().chunk_uses()?.into_iter().map(|found| {
            let chunk = &found.chunk;
            let stripes = chunk.stripes().iter();
            FoundChunk {
                logical: chunk.logical().0,
                len_bytes: chunk.len_bytes(),
                flags: chunk.flags(),
                stripes: stripes.map(|s| (s.devid.0, s.physical.0)).collect(),
                used: found.used.unwrap_or(0),
            }
        });
        self.print(console, rows(chunks))
    }

    fn print(&self, console: &mut Console, mut rows: Vec<Row>) -> anyhow::Result<()> {
        rows.sort_by(|a, b| self.compare(a, b));
        if console.is_json() {
            return Ok(json::write_list(&mut console.out, "list-chunks", rows)?);
        }
        Ok(table(&rows, self.units.units()).write(&mut console.out)?)
    }

    fn compare(&self, a: &Row, b: &Row) -> Ordering {
        let modes = if self.sort.is_empty() {
            [SortMode::Devid].as_slice()
        } else {
            &self.sort
        };
        let order = modes.iter().map(|mode| match mode {
            SortMode::Devid | SortMode::Pstart => (a.devid, a.pstart).cmp(&(b.devid, b.pstart)),
            SortMode::Lstart => a.lstart.cmp(&b.lstart),
            SortMode::Usage => a.usage_percent().total_cmp(&b.usage_percent()),
            SortMode::Length => a.length.cmp(&b.length),
        });
        order
            .fold(Ordering::Equal, Ordering::then)
            .then((a.devid, a.pstart).cmp(&(b.devid, b.pstart)))
    }
}

impl ByIoctls for ListChunks {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.devices.refuse_for_mount()?;
        let chunks = Asked::open(&self.location)?.chunks()?;
        self.print(console, rows(chunks.into_iter()))
    }
}

/// Creates the rows of chunks given in logical order.
fn rows(chunks: impl Iterator<Item = FoundChunk>) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut logical_counts: BTreeMap<u64, u64> = BTreeMap::new();
    for chunk in chunks {
        for (devid, physical) in chunk.stripes {
            let lnumber = logical_counts.entry(devid).or_default();
            *lnumber += 1;
            rows.push(Row {
                devid,
                pnumber: 0,
                flags: chunk.flags,
                pstart: physical,
                length: chunk.len_bytes,
                lnumber: *lnumber,
                lstart: chunk.logical,
                used: chunk.used,
            });
        }
    }
    rows.sort_by_key(|row| (row.devid, row.pstart));
    let (mut devid, mut pnumber) = (None, 0);
    for row in &mut rows {
        pnumber = if devid == Some(row.devid) {
            pnumber + 1
        } else {
            1
        };
        devid = Some(row.devid);
        row.pnumber = pnumber;
    }
    rows
}

const HEADS: [&str; 9] = [
    "Devid",
    "PNumber",
    "Type/profile",
    "PStart",
    "Length",
    "PEnd",
    "LNumber",
    "LStart",
    "Usage%",
];

fn table(rows: &[Row], units: Units) -> Table {
    let mut table = Table::default();
    table.push(HEADS.into_iter().map(right).collect());
    table.rule(HEADS.len());
    for row in rows {
        let (kind, profile) = (row.flags.type_name(), profile_name(row.flags.profile()));
        table.push(vec![
            right(row.devid),
            right(row.pnumber),
            right(format!("{kind:>10}/{profile:<6}")),
            right(units.size(row.pstart)),
            right(units.size(row.length)),
            right(units.size(row.pend())),
            right(row.lnumber),
            right(units.size(row.lstart)),
            right(format!("{:6.2}", row.usage_percent())),
        ]);
    }
    table
}
