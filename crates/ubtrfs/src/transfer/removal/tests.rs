//! Removals past failures, and of trees that change during the removal.

use std::ops::ControlFlow;
use std::path::Path;

use rustix::io::Errno;
use ubtrfs_device::progress::{Event, Problem};

use super::*;
use crate::{FileFlags, Volume};

const VOLUME_BYTES: u64 = 256 << 20;

/// Records the events, and runs a function when the first file is removed.
struct Notes<'a> {
    seen: Vec<String>,
    at_first: Option<&'a dyn Fn()>,
}

impl Progress for Notes<'_> {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Removed { path, kind } => {
                self.seen.push(format!("{} {kind:?}", path.display()));
                if let Some(at_first) = self.at_first.take() {
                    at_first();
                }
            }
            Event::Problem(problem) => {
                let (path, message) = (problem.path.display(), &problem.message);
                self.seen.push(format!("{path}: {message}"));
            }
            event => panic!("{event:?}"),
        }
        ControlFlow::Continue(())
    }
}

fn removed_from(volume: &Volume, at_first: Option<&dyn Fn()>) -> Vec<String> {
    let root = volume.root().resolve(Path::new("/")).unwrap();
    let seen = Vec::new();
    let mut notes = Notes { seen, at_first };
    let report = |watch: &mut Watch<'_>, path: &[u8], problem: RemovalProblem<'_>| {
        watch.problem(&Problem::new(path, problem, Errno::IO))
    };
    let mut removal = Removal::new(volume.engine(), Subvolumes::Enter, &mut notes, &report);
    removal.tree(root, b"top", b"top").unwrap();
    notes.seen
}

#[test]
fn files_that_cannot_be_removed_stay_and_the_rest_goes() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    volume.root().create_dir_all("/top/a").unwrap();
    volume.root().write("/top/a/kept", b"").unwrap();
    volume.root().write("/top/gone", b"").unwrap();
    let immutable = FileFlags {
        immutable: true,
        ..FileFlags::default()
    };
    volume.root().set_flags("/top/a/kept", immutable).unwrap();
    let seen = removed_from(&volume, None);
    let begin = |at: usize, with: &str| assert!(seen[at].starts_with(with), "{seen:?}");
    begin(0, "top/a/kept: ");
    begin(1, "top/a: ");
    begin(2, "top/gone Regular");
    begin(3, "top: ");
    assert_eq!(seen.len(), 4);
    assert!(volume.root().exists("/top/a/kept").unwrap());
}

#[test]
fn directory_that_was_moved_away_keeps_its_files() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    volume.root().create_dir_all("/top").unwrap();
    volume.root().write("/top/first", b"").unwrap();
    volume.root().create_dir_all("/top/moved").unwrap();
    volume.root().write("/top/moved/kept", b"").unwrap();
    let move_away = || volume.root().rename("/top/moved", "/elsewhere").unwrap();
    let seen = removed_from(&volume, Some(&move_away));
    let elsewhere = format!("top/moved: {}", Refused::Elsewhere);
    assert_eq!(seen, ["top/first Regular", &elsewhere, "top Directory"]);
    assert!(volume.root().exists("/elsewhere/kept").unwrap());
}

#[test]
fn subvolumes_are_removed_where_they_are_entered() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    volume.root().create_dir_all("/top").unwrap();
    volume.root().create_subvolume("/top/sub").unwrap();
    volume.root().write("/top/sub/file", b"").unwrap();
    let seen = removed_from(&volume, None);
    let wanted = ["top/sub/file Regular", "top/sub Directory", "top Directory"];
    assert_eq!(seen, wanted);
}
