//! Calls per second by kind, from one thread and from two in separate directories.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ubtrfs_fs::OpenOptions;

use crate::kernel::{Kernel, make_image};
use crate::library::Library;
use crate::report::{line, median};
use crate::side::{Name, Side};
use crate::{Outcome, Settings, thread_time};

const IMAGE_BYTES: u64 = 20 << 30;
const FILES: u64 = 40_000;
/// Fits in the write buffer, so that no call waits for the device; therefore repeated.
const APPENDS: u64 = 8_000;
const LOGS: u64 = 8;
const KINDS: [&str; 6] = [
    "create",
    "stat name",
    "stat",
    "rename",
    "unlink",
    "append 4k",
];

/// Calls per second of one kind, by wall clock and by processor time of the calling threads. Other programs
/// disturb the second less. Work of other threads for the calls is only in the first.
#[derive(Clone, Copy, Debug)]
struct Rates {
    clock: f64,
    computing: f64,
}

impl Rates {
    /// Combines the rates of parts with equal numbers of calls.
    fn of_equal_parts(parts: &[Rates]) -> Rates {
        let whole = |rate: fn(&Rates) -> f64| {
            let times = parts.iter().map(|part| 1.0 / rate(part));
            parts.len() as f64 / times.sum::<f64>()
        };
        Rates {
            clock: whole(|rates| rates.clock),
            computing: whole(|rates| rates.computing),
        }
    }
}

pub(crate) fn run(settings: &Settings) -> Outcome {
    let images = [settings.image("ops.kernel"), settings.image("ops.ours")];
    for image in &images {
        make_image(image, IMAGE_BYTES)?;
    }
    let kernel = Kernel::mount(&images[0])?;
    let ours = Library::open(&images[1], &OpenOptions::new())?;
    for threads in [1, 2] {
        let mut rates: BTreeMap<(bool, usize), Vec<Rates>> = BTreeMap::new();
        for round in 0..settings.rounds {
            let mut keep = |is_ours: bool, measured: [Rates; 6]| {
                for (kind, rate) in measured.into_iter().enumerate() {
                    rates.entry((is_ours, kind)).or_default().push(rate);
                }
            };
            keep(false, measure(&kernel, settings, threads, round)?);
            kernel.sync()?;
            keep(true, measure(&ours, settings, threads, round)?);
            ours.sync()?;
        }
        for (kind, name) in KINDS.iter().enumerate() {
            let side = |is_ours| &rates[&(is_ours, kind)];
            for (by, rate) in [
                ("clock", (|r| r.clock) as fn(&Rates) -> f64),
                ("cpu", |r| r.computing),
            ] {
                let middle = |is_ours| median(side(is_ours).iter().map(rate).collect());
                let (kernel, ours) = (middle(false), middle(true));
                let what = format!("{name}, {threads} thread(s), {by}");
                line(&what, "calls/ms", kernel / 1e3, ours / 1e3, ours / kernel);
            }
        }
    }
    println!(
        "load {}, {} rounds, {:?}",
        crate::load(),
        settings.rounds,
        ours.stats()
    );
    Ok(())
}

fn measure<S: Side>(
    side: &S,
    settings: &Settings,
    threads: usize,
    round: usize,
) -> Outcome<[Rates; 6]> {
    let (files, appends) = (settings.scaled(FILES), settings.scaled(APPENDS));
    let mut name = Name::new();
    let mut dirs = Vec::new();
    for thread in 0..threads as u64 {
        let number = (round * 100 + threads * 10) as u64 + thread;
        dirs.push(side.mkdir(name.set("ops", number))?);
    }
    let each = |prefix: &'static str, count: u64, act: Act<'_, S>| -> Outcome<Rates> {
        let begin = Instant::now();
        let mut computed = Duration::ZERO;
        std::thread::scope(|scope| -> Outcome {
            let run = |dir| {
                move || -> Outcome<Duration> {
                    act(side, dir, &mut NameRange { prefix, count })?;
                    Ok(thread_time())
                }
            };
            let handles: Vec<_> = dirs.iter().map(|dir| scope.spawn(run(dir))).collect();
            for handle in handles {
                computed += handle.join().map_err(|_| "a thread panicked")??;
            }
            Ok(())
        })?;
        let calls = (count * threads as u64) as f64;
        Ok(Rates {
            clock: calls / begin.elapsed().as_secs_f64(),
            computing: calls / computed.as_secs_f64(),
        })
    };
    let create = each("file", files, &|side, dir, names| {
        names.each(|name| side.create(dir, name))
    })?;
    let stat_name = each("file", files, &|side, dir, names| {
        names.each(|name| side.stat_name(dir, name))
    })?;
    let stat = each("file", files, &|side, dir, names| {
        let file = side.open(dir, Name::new().set(names.prefix, 7))?;
        (0..names.count).try_for_each(|_| side.stat(&file))
    })?;
    let rename = each("file", files, &|side, dir, names| {
        let mut to = Name::new();
        let mut number = 0;
        names.each(|name| {
            number += 1;
            side.rename(dir, name, to.set("moved", number - 1))
        })
    })?;
    let unlink = each("moved", files, &|side, dir, names| {
        names.each(|name| side.unlink(dir, name))
    })?;
    let mut logs = Vec::new();
    for log in 0..LOGS {
        logs.push(each("log", appends, &|side, dir, names| {
            let mut name = Name::new();
            name.set(names.prefix, log);
            side.create(dir, &name)?;
            let file = side.open_to_append(dir, &name)?;
            let bytes = [0x5a; 4096];
            names.each(|_| side.append(&file, &bytes))
        })?);
        side.sync()?;
    }
    let append = Rates::of_equal_parts(&logs);
    Ok([create, stat_name, stat, rename, unlink, append])
}

type Act<'a, S> = &'a (dyn Fn(&S, &<S as Side>::Dir, &mut NameRange) -> Outcome + Sync);

struct NameRange {
    prefix: &'static str,
    count: u64,
}

impl NameRange {
    fn each(&self, mut act: impl FnMut(&Name) -> Outcome) -> Outcome {
        let mut name = Name::new();
        for number in 0..self.count {
            act(name.set(self.prefix, number))?;
        }
        Ok(())
    }
}
