//! The memory bound of an archiver.

use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ubtrfs_device::progress::Event;

use super::*;

/// EXPORT-2
#[test]
fn files_with_many_parts_are_left_out_and_links_forgotten_with_the_last_name() {
    let volume = crate::Volume::in_memory(256 << 20).unwrap();
    for (name, parts) in [("few", MAX_SPARSE_PARTS - 1), ("many", MAX_SPARSE_PARTS)] {
        let file = volume.root().create_file(format!("/{name}")).unwrap();
        for part in 0..parts as u64 {
            file.write_all_at(&[7; 4096], part << 20).unwrap();
        }
    }
    volume.root().write("/first", "linked").unwrap();
    volume.root().hard_link("/first", "/second").unwrap();
    volume.root().hard_link("/first", "/third").unwrap();

    let mut problems = Vec::new();
    let mut observer = |event: &Event<'_>| {
        if let Event::Problem(problem) = event {
            problems.push(Problem::clone(problem));
        }
        ControlFlow::Continue(())
    };
    let root = volume.root().resolve(Path::new("/")).unwrap();
    let mut archiver = Archiver::new(volume.engine(), Vec::new(), &mut observer);
    archiver.tree(root, b"top").unwrap();
    assert!(archiver.links.is_empty());
    archiver.finish().unwrap();
    let [problem] = &problems[..] else {
        panic!("{problems:?}");
    };
    assert_eq!(problem.path, Path::new("top/many"));
    assert_eq!(problem.message, TarProblem::TooManyHoles.to_string());
}
