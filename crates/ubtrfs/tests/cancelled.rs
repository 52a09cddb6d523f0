//! Long operations end when their observer cancels them, and keep the work done so far.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::Path;

use ubtrfs::{
    Access, Checker, CopyOptions, Error, Event, ImportOptions, Problems, Progress, ReceiveOptions,
    RemoveOptions, SendOptions, Snapshot, Subvolume, Volume,
};

const VOLUME_BYTES: u64 = 256 << 20;
const FILE_BYTES: usize = 8 << 20;

/// An observer that cancels after a number of events.
struct Cancels {
    left: usize,
}

impl Cancels {
    fn after(left: usize) -> Cancels {
        Cancels { left }
    }
}

impl Progress for Cancels {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        assert!(!matches!(event, Event::Problem(_)), "{event:?}");
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(()),
        }
    }
}

fn assert_cancelled(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
    assert_eq!(error.errno(), 4, "EINTR");
    assert!(error.to_string().ends_with("cancelled"), "{error}");
    assert!(!error.is_of_volume() && !error.is_of_stream(), "{error}");
}

/// Creates a directory with a large file and two empty ones.
fn fill(root: &Subvolume) {
    root.create_dir("/tree").unwrap();
    root.write("/tree/large", vec![7; FILE_BYTES]).unwrap();
    root.write("/tree/second", b"").unwrap();
    root.write("/tree/third", b"").unwrap();
}

fn len(root: &Subvolume, path: &str) -> Option<u64> {
    match root.metadata(path) {
        Ok(metadata) => Some(metadata.len()),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn copy_is_cancelled_between_files_and_within_one() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let other = Volume::in_memory(VOLUME_BYTES).unwrap();
    let host = tempfile::tempdir().unwrap();
    let root = volume.root();
    fill(root);
    let options = CopyOptions::new();

    // The directory and the file, then three parts of its data.
    let mut cancels = Cancels::after(4);
    let to = other.root();
    let copied = root.copy_tree("/tree", to, "/copy", &options, &mut cancels);
    assert_cancelled(&copied.unwrap_err());
    assert_eq!(len(to, "/copy/large"), Some(3 << 20));
    assert_eq!(len(to, "/copy/second"), None);

    // Shared data is not reported in parts.
    let mut cancels = Cancels::after(3);
    let copied = root.copy_tree("/tree", root, "/copy", &options, &mut cancels);
    assert_cancelled(&copied.unwrap_err());
    assert_eq!(len(root, "/copy/large"), Some(FILE_BYTES as u64));
    assert_eq!(len(root, "/copy/second"), Some(0));
    assert_eq!(len(root, "/copy/third"), None);

    let copy = host.path().join("copy");
    let copied = root.copy_to_host("/tree", &copy, &options, &mut Cancels::after(3));
    assert_cancelled(&copied.unwrap_err());
    assert_eq!(copy.join("large").metadata().unwrap().len(), 2 << 20);

    let copied = to.copy_from_host(&copy, "/back", &options, &mut Cancels::after(0));
    assert_cancelled(&copied.unwrap_err());
    assert!(!to.exists("/back").unwrap());
}

#[test]
fn archive_is_cancelled_between_files_and_within_one() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    fill(root);
    let mut cut = Vec::new();
    let written = root.export_tar("/tree", &mut cut, &mut Cancels::after(4));
    assert_cancelled(&written.unwrap_err());
    assert!((3 << 20..4 << 20).contains(&cut.len()), "{}", cut.len());

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("archive.tar");
    let archive = std::fs::File::create(&path).unwrap();
    let mut problems = Problems::default();
    root.export_tar("/tree", archive, &mut problems).unwrap();
    assert!(problems.is_empty());
    root.create_dir("/unpacked").unwrap();
    let archive = std::fs::File::open(&path).unwrap();
    let options = ImportOptions::new();
    let mut cancels = Cancels::after(3);
    let unpacked = root.import_tar(archive, "/unpacked", &options, &mut cancels);
    assert_cancelled(&unpacked.unwrap_err());
    assert_eq!(len(root, "/unpacked/tree/large"), Some(2 << 20));
    assert_eq!(len(root, "/unpacked/tree/second"), None);
}

#[test]
fn removal_is_cancelled_between_files() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let root = volume.root();
    fill(root);
    let removed = root.remove_tree("/tree", &RemoveOptions::new(), &mut Cancels::after(0));
    assert_cancelled(&removed.unwrap_err());
    assert_eq!(len(root, "/tree/large"), None);
    assert_eq!(len(root, "/tree/second"), Some(0));
    root.remove_tree("/tree", &RemoveOptions::new(), &mut ())
        .unwrap();
    assert!(!root.exists("/tree").unwrap());
}

#[test]
fn receive_is_cancelled_between_commands_and_names_what_is_unfinished() {
    let volume = Volume::in_memory(VOLUME_BYTES).unwrap();
    let data = volume.root().create_subvolume("/data").unwrap();
    data.write("/file", b"content").unwrap();
    let sent = volume.root().snapshot("/data", "/sent", Access::ReadOnly);
    let mut stream = Vec::new();
    let snapshot = Snapshot::open(&sent.unwrap()).unwrap();
    snapshot
        .send(&SendOptions::new(), &mut stream, &mut ())
        .unwrap();

    let backup = Volume::in_memory(VOLUME_BYTES).unwrap();
    let options = ReceiveOptions::new();
    let mut cancels = Cancels::after(3);
    let received = backup
        .root()
        .receive("/", &stream[..], &options, &mut cancels);
    let error = received.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
    assert_eq!(error.unfinished(), Some(Path::new("sent")));
    assert!(!error.is_of_stream() && !error.is_of_volume());
    let unfinished = backup.root().subvolume("/sent").unwrap();
    assert!(!unfinished.is_read_only().unwrap());
    unfinished.write("/mine", b"").unwrap();
}

#[test]
fn check_is_cancelled_in_each_phase() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("volume.img");
    let volume = Volume::create(&path, 1 << 30).unwrap();
    fill(volume.root());
    volume.close().unwrap();
    let check = |cancels: &mut Cancels| {
        let checker = Checker::new().read_data(true);
        checker.open(&[&path]).unwrap().run(cancels)
    };
    let mut counts = Cancels::after(1 << 20);
    assert!(check(&mut counts).unwrap().is_clean());
    let asked = (1 << 20) - counts.left;
    assert!(asked >= 9, "once a phase and for data, but {asked}");
    for left in 0..asked {
        assert_cancelled(&check(&mut Cancels::after(left)).unwrap_err());
    }
}
