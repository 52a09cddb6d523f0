//! Members in files, against `dd`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{Advice, fadvise};
use ubtrfs_device::{Access, BlockDevice, FileDevice};

use crate::{CASES, MEMBERS, REQUEST_BYTES, assemble, report, speed};

const ROUNDS: usize = 3;

/// Measures all cases. Returns whether all goals are reached.
///
/// The files share a disk, so `dd` of all members at the same time is the limit of a reader of the array. `dd` of one
/// member times the data disks is displayed only.
pub(crate) fn run(bytes: usize) -> bool {
    let folder = std::env::var_os("TMPDIR").map_or(PathBuf::from("/var/tmp"), PathBuf::from);
    let folder = tempfile::tempdir_in(folder).expect("a temporary folder");
    println!("files in {}:", folder.path().display());
    let content = noise(bytes);
    let mut is_reached = true;
    for case in &CASES {
        let paths: Vec<PathBuf> = (0..MEMBERS)
            .map(|number| folder.path().join(number.to_string()))
            .collect();
        for (path, member) in paths.iter().zip(case.members(&content)) {
            fs::write(path, member).expect("there is room");
        }
        let alone = fastest(&paths, || dd(&paths[..1]));
        let together = fastest(&paths, || dd(&paths));
        let array = fastest(&paths, || {
            let disks = paths[case.missing..].iter().map(|path| {
                let device = FileDevice::open(path, Access::Read).expect("readable");
                Arc::new(device) as Arc<dyn BlockDevice>
            });
            speed(&*assemble(disks), bytes)
        });
        let share = case.data_disks as f64 / MEMBERS as f64;
        is_reached &= report(case, array, together * share);
        println!(
            "    dd of a member times {}: {:.0} MB/s",
            case.data_disks,
            alone * case.data_disks as f64 / 1e6
        );
    }
    is_reached
}

/// Returns content that no layer of the machine compresses.
fn noise(bytes: usize) -> Vec<u8> {
    let mut rng = ubtrfs_sim::Rng::new(1);
    let mut content = Vec::with_capacity(bytes);
    while content.len() < bytes {
        content.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    content
}

/// Returns the highest speed of some rounds. The pages of the files are dropped before each.
fn fastest(paths: &[PathBuf], mut measure: impl FnMut() -> f64) -> f64 {
    let rounds = (0..ROUNDS).map(|_| {
        paths.iter().for_each(|path| drop_pages(path));
        measure()
    });
    rounds.fold(0.0, f64::max)
}

fn drop_pages(path: &Path) {
    let file = File::open(path).expect("readable");
    file.sync_all().expect("durable");
    fadvise(&file, 0, None, Advice::DontNeed).expect("supported for files");
}

/// Returns the speed of `dd` of files at the same time, in bytes per second.
fn dd(paths: &[PathBuf]) -> f64 {
    let start = Instant::now();
    let children: Vec<Child> = paths
        .iter()
        .map(|path| {
            let mut command = Command::new("dd");
            command.arg(format!("if={}", path.display()));
            command.args(["of=/dev/null".to_owned(), format!("bs={REQUEST_BYTES}")]);
            command.stderr(Stdio::null()).spawn().expect("dd")
        })
        .collect();
    for mut child in children {
        assert!(child.wait().expect("dd").success(), "dd failed");
    }
    let bytes: u64 = paths
        .iter()
        .map(|path| path.metadata().expect("it exists").len())
        .sum();
    bytes as f64 / start.elapsed().as_secs_f64()
}
