//! Files are returned with all their names, regardless of the memory budget.

use zerocopy::FromZeros;

use ubtrfs_spill::ScratchDir;

use super::*;

const TREES: [RootId; 2] = [RootId::FS_TREE, RootId(256)];

fn name(number: u64) -> Name {
    Name {
        dir: 256 + number % 3,
        index: number,
        name: format!("name {number}").into_bytes(),
    }
}

/// Returns all files by tree and inode.
fn files(memory_bytes: usize) -> Vec<(RootId, Linked)> {
    let scratch = Scratch {
        memory_bytes,
        ..Scratch::new(ScratchDir::named(std::env::temp_dir()))
    };
    let mut links = Links::new(&scratch);
    let mut found = Vec::new();
    for round in 0..4 {
        for file in 0..500 {
            let (tree, id) = (
                TREES[file as usize % 2],
                LinkId {
                    device: file / 7,
                    number: file,
                },
            );
            let known = links.ino(tree, id).unwrap();
            if round == 0 {
                assert_eq!(known, None);
                let mut inode = InodeItem::new_zeroed();
                inode.size = file.into();
                let linked = Linked {
                    ino: 1000 + file,
                    inode,
                    names: vec![name(file)],
                    // Some names of some files are never found.
                    left: if file % 5 == 0 { 9 } else { 3 },
                };
                links.add(tree, id, linked).unwrap();
            } else {
                assert_eq!(known, Some(1000 + file));
                let more = name(round * 1000 + file);
                let whole = links.add_name(tree, id, 1000 + file, more).unwrap();
                found.extend(whole.map(|linked| (tree, linked)));
            }
        }
    }
    let taken = links.finish(TREES.into_iter(), |tree, linked| {
        found.push((tree, linked));
        Ok(())
    });
    taken.unwrap();
    for (_, linked) in &mut found {
        linked.left = 0;
        linked.names.sort_by_key(|name| name.dir);
    }
    found.sort_by_key(|(tree, linked)| (tree.0, linked.ino));
    found
}

/// LINKS-1
#[test]
fn files_have_all_their_names_whatever_there_is_room_for() {
    let usual = files(64 << 20);
    assert_eq!(usual.len(), 500);
    assert!(usual.iter().all(|(_, linked)| linked.names.len() == 4));
    for memory_bytes in [0, 100_000, 3_000_000] {
        assert!(files(memory_bytes) == usual, "{memory_bytes}");
    }
}
