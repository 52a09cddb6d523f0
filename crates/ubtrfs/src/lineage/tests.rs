//! The choice of a parent.

use super::*;

fn lineage(uuid: u8, parent: u8, changed_generation: u64) -> Lineage {
    Lineage {
        uuid: Uuid([uuid; 16]),
        parent_uuid: (parent > 0).then_some(Uuid([parent; 16])),
        changed_generation,
    }
}

#[test]
fn the_parent_comes_before_the_nearest_sibling() {
    let sent = lineage(1, 9, 50);
    let (near, far) = (lineage(2, 9, 45), lineage(3, 9, 10));
    assert_eq!(sent.nearest(&[far, near]), Some(1));
    assert_eq!(sent.nearest(&[near, lineage(9, 0, 1)]), Some(1));
    assert_eq!(sent.nearest(&[lineage(4, 5, 50)]), None);
    assert_eq!(lineage(1, 0, 50).nearest(&[lineage(2, 0, 50)]), None);
}
