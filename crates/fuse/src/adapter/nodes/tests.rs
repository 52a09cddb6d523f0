//! The table of listed nodes.

use ubtrfs_format::ids::{InodeNr, RootId};

use super::*;

fn file(root: u64, inode: u64) -> FileId {
    FileId {
        root: RootId(root),
        ino: InodeNr(inode),
    }
}

fn empty_dir(dir: u64, name: &str) -> Listed {
    Listed::EmptySubvolumeDir {
        empty_dir: file(258, dir | 1 << 63),
        dir: file(258, dir),
        name: name.as_bytes().into(),
    }
}

// NODES-2
#[test]
fn empty_subvolume_dirs_of_one_subvolume_have_numbers_of_their_own() {
    let nodes = NodeTable::default();
    let one = nodes.look_up(empty_dir(256, "a"));
    let two = nodes.look_up(empty_dir(256, "b"));
    let three = nodes.look_up(empty_dir(300, "a"));
    assert!(one != two && two != three && one != three);
    assert_eq!(nodes.get(one), Some(empty_dir(256, "a")));
}

#[test]
fn a_number_is_the_same_after_it_was_forgotten() {
    let nodes = NodeTable::default();
    let first = nodes.look_up(empty_dir(256, "a"));
    nodes.forget(first, 1);
    assert_eq!(nodes.get(first), None);
    assert_eq!(nodes.look_up(empty_dir(256, "a")), first);
    assert_eq!(empty_dir(256, "a").usual_number(), first);
}

// NODES-1 and REQ-2
#[test]
fn a_node_stays_until_every_lookup_is_forgotten() {
    let nodes = NodeTable::default();
    let what = Listed::File(file(1 << 40, 1 << 50));
    let number = nodes.look_up(what.clone());
    nodes.look_up(what.clone());
    nodes.look_up(what.clone());
    nodes.forget(number, 2);
    assert_eq!(nodes.get(number), Some(what));
    nodes.forget(number, 1);
    assert_eq!(nodes.len(), 0);
}

#[test]
fn forgetting_more_than_was_looked_up_is_harmless() {
    let nodes = NodeTable::default();
    let number = nodes.look_up(empty_dir(256, "a"));
    nodes.forget(number, u64::MAX);
    nodes.forget(number, 1);
    assert_eq!(nodes.len(), 0);
}

// NODES-2
#[test]
fn a_taken_number_moves_the_next_node_on() {
    let nodes = NodeTable::default();
    let what = empty_dir(256, "a");
    let usual = what.usual_number();
    nodes.table.lock().by_number.insert(
        usual,
        Node {
            what: Listed::File(file(1, 1)),
            lookups: 1,
        },
    );
    let number = nodes.look_up(what.clone());
    assert_ne!(number, usual);
    assert_eq!(nodes.get(number), Some(what));
}
