//! `ubtrfs inspect-internal assemble`: the partitions, md arrays and LVM volumes on disks.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use serde::Serialize;
use ubtrfs_assemble::{
    Assembly, Component, Contents, Disks, Layer, LayerId, LayerKind, OtherDisks,
};

use crate::presentation::console::Console;
use crate::presentation::json;
use crate::presentation::quoting::Escaped;
use crate::presentation::units::Units;
use crate::volume_access::assembled::shown;

/// Show the partitions, md arrays and LVM volumes on disks
///
/// The layers are found without root, mdadm or lvm, on disks and on images of them, and nothing is written. Other
/// disks of an array or a volume group are searched nearby: in the directory of an image, or among all block devices.
/// Commands that read a volume take any of the disks as its device.
#[derive(Debug, clap::Args)]
pub(crate) struct Assemble {
    /// Disks or images of disks
    #[arg(required = true, value_name = "DISK")]
    disks: Vec<PathBuf>,
    /// Search this directory for other disks (/dev: all block devices); repeat for more
    #[arg(long = "scan", value_name = "DIR")]
    scan: Vec<PathBuf>,
    /// Use only the named disks
    #[arg(long, conflicts_with = "scan")]
    only_named: bool,
}

#[derive(Serialize)]
struct LayerJson {
    id: usize,
    kind: &'static str,
    name: String,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chunk_bytes: Option<u64>,
    contents: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    uuid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    notes: Vec<String>,
    parts: Vec<PartJson>,
}

#[derive(Serialize)]
struct PartJson {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    layer: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

impl Assemble {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let disks = Disks {
            named: &self.disks,
            others: match self.scan.as_slice() {
                [] if !self.only_named => OtherDisks::Nearby,
                places => OtherDisks::At(places),
            },
        };
        let assembly = disks.assemble()?;
        if console.is_json() {
            let layers = assembly.iter().map(|(id, layer)| layer_json(id, layer));
            return Ok(json::write_list(&mut console.out, "assemble", layers)?);
        }
        let mut tree = Tree {
            assembly: &assembly,
            printed: BTreeSet::new(),
        };
        for top in assembly.tops() {
            tree.print(console, top, "", "")?;
        }
        Ok(())
    }
}

/// The layers as a tree. The parts of a layer are printed once, since many volumes may share it.
struct Tree<'a> {
    assembly: &'a Assembly,
    printed: BTreeSet<LayerId>,
}

impl Tree<'_> {
    /// Prints a layer and the layers below it.
    fn print(
        &mut self,
        console: &mut Console,
        id: LayerId,
        first: &str,
        rest: &str,
    ) -> anyhow::Result<()> {
        let layer = self.assembly.layer(id);
        let is_repeated = !self.printed.insert(id);
        if is_repeated && !layer.components.is_empty() {
            return Ok(writeln!(
                console.out,
                "{first}{} (see above)",
                shown(layer)
            )?);
        }
        writeln!(console.out, "{first}{}", line(layer))?;
        let remarks = layer.notes.iter().map(ToString::to_string);
        let remarks = remarks.chain(layer.problem.iter().map(ToString::to_string));
        let bar = if layer.components.is_empty() {
            "  "
        } else {
            "│ "
        };
        for remark in remarks {
            writeln!(console.out, "{rest}{bar}! {remark}")?;
        }
        let last = layer.components.len().saturating_sub(1);
        for (index, component) in layer.components.iter().enumerate() {
            let (branch, indent) = if index == last {
                ("└─", "  ")
            } else {
                ("├─", "│ ")
            };
            let (branch, indent) = (format!("{rest}{branch}"), format!("{rest}{indent}"));
            match component {
                Component::Present(below) => self.print(console, *below, &branch, &indent)?,
                Component::Missing(part) => writeln!(console.out, "{branch}missing: {part}")?,
                Component::LeftOut(below, reason) => {
                    let name = shown(self.assembly.layer(*below));
                    writeln!(console.out, "{branch}left out: {name}: {reason}")?;
                }
            }
        }
        Ok(())
    }
}

fn line(layer: &Layer) -> String {
    let size = match layer.len_bytes {
        0 => String::new(),
        bytes => format!(", {}", Units::default().size(bytes)),
    };
    let kind = match &layer.kind {
        // The name has the word and the number.
        LayerKind::Partition { label, .. } if label.is_empty() => String::new(),
        LayerKind::Partition { label, .. } => format!(" \"{}\"", Escaped(label.as_bytes())),
        kind => format!(" {kind}"),
    };
    let mut line = format!("{}{kind}{size}", shown(layer));
    if let LayerKind::Array {
        members,
        chunk_bytes,
        ..
    } = layer.kind
    {
        let present = layer.below().count();
        line += &format!(", {present} of {members} members");
        if chunk_bytes > 0 {
            line += &format!(", chunks of {}", Units::default().size(chunk_bytes));
        }
    }
    match &layer.contents {
        Contents::Btrfs { fsid, label, .. } => {
            line += &format!(": btrfs {fsid}");
            if !label.is_empty() {
                line += &format!(" \"{}\"", Escaped(label.as_bytes()));
            }
        }
        Contents::Other(foreign) => match layer.contents.remedy() {
            Some(remedy) => line += &format!(": {remedy}"),
            None => line += &format!(": {}", foreign.name),
        },
        Contents::Member | Contents::PhysicalVolume | Contents::Partitions | Contents::Unknown => {}
    }
    line
}

fn layer_json(id: LayerId, layer: &Layer) -> LayerJson {
    let (level, chunk_bytes) = match layer.kind {
        LayerKind::Array {
            level, chunk_bytes, ..
        } => (Some(level), Some(chunk_bytes)),
        _ => (None, None),
    };
    let (contents, uuid, label, hint) = match &layer.contents {
        Contents::Btrfs { fsid, label, .. } => {
            ("btrfs", Some(fsid.to_string()), Some(label.clone()), None)
        }
        Contents::Member => ("md member", None, None, None),
        Contents::PhysicalVolume => ("LVM physical volume", None, None, None),
        Contents::Partitions => ("partitions", None, None, None),
        Contents::Other(foreign) => (foreign.name, None, None, foreign.hint),
        Contents::Unknown => ("unknown", None, None, None),
    };
    let parts = layer.components.iter().map(|component| match component {
        Component::Present(below) => PartJson {
            state: "present",
            layer: Some(below.0),
            description: None,
        },
        Component::Missing(part) => PartJson {
            state: "missing",
            layer: None,
            description: Some(part.to_string()),
        },
        Component::LeftOut(below, reason) => PartJson {
            state: "left out",
            layer: Some(below.0),
            description: Some(reason.to_string()),
        },
    });
    LayerJson {
        id: id.0,
        kind: layer.kind.driver(),
        name: layer.name.clone(),
        bytes: layer.len_bytes,
        level,
        chunk_bytes,
        contents,
        uuid,
        label,
        hint,
        problem: layer.problem.as_ref().map(ToString::to_string),
        notes: layer.notes.iter().map(ToString::to_string).collect(),
        parts: parts.collect(),
    }
}
