//! The chunk map from `btrfs inspect-internal dump-tree`, which gives physical locations independently of our own
//! reader.

use std::path::{Path, PathBuf};

use crate::program::run;
use crate::{Error, Result};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    pub logical: u64,
    pub len_bytes: u64,
    /// The printed flags, such as `METADATA|DUP`.
    pub flags: String,
    pub sub_stripes: u16,
    pub stripes: Vec<Stripe>,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Stripe {
    pub devid: u64,
    pub physical: u64,
}

impl Chunk {
    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.split('|').any(|word| word == flag)
    }

    /// Returns the number of the chunk's bytes on each of its stripes.
    pub fn stripe_bytes(&self) -> u64 {
        let stripes = self.stripes.len() as u64;
        let data_stripes = if self.has_flag("RAID0") {
            stripes
        } else if self.has_flag("RAID10") {
            stripes / u64::from(self.sub_stripes.max(1))
        } else if self.has_flag("RAID5") {
            stripes.saturating_sub(1)
        } else if self.has_flag("RAID6") {
            stripes.saturating_sub(2)
        } else {
            1
        };
        self.len_bytes / data_stripes.max(1)
    }
}

/// Lists the chunks of the volume on `devices` by logical address.
pub fn chunks(devices: &[PathBuf]) -> Result<Vec<Chunk>> {
    let args = ["inspect-internal", "dump-tree", "-t", "chunk"].map(AsRef::as_ref);
    let paths = devices.iter().map(|device| Path::as_os_str(device));
    let dump = run("btrfs", args.into_iter().chain(paths))?;
    let chunks = parse(&dump);
    if chunks.is_empty() {
        return Err(Error::Unexpected {
            command: "btrfs inspect-internal dump-tree -t chunk".to_owned(),
            wanted: "CHUNK_ITEM",
        });
    }
    Ok(chunks)
}

fn parse(dump: &str) -> Vec<Chunk> {
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut in_chunk = false;
    for line in dump.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first() == Some(&"item") {
            // item 5 key (FIRST_CHUNK_TREE CHUNK_ITEM 22020096) itemoff 15789 itemsize 112
            in_chunk = words.get(4) == Some(&"CHUNK_ITEM");
            if in_chunk {
                let logical = words.get(5).map(|word| word.trim_end_matches(')'));
                chunks.push(Chunk {
                    logical: logical.and_then(|word| word.parse().ok()).unwrap_or(0),
                    len_bytes: 0,
                    flags: String::new(),
                    sub_stripes: 1,
                    stripes: Vec::new(),
                });
            }
            continue;
        }
        let Some(chunk) = chunks.last_mut().filter(|_| in_chunk) else {
            continue;
        };
        let after = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            words.get(at + 1).copied()
        };
        let number = |name: &str| after(name).and_then(|word| word.parse::<u64>().ok());
        if words.first() == Some(&"length") {
            chunk.len_bytes = number("length").unwrap_or(0);
            chunk.flags = after("type").unwrap_or_default().to_owned();
        } else if words.first() == Some(&"stripe") {
            if let (Some(devid), Some(physical)) = (number("devid"), number("offset")) {
                chunk.stripes.push(Stripe { devid, physical });
            }
        } else if let Some(sub_stripes) = number("sub_stripes") {
            chunk.sub_stripes = sub_stripes as u16;
        }
    }
    chunks
}
