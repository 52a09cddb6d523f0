//! Nodes that the kernel looks up by number alone.

use super::*;

/// Creates an adapter whose callers open files by handles.
fn adapter(memory: Memory) -> Adapter<Memory> {
    let mut adapter = Adapter::new(memory, TOP, CONNECTION_FLAGS);
    adapter.finds_by_handle = |_| true;
    adapter
}

fn number(adapter: &Adapter<Memory>, way: &[&str]) -> NodeId {
    let step = |at, name: &&str| find(adapter, at, name).unwrap().node;
    way.iter().fold(NodeId::ROOT, step)
}

#[test]
fn a_forgotten_node_is_found_by_its_number() {
    let adapter = adapter(nested());
    for way in [&["file"][..], &["two"], &["two", "file"]] {
        let node = number(&adapter, way);
        let before = adapter.getattr(node).unwrap();
        adapter.forget(node, 1);
        let entry = find(&adapter, node, ".").unwrap();
        assert_eq!((entry.node, entry.attributes), (node, before), "{way:?}");
    }
}

#[test]
fn file_is_stale_to_a_caller_that_does_not_open_it_by_handle() {
    let mut adapter = adapter(nested());
    let (file, dir) = (
        number(&adapter, &["two", "file"]),
        number(&adapter, &["two"]),
    );
    adapter.finds_by_handle = |_| false;
    assert_eq!(find(&adapter, file, "."), Err(Errno::STALE));
    assert_eq!(find(&adapter, dir, ".").unwrap().node, dir);
    assert_eq!(find(&adapter, dir, "file").unwrap().node, file);
    adapter.finds_by_handle = |pid| pid == CONTEXT.pid;
    assert_eq!(find(&adapter, file, ".").unwrap().node, file);
}

#[test]
fn the_way_up_leads_to_the_root_of_the_mount() {
    let adapter = adapter(nested());
    let dir = number(&adapter, &["two"]);
    let root = find(&adapter, dir, "..").unwrap();
    assert_eq!((root.node, root.generation), (NodeId::ROOT, 0));
    assert_eq!(find(&adapter, NodeId::ROOT, "..").unwrap(), root);
}

#[test]
fn a_subvolume_outside_of_the_mount_is_stale() {
    let mut memory = nested();
    // It is its own parent, like the top level.
    memory.add_top(file(300, 256));
    memory.add(file(300, 256), "file", file(300, 257), FileKind::Regular);
    memory.add_top(file(258, 256));
    memory.add(
        file(258, 256),
        "circle",
        file(259, 256),
        FileKind::Directory,
    );
    memory.add(
        file(259, 256),
        "circle",
        file(258, 256),
        FileKind::Directory,
    );
    memory.files.get_mut(&file(258, 256)).unwrap().parent = file(259, 256);
    let adapter = adapter(memory);
    for id in [file(300, 257), file(258, 256), file(400, 257)] {
        let node = NodeId(adapter.numbering.number(id).unwrap());
        assert_eq!(find(&adapter, node, "."), Err(Errno::STALE), "{id:?}");
    }
}

#[test]
fn a_file_without_a_name_and_an_empty_subvolume_dir_are_stale() {
    let mut memory = nested();
    memory
        .add(TOP, "lost", file(5, 258), FileKind::Regular)
        .inode
        .attr
        .nlink = 0;
    let adapter = adapter(memory);
    let lost = NodeId(adapter.numbering.number(file(5, 258)).unwrap());
    assert_eq!(find(&adapter, lost, "."), Err(Errno::STALE));
    let empty_dir = number(&adapter, &["two", "gone"]);
    assert_eq!(find(&adapter, empty_dir, "."), Err(Errno::STALE));
    assert_eq!(
        find(&adapter, empty_dir, "..").unwrap().node,
        number(&adapter, &["two"])
    );
}

#[test]
fn a_handle_is_good_in_mounts_of_one_subvolume_only() {
    let generations: Vec<u64> = [5, 256, 1 << 40]
        .into_iter()
        .map(|home| Numbering::new(RootId(home)).generation(257, 7))
        .collect();
    assert!(
        generations
            .iter()
            .all(|&known| known <= u64::from(u32::MAX))
    );
    assert_ne!(generations[0], generations[1]);
    assert_ne!(generations[0], generations[2]);
}
