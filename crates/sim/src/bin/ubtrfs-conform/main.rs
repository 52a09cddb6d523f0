//! Tests of a mounted tree for `scripts/conform`: printing it, comparing it, concurrent load, and comparison with the
//! model.
//!
//! ```text
//! ubtrfs-conform show DIR
//! ubtrfs-conform compare [--copy | --filled | --live] LEFT RIGHT      each a folder, or a file that `show` wrote
//! ubtrfs-conform crowd DIR SEED SECONDS PROCESSES
//! ubtrfs-conform full DIR STATE SEED SECONDS PROCESSES               STATE: a folder elsewhere
//! ubtrfs-conform full-verify DIR STATE                               DIR has the files of `full`
//! ubtrfs-conform full-again DIR BYTES                                DIR is emptied; as much was available in the beginning
//! ubtrfs-conform available DIR
//! ubtrfs-conform pages DIR SECONDS FILES
//! ubtrfs-conform model UBTRFS IMAGE DIR OPTIONS SEED OPERATIONS
//! ```

mod compare;
mod crowd;
mod full;
mod mounted;
mod pages;

use std::path::Path;
use std::process::ExitCode;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ubtrfs-conform {}: {error}", words.join(" "));
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Outcome {
    match *words {
        ["show", dir] => compare::show(Path::new(dir)),
        ["compare", "--copy", left, right] => compare::compare_copies(left, right),
        ["compare", "--filled", left, right] => compare::compare_filled(left, right),
        ["compare", "--live", left, right] => compare::compare_with_live(left, right),
        ["compare", left, right] => compare::compare(left, right),
        ["crowd", dir, seed, seconds, processes] => crowd::run(
            Path::new(dir),
            seed.parse()?,
            seconds.parse()?,
            processes.parse()?,
        ),
        ["crowd-member", dir, seed, seconds, number] => crowd::member(
            Path::new(dir),
            seed.parse()?,
            seconds.parse()?,
            number.parse()?,
        ),
        ["full", dir, state, seed, seconds, processes] => full::run(
            Path::new(dir),
            Path::new(state),
            (seed.parse()?, seconds.parse()?, processes.parse()?),
        ),
        ["full-member", dir, state, seed, seconds, number] => full::member(
            Path::new(dir),
            Path::new(state),
            seed.parse()?,
            seconds.parse()?,
            number.parse()?,
        ),
        ["full-store", file, offset, len, tag] => {
            full::store_child(Path::new(file), offset.parse()?, len.parse()?, tag.parse()?)
        }
        ["full-verify", dir, state] => full::verify(Path::new(dir), Path::new(state)),
        ["full-again", dir, before] => full::again(Path::new(dir), before.parse()?),
        ["pages", dir, seconds, files] => {
            pages::run(Path::new(dir), seconds.parse()?, files.parse()?)
        }
        ["available", dir] => full::available(Path::new(dir)),
        ["model", ubtrfs, image, dir, options, seed, operations] => mounted::run(
            &mounted::Ours::new(ubtrfs, image, dir, options),
            seed.parse()?,
            operations.parse()?,
        ),
        _ => Err("no such thing to do; see the head of its source".into()),
    }
}
