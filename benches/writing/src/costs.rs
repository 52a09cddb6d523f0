//! The cost of one call for its thread, in nanoseconds of processor time, on new and on committed files.

use std::collections::BTreeMap;

use ubtrfs_fs::OpenOptions;
use ubtrfs_sim::Rng;

use crate::kernel::{Kernel, make_image};
use crate::library::Library;
use crate::report::median;
use crate::side::{Name, Side};
use crate::{Outcome, Settings, thread_time};

const IMAGE_BYTES: u64 = 20 << 30;
const FILES: u64 = 40_000;
const FILE_BYTES: u64 = 16 << 20;
const BLOCK: [u8; 4096] = [0x5a; 4096];

/// Nanoseconds per call, by kind of call.
type Costs = Vec<(&'static str, f64)>;

pub(crate) fn run(settings: &Settings) -> Outcome {
    let images = [settings.image("costs.kernel"), settings.image("costs.ours")];
    for image in &images {
        make_image(image, IMAGE_BYTES)?;
    }
    let kernel = Kernel::mount(&images[0])?;
    let ours = Library::open(&images[1], &OpenOptions::new())?;
    let mut costs: BTreeMap<&'static str, [Vec<f64>; 2]> = BTreeMap::new();
    let mut order = Vec::new();
    for round in 0..settings.rounds as u64 {
        let sides = [
            measure(&kernel, settings, round)?,
            measure(&ours, settings, round)?,
        ];
        order = sides[0].iter().map(|(what, _)| *what).collect();
        for (side, measured) in sides.into_iter().enumerate() {
            for (what, cost) in measured {
                costs.entry(what).or_default()[side].push(cost);
            }
        }
    }
    for what in order {
        let [kernel, ours] = costs[what].clone().map(median);
        println!(
            "{what:<34} kernel {kernel:>8.0} ours {ours:>8.0} ns, ratio {:>6.2}",
            kernel / ours
        );
    }
    println!("load {}, {} rounds", crate::load(), settings.rounds);
    Ok(())
}

fn measure<S: Side>(side: &S, settings: &Settings, round: u64) -> Outcome<Costs> {
    let files = settings.scaled(FILES);
    let mut costs = Costs::new();
    let mut name = Name::new();
    let dir = side.mkdir(name.set("costs", round))?;
    cost(&mut costs, "create", files, |number| {
        side.create(&dir, name.set("file", number))
    })?;
    looking(side, &dir, files, &mut costs, &FRESH)?;
    side.sync()?;
    looking(side, &dir, files, &mut costs, &COMMITTED)?;
    let mut to = Name::new();
    cost(&mut costs, "rename", files, |number| {
        side.rename(&dir, name.set("file", number), to.set("moved", number))
    })?;
    cost(&mut costs, "unlink", files, |number| {
        side.unlink(&dir, name.set("moved", number))
    })?;
    data(side, &dir, settings, &mut costs)?;
    side.sync()?;
    Ok(costs)
}

const FRESH: [&str; 4] = ["lookup", "lookup + getattr", "getattr", "readdir, an entry"];
const COMMITTED: [&str; 4] = [
    "lookup, committed",
    "lookup + getattr, committed",
    "getattr, committed",
    "readdir, an entry, committed",
];

/// Looks up files in an order different from their creation, like an unrelated program.
fn looking<S: Side>(
    side: &S,
    dir: &S::Dir,
    files: u64,
    costs: &mut Costs,
    names: &[&'static str; 4],
) -> Outcome {
    let mut name = Name::new();
    let mut rng = Rng::new(files);
    cost(costs, names[0], files, |_| {
        side.find(dir, name.set("file", rng.below(files)))
    })?;
    cost(costs, names[1], files, |_| {
        side.stat_name(dir, name.set("file", rng.below(files)))
    })?;
    let few: Vec<S::File> = (0..files.min(512))
        .map(|number| side.open(dir, name.set("file", number * (files / 512).max(1))))
        .collect::<Outcome<_>>()?;
    cost(costs, names[2], files, |number| {
        side.stat(&few[(number as usize * 7) % few.len()])
    })?;
    let begin = thread_time();
    let mut listed = 0;
    side.list(dir, &mut |_| listed += 1)?;
    let spent = thread_time() - begin;
    assert_eq!(listed, files);
    costs.push((names[3], spent.as_nanos() as f64 / files as f64));
    Ok(())
}

fn data<S: Side>(side: &S, dir: &S::Dir, settings: &Settings, costs: &mut Costs) -> Outcome {
    let blocks = settings.scaled(FILE_BYTES) / BLOCK.len() as u64;
    let mut name = Name::new();
    side.create(dir, name.set("data", 0))?;
    let log = side.open_to_append(dir, &name)?;
    let file = side.open(dir, &name)?;
    let at = |number: u64| number % blocks * BLOCK.len() as u64;
    let mut buf = BLOCK;
    cost(costs, "append 4 KiB", blocks, |_| side.append(&log, &BLOCK))?;
    cost(costs, "overwrite 4 KiB, buffered", blocks, |number| {
        side.write(&file, at(number * 7), &BLOCK)
    })?;
    cost(costs, "read 4 KiB, buffered", blocks, |number| {
        side.read(&file, at(number * 7), &mut buf)
    })?;
    side.sync()?;
    cost(costs, "read 4 KiB, written", blocks, |number| {
        side.read(&file, at(number * 7), &mut buf)
    })
}

/// Measures the average cost of `count` calls.
fn cost(
    costs: &mut Costs,
    what: &'static str,
    count: u64,
    mut call: impl FnMut(u64) -> Outcome,
) -> Outcome {
    let begin = thread_time();
    for number in 0..count {
        call(number)?;
    }
    let spent = thread_time() - begin;
    costs.push((what, spent.as_nanos() as f64 / count as f64));
    Ok(())
}
