//! `ubtrfs inspect-internal dump-tree`: the trees of a volume, block by block.
//!
//! Unreadable or damaged blocks are reported, and so are missing trees and addresses. As in btrfs-progs, the
//! dump then continues, and the command does not fail. Even the root tree may be damaged.

mod tree_id;
mod walk;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use ubtrfs_format::ids::{Logical, RootId, Transid};
use ubtrfs_format::item::RootItem;
use ubtrfs_format::key::{Key, KeyType};
use ubtrfs_format::superblock::Superblock;
use ubtrfs_fs::Volume;
use ubtrfs_tree::CommittedRoot;

use crate::presentation::console::Console;
use crate::print::{KeyText, PrintOptions, tree_name};
use crate::volume_access::location::{DeviceOptions, Location, LocationParser};

use tree_id::TreeId;
use walk::{Order, Walk};

/// Print the trees of a volume
#[derive(Debug, clap::Args)]
pub(crate) struct DumpTree {
    /// The devices or images of one volume
    #[arg(required = true, value_name = "DEVICE", value_parser = LocationParser::Images)]
    images: Vec<Location>,
    /// Print only the leaves of the extent and device trees
    #[arg(short, long)]
    extents: bool,
    /// Print only the root, chunk and device trees
    #[arg(short, long)]
    device: bool,
    /// Print only where the trees' roots are
    #[arg(short, long)]
    roots: bool,
    /// Print only where the trees' roots are, and the backup roots
    #[arg(short = 'R', long)]
    backups: bool,
    /// Print only the UUID tree
    #[arg(short, long)]
    uuid: bool,
    /// Print the block at this address; repeat for more
    #[arg(short, long = "block", value_name = "BYTENR")]
    blocks: Vec<u64>,
    /// Print only this tree: a number or a name, as in fs, root, csum; 'log' is the fsync log of all subvolumes
    #[arg(short, long, value_name = "TREE")]
    tree: Option<TreeId>,
    /// With -b, print the blocks below as well
    #[arg(long, requires = "blocks")]
    follow: bool,
    /// Use only the devices that are named
    #[arg(long, conflicts_with = "scan")]
    noscan: bool,
    /// Print the blocks of a tree level by level
    #[arg(long)]
    bfs: bool,
    /// Print the blocks of a tree depth first
    #[arg(long, overrides_with = "bfs")]
    dfs: bool,
    /// Do not print names of files and attributes
    #[arg(long)]
    hide_names: bool,
    /// Print the checksums of tree blocks
    #[arg(long)]
    csum_headers: bool,
    /// Print the checksums of data
    #[arg(long)]
    csum_items: bool,
    /// Search this directory for the volume's other devices (/dev: all block devices), instead of the directory of the
    /// one that is named; repeat for more
    #[arg(long, value_name = "DIR")]
    scan: Vec<PathBuf>,
    /// Open the volume even if devices are missing (always done)
    #[arg(long, hide = true)]
    degraded: bool,
}

impl DumpTree {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        // Show everything that is readable, even if devices are missing.
        let is_mount = self.images.iter().any(|image| image.session().is_some());
        let options = DeviceOptions::scanning(self.scan.clone(), self.degraded || !is_mount)
            .only_named(self.noscan)
            .for_inspection();
        let volume = options.open_locations(&self.images)?;
        let volume = volume.engine();
        let dump = Dump {
            command: self,
            volume,
            walk: self.walk(volume, console),
        };
        writeln!(console.out, "ubtrfs v{}", env!("CARGO_PKG_VERSION"))?;
        if !self.blocks.is_empty() {
            return dump.blocks(console);
        }
        match self.tree {
            Some(TreeId::Tree(tree)) if is_top_tree(tree) => dump.top_tree(console, tree),
            Some(TreeId::Log) => {
                dump.top_tree(console, RootId::TREE_LOG)?;
                dump.logs(console)
            }
            _ => dump.all(console),
        }
    }

    fn walk<'v>(&self, volume: &'v Volume, console: &Console) -> Walk<'v> {
        let order = match (self.extents, self.dfs) {
            (true, _) => Order::LeavesOnly,
            (false, true) => Order::DepthFirst,
            (false, false) => Order::LevelByLevel,
        };
        let options = PrintOptions {
            hide_names: self.hide_names,
            csum_headers: self.csum_headers,
            csum_items: self.csum_items,
            for_terminal: console.is_terminal(),
            ..PrintOptions::new(&volume.superblock())
        };
        Walk::new(volume.node_store(), order, options)
    }

    fn only_roots(&self) -> bool {
        self.roots || self.backups
    }

    /// Returns whether the trees that the superblock names are displayed in addition to the others.
    fn shows_top_trees(&self) -> bool {
        !self.extents && !self.uuid && self.tree.is_none()
    }

    fn shows(&self, tree: RootId) -> bool {
        let is_wanted = match self.tree {
            None => true,
            Some(TreeId::Log) => tree == RootId::TREE_LOG,
            Some(TreeId::Tree(wanted)) => wanted == tree,
        };
        is_wanted
            && (!self.device || tree == RootId::DEV_TREE)
            && (!self.uuid || tree == RootId::UUID_TREE)
            && (!self.extents || matches!(tree, RootId::EXTENT_TREE | RootId::DEV_TREE))
    }

    fn shows_totals(&self) -> bool {
        !self.extents && !self.device && !self.uuid
    }
}

/// Returns whether a tree is displayed without the other contents of the volume.
fn is_top_tree(tree: RootId) -> bool {
    matches!(
        tree,
        RootId::ROOT_TREE | RootId::CHUNK_TREE | RootId::TREE_LOG | RootId::BLOCK_GROUP_TREE
    )
}

/// One dump of an open volume.
struct Dump<'a> {
    command: &'a DumpTree,
    volume: &'a Volume,
    walk: Walk<'a>,
}

impl Dump<'_> {
    fn blocks(&self, console: &mut Console) -> anyhow::Result<()> {
        let blocks: BTreeSet<u64> = self.command.blocks.iter().copied().collect();
        let sectorsize = self.volume.superblock().sectorsize.get();
        for bytenr in blocks {
            if !bytenr.is_multiple_of(u64::from(sectorsize)) {
                console.report(format_args!(
                    "tree block bytenr {bytenr} is not aligned to sectorsize {sectorsize}"
                ));
                continue;
            }
            let bytenr = Logical(bytenr);
            if self.command.follow {
                self.walk.below(console, bytenr)?;
            } else {
                self.walk.block(console, bytenr)?;
            }
        }
        Ok(())
    }

    /// Returns the root of one of the top trees, or None if the volume lacks it.
    fn top_root(&self, tree: RootId) -> anyhow::Result<Option<CommittedRoot>> {
        let superblock = self.volume.superblock();
        Ok(match tree {
            RootId::ROOT_TREE => Some(self.volume.root_tree().committed()),
            RootId::CHUNK_TREE => Some(self.volume.chunk_tree().committed()),
            RootId::TREE_LOG => (superblock.log_root.get() != 0).then(|| CommittedRoot {
                tree,
                bytenr: Logical(superblock.log_root.get()),
                level: superblock.log_root_level,
                generation: None,
            }),
            _ => {
                let root_tree = || Ok(Some(self.volume.root_tree().committed()));
                let from = Key::new(tree.0, KeyType::ROOT_ITEM, 0);
                let found = self.walk.next_root(&root_tree, from)?.item;
                let found = found.filter(|(key, _)| RootId(key.objectid) == tree);
                found.and_then(|(key, item)| decode_root(key, &item))
            }
        })
    }

    fn top_tree(&self, console: &mut Console, tree: RootId) -> anyhow::Result<()> {
        let title = top_title(tree);
        if self.top_root(tree)?.is_none() {
            console.report(format_args!("cannot print {title}, invalid pointer"));
            return Ok(());
        }
        writeln!(console.out, "{title}")?;
        self.walk.tree(console, &|| self.top_root(tree))
    }

    fn all(&self, console: &mut Console) -> anyhow::Result<()> {
        if self.command.shows_top_trees() {
            for tree in [RootId::ROOT_TREE, RootId::CHUNK_TREE, RootId::TREE_LOG] {
                self.beside_others(console, tree)?;
            }
        }
        self.trees_in(console, &|| self.top_root(RootId::ROOT_TREE))?;
        self.logs(console)?;
        if self.command.backups {
            print_backups(console, &self.volume.superblock())?;
        }
        if self.command.shows_totals() {
            let superblock = self.volume.superblock();
            let out = &mut console.out;
            writeln!(out, "total bytes {}", superblock.total_bytes)?;
            writeln!(out, "bytes used {}", superblock.bytes_used)?;
            writeln!(out, "uuid {}", superblock.fsid)?;
        }
        Ok(())
    }

    /// Prints the log of each subvolume, if there is one.
    fn logs(&self, console: &mut Console) -> anyhow::Result<()> {
        self.trees_in(console, &|| self.top_root(RootId::TREE_LOG))
    }

    fn beside_others(&self, console: &mut Console, tree: RootId) -> anyhow::Result<()> {
        let Some(root) = self.top_root(tree)? else {
            return Ok(());
        };
        let title = top_title(tree);
        if self.command.only_roots() {
            let (bytenr, level) = (root.bytenr, root.level);
            writeln!(console.out, "{title}: {bytenr} level {level}")?;
            return Ok(());
        }
        writeln!(console.out, "{title}")?;
        self.walk.tree(console, &|| self.top_root(tree))
    }

    /// Prints the trees named by the root items in the tree of `root`, in the order of their ids.
    fn trees_in(
        &self,
        console: &mut Console,
        root: &dyn Fn() -> anyhow::Result<Option<CommittedRoot>>,
    ) -> anyhow::Result<()> {
        let mut reported = BTreeSet::new();
        let mut from = Some(Key::MIN);
        while let Some(start) = from {
            let found = self.walk.next_root(root, start)?;
            for report in found.reports {
                // The tree with the root items was printed before, with the reports on its blocks, if it is
                // printed at all.
                if !self.command.shows_top_trees() && reported.insert(report.clone()) {
                    console.report(report);
                }
            }
            let Some((key, item)) = found.item else {
                break;
            };
            if self.command.shows(RootId(key.objectid)) {
                match decode_root(key, &item) {
                    Some(tree) => self.tree(console, root, key, &tree)?,
                    None => console.report(format_args!("root item {key} cannot be read")),
                }
            }
            from = key.next();
        }
        Ok(())
    }

    fn tree(
        &self,
        console: &mut Console,
        roots: &dyn Fn() -> anyhow::Result<Option<CommittedRoot>>,
        key: Key,
        root: &CommittedRoot,
    ) -> anyhow::Result<()> {
        let (name, text) = (tree_name(root.tree), KeyText(key));
        write!(console.out, "{name} tree key {text}")?;
        if self.command.only_roots() {
            writeln!(console.out, " {} level {}", root.bytenr, root.level)?;
            return Ok(());
        }
        let end = if self.command.extents { "" } else { " " };
        writeln!(console.out, "{end}")?;
        self.walk.tree(console, &|| {
            let found = self.walk.next_root(roots, key)?.item;
            let found = found.filter(|(at, _)| *at == key);
            Ok(found.and_then(|(_, item)| decode_root(key, &item)))
        })
    }
}

/// Decodes the location of a tree from a root item of any version. Returns None if the item is invalid.
fn decode_root(key: Key, item: &[u8]) -> Option<CommittedRoot> {
    let item = RootItem::decode(item)?;
    Some(CommittedRoot {
        tree: RootId(key.objectid),
        bytenr: item.bytenr(),
        level: item.level,
        generation: Some(Transid(item.generation.get())),
    })
}

fn top_title(tree: RootId) -> &'static str {
    match tree {
        RootId::ROOT_TREE => "root tree",
        RootId::CHUNK_TREE => "chunk tree",
        RootId::TREE_LOG => "log root tree",
        _ => "block group tree",
    }
}

fn print_backups(console: &mut Console, superblock: &Superblock) -> anyhow::Result<()> {
    let out = &mut console.out;
    for (slot, backup) in superblock.super_roots.iter().enumerate() {
        writeln!(out, "btrfs root backup slot {slot}")?;
        for (name, generation, block) in [
            ("tree", backup.tree_root_gen, backup.tree_root),
            ("\textent", backup.extent_root_gen, backup.extent_root),
            ("\tchunk", backup.chunk_root_gen, backup.chunk_root),
            ("\tdevice", backup.dev_root_gen, backup.dev_root),
            ("\tcsum", backup.csum_root_gen, backup.csum_root),
            ("\tfs", backup.fs_root_gen, backup.fs_root),
        ] {
            writeln!(out, "\t{name} root gen {generation} block {block}")?;
        }
        let (used, total) = (backup.bytes_used, backup.total_bytes);
        let devices = backup.num_devices;
        writeln!(out, "\t\t{used} used {total} total {devices} devices")?;
    }
    Ok(())
}
