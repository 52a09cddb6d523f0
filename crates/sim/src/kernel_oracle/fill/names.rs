//! Names: every byte, full length, and names whose hashes collide.
//!
//! The hash of a name is a crc32c, which is linear. Two names of one length collide if their xor is in the kernel of
//! the linear map, regardless of the seed and of a prefix. `colliding_names` finds solutions in the low four bits of
//! letters, so that the names stay printable. They collide as directory entries, xattrs and extended references.

#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::write;
use crate::Result;
use crate::error::At;

const CASTAGNOLI_REFLECTED: u32 = 0x82f6_3b78;

/// Number of letters with free low bits at the end of each name: 48 free bits for the 32 bits of the hash.
const FREE_LETTERS: usize = 12;
const FREE_BITS: usize = FREE_LETTERS * 4;

/// Computes the hash of a directory entry or xattr: crc32c with seed ~1 and no final xor.
pub fn name_hash(name: &[u8]) -> u32 {
    crc32c(!1, name)
}

fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (CASTAGNOLI_REFLECTED & (crc & 1).wrapping_neg())
        })
    })
}

/// Returns `count` different names with one hash, at most 65,535. Each consists of `prefix` and twelve lower-case
/// letters.
pub fn colliding_names(prefix: &[u8], count: usize) -> Vec<Vec<u8>> {
    let basis = null_space();
    (1..=count)
        .map(|choice| {
            let difference = basis
                .iter()
                .enumerate()
                .filter(|(bit, _)| choice >> bit & 1 == 1)
                .fold(0, |sum, (_, vector)| sum ^ vector);
            let mut name = prefix.to_vec();
            name.extend((0..FREE_LETTERS).map(|at| b'`' | (difference >> (4 * at) & 15) as u8));
            name
        })
        .collect()
}

/// Lists the choices of free bits that do not change the hash.
fn null_space() -> Vec<u64> {
    // Rows (hash change, flipped bits), reduced to echelon form; a row with a hash change of 0 is a solution.
    let mut pivots: Vec<(u32, u64)> = Vec::new();
    let mut solutions = Vec::new();
    for bit in 0..FREE_BITS {
        let mut name = [0; FREE_LETTERS];
        name[bit / 4] = 1 << (bit % 4);
        let (mut change, mut flipped) = (crc32c(0, &name), 1_u64 << bit);
        for (pivot, row) in &pivots {
            if change ^ pivot < change {
                change ^= pivot;
                flipped ^= row;
            }
        }
        if change == 0 {
            solutions.push(flipped);
        } else {
            pivots.push((change, flipped));
            pivots.sort_by_key(|(pivot, _)| std::cmp::Reverse(*pivot));
        }
    }
    solutions
}

pub(super) fn fill(dir: &Path) -> Result<()> {
    for byte in (1..=255).filter(|byte| !b"./".contains(byte)) {
        write(&dir.join(OsStr::from_bytes(&[byte])), [byte])?;
    }
    let crabs = "\u{1f980}".repeat(63);
    let odd: [&[u8]; 14] = [
        &[b'n'; 255],
        crabs.as_bytes(),
        &[0xff; 255],
        b"\xc3\x28 broken \xe2\x28\xa1 utf-8",
        b"...",
        b". ",
        b" leading and trailing ",
        b"new\nline\ttab\rreturn",
        b"-rf",
        b"back\\slash \\x41",
        b"*?[a-z]{b,c}$HOME`id`",
        b"\"quoted\" 'quoted'",
        b"colon:and:colon",
        "e\u{301} and \u{e9}".as_bytes(),
    ];
    for name in odd {
        write(&dir.join(OsStr::from_bytes(name)), name)?;
    }

    // One DIR_ITEM with many names; then names are removed from its middle and appended again.
    let colliding = dir.join("colliding");
    fs::create_dir(&colliding).at("create", &colliding)?;
    let names = colliding_names(b"c-", 14);
    let mut paths = Vec::new();
    for name in &names {
        let path = colliding.join(OsStr::from_bytes(name));
        write(&path, name)?;
        paths.push(path);
    }
    for path in paths.iter().step_by(3) {
        fs::remove_file(path).at("remove", path)?;
    }
    for path in paths.iter().step_by(6) {
        fs::create_dir(path).at("create", path)?;
    }
    Ok(())
}
