//! `ubtrfs inspect-internal tree-stats`: the fragmentation of trees.

use std::io::Write;
use std::time::Duration;

use anyhow::Context;
use serde::ser::{Serialize, SerializeMap, Serializer};
use ubtrfs_device::clock;
use ubtrfs_format::ids::RootId;
use ubtrfs_fs::Volume;
use ubtrfs_fs::inspect::TreeStats as Stats;
use ubtrfs_tree::View;

use crate::presentation::console::Console;
use crate::presentation::json::JsonList;
use crate::presentation::units::{LongUnits, Units};
use crate::volume_access::location::{DeviceOptions, Location};

/// A histogram needs at least this many seeks. It has this many marks in total.
const HISTOGRAM_MARKS: u64 = 20;

/// Show how the blocks of trees lie on disk
#[derive(Debug, clap::Args)]
pub(crate) struct TreeStats {
    #[arg(value_name = "IMAGE")]
    location: Location,
    /// Raw numbers in bytes
    #[arg(short = 'b')]
    bytes: bool,
    /// Only the tree of this id
    #[arg(short = 't', value_name = "ROOTID")]
    tree: Option<u64>,
    #[command(flatten)]
    units: LongUnits,
    #[command(flatten)]
    devices: DeviceOptions,
}

impl TreeStats {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let volume = self.devices.as_committed().open(&self.location)?;
        let trees = match self.tree {
            Some(id) => vec![(RootId(id), format!("tree ({id})"))],
            None => vec![
                (RootId::ROOT_TREE, "root tree".to_owned()),
                (RootId::EXTENT_TREE, "extent tree".to_owned()),
                (RootId::CSUM_TREE, "csum tree".to_owned()),
                (RootId::FS_TREE, "fs tree".to_owned()),
            ],
        };
        let units = if self.bytes {
            Units::RAW
        } else {
            self.units.units()
        };
        let mut list = if console.is_json() {
            Some(JsonList::start(&mut console.out, "tree-stats")?)
        } else {
            None
        };
        for (id, name) in trees {
            if list.is_none() {
                writeln!(console.out, "Calculating size of {name}")?;
            }
            let view = view(volume.engine(), id)?;
            let start = clock::now();
            let stats = volume.engine().tree_stats(&view)?;
            match &mut list {
                Some(list) => list.push(&mut console.out, &StatsJson(id, &stats))?,
                None => print(&mut console.out, units, &stats, clock::now() - start)?,
            }
        }
        match list {
            Some(list) => Ok(list.end(&mut console.out)?),
            None => Ok(()),
        }
    }
}

fn view(volume: &Volume, id: RootId) -> anyhow::Result<View> {
    Ok(match id {
        RootId::ROOT_TREE => volume.root_tree(),
        RootId::CHUNK_TREE => volume.chunk_tree(),
        id => {
            let tree = volume
                .tree(id)
                .with_context(|| format!("failed to read root {id}"))?;
            tree.view.clone()
        }
    })
}

fn print(
    out: &mut dyn Write,
    units: Units,
    stats: &Stats,
    elapsed: Duration,
) -> std::io::Result<()> {
    let seeks = stats.total_seeks();
    let clusters = stats.clusters.max(1);
    let size = |bytes| units.size(bytes);
    writeln!(out, "\tTotal size: {}", size(stats.total_bytes))?;
    writeln!(out, "\t\tInline data: {}", size(stats.inline_bytes))?;
    writeln!(out, "\tTotal seeks: {seeks}")?;
    writeln!(out, "\t\tForward seeks: {}", stats.forward_seeks)?;
    writeln!(out, "\t\tBackward seeks: {}", stats.backward_seeks)?;
    let average = stats.total_seek_bytes.checked_div(seeks).unwrap_or(0);
    writeln!(out, "\t\tAvg seek len: {}", size(average))?;
    print_histogram(out, stats)?;
    writeln!(out, "\tTotal clusters: {clusters}")?;
    writeln!(
        out,
        "\t\tAvg cluster size: {}",
        size(stats.total_cluster_bytes / clusters)
    )?;
    writeln!(
        out,
        "\t\tMin cluster size: {}",
        size(stats.min_cluster_bytes.unwrap_or(0))
    )?;
    writeln!(
        out,
        "\t\tMax cluster size: {}",
        size(stats.max_cluster_bytes)
    )?;
    writeln!(out, "\tTotal disk spread: {}", size(stats.spread_bytes()))?;
    writeln!(
        out,
        "\tTotal read time: {} s {} us",
        elapsed.as_secs(),
        elapsed.subsec_micros()
    )?;
    writeln!(out, "\tLevels: {}", stats.nodes.len())?;
    writeln!(out, "\tTotal nodes: {}", stats.nodes.iter().sum::<u64>())?;
    let mut below: Option<u64> = None;
    for (level, &nodes) in stats.nodes.iter().enumerate() {
        write!(out, "\t\tOn level {level}: {nodes:8}")?;
        if let Some(below) = below {
            write!(out, "  (avg fanout {})", below / nodes.max(1))?;
        }
        writeln!(out)?;
        below = Some(nodes);
    }
    Ok(())
}

/// Prints frequent distances in a line each, and sums up the others in between.
fn print_histogram(out: &mut dyn Write, stats: &Stats) -> std::io::Result<()> {
    let seeks = stats.total_seeks();
    if seeks < HISTOGRAM_MARKS {
        return Ok(());
    }
    let mark = seeks / HISTOGRAM_MARKS;
    let width = stats.max_seek_bytes.to_string().len();
    writeln!(out, "\tSeek histogram")?;
    let mut line = |start: u64, end: u64, count: u64| {
        let marks = match (count / mark) as usize {
            0 => "|".to_owned(),
            marks => "#".repeat(marks),
        };
        writeln!(
            out,
            "\t\t{start:width$} - {end:width$}: {count:width$} {marks}"
        )
    };
    let mut group: Option<(u64, u64, u64)> = None;
    for (&distance, &count) in &stats.seeks {
        let grouped = group.map_or(0, |(_, _, count)| count);
        if count / mark <= 2 && grouped / mark <= 2 {
            let start = group.map_or(distance, |(start, ..)| start);
            group = Some((start, distance, grouped + count));
            continue;
        }
        if let Some((start, end, count)) = group.take() {
            line(start, end, count)?;
        }
        if count / mark > 2 {
            line(distance, distance, count)?;
        }
    }
    match group {
        Some((start, end, count)) => line(start, end, count),
        None => Ok(()),
    }
}

/// The figures of a tree in JSON.
struct StatsJson<'a>(RootId, &'a Stats);

impl Serialize for StatsJson<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let StatsJson(tree, stats) = self;
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("tree", &tree.0)?;
        map.serialize_entry("total_bytes", &stats.total_bytes)?;
        map.serialize_entry("inline_bytes", &stats.inline_bytes)?;
        map.serialize_entry("forward_seeks", &stats.forward_seeks)?;
        map.serialize_entry("backward_seeks", &stats.backward_seeks)?;
        map.serialize_entry("total_seek_bytes", &stats.total_seek_bytes)?;
        map.serialize_entry("max_seek_bytes", &stats.max_seek_bytes)?;
        map.serialize_entry("clusters", &stats.clusters.max(1))?;
        map.serialize_entry("total_cluster_bytes", &stats.total_cluster_bytes)?;
        map.serialize_entry("min_cluster_bytes", &stats.min_cluster_bytes.unwrap_or(0))?;
        map.serialize_entry("max_cluster_bytes", &stats.max_cluster_bytes)?;
        map.serialize_entry("spread_bytes", &stats.spread_bytes())?;
        // Leaves first.
        map.serialize_entry("nodes", &stats.nodes)?;
        map.end()
    }
}
