//! `ubtrfs subvolume list`: subvolumes and snapshots with the requested columns.

use std::cmp::Ordering;
use std::io::Write;
use std::str::FromStr;

use anyhow::bail;
use serde::Serialize;
use serde::ser::SerializeMap;
use ubtrfs::Uuid;
use ubtrfs_format::ids::RootId;

use super::{Listed, Subvolumes};
use crate::presentation::console::Console;
use crate::presentation::{clock, json};
use crate::volume_access::ioctls::{Asked, ByIoctls};
use crate::volume_access::location::{Location, VolumeOptions};

/// List subvolumes and snapshots
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    #[arg(value_name = "IMAGE[:/PATH]")]
    location: Location,
    /// Print only subvolumes right below the path's
    #[arg(short = 'o', help_heading = "Path filtering")]
    only_below: bool,
    /// Print all subvolumes, with paths from the top level marked <FS_TREE> where they are not below
    #[arg(short = 'a', help_heading = "Path filtering")]
    all: bool,
    /// Print the parent's id
    #[arg(short = 'p', help_heading = "Field selection")]
    parent: bool,
    /// Print the generation at creation
    #[arg(short = 'c', help_heading = "Field selection")]
    cgen: bool,
    /// Print the generation
    #[arg(short = 'g', help_heading = "Field selection")]
    generation: bool,
    /// Print the UUID
    #[arg(short = 'u', help_heading = "Field selection")]
    uuid: bool,
    /// Print the UUID of what a snapshot was taken of
    #[arg(short = 'q', help_heading = "Field selection")]
    parent_uuid: bool,
    /// Print the UUID of what a subvolume was received from
    #[arg(short = 'R', help_heading = "Field selection")]
    received_uuid: bool,
    /// List only snapshots
    #[arg(short = 's', help_heading = "Type filtering")]
    snapshots: bool,
    /// List only read-only subvolumes
    #[arg(short = 'r', help_heading = "Type filtering")]
    read_only: bool,
    /// List deleted subvolumes that are not yet cleaned
    #[arg(short = 'd', help_heading = "Type filtering")]
    deleted: bool,
    /// Print a table
    #[arg(short = 't')]
    table: bool,
    /// Only generations of +VALUE or more, -VALUE or less, or equal to VALUE
    #[arg(
        short = 'G',
        value_name = "[+|-]VALUE",
        allow_hyphen_values = true,
        help_heading = "Sorting"
    )]
    filter_gen: Option<Bound>,
    /// Only generations at creation of +VALUE or more, -VALUE or less, or equal to VALUE
    #[arg(
        short = 'C',
        value_name = "[+|-]VALUE",
        allow_hyphen_values = true,
        help_heading = "Sorting"
    )]
    filter_cgen: Option<Bound>,
    /// Sort by these: gen, ogen, rootid, path; each with + (ascending) or - (descending) in front
    #[arg(
        long,
        value_name = "KEYS",
        value_delimiter = ',',
        allow_hyphen_values = true,
        help_heading = "Sorting"
    )]
    sort: Vec<SortKey>,
    #[command(flatten)]
    volume: VolumeOptions,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bound {
    AtLeast(u64),
    AtMost(u64),
    Equal(u64),
}

impl Bound {
    fn holds(self, value: u64) -> bool {
        match self {
            Bound::AtLeast(bound) => value >= bound,
            Bound::AtMost(bound) => value <= bound,
            Bound::Equal(bound) => value == bound,
        }
    }
}

impl FromStr for Bound {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Bound, Self::Err> {
        Ok(match (text.strip_prefix('+'), text.strip_prefix('-')) {
            (Some(value), _) => Bound::AtLeast(value.parse()?),
            (_, Some(value)) => Bound::AtMost(value.parse()?),
            _ => Bound::Equal(text.parse()?),
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SortBy {
    Gen,
    Ogen,
    RootId,
    Path,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SortKey {
    by: SortBy,
    descending: bool,
}

impl FromStr for SortKey {
    type Err = String;

    fn from_str(text: &str) -> Result<SortKey, String> {
        let name = text.strip_prefix(['+', '-']).unwrap_or(text);
        let by = match name {
            "gen" => SortBy::Gen,
            "ogen" => SortBy::Ogen,
            "rootid" => SortBy::RootId,
            "path" => SortBy::Path,
            _ => return Err("not one of gen, ogen, rootid, path".to_owned()),
        };
        Ok(SortKey {
            by,
            descending: text.starts_with('-'),
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Column {
    Id,
    Gen,
    Cgen,
    Parent,
    TopLevel,
    Otime,
    ParentUuid,
    ReceivedUuid,
    Uuid,
    Path,
}

impl Column {
    fn name(self) -> &'static str {
        match self {
            Column::Id => "ID",
            Column::Gen => "gen",
            Column::Cgen => "cgen",
            Column::Parent => "parent",
            Column::TopLevel => "top level",
            Column::Otime => "otime",
            Column::ParentUuid => "parent_uuid",
            Column::ReceivedUuid => "received_uuid",
            Column::Uuid => "uuid",
            Column::Path => "path",
        }
    }
}

/// A listed subvolume.
struct Row<'a> {
    listed: &'a Listed,
    /// 0 without a place.
    parent: u64,
    path: Vec<u8>,
}

impl Row<'_> {
    fn is_deleted(&self) -> bool {
        self.parent == 0
    }

    fn generation(&self) -> u64 {
        self.listed.info.generation
    }

    fn number(&self, column: Column) -> Option<u64> {
        match column {
            Column::Id => Some(self.listed.info.id),
            Column::Gen => Some(self.generation()),
            Column::Cgen => Some(self.listed.info.created_generation),
            Column::Parent | Column::TopLevel => Some(self.parent),
            _ => None,
        }
    }

    /// Returns the UUID of a UUID column.
    fn uuid(&self, column: Column) -> Option<Option<Uuid>> {
        match column {
            Column::Uuid => Some(self.listed.uuid()),
            Column::ParentUuid => Some(self.listed.info.parent_uuid),
            Column::ReceivedUuid => Some(self.listed.info.received_uuid),
            _ => None,
        }
    }

    fn write(&self, console: &mut Console, column: Column) -> std::io::Result<()> {
        if column == Column::Path {
            return console.write_path(&self.path);
        }
        let text = match (
            self.number(column),
            self.uuid(column),
            self.listed.created(),
        ) {
            (Some(number), ..) => number.to_string(),
            (_, Some(Some(uuid)), _) => uuid.to_string(),
            (_, Some(None), _) => format!("{:<36}", "-"),
            (.., Some(created)) => clock::plain(created),
            (.., None) => "-".to_owned(),
        };
        console.out.write_all(text.as_bytes())
    }
}

/// A row's columns as a JSON map.
struct RowJson<'a>(&'a Row<'a>, &'a [Column]);

impl Serialize for RowJson<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let RowJson(row, columns) = self;
        let mut map = serializer.serialize_map(None)?;
        for &column in *columns {
            let name = column.name();
            if let Some(number) = row.number(column) {
                map.serialize_entry(name, &number)?;
            } else if let Some(uuid) = row.uuid(column) {
                map.serialize_entry(name, &uuid.map(|uuid| uuid.to_string()))?;
            } else if column == Column::Path {
                if row.listed.info.is_hidden {
                    map.serialize_entry("hidden", &true)?;
                }
                map.serialize_entry(name, &json::text(&row.path))?;
                if let Some(hex) = json::hex_if_lossy(&row.path) {
                    map.serialize_entry("path_hex", &hex)?;
                }
            } else {
                let created = row.listed.created();
                let shown = created.map(clock::with_zone);
                map.serialize_entry(name, &shown)?;
            }
        }
        map.end()
    }
}

impl List {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let opened = self.volume.open(&self.location)?;
        let subvolumes = Subvolumes::read(&opened.volume)?;
        self.print(console, &subvolumes, RootId(opened.subvolume_id))
    }

    /// Prints the list. `here` is the subvolume of the path.
    fn print(
        &self,
        console: &mut Console,
        subvolumes: &Subvolumes,
        here: RootId,
    ) -> anyhow::Result<()> {
        let rows = self.rows(subvolumes, here);
        let columns = self.columns();
        if console.is_json() {
            let rows = rows.iter().map(|row| RowJson(row, &columns));
            return Ok(json::write_list(&mut console.out, "subvolume-list", rows)?);
        }
        if self.table {
            print_table_head(console, &columns)?;
        }
        for row in &rows {
            self.print_row(console, row, &columns)?;
        }
        Ok(())
    }

    /// Returns the requested rows, in order.
    fn rows<'a>(&self, subvolumes: &'a Subvolumes, here: RootId) -> Vec<Row<'a>> {
        let from = (!self.all && !self.only_below).then_some(here);
        let mut rows = Vec::new();
        for listed in subvolumes
            .all()
            .filter(|listed| listed.id() != subvolumes.top)
        {
            let path = subvolumes.path(listed.id(), from);
            let parent = if path.is_some() {
                subvolumes.parent(listed.id()).map_or(0, |parent| parent.0)
            } else {
                0
            };
            let mut row = Row {
                listed,
                parent,
                path: path.unwrap_or_else(|| b"DELETED".to_vec()),
            };
            if self.all && parent != here.0 && !row.is_deleted() {
                row.path.splice(0..0, *b"<FS_TREE>/");
            }
            if self.is_listed(&row, here) {
                rows.push(row);
            }
        }
        rows.sort_by(|a, b| self.compare(a, b));
        rows
    }

    fn is_listed(&self, row: &Row<'_>, here: RootId) -> bool {
        row.is_deleted() == self.deleted
            && (!self.only_below || self.all || row.parent == here.0)
            && (!self.snapshots || row.listed.info.is_snapshot)
            && (!self.read_only || row.listed.info.is_read_only)
            && self
                .filter_gen
                .is_none_or(|bound| bound.holds(row.generation()))
            && self
                .filter_cgen
                .is_none_or(|bound| bound.holds(row.listed.info.created_generation))
    }

    fn compare(&self, a: &Row<'_>, b: &Row<'_>) -> Ordering {
        let by_keys = self.sort.iter().map(|key| {
            let order = match key.by {
                SortBy::Gen => a.generation().cmp(&b.generation()),
                SortBy::Ogen => a
                    .listed
                    .info
                    .created_generation
                    .cmp(&b.listed.info.created_generation),
                SortBy::RootId => a.listed.info.id.cmp(&b.listed.info.id),
                SortBy::Path => a.path.cmp(&b.path),
            };
            if key.descending {
                order.reverse()
            } else {
                order
            }
        });
        by_keys
            .fold(Ordering::Equal, Ordering::then)
            .then(a.listed.info.id.cmp(&b.listed.info.id))
    }

    fn columns(&self) -> Vec<Column> {
        let cgen = self.cgen || self.snapshots || self.filter_cgen.is_some();
        let wanted = [
            (Column::Id, true),
            (Column::Gen, true),
            (Column::Cgen, cgen),
            (Column::Parent, self.parent),
            (Column::TopLevel, true),
            (Column::Otime, self.snapshots),
            (Column::ParentUuid, self.parent_uuid),
            (Column::ReceivedUuid, self.received_uuid),
            (Column::Uuid, self.uuid),
            (Column::Path, true),
        ];
        let wanted = wanted.into_iter().filter(|(_, wanted)| *wanted);
        wanted.map(|(column, _)| column).collect()
    }

    fn print_row(
        &self,
        console: &mut Console,
        row: &Row<'_>,
        columns: &[Column],
    ) -> anyhow::Result<()> {
        for &column in columns {
            if !self.table {
                // Only on volumes of a NAS maker.
                if column == Column::Path && row.listed.info.is_hidden {
                    write!(console.out, "flags hidden ")?;
                }
                write!(console.out, "{} ", column.name())?;
            }
            row.write(console, column)?;
            let separator = match (self.table, column) {
                (_, Column::Path) => "\n",
                (true, Column::TopLevel) => "\t\t",
                (true, _) => "\t",
                (false, _) => " ",
            };
            console.out.write_all(separator.as_bytes())?;
        }
        Ok(())
    }
}

impl ByIoctls for List {
    fn run_by_ioctls(&self, console: &mut Console) -> anyhow::Result<()> {
        self.volume.refuse_for_mount()?;
        let asked = Asked::open(&self.location)?;
        let subvolumes = Subvolumes::ask_at(&asked, &self.location)?;
        if self.deleted && !subvolumes.is_all {
            bail!("cannot list deleted subvolumes: run as root");
        }
        self.print(console, &subvolumes, asked.root_id()?)
    }
}

fn print_table_head(console: &mut Console, columns: &[Column]) -> anyhow::Result<()> {
    let names: String = columns.iter().map(|c| format!("{}\t", c.name())).collect();
    let rules = columns
        .iter()
        .map(|c| format!("{}\t", "-".repeat(c.name().len())));
    let rules: String = rules.collect();
    Ok(writeln!(console.out, "{names}\n{rules}")?)
}
