//! Durable creates per second, including the sync at the end.

use std::time::Instant;

use ubtrfs_fs::OpenOptions;

use crate::kernel::{Kernel, make_image};
use crate::library::Library;
use crate::report::{line, median};
use crate::side::{Name, Side};
use crate::{Outcome, Settings};

const IMAGE_BYTES: u64 = 20 << 30;
const FILES: u64 = 100_000;

pub(crate) fn run(settings: &Settings) -> Outcome {
    let images = [
        settings.image("durable.kernel"),
        settings.image("durable.ours"),
    ];
    for image in &images {
        make_image(image, IMAGE_BYTES)?;
    }
    let kernel = Kernel::mount(&images[0])?;
    let ours = Library::open(&images[1], &OpenOptions::new())?;
    let (mut theirs, mut own) = (Vec::new(), Vec::new());
    for round in 0..settings.rounds as u64 {
        theirs.push(rate(&kernel, settings.scaled(FILES), round)?);
        own.push(rate(&ours, settings.scaled(FILES), round)?);
    }
    let (theirs, own) = (median(theirs), median(own));
    line(
        "create and sync",
        "calls/ms",
        theirs / 1e3,
        own / 1e3,
        own / theirs,
    );
    Ok(())
}

fn rate<S: Side>(side: &S, files: u64, round: u64) -> Outcome<f64> {
    let mut name = Name::new();
    let begin = Instant::now();
    let dir = side.mkdir(name.set("dir", round))?;
    for number in 0..files {
        side.create(&dir, name.set("file", number))?;
    }
    side.sync()?;
    Ok(files as f64 / begin.elapsed().as_secs_f64())
}
