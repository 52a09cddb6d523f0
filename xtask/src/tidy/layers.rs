//! The order of the top-level modules of each crate.
//!
//! - TIDY-7: a module names modules of lower layers only. A baseline has the known exceptions.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use crate::baseline::{Baseline, Counts};
use crate::files::File;
use crate::imports::{self, Imports, TOP};
use crate::tidy::{Counted, Fault, Finding};

/// The baseline of imports against the order: `CRATE FROM -> TO COUNT`.
pub(crate) const UPWARD: &str = "xtask/src/tidy/upward.txt";

/// The layers of each crate, from low to high. Modules of one layer do not name each other. `lib` is the root file of
/// the crate, which is above all others unless the order names it.
const ORDERS: &[(&str, &[&str])] = &[
    (
        "format",
        &[
            "block_group_flags compress csum features ids key name_hash uuid",
            "item node",
            "chunk_check limits",
            "superblock",
            "maker",
            "check",
        ],
    ),
    (
        "device",
        &[
            "access block_discard chunk_problem clock device_name discard_geometry errno file_clone lock_table memory_limit \
             nonblocking parity process random read_errors registration scrub_progress signature thread",
            "callers_lock loop_status mark progress uring",
            "loop_device",
            "error",
            "claim",
            "block_device chunk_map lock",
            "chunk_layout file find_signatures memory overwrite stripes",
            "new_device superblock",
            "scan",
            "pool siblings",
        ],
    ),
    (
        "assemble",
        &[
            "contents crc32 fan_out mapping parity_layout",
            "copies window",
            "concat mirrored parity_array raid10 striped",
            "lvm md partition",
            "layer",
            "assembly",
            "search",
        ],
    ),
    (
        "spill",
        &["arena scratch_dir", "file", "log pages", "paged sorter"],
    ),
    (
        "tree",
        &[
            "block build epoch error mark_watch",
            "bulk staged",
            "placement store",
            "committed",
            "apply path",
            "delta",
            "live",
            "view",
            "comparison cursor prefetch recent_leaves",
        ],
    ),
    (
        "storage",
        &[
            "file_id",
            "error",
            "lock range_set sync",
            "space roots",
            "csum_tree backref discard",
            "transaction",
        ],
    ),
    (
        "fs",
        &[
            "error sync",
            "inode",
            "file",
            "namespace",
            "subvolume",
            "log",
            "volume",
            "inspect rights snapshot",
        ],
    ),
    (
        "mkfs",
        &[
            "archive error features",
            "options",
            "chunks",
            "place targets",
            "chunk_growth files",
            "trees",
            "extents tree_placement superblock",
            "fill plan",
        ],
    ),
    (
        "stream",
        &[
            "escaped scoped_thread scratch",
            "diff format left_out write_behind",
            "dump",
            "receive send",
        ],
    ),
    (
        "check",
        &[
            "block_set error fault fingerprint item_types options space tree_root",
            "facts issue lost root_entry volume",
            "report walk",
            "marks",
            "state",
            "item_reader",
            "csums extents root_links superblocks",
            "roots",
            "block_groups files free_space references uuids",
            "log_tree",
            "chunks",
            "run",
        ],
    ),
    ("maintenance", &["error", "scrub"]),
    (
        "fuse-server",
        &[
            "abi clock ending request sync thread",
            "capacity encode panic_guard parse retrieval thread_count",
            "init",
            "answer",
            "device",
            "pool",
            "dev_fuse forget_reader notifier uring",
            "connection",
        ],
    ),
    (
        "fuse",
        &["caller ioctl_args mount_table stats", "adapter", "mount"],
    ),
    (
        "ubtrfs",
        &[
            "damage escaped handle host_owners lineage reexports",
            "transfer",
            "caller error",
            "layers named_option",
            "sibling_devices checking file_device metadata mkfs_options",
            "changes file read_dir",
            "subvolume",
            "dir_builder",
            "dir",
            "attributes opening paths removal snapshot trees walk",
            "copies disk_usage mkfs new_extents receiving walk_dirs",
            "volume",
            "devices discarding report scrubbing",
            "scanning",
        ],
    ),
    (
        "c",
        &[
            "failure",
            "arguments metadata",
            "progress",
            "options",
            "transfer_options volume",
            "group report subvolume",
            "attributes directory file paths streams trees",
        ],
    ),
    (
        "python",
        &[
            "handle",
            "failure",
            "file signals stream",
            "subvolume",
            "options",
            "check snapshot trees volume",
        ],
    ),
    (
        "cli",
        &[
            "arguments presentation",
            "print program",
            "volume_access",
            "command",
            "invocation",
        ],
    ),
    (
        "sim",
        &[
            // The type `Result`.
            "lib",
            "error layered_disks progress raw_ioctl rights rng zeros",
            "devices sparse_files program",
            "scratch skip",
            "kernel_oracle",
            "crafted_images vocabulary",
            "model_oracle",
        ],
    ),
];

/// The order of a crate's modules.
struct Order<'a> {
    layers: &'a [&'a str],
}

impl<'a> Order<'a> {
    fn of(name: &str) -> Order<'a> {
        let order = ORDERS.iter().find(|(of, _)| *of == name);
        Order {
            layers: order.map_or(&[][..], |(_, layers)| *layers),
        }
    }

    fn layer(&self, module: &str) -> Option<usize> {
        let mut layers = self.layers.iter();
        layers.position(|layer| layer.split(' ').any(|name| name == module))
    }

    /// Returns whether `from` names `to` against the order. Modules outside of the order are a separate fault.
    fn is_upward(&self, from: &str, to: &str) -> bool {
        match (self.layer(from), self.layer(to)) {
            // TIDY-7
            (Some(from), Some(to)) => from <= to,
            (_, None) => to == TOP,
            (None, _) => false,
        }
    }

    fn modules(&self) -> impl Iterator<Item = &'a str> {
        self.layers.iter().flat_map(|layer| layer.split(' '))
    }
}

/// Returns whether the module `from` of a crate names `to` against the order.
pub(crate) fn is_upward(name: &str, from: &str, to: &str) -> bool {
    Order::of(name).is_upward(from, to)
}

/// Returns the key of an arrow in the baseline.
fn key(name: &str, from: &str, to: &str) -> String {
    format!("{name} {from} -> {to}")
}

/// Returns the number of names of each arrow against the order.
pub(crate) fn upward(crates: &BTreeMap<String, Imports>) -> Counts {
    let mut counts = Counts::new();
    for (name, imports) in crates {
        let order = Order::of(name);
        for ((from, to), sites) in &imports.arrows {
            if order.is_upward(from, to) {
                counts.insert(key(name, from, to), sites.len());
            }
        }
    }
    counts
}

pub(super) fn check(root: &Path, files: &[File], findings: &mut Vec<Finding>) -> Counted {
    let crates = imports::of_crates(files);
    let baseline = Baseline::read(root, UPWARD);
    for (name, imports) in &crates {
        check_modules(name, imports, findings);
        find_new(name, imports, &baseline, findings);
    }
    let counts = upward(&crates);
    Counted {
        baseline,
        counts,
        may_be_fewer: false,
    }
}

/// Checks that the order names all modules, and no others.
fn check_modules(name: &str, imports: &Imports, findings: &mut Vec<Finding>) {
    let order = Order::of(name);
    let mut find = |fault| findings.push(Finding::new(format!("crates/{name}/src"), fault));
    for module in &imports.modules {
        if order.layer(module).is_none() {
            let module = module.clone();
            find(Fault::UnlistedModule { module });
        }
    }
    for module in order.modules() {
        if module != TOP && !imports.modules.contains(module) {
            let module = module.to_owned();
            find(Fault::StaleModule { module });
        }
    }
}

/// Reports all places of arrows with more names than known, because the new one cannot be identified.
fn find_new(name: &str, imports: &Imports, baseline: &Baseline, findings: &mut Vec<Finding>) {
    for ((from, to), sites) in &imports.arrows {
        let known = baseline.known(&key(name, from, to));
        if is_upward(name, from, to) && sites.len() > known {
            for site in sites {
                let import = format!("{from} names {}", site.names);
                let line = site.line;
                let fault = Fault::UpwardImport { line, import };
                findings.push(Finding::new(site.file.clone(), fault));
            }
        }
    }
}
