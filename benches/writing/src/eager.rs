//! Node writes with a commit per 4 KiB of changes, compared with a single commit.

use ubtrfs_fs::OpenOptions;

use crate::kernel::make_image;
use crate::library::Library;
use crate::side::{Name, Side};
use crate::{Outcome, Settings};

const IMAGE_BYTES: u64 = 20 << 30;
const FILES: u64 = 20_000;
const EAGER_BYTES: u64 = 4 << 10;

pub(crate) fn run(settings: &Settings) -> Outcome {
    let lazy = OpenOptions::new();
    let eager = lazy.clone().delta_bytes(EAGER_BYTES).commit_interval(None);
    let files = settings.scaled(FILES);
    let eager = node_bytes(settings, files, &eager)?;
    let lazy = node_bytes(settings, files, &lazy)?;
    let saved = 100.0 * (1.0 - lazy as f64 / eager as f64);
    let each = |bytes: u64| bytes / files;
    println!(
        "node bytes per file: eager {}, buffered {}: {saved:.1} % fewer",
        each(eager),
        each(lazy)
    );
    Ok(())
}

fn node_bytes(settings: &Settings, files: u64, options: &OpenOptions) -> Outcome<u64> {
    let image = settings.image("eager.ours");
    make_image(&image, IMAGE_BYTES)?;
    let ours = Library::open(&image, options)?;
    let mut name = Name::new();
    let dir = ours.mkdir(name.set("dir", 0))?;
    for number in 0..files {
        ours.create(&dir, name.set("file", number))?;
    }
    ours.sync()?;
    Ok(ours.stats().node_bytes)
}
