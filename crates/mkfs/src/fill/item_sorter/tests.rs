//! Sorting in memory and with runs, compared with a sorted map.

use std::collections::BTreeMap;

use ubtrfs_sim::Rng;

use super::*;

type Items = Vec<(Key, Vec<u8>)>;

fn sorted(records: &[Record], budget: usize, tree: RootId) -> Items {
    let dir = tempfile::tempdir().unwrap();
    let mut sorter = ItemSorter::new(&ScratchDir::named(dir.path()), budget);
    for record in records {
        sorter.push(record).unwrap();
    }
    let sorted = sorter.finish().unwrap();
    let mut items = Items::new();
    for _ in 0..2 {
        items.clear();
        let mut push = |key, data: &[u8]| {
            items.push((key, data.to_vec()));
            Ok(())
        };
        sorted.each(tree, &mut push).unwrap();
    }
    items
}

/// ITEMSORT-1 and ITEMSORT-2
#[test]
fn items_come_in_key_order_whatever_the_budget() {
    let mut rng = Rng::new(7);
    let trees = [RootId::FS_TREE, RootId(256), RootId(u64::from(u32::MAX))];
    let mut records = Vec::new();
    let mut expected: BTreeMap<(RootId, Key), Vec<u8>> = BTreeMap::new();
    for number in 0..5000_u64 {
        let tree = trees[rng.below(3) as usize];
        let objectid = 256 + rng.below(1 << 40);
        let mut record = Record::new(tree, objectid);
        for item_type in [
            KeyType::INODE_ITEM,
            KeyType::INODE_REF,
            KeyType::EXTENT_DATA,
        ] {
            let data = vec![number as u8; rng.below(60) as usize];
            let offset = number << 20;
            record.item(
                item_type,
                offset,
                &[&data[..data.len() / 2], &data[data.len() / 2..]],
            );
            expected.insert((tree, Key::new(objectid, item_type, offset)), data);
        }
        records.push(record);
    }
    for budget in [0, 10_000, 300_000, usize::MAX] {
        for tree in trees {
            let items = sorted(&records, budget, tree);
            let of_tree = expected.iter().filter(|((of, _), _)| *of == tree);
            let of_tree: Items = of_tree
                .map(|((_, key), data)| (*key, data.clone()))
                .collect();
            assert!(items == of_tree, "{tree} with {budget}");
        }
    }
}

/// ITEMSORT-2
#[test]
fn entries_that_collide_become_one_item_in_the_order_of_pushing() {
    let mut records = Vec::new();
    for number in 0..100_u8 {
        let mut record = Record::new(RootId::FS_TREE, 256);
        record.item(KeyType::DIR_ITEM, u64::from(number % 3), &[&[number]]);
        records.push(record);
    }
    for budget in [0, 200, 1000, usize::MAX] {
        let items = sorted(&records, budget, RootId::FS_TREE);
        assert_eq!(items.len(), 3);
        for (key, data) in items {
            let expected: Vec<u8> = (0..100)
                .filter(|n| u64::from(n % 3) == key.offset)
                .collect();
            assert_eq!(data, expected);
        }
    }
}
