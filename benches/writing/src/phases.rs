//! The phases of a commit of many creates, with their durations.

use std::time::Instant;

use ubtrfs_fs::OpenOptions;

use crate::kernel::make_image;
use crate::library::Library;
use crate::side::{Name, Side};
use crate::{Outcome, Settings};

const IMAGE_BYTES: u64 = 20 << 30;
const FILES: u64 = 100_000;

pub(crate) fn run(settings: &Settings) -> Outcome {
    let image = settings.image("phases.ours");
    make_image(&image, IMAGE_BYTES)?;
    let options = OpenOptions::new()
        .commit_interval(None)
        .delta_bytes(1 << 30);
    let ours = Library::open(&image, &options)?;
    let mut name = Name::new();
    for round in 0..settings.rounds as u64 {
        let dir = ours.mkdir(name.set("dir", round))?;
        for number in 0..settings.scaled(FILES) {
            ours.create(&dir, name.set("file", number))?;
        }
        let before = ours.stats().phases;
        let begin = Instant::now();
        ours.sync()?;
        let whole = begin.elapsed();
        let spent = ours.stats().phases.since(&before);
        println!(
            "commit of {} creates: {whole:.1?}, {spent:.1?}",
            settings.scaled(FILES)
        );
    }
    println!("load {}", crate::load());
    Ok(())
}
