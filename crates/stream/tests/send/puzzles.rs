//! Directory puzzles: all arrangements of a few directories and a file, each sent as the difference from another.

use std::fs;
use std::path::{Path, PathBuf};

use ubtrfs_sim::{Progress, Rng, seed};

use ubtrfs_sim::kernel::available_or_skip;

use crate::fixture::{Source, Target, V1};

/// Movable inodes: directories, and one file as the last.
const NODES: usize = 4;
/// Names of the nodes.
const NAMES: [&str; 3] = ["x", "y", "z"];
/// Number of pairs in a normal run.
const PAIRS: usize = 40;
/// Number of forests in a chain, in which each is sent as the difference from the previous one.
const CHAIN: usize = 41;

/// For each node its parent directory (`NODES` for the root), and its name.
type Forest = [(usize, usize); NODES];

/// Lists all forests. A node may be in every directory except its own descendants, and paths are unique.
fn forests() -> Vec<Forest> {
    let places: Vec<(usize, usize)> = (0..=NODES)
        .filter(|&parent| parent != NODES - 1)
        .flat_map(|parent| (0..NAMES.len()).map(move |name| (parent, name)))
        .collect();
    let mut found = Vec::new();
    let total = places.len().pow(NODES as u32);
    for number in 0..total {
        let mut rest = number;
        let forest: Forest = std::array::from_fn(|_| {
            let place = places[rest % places.len()];
            rest /= places.len();
            place
        });
        if is_sound(&forest) {
            found.push(forest);
        }
    }
    found
}

fn is_sound(forest: &Forest) -> bool {
    let distinct = (0..NODES).all(|a| (0..a).all(|b| forest[a] != forest[b]));
    let rooted = (0..NODES).all(|node| {
        let mut at = node;
        for _ in 0..=NODES {
            match forest[at].0 {
                NODES => return true,
                parent => at = parent,
            }
        }
        false
    });
    distinct && rooted
}

fn path(forest: &Forest, root: &Path, node: usize) -> PathBuf {
    match node {
        NODES => root.to_owned(),
        node => path(forest, root, forest[node].0).join(NAMES[forest[node].1]),
    }
}

/// Orders the nodes by depth, so that directories precede their contents.
fn in_order(forest: &Forest) -> Vec<usize> {
    let mut nodes: Vec<usize> = (0..NODES).collect();
    nodes.sort_by_key(|&node| path(forest, Path::new("/"), node).components().count());
    nodes
}

/// Moves all nodes to their places in `forest`, via the root.
fn arrange(root: &Path, from: &Forest, forest: &Forest) {
    let aside = |node: usize| root.join(format!("aside {node}"));
    for node in in_order(from).into_iter().rev() {
        fs::rename(path(from, root, node), aside(node)).unwrap();
    }
    for node in in_order(forest) {
        fs::rename(aside(node), path(forest, root, node)).unwrap();
    }
}

fn make(root: &Path, forest: &Forest) {
    // Inode numbers ascend by node, regardless of the arrangement.
    for node in 0..NODES {
        let path = root.join(format!("aside {node}"));
        if node == NODES - 1 {
            fs::write(path, b"contents").unwrap()
        } else {
            fs::create_dir(path).unwrap()
        }
    }
    for node in in_order(forest) {
        fs::rename(root.join(format!("aside {node}")), path(forest, root, node)).unwrap();
    }
}

/// RECEIVER-1, RECEIVER-2
#[test]
fn forests_become_one_another() {
    if !available_or_skip() {
        return;
    }
    let all = forests();
    let mut rng = Rng::new(seed("send puzzles"));
    let is_soak = std::env::var_os("UBTRFS_SOAK").is_some();
    let count = if is_soak { all.len() } else { PAIRS };
    let mut done = 0;
    let mut order: Vec<usize> = (0..all.len()).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, rng.below(at as u64 + 1) as usize);
    }
    // Each forest of a chain is received on top of the previous one.
    let progress = Progress::new("send puzzles, chains", count.div_ceil(CHAIN));
    for chain in order[..count].chunks(CHAIN) {
        let mut source = Source::new("");
        let mut before = all[chain[0]];
        make(&source.live(), &before);
        source.snapshot("0");
        for (number, &index) in chain.iter().enumerate().skip(1) {
            arrange(&source.live(), &before, &all[index]);
            before = all[index];
            source.snapshot(&number.to_string());
        }
        let sending = source.open();
        let target = Target::new("");
        target.receive(&sending, "0", &sending.send("0", None, &[], V1));
        for number in 1..chain.len() {
            let (name, parent) = (number.to_string(), (number - 1).to_string());
            let stream = sending.send(&name, Some(&parent), &[], V1);
            if let Err(wrong) = target.try_receive(&sending, &name, &stream) {
                let (from, to) = (all[chain[number - 1]], all[chain[number]]);
                panic!("{from:?} to {to:?}: {wrong}");
            }
            target.delete(&parent);
            done += 1;
        }
        progress.step(|| done);
    }
}
